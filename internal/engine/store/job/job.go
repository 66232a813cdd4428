package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// Limits of what is kept of jobs.
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
	// ErrSpec is returned for a job that cannot be meant; the error says why.
	ErrSpec = errors.New("invalid job")
	// ErrManyOpen is returned where too many jobs have not ended yet.
	ErrManyOpen = fmt.Errorf("%d jobs have not ended yet", mostOpen)
	// ErrNone is returned where there is no such job, or not any more.
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
	// Filter says with which messages; it must not be empty. Of these, with those that
	// were there when the job was started. Redrive and purge mean dead letters only.
	Filter inspect.Filter `json:"filter"`
	// At or By is for a reschedule: the new due time, or how far from its own one, at
	// most 10 years.
	At time.Time     `json:"at"`
	By time.Duration `json:"by,omitempty"`
	// Rate is how many messages a second at the most; 0: as many as can be.
	Rate int `json:"rate,omitempty"`
	// DryRun only counts.
	DryRun bool `json:"dry_run,omitempty"`
}

// State is how far a job is.
type State string

// The states of a job.
const (
	Waiting State = "waiting" // for a bridge
	Running State = "running"
	Done    State = "done"
	Stopped State = "stopped"
	Failed  State = "failed"
)

// Tally is what became of the messages of a job: Matched is the sum of the others,
// and of those that it is just about, but for a dry run.
type Tally struct {
	Matched int64 `json:"matched"`
	// Done, and MaybePublished: done, but a copy may have been published before.
	Done           int64 `json:"done"`
	MaybePublished int64 `json:"maybe_published"`
	// TooLate were in flight whenever the job was about them.
	TooLate int64 `json:"too_late"`
	// Gone were published, or changed by others, after they were matched.
	Gone int64 `json:"gone"`
	// Failed cannot be read, and so not put back.
	Failed int64 `json:"failed"`
	// Unknown: the bridge that did it died, or Redis was away, for a minute.
	Unknown int64 `json:"unknown"`
}

// Job is a job as it is now.
type Job struct {
	ID    string `json:"id"`
	Spec  Spec   `json:"spec"`
	State State  `json:"state"`
	Tally Tally  `json:"tally"`
	// Remaining is how many of the matched still match as the job ends: they are in flight,
	// or cannot be read. It is nil where that is not known: the job goes on, only counts, or
	// has not looked at all.
	Remaining *int64 `json:"remaining,omitempty"`
	// Place is where the last matched messages were, and when they were due.
	Place Place `json:"place"`
	// StartedAt and EndedAt are by Redis' clock.
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	// Instance is the bridge that runs it, or did.
	Instance string `json:"instance,omitempty"`
	// Err is why it has failed.
	Err string `json:"err,omitempty"`
}

// Place is how far a job has got.
type Place struct {
	State inspect.State `json:"state,omitempty"`
	DueAt time.Time     `json:"due_at"`
	ID    string        `json:"id,omitempty"`
}

// exactReason stands for [inspect.StateDead] in the record of a job whose filter has a Reason.
// Bridges of earlier versions took a reason for a part of one: they know no such state, and
// leave the job to others, where they would do more than was asked.
const exactReason = "dead, reason to the letter"

// filterRecord is a filter in the record of a job: its fields have the names that they have
// always had, and Reason is a part of one unless the state says otherwise.
type filterRecord struct {
	State                     inspect.State
	Topic, Key, IDPrefix, Tag string
	Reason                    string
	From, To                  time.Time
}

// plainSpec is a Spec as it is without its methods.
type plainSpec Spec

type specRecord struct {
	*plainSpec

	Filter filterRecord `json:"filter"`
}

// MarshalJSON implements [json.Marshaler] for the records of jobs.
func (s Spec) MarshalJSON() ([]byte, error) {
	f := s.Filter
	r := specRecord{(*plainSpec)(&s), filterRecord{f.State, f.Topic, f.Key, f.IDPrefix, f.Tag, f.ReasonContains, f.From, f.To}}
	if f.Reason != "" { // It has the other one in it, see check.
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

// Ended reports whether nothing more will happen.
func (s State) Ended() bool { return s != Waiting && s != Running }

func (s *Spec) check(now time.Time) error {
	if s.Filter == (inspect.Filter{}) {
		return errors.New("an empty filter means all messages: name a state at least")
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
