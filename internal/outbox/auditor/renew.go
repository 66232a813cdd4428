package auditor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// lockPhase is how long after the begin of its transaction one that has locked rows
// may wait for Redis. [store.Rows.Put] wants it to be shorter than store.MaxCall.
const lockPhase = 8 * time.Second

// renew puts rows in the place of messages that wait under tokens which are in force no
// more: Redis has these where it was put back to an earlier state, and would publish them
// at a due time that was changed since, or although they have ended.
//
// A message is replaced where its row has ended, as the table says, or where no row
// lives under its token and ours was rescheduled: then it is ours, as it was before. The
// row is locked and has no pending operation, so its token stays in force until Redis has
// answered.
func (p *pass) renew(ctx context.Context, rows []*table.Row) (left []*table.Row, err error) {
	for part := range slices.Chunk(rows, table.BatchRows) {
		again, errPart := p.renewSome(ctx, part)
		left, err = append(left, again...), errors.Join(err, errPart)
	}
	return left, err
}

func (p *pass) renewSome(ctx context.Context, rows []*table.Row) (left []*table.Row, err error) {
	redis, err := p.queue.Store.Pin(ctx)
	if err != nil {
		return rows, err
	}
	s, err := p.stale(ctx, redis, rows)
	if err != nil {
		return rows, err
	}
	p.report.add(Counts{Blocked: int64(len(rows) - len(s.rows))})
	if len(s.rows) == 0 {
		return nil, nil
	}
	var found findings
	began := time.Now()
	err = p.db.Within(ctx, func(t *table.Tx) error {
		fresh, err := t.LockLive(ctx, s.rows)
		if err != nil {
			return err
		}
		found.counts.Skipped = int64(len(s.rows) - len(fresh))
		fresh = slices.DeleteFunc(fresh, func(r *table.Row) bool { return !s.ended[r.Number] && r.Revision == 0 })
		found.counts.Blocked = int64(len(s.rows)-len(fresh)) - found.counts.Skipped
		if err := p.checkLife(ctx, redis, t.Life); err != nil {
			return err
		}
		if p.dry {
			found.counts.PutBack = int64(len(fresh))
			return nil
		}
		n := table.Affordable(fresh)
		found.left, fresh = append(found.left, fresh[n:]...), fresh[:n]
		if err := t.Complete(ctx, fresh); err != nil {
			return err
		}
		limited, cancel := context.WithDeadline(ctx, began.Add(lockPhase))
		defer cancel()
		return t.Write(ctx, p.replace(limited, redis, fresh, s.before, &found))
	})
	if err != nil {
		return s.rows, err
	}
	for _, r := range found.left {
		r.Content = table.Content{}
	}
	return found.left, errors.Join(found.err, p.tell(ctx, &found))
}

// replace is what renew does while the rows are locked.
func (p *pass) replace(ctx context.Context, redis outbox.Store, rows []*table.Row, before map[int64]string, found *findings) table.Updates {
	var puts []store.Row
	var good []*table.Row
	for _, r := range rows {
		m, err := p.message(ctx, r)
		if err != nil {
			continue
		}
		puts = append(puts, store.Row{Token: r.Token, Message: m, DueAt: m.DueAt, Mark: markOf(r), Before: before[r.Number]})
		good = append(good, r)
	}
	updates := table.Updates{}
	if len(puts) == 0 {
		return updates
	}
	for i, answer := range redis.Renew(ctx, puts) {
		r, change := good[i], table.Update{}
		if answer.Err == nil {
			switch answer.Code {
			case store.DoneMaybePublished:
				change = table.Update{State: table.StateStored, Maybe: true}
				answer.Code = store.Created
			case store.Replaced, store.Mine:
				change.State = table.StateStored
				answer.Code = store.Created
			case store.InFlight: // A copy goes out that the row has not asked for.
				change.Maybe = true
			default:
			}
			if change.State == r.State {
				change.State = 0
			}
			updates.Set(r.Number, change)
		}
		found.add(r, answer)
	}
	return updates
}

// stale are rows whose identities' messages in Redis may be in force no more.
type stale struct {
	rows []*table.Row
	// before are the tokens of these messages, ended says whose row has ended, as the table
	// says; by the row's number.
	before map[int64]string
	ended  map[int64]bool
}

// stale finds them. It is asked before the rows are locked: what lives under no token
// now never will, and what has ended lives no more.
func (p *pass) stale(ctx context.Context, redis outbox.Store, rows []*table.Row) (s stale, err error) {
	asked := make([]store.Row, len(rows))
	for i, r := range rows {
		asked[i] = store.Row{Message: &message.Message{ID: r.ID, Key: r.Key}}
	}
	tokens, err := redis.Tokens(ctx, asked)
	if err != nil {
		return s, err
	}
	s.before, s.ended = map[int64]string{}, map[int64]bool{}
	versions, names := make([]table.Version, len(rows)), make([]table.Identity, len(rows))
	for i, r := range rows {
		versions[i], names[i] = table.Version{Identity: r.Identity, Token: tokens[i]}, r.Identity
	}
	ended, err := p.db.Ended().Among(ctx, versions)
	if err != nil {
		return s, err
	}
	lives := map[table.Version]bool{}
	for _, d := range append([]*table.Database{p.db}, p.config.Others...) {
		found, err := d.Ended().Living(ctx, names, false)
		if err != nil {
			return s, err
		}
		for v := range found {
			lives[v] = true
		}
	}
	for i, r := range rows {
		if tokens[i] == "" || lives[versions[i]] {
			continue
		}
		_, s.ended[r.Number] = ended[versions[i]]
		s.rows, s.before[r.Number] = append(s.rows, r), tokens[i]
	}
	return s, nil
}
