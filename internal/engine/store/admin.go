package store

import "github.com/delaybridge/delaybridge/internal/engine/store/layout"

// Admin is a queue as its operators see it: what it holds, what it has counted,
// and its dead letters.
type Admin struct{ *core }

// Admin is the operators' door.
func (q *Queue) Admin() *Admin { return &Admin{q.core} }

// forgetAfter is how long earlier layouts are kept after they have drained: as
// long as a repeated run of a call may ask them for what it did.
const forgetAfter = tombstone + MaxCall

// NewKeeper returns a keeper of the queue's layout; it does no I/O.
func (q *Admin) NewKeeper() *layout.Keeper { return layout.NewKeeper(q.layouts, forgetAfter) }
