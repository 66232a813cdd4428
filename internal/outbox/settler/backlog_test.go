package settler

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// ledgers are the world of a backlog's story: ledgers in Redis, and databases with rows, some of
// which somebody works on until faults end.
type ledgers struct {
	t        *rapid.T
	entries  map[ledgerRef][]store.RowFate // whoever reads is at the same place when some are gone
	gone     map[string]bool
	rows     []map[string]*storyRow // by database and token
	absent   map[string]int         // how many databases have said so, in this pass
	isFaulty bool
}

type storyRow struct{ isBusy, isSettled bool }

var errAway = errors.New("away")

// fault is what fails, if anything does.
func (l *ledgers) fault(what string) error {
	if l.isFaulty && rapid.IntRange(0, 3).Draw(l.t, what) == 0 {
		return errAway
	}
	return nil
}

// add makes so many entries of a ledger, each with a row in a database, or in none.
func (l *ledgers) add(ref ledgerRef, count int, from string) (added []store.RowFate) {
	home := rapid.IntRange(0, len(l.rows)).Draw(l.t, "home")
	isBusy := rapid.Bool().Draw(l.t, "busy")
	for i := range count {
		row := store.RowFate{ID: from, Token: fmt.Sprintf("~%s-%09d", from, i)}
		for len(row.Token) < 16 {
			row.Token += "-"
		}
		if home < len(l.rows) {
			l.rows[home][row.Token] = &storyRow{isBusy: isBusy && i%7 == 0}
		}
		added = append(added, row)
	}
	if ref != (ledgerRef{}) {
		l.entries[ref] = append(l.entries[ref], added...)
	}
	return added
}

// do does what a pass says.
func (l *ledgers) do(p *pass, a action) {
	switch a.kind {
	case actionRead:
		if err := l.fault("read"); err != nil {
			p.paged(nil, 0, err)
			return
		}
		entries := l.entries[a.ledger]
		from := min(int(a.cursor), len(entries))
		to := min(len(entries), from+rapid.IntRange(1, settleBatch).Draw(l.t, "page"))
		next := uint64(to)
		if to == len(entries) {
			next = 0
		}
		p.paged(slices.DeleteFunc(slices.Clone(entries[from:to]), func(e store.RowFate) bool { return l.gone[e.Token] }), next, nil)
	case actionOffer:
		require.LessOrEqual(l.t, len(a.fates), settleBatch)
		if err := l.fault("offer"); err != nil {
			p.offered(nil, err)
			return
		}
		known := make([]table.FateResult, len(a.fates))
		for i, f := range a.fates {
			switch r := l.rows[a.database][f.Token]; {
			case r == nil || r.isSettled:
				known[i] = table.FateAbsent
				l.absent[f.Token]++
			case r.isBusy && l.isFaulty:
				known[i] = table.FateBusy
			default:
				known[i], r.isSettled = table.FateSettled, true
			}
		}
		p.offered(known, nil)
	case actionForget:
		err := l.fault("forget")
		for _, entry := range a.entries {
			require.True(l.t, l.isKnown(entry.Token), "%s is forgotten, and somebody may want to know it", entry.Token)
			l.gone[entry.Token] = l.gone[entry.Token] || err == nil
		}
		p.forgot(err)
	case actionEnd:
	}
}

// isKnown reports whether a row has it, or all databases have said that they have none.
func (l *ledgers) isKnown(token string) bool {
	return l.absent[token] == len(l.rows) ||
		slices.ContainsFunc(l.rows, func(rows map[string]*storyRow) bool { r := rows[token]; return r != nil && r.isSettled })
}

// TestBacklog plays stories of passes, alone, through calls that fail: nothing is forgotten that a
// row may want to know, and once all answer again, all that was signalled once is told, and the
// ledgers are empty.
func TestBacklog(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &ledgers{t: t, entries: map[ledgerRef][]store.RowFate{}, gone: map[string]bool{}, isFaulty: true}
		for range rapid.IntRange(1, 3).Draw(t, "databases") {
			l.rows = append(l.rows, map[string]*storyRow{})
		}
		b, now := newBacklog(), time.Now()
		b.sweep(now, nil)
		pass := func() *pass {
			l.absent = map[string]int{}
			p, _ := b.begin(len(l.rows))
			calls, isStopped := 0, false
			for a := p.next(); a.kind != actionEnd; a = p.next() {
				require.Less(t, calls, 1000, "it turns without end")
				calls++
				if l.isFaulty && rapid.IntRange(0, 40).Draw(t, "stop") == 0 && a.kind != actionForget {
					p.stop(errAway)
					isStopped = true
					continue
				}
				l.do(p, a)
			}
			b.end(p)
			require.False(t, isStopped && p.failure() == nil, "a pass that was stopped tells nobody")
			return p
		}
		for i := range rapid.IntRange(1, 4).Draw(t, "passes") {
			for j := range rapid.IntRange(0, 3).Draw(t, "signalled") {
				ref := ledgerRef{"orders", rapid.IntRange(0, 2).Draw(t, "shard")}
				l.add(ref, rapid.SampledFrom([]int{1, 3, 1200}).Draw(t, "entries"), fmt.Sprintf("%d%d", i, j))
				b.notify(ref)
			}
			if rapid.Bool().Draw(t, "late") {
				b.acknowledge("orders", l.add(ledgerRef{}, 2, fmt.Sprintf("%ds", i)))
			}
			p := pass()
			pause, deaf := b.pause(now, p)
			require.Equal(t, p.failure() != nil, deaf)
			require.True(t, deaf && pause > 0 || !deaf && (pause == busyPause) == p.busy)
		}
		l.isFaulty = false
		for range 2 {
			p := pass()
			require.NoError(t, p.failure())
		}
		for ref, entries := range l.entries {
			isLeft := slices.ContainsFunc(entries, func(e store.RowFate) bool { return !l.gone[e.Token] })
			require.False(t, isLeft, "%v has entries that nobody looks at any more", ref)
		}
		for _, rows := range l.rows {
			for token, r := range rows {
				require.True(t, r.isSettled, "%s was not told", token)
			}
		}
		require.Empty(t, b.dirty)
		require.Empty(t, b.stale)
	})
}

// TestSweepIsDue: all held ledgers are read now and then.
func TestSweepIsDue(t *testing.T) {
	t.Parallel()
	b, now := newBacklog(), time.Now()
	require.True(t, b.isDue(now), "at first")
	b.sweep(now, []ledgerRef{{"orders", 1}})
	require.True(t, b.dirty[ledgerRef{"orders", 1}])
	require.False(t, b.isDue(now.Add(settleEvery-1)))
	require.True(t, b.isDue(now.Add(settleEvery)))
}
