package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// Limits on stored jobs.
const (
	mostOpen  = 100
	mostKept  = 1000
	kept      = 7 * 24 * time.Hour // after its end
	life      = 7 * 24 * time.Hour // after its start
	pageSize  = 50
	mostDelta = message.MaxDelayYears * 366 * 24 * time.Hour
	openField = "open" // the field of the ids of jobs that have not ended
	stopField = " stop"
)

// Errors of jobs.
var (
	// ErrSpec is returned for an invalid Spec; the error says why.
	ErrSpec = errors.New("invalid job")
	// ErrManyOpen is returned if too many jobs have not ended yet.
	ErrManyOpen = fmt.Errorf("%d jobs have not ended yet", mostOpen)
	// ErrNone is returned if the job does not exist, or no longer exists.
	ErrNone = errors.New("no such job")
)

// Verb is what a job does with each message.
type Verb string

// The verbs of jobs.
const (
	Cancel     Verb = "cancel"
	Reschedule Verb = "reschedule"
	Redrive    Verb = "redrive"
	Purge      Verb = "purge"
)

// Spec says what a job is to do.
type Spec struct {
	Verb Verb `json:"verb"`
	// Filter selects the messages; it must not be empty. The job changes those that
	// were there when it was started. Redrive and purge apply to dead letters only.
	Filter inspect.Filter `json:"filter"`
	// At or By is for a reschedule: the new due time, or the shift of each message's
	// own, at most 10 years.
	At time.Time     `json:"at"`
	By time.Duration `json:"by,omitempty"`
	// Rate limits the messages per second; 0 means no limit.
	Rate int `json:"rate,omitempty"`
	// DryRun only counts.
	DryRun bool `json:"dry_run,omitempty"`
}

// State is the state of a job.
type State string

// The states of a job.
const (
	Waiting State = "waiting" // for a bridge
	Running State = "running"
	Done    State = "done"
	Stopped State = "stopped"
	Failed  State = "failed"
)

// Tally counts the results of a job. Matched is the sum of the others and of the
// messages in the current step, except in a dry run.
type Tally struct {
	Matched int64 `json:"matched"`
	// Done counts the messages that were changed, MaybePublished those of which a copy may have been
	// published before.
	Done           int64 `json:"done"`
	MaybePublished int64 `json:"maybe_published"`
	// TooLate were in flight whenever the job came to them.
	TooLate int64 `json:"too_late"`
	// Gone were published, or changed by others, after they were matched.
	Gone int64 `json:"gone"`
	// Failed cannot be read, and so cannot be put back.
	Failed int64 `json:"failed"`
	// Unknown: the result was lost because the bridge died, or Redis was unavailable, for a minute.
	Unknown int64 `json:"unknown"`
}

// Job is a job as it is now.
type Job struct {
	ID    string `json:"id"`
	Spec  Spec   `json:"spec"`
	State State  `json:"state"`
	Tally Tally  `json:"tally"`
	// Remaining is how many of the matched still match at the end of the job, because they
	// are in flight or cannot be read. It is nil if that is not known: the job has not
	// ended, is a dry run, or has not read all messages.
	Remaining *int64 `json:"remaining,omitempty"`
	// Place is where the last matched message was, and when it was due.
	Place Place `json:"place"`
	// StartedAt and EndedAt are by Redis' clock.
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	// Instance is the bridge that runs it, or last ran it.
	Instance string `json:"instance,omitempty"`
	// Err is why it has failed.
	Err string `json:"err,omitempty"`
}

// Place is the progress of a job.
type Place struct {
	State inspect.State `json:"state,omitempty"`
	DueAt time.Time     `json:"due_at"`
	ID    string        `json:"id,omitempty"`
}

// exactReason stands for [inspect.StateDead] in the record of a job whose filter has a Reason.
// Bridges of earlier versions match a reason as a part, and would change more messages than
// asked; they do not know this state, and leave the job to others.
const exactReason = "dead, reason to the letter"

// filterRecord is a filter in the record of a job. Its fields keep their old names, and
// Reason is a part of a reason unless the state is exactReason.
type filterRecord struct {
	State                     inspect.State
	Topic, Key, IDPrefix, Tag string
	Reason                    string
	From, To                  time.Time
}

// plainSpec is a Spec without its methods.
type plainSpec Spec

type specRecord struct {
	*plainSpec

	Filter filterRecord `json:"filter"`
}

// MarshalJSON implements [json.Marshaler] for the records of jobs.
func (s Spec) MarshalJSON() ([]byte, error) {
	f := s.Filter
	r := specRecord{(*plainSpec)(&s), filterRecord{f.State, f.Topic, f.Key, f.IDPrefix, f.Tag, f.ReasonContains, f.From, f.To}}
	if f.Reason != "" { // Reason contains ReasonContains, see check.
		r.Filter.State, r.Filter.Reason = exactReason, f.Reason
	}
	return json.Marshal(r)
}

// UnmarshalJSON implements [json.Unmarshaler] for the records of jobs.
func (s *Spec) UnmarshalJSON(text []byte) error {
	r := specRecord{plainSpec: (*plainSpec)(s)}
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	f := r.Filter
	s.Filter = inspect.Filter{State: f.State, Topic: f.Topic, Key: f.Key, IDPrefix: f.IDPrefix, Tag: f.Tag, ReasonContains: f.Reason, From: f.From, To: f.To}
	if f.State == exactReason {
		s.Filter.State, s.Filter.Reason, s.Filter.ReasonContains = inspect.StateDead, f.Reason, ""
	}
	return nil
}

// moves reports whether the job gives messages another due time.
func (s *Spec) moves() bool { return s.Verb == Reschedule || s.Verb == Redrive }

// movesWhatMoves reports whether both are reschedules that may mean the same messages.
func (s *Spec) movesWhatMoves(other *Spec) bool {
	a, b := &s.Filter, &other.Filter
	areBoth := s.Verb == Reschedule && other.Verb == Reschedule && !s.DryRun && !other.DryRun
	differ := func(x, y string) bool { return x != "" && y != "" && x != y }
	areApart := differ(a.Topic, b.Topic) || differ(a.Key, b.Key) ||
		!strings.HasPrefix(a.IDPrefix, b.IDPrefix) && !strings.HasPrefix(b.IDPrefix, a.IDPrefix)
	return areBoth && !areApart
}

// Ended reports whether the job is over.
func (s State) Ended() bool { return s != Waiting && s != Running }

func (s *Spec) check(now time.Time) error {
	if s.Filter == (inspect.Filter{}) {
		return errors.New("an empty filter means all messages: give at least a state")
	}
	if s.Verb == Redrive || s.Verb == Purge {
		if s.Filter.State != "" && s.Filter.State != inspect.StateDead {
			return fmt.Errorf("state %q: %s is for dead letters", s.Filter.State, s.Verb)
		}
		s.Filter.State = inspect.StateDead
	}
	moves := !s.At.IsZero() || s.By != 0
	switch list := (&inspect.ListRequest{Filter: s.Filter, Limit: 1}); {
	case !slices.Contains([]Verb{Cancel, Reschedule, Redrive, Purge}, s.Verb):
		return fmt.Errorf("verb %q: must be cancel, reschedule, redrive or purge", s.Verb)
	case s.Rate < 0:
		return fmt.Errorf("rate %d: must be 0 or more", s.Rate)
	case moves != (s.Verb == Reschedule) || !s.At.IsZero() && s.By != 0:
		return errors.New("a reschedule, and nothing else, has either at or by")
	case s.By.Abs() > mostDelta || s.By%time.Millisecond != 0:
		return fmt.Errorf("by %v: must be whole milliseconds, at most %d years", s.By, message.MaxDelayYears)
	case !s.At.IsZero() && (s.At.Before(time.UnixMilli(0)) || s.At.After(now.Add(mostDelta))):
		return fmt.Errorf("at %s: from 1970 to %d years from now", s.At.Format(time.RFC3339), message.MaxDelayYears)
	default:
		return list.Check()
	}
}
