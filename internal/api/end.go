package api

import (
	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// End is what became of a message.
type End struct {
	State   string `json:"state" enum:"published,cancelled,dropped,purged,dead"`
	At      string `json:"at,omitempty" format:"date-time"`
	Place   string `json:"place,omitempty" doc:"Where the broker has stored it, as far as it told." example:"partition 3 offset 8812"`
	Topic   string `json:"topic,omitempty"`
	Attempt int    `json:"attempt,omitempty" doc:"The number of the attempt that ended it, or that would have come next."`
	Reason  string `json:"reason,omitempty" doc:"Why it was dropped or died."`
}

// toEnd is what the history tells, to a caller who may see that topic; nil where it
// tells nothing.
func toEnd(last *message.End) *End {
	if last == nil {
		return nil
	}
	end := &End{State: last.Kind.String(), At: stamp(last.At), Topic: last.Topic, Attempt: last.Attempt}
	if last.Kind == message.EndPublished {
		end.Place = last.Detail
	} else {
		end.Reason = last.Detail
	}
	return end
}

// death is the end of a dead letter, which needs no history.
func death(found *inspect.Found) *End {
	if found.Code != store.Dead {
		return nil
	}
	return &End{State: string(inspect.StateDead), At: stamp(found.DiedAt), Topic: found.Topic, Attempt: found.Attempt, Reason: found.Reason}
}

// toEnded is a message that is not there any more.
func toEnded(ref delay.Ref, last *message.End) Message {
	end := toEnd(last)
	return Message{
		ID: ref.ID, Key: ref.Key, Topic: last.Topic, State: end.State, DueAt: stamp(last.DueAt), Attempt: last.Attempt,
		Reason: end.Reason, End: end, Tags: []string{}, Headers: map[string]string{},
	}
}
