package auditor

import (
	"context"
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

// renewal is what came of rows that were to be put in the place of other messages. It is a
// record.
type renewal struct {
	put       []*table.Row
	answers   []*store.Answer // nil: it can never be put
	postponed []*table.Row    // there was no room for these
	skipped   int             // another transaction works on them
	blocked   int             // the other message is in force, or is not known to have been this one
}

// renew replaces messages that wait under tokens no longer in force by what their rows say. A
// Redis that was restored to an earlier state has such messages, and would publish them at an
// outdated due time, or although they have ended.
//
// A message is replaced if its row has ended, as the table says, or if no row
// lives under its token and ours was rescheduled: then it is ours, as it was before. The
// row is locked and has no pending operation, so its token stays in force until Redis has
// answered.
func (p *pass) renew(ctx context.Context, rows []*table.Row) (r renewal, err error) {
	redis, err := p.queue.Store.Pin(ctx)
	if err != nil {
		return r, err
	}
	s, err := p.stale(ctx, redis, rows)
	if r.blocked = len(rows) - len(s.rows); err != nil || len(s.rows) == 0 {
		return r, err
	}
	limited, cancel := context.WithTimeout(ctx, lockPhase)
	defer cancel()
	err = p.db.Within(ctx, func(t *table.Tx) error {
		fresh, err := t.LockLive(ctx, s.rows)
		if err != nil {
			return err
		}
		if err := p.checkLife(ctx, redis, t.Life); err != nil {
			return err
		}
		locked := len(fresh)
		fresh = slices.DeleteFunc(fresh, func(r *table.Row) bool { return !s.ended[r.Number] && r.Revision == 0 })
		r.skipped, r.blocked = len(s.rows)-locked, r.blocked+locked-len(fresh)
		if p.dry {
			r.put, r.answers = fresh, slices.Repeat([]*store.Answer{{Code: store.Created}}, len(fresh))
			return nil
		}
		n := table.Affordable(fresh)
		r.put, r.postponed = fresh[:n], fresh[n:]
		if err := t.Complete(ctx, r.put); err != nil {
			return err
		}
		r.answers = p.put(ctx, r.put, s.before, func(puts []store.Row) []store.Answer { return redis.Renew(limited, puts) })
		updates := table.Updates{}
		for i, row := range r.put {
			if answer := r.answers[i]; answer != nil && answer.Err == nil {
				updates.Set(row.Number, renewed(row, answer))
			}
		}
		return t.Write(ctx, updates)
	})
	return r, err
}

// renewed is what becomes of a row that was to replace another message; it makes the answer that of
// a put.
func renewed(r *table.Row, answer *store.Answer) (u table.Update) {
	switch answer.Code {
	case store.DoneMaybePublished:
		u, answer.Code = table.Update{State: table.StateStored, Maybe: true}, store.Created
	case store.Replaced, store.Mine:
		u.State, answer.Code = table.StateStored, store.Created
	case store.InFlight: // A copy goes out that the row has not asked for.
		u.Maybe, answer.Code = true, store.NotFound
	default:
	}
	if u.State == r.State {
		u.State = 0
	}
	return u
}

// staleRows are rows whose identities have messages in Redis that may no longer be in force.
type staleRows struct {
	rows []*table.Row
	// before are the tokens of these messages, ended says whose row has ended, as the table
	// says; by the row's number.
	before map[int64]string
	ended  map[int64]bool
}

// stale finds them, before the rows are locked: a token without a live row never gets one again,
// and an ended row never lives again.
func (p *pass) stale(ctx context.Context, redis outbox.Store, rows []*table.Row) (s staleRows, err error) {
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
