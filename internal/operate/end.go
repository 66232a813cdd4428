package operate

import (
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// End is what became of a message.
type End struct {
	State   string `json:"state" enum:"published,cancelled,dropped,purged,dead"`
	At      string `json:"at,omitempty" format:"date-time"`
	Place   string `json:"place,omitempty" doc:"Where the broker has stored it, if the broker told." example:"partition 3 offset 8812"`
	Topic   string `json:"topic,omitempty"`
	Attempt int    `json:"attempt,omitempty" doc:"The number of the attempt that ended it, or that would have come next."`
	Reason  string `json:"reason,omitempty" doc:"Why it was dropped or died."`
}

// viewEnd is what the history tells.
func viewEnd(last *message.End) *End {
	end := &End{State: last.Kind.String(), At: Stamp(last.At), Topic: last.Topic, Attempt: last.Attempt}
	if last.Kind == message.EndPublished {
		end.Place = last.Detail
	} else {
		end.Reason = last.Detail
	}
	return end
}

// death is the end of a dead letter, which needs no history.
func death(found *inspect.Snapshot) *End {
	if found.Code != store.Dead {
		return nil
	}
	return &End{State: string(inspect.StateDead), At: Stamp(found.DiedAt), Topic: found.Topic, Attempt: found.Attempt, Reason: found.Reason}
}
