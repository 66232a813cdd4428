package outbox

import (
	"context"

	"github.com/delaybridge/delaybridge/delay"
)

// settleConflicts applies the conflict policy to the rows whose identity is taken: it
// answers them, or writes them as replacements. A replacement waits for no lock, since it
// enters the index of live messages only when the bridge has ended the message before it.
func (n *insertion) settleConflicts(ctx context.Context, rows []*row) error {
	var taken, replaces []*row
	for _, r := range rows {
		switch {
		case r.result.Err != errDuplicate: //nolint:errorlint // It is ours, as it is.
		case r.conflict == delay.Replace:
			replaces = append(replaces, r)
		default:
			taken = append(taken, r)
		}
	}
	if canRead(n.tx) && len(taken) > 0 {
		freed, err := n.freed(ctx, taken)
		if err != nil {
			return err
		}
		replaces = append(replaces, freed...)
	}
	for _, r := range taken {
		if r.conflict == delay.Keep && !r.target.Valid {
			r.result.Err, r.result.Status = nil, delay.Existing
		}
	}
	for _, r := range replaces {
		r.op, r.tried = replaceCode, false
	}
	if len(replaces) == 0 {
		return nil
	}
	return n.insert(ctx, replaces)
}

// freed returns the rows whose identity has a message with a pending cancel. That message
// becomes their target.
func (n *insertion) freed(ctx context.Context, rows []*row) (freed []*row, err error) {
	const times = 3 // how often the query names the identity
	args := make([]any, 0, times*identityColumns*len(rows))
	for _, r := range rows {
		for range times {
			args = append(args, n.queue, r.message.Key, r.message.ID)
		}
	}
	targets, err := n.look(ctx, n.tx, "SELECT target"+n.fromOperations()+" AND op = 1 AND target = ("+n.standingID()+") LIMIT 1", len(rows), args)
	if err != nil {
		return nil, err
	}
	for i, r := range rows {
		if r.target = targets[i]; r.target.Valid {
			freed = append(freed, r)
		}
	}
	return freed, nil
}
