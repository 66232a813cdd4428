package poller

import "slices"

// order keeps the messages of one Key in due order across the batches of a
// shard (invariant I15). It knows, for each Key, the last batch that holds it:
// a later batch with the same Key waits for that one. Only the shard's loop
// uses it; batches without Keys never touch it.
//
// A batch is forgotten only before the next claim is asked for, never while
// one is unanswered. So a batch that was claimed before an earlier one was
// settled always finds the earlier one here, and learns what it left unpublished.
type order struct {
	holders map[string]*batch
}

// register notes the batch's Keys and returns the batches to wait for.
func (o *order) register(b *batch) (after []*batch) {
	for i := range b.claim.Messages {
		key := b.claim.Messages[i].Key
		if key == "" {
			continue
		}
		earlier := o.holders[key]
		if earlier == b {
			continue
		}
		if earlier != nil && !slices.Contains(after, earlier) {
			after = append(after, earlier)
		}
		if o.holders == nil {
			o.holders = make(map[string]*batch)
		}
		o.holders[key] = b
		b.keyed = true
	}
	return after
}

// forget drops a finished batch. It reports whether a later batch holds a Key
// of which the finished one left messages unpublished: those, released in
// their turn, must all be back in Redis before anything is claimed again, or
// the parts of the Key could hold each other up for ever.
func (o *order) forget(b *batch) (overtaken bool) {
	if !b.keyed {
		return false
	}
	for i := range b.claim.Messages {
		key := b.claim.Messages[i].Key
		if o.holders[key] == b {
			delete(o.holders, key)
		} else if _, left := b.unpublished[key]; left && o.holders[key] != nil {
			overtaken = true
		}
	}
	return overtaken
}

// leftBy returns whether one of the batches left messages of the Key unpublished.
func leftBy(batches []*batch, key string) bool {
	for _, b := range batches {
		if _, left := b.unpublished[key]; left {
			return true
		}
	}
	return false
}
