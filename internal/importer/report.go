package importer

import (
	"time"
)

const (
	// mostNames bounds how many kinds and days a report tells apart; further ones are together under [Others].
	mostNames = 200
	// mostExamples is how many ids a report names for a reason.
	mostExamples = 5
	// Others is the name of all kinds or days that have none of their own.
	Others = "(others)"
)

// Count is what the other system has.
type Count struct {
	// Waiting is how many wait there; Held how many an import has taken from them and not ended.
	Waiting, Held int64
}

// Report is what came of an import.
type Report struct {
	// Before and After are what the other system had at the begin and at the end.
	Before, After Count
	// Moved counts the messages that were made, and whose items were removed; after a dry run those that would be.
	// Found are those of them that were found in the queue, or are due already.
	Moved, Found int64
	// Missing are ids of messages that were not found, though they are not due; at most a few.
	Missing []string
	// Cancelled counts items that the other system has cancelled while they were held, Late those of them whose
	// message may have been published before that.
	Cancelled, Late int64
	LateIDs         []string
	// Left is what stays there, by reason.
	Left map[Reason]*Left
	// ByKind and ByDay count what was moved, or would be.
	ByKind, ByDay map[string]int64
	// IsLimited is set if the limit ended the run, so that more may be movable.
	IsLimited bool
	// Notes are what the other system has besides, and keeps.
	Notes []string
}

// Left is what stays for one reason.
type Left struct {
	Count int64
	// Examples are a few ids, and what is wrong with them where the reason alone does not tell.
	Examples []Example
}

// Example is an item that stays.
type Example struct {
	ID     string `json:"id"`
	Detail string `json:"detail,omitempty"`
}

func newReport() *Report {
	return &Report{Left: map[Reason]*Left{}, ByKind: map[string]int64{}, ByDay: map[string]int64{}}
}

// leave counts an item that stays.
func (r *Report) leave(id string, why *refusal) {
	left := r.Left[why.reason]
	if left == nil {
		left = &Left{}
		r.Left[why.reason] = left
	}
	if left.Count++; len(left.Examples) < mostExamples {
		left.Examples = append(left.Examples, Example{id, why.detail})
	}
}

// move counts an item that was moved.
func (r *Report) move(it *Item, now time.Time) {
	r.Moved++
	increase(r.ByKind, it.Kind)
	day := it.Due.UTC().Format(time.DateOnly)
	if it.Due.Before(now) {
		day = "due already"
	}
	increase(r.ByDay, day)
}

func increase(counts map[string]int64, name string) {
	if _, has := counts[name]; !has && len(counts) >= mostNames {
		name = Others
	}
	counts[name]++
}

// LeftAll counts all that stays.
func (r *Report) LeftAll() (n int64) {
	for _, left := range r.Left {
		n += left.Count
	}
	return n
}

// Unaccounted is by how much the other system's count at the end differs from what the run did. It is not 0 if the
// system's producers, handlers or cancels were at work meanwhile.
func (r *Report) Unaccounted() int64 {
	return r.After.Waiting + r.After.Held - (r.Before.Waiting + r.Before.Held - r.Moved - r.Cancelled)
}

// note keeps the first few ids of a list.
func note(list []string, id string) []string {
	if len(list) < mostExamples {
		return append(list, id)
	}
	return list
}
