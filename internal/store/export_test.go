package store

import "time"

// ForgetAfter shortens how long the keeper keeps earlier layouts.
func (k *Keeper) ForgetAfter(d time.Duration) { k.after = d }

// NewEpoch is the epoch of a change that follows upon another.
func NewEpoch(before string) string {
	counter, life := parseEpoch(before)
	return newEpoch(counter+1, life)
}

// ForgetFsync has every node asked again whether it can confirm its disk, as
// one that has become primary.
func (q *Queue) ForgetFsync() { q.syncs.Clear() }
