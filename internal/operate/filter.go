package operate

import (
	"encoding/json"
	"errors"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// Filter says which messages are meant, in a query or in a body.
type Filter struct {
	State          string `query:"state" json:"state,omitempty" enum:"scheduled,parked,in_flight,dead" doc:"Their state."`
	Topic          string `query:"topic" json:"topic,omitempty" doc:"Their topic."`
	Key            string `query:"key" json:"key,omitempty" doc:"Their key."`
	Tag            string `query:"tag" json:"tag,omitempty" doc:"One of their tags. A list of them is in the order of key and id, whatever their state."`
	Reason         string `query:"reason" json:"reason,omitempty" doc:"Why they are dead, to the letter."`
	ReasonContains string `query:"reason_contains" json:"reason_contains,omitempty" doc:"A part of why they are dead."`
	IDPrefix       string `query:"id_prefix" json:"id_prefix,omitempty" doc:"The prefix of their ids."`
	DueFrom        string `query:"due_from" json:"due_from,omitempty" format:"date-time" doc:"Due then or later, RFC 3339."`
	DueTo          string `query:"due_to" json:"due_to,omitempty" format:"date-time" doc:"Due before then, RFC 3339."`
}

// Parse is the filter for the store.
func (f *Filter) Parse() (inspect.Filter, error) {
	found := inspect.Filter{
		State: inspect.State(f.State), Topic: f.Topic, Key: f.Key, Tag: f.Tag, IDPrefix: f.IDPrefix, Reason: f.Reason, ReasonContains: f.ReasonContains,
	}
	var err, err2 error
	found.From, err = ParseTime("due_from", f.DueFrom)
	found.To, err2 = ParseTime("due_to", f.DueTo)
	return found, errors.Join(err, err2)
}

func viewFilter(f *inspect.Filter) Filter {
	return Filter{
		State: string(f.State), Topic: f.Topic, Key: f.Key, Tag: f.Tag, IDPrefix: f.IDPrefix, Reason: f.Reason, ReasonContains: f.ReasonContains,
		DueFrom: Stamp(f.From), DueTo: Stamp(f.To),
	}
}

// FilterText is a filter as the audit has it.
func FilterText(f *inspect.Filter) string {
	content, err := json.Marshal(viewFilter(f))
	if err != nil {
		return err.Error()
	}
	return string(content)
}
