package auditor

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

var errStory = errors.New("away")

// fateOfRow is what Redis has of a row's message, or the row has become since it was read.
type fateOfRow int

const (
	rowThere fateOfRow = iota
	rowLost
	rowPublished
	rowCancelled
	rowChanged // lost, and the row is another since it was read
	rowStale   // another message waits, which is renewed
	rowBlocked // another message waits, which stays
	rowHuge    // lost, and it can never be put
	rowFates
)

// TestComparison plays stories of a chunk, alone, through calls that fail or take long: what is lost is
// there at the end, what has ended is told, and nothing is put that was read long ago, has
// changed since, or was not asked for or read.
func TestComparison(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.UnixMilli(1_700_000_000_000)
		fates, done, read := map[*table.Row]fateOfRow{}, map[*table.Row]string{}, map[int64]time.Time{}
		var rows []*table.Row
		for i := range rapid.IntRange(0, 12).Draw(t, "rows") {
			r := &table.Row{Number: int64(i), Content: table.Content{Size: 10 << 20}} // Not two are put together.
			rows = append(rows, r)
			fates[r] = fateOfRow(rapid.IntRange(0, int(rowFates)-1).Draw(t, "fate"))
		}
		c := &comparison{dry: rapid.Bool().Draw(t, "dry"), missing: &atomic.Bool{}}
		isWhole := !c.dry && rapid.Bool().Draw(t, "whole")
		if isWhole {
			c.read(now, nil, slices.Clone(rows))
		} else {
			c.ask(slices.Clone(rows))
		}
		for _, r := range rows {
			if isWhole {
				read[r.Number] = now
			}
		}
		var counts Counts
		for calls, faults := 0, rapid.IntRange(0, 6).Draw(t, "faults"); ; calls++ {
			require.Less(t, calls, 1000, "it turns without end")
			var err error
			if faults > 0 && rapid.Bool().Draw(t, "fails") {
				faults, err = faults-1, errStory
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 15).Draw(t, "takes")) * time.Second)
			a := c.next(now)
			if a.kind == actionEnd {
				break
			}
			switch a.kind {
			case actionPause:
			case actionAsk:
				answers := make([]store.Answer, len(a.rows))
				for i, r := range a.rows {
					answers[i] = store.Answer{Code: peeked(fates[r]), Err: err}
				}
				counts.add(c.asked(answers))
			case actionRead:
				require.False(t, c.dry)
				fresh := slices.DeleteFunc(slices.Clone(a.rows), func(r *table.Row) bool { return fates[r] == rowChanged })
				for _, r := range a.rows {
					read[r.Number] = now
				}
				counts.add(c.reread(now, nil, fresh, err))
			case actionPut:
				require.False(t, c.dry)
				answers := make([]*store.Answer, len(a.rows))
				for i, r := range a.rows {
					require.Less(t, now.Sub(read[r.Number]), putWithin, "it was read long ago")
					require.True(t, isWhole || fates[r] != rowChanged, "it has changed")
					answers[i] = &store.Answer{Code: peeked(fates[r]), Err: err}
					if answers[i].Code == store.Absent && err == nil {
						answers[i].Code, fates[r], done[r] = store.Created, rowThere, "put"
					}
					if fates[r] == rowHuge {
						answers[i], fates[r] = nil, rowBlocked
					}
				}
				if rapid.Bool().Draw(t, "all") && err != nil {
					answers = nil
				} else {
					err = nil
				}
				counts.add(c.put(answers, err))
			case actionRenew:
				var r renewal
				for _, row := range a.rows {
					switch fates[row] {
					case rowStale:
						if !c.dry && err == nil {
							fates[row], done[row] = rowThere, "put"
						}
						r.put, r.answers = append(r.put, row), append(r.answers, &store.Answer{Code: store.Created})
					default:
						r.blocked++
					}
				}
				counts.add(c.renewed(a.rows, r, err))
			case actionTell:
				require.False(t, c.dry)
				known := make([]table.FateResult, len(a.fates))
				for i, r := range c.ended {
					known[i] = table.FateSettled
					if err == nil {
						done[r] = a.fates[i].State.String()
					}
				}
				counts.add(c.recorded(known, err))
			case actionEnd:
			}
		}
		for r, fate := range fates {
			require.True(t, c.dry || !slices.Contains([]fateOfRow{rowLost, rowStale}, fate), "%d is lost", r.Number)
			require.True(t, c.dry || fate != rowPublished || done[r] == "published", "%d was not told", r.Number)
			require.True(t, c.dry || fate != rowCancelled || done[r] == "cancelled", "%d was not told", r.Number)
		}
		require.EqualValues(t, len(rows), counts.PutBack+counts.There+counts.Settled+counts.Skipped+counts.Blocked, "each is counted once: %+v", counts)
	})
}

// peeked is what Redis knows of the row's message.
func peeked(fate fateOfRow) store.Code {
	return map[fateOfRow]store.Code{
		rowThere: store.Mine, rowLost: store.Absent, rowPublished: store.EndedPublished, rowCancelled: store.EndedCancelled,
		rowChanged: store.Absent, rowStale: store.Waiting, rowBlocked: store.Waiting, rowHuge: store.Absent,
	}[fate]
}

// TestTurns plays stories of a watch's turns, alone: no more than the rate is compared in a tick,
// however many rows stay overdue each row is compared in time, and what is overdue is counted.
func TestTurns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const rate = 20
		start := time.UnixMilli(1_700_000_000_000)
		behind := table.Cursor{}
		if rapid.Bool().Draw(t, "due at 0") {
			behind = table.Cursor{Number: 1 << 60}
		}
		turns, now := newTurns(rate, overdueEvery, behind, start), start
		overdue, all := rapid.IntRange(0, 200).Draw(t, "overdue"), rapid.IntRange(0, 200).Draw(t, "all")
		compared, mended := map[*round]int{}, rapid.Bool().Draw(t, "mended")
		at := map[*round]int{} // where each is in its rows
		size := func(r *round) int {
			switch {
			case !r.overdue:
				return all
			case r.from == behind:
				return overdue
			default:
				return 0
			}
		}
		slow := time.Duration(rapid.IntRange(1, 50).Draw(t, "takes")) * time.Millisecond
		for now.Sub(start) < 10*time.Minute {
			now = now.Add(auditEvery)
			rows := 0
			for r, most := turns.next(now); r != nil; r, most = turns.next(now) {
				require.Equal(t, at[r] == 0, r.after == r.from, "it goes on elsewhere")
				n := min(most, size(r)-at[r])
				at[r], compared[r], rows = at[r]+n, compared[r]+n, rows+n
				end, after := n < most, table.Cursor{Ms: 1, Number: int64(at[r])}
				if r.to == behind && behind != (table.Cursor{}) {
					end, after = false, r.to
				}
				if end || after == r.to {
					at[r] = 0
				}
				m := n
				if r.overdue && !mended {
					m = 0
				}
				began := now
				now = now.Add(slow)
				turns.stepped(r, began, now, n, m, after, end)
			}
			require.LessOrEqual(t, rows, rate, "in a tick")
		}
		for r, n := range compared {
			if r.overdue {
				require.GreaterOrEqual(t, n, size(r)*int(10*time.Minute/(time.Minute+time.Duration(size(r))*2*time.Second)), "overdue rows are not compared")
			} else {
				require.GreaterOrEqual(t, n, size(r)*int(10*time.Minute/(time.Minute+time.Duration(size(r))*2*time.Second)), "the others have no turn")
			}
		}
		count, oldest := turns.overdue(now)
		require.Less(t, oldest, 5*time.Minute)
		if mended {
			overdue = 0
		}
		require.Equal(t, overdue, count)
	})
}

// TestTurnRests: to find the beginning takes a twentieth of the time at the most, and the steps that follow do not count.
func TestTurnRests(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000)
	turns := newTurns(20, overdueEvery, table.Cursor{}, now)
	others, first, second := turns.rounds[len(turns.rounds)-1], now.Add(5*time.Second), now.Add(time.Minute)
	turns.stepped(others, now, first, 20, 20, table.Cursor{Ms: 1}, false)
	turns.stepped(others, first, second, 20, 20, table.Cursor{Ms: 2}, true)
	require.Equal(t, second.Add(100*time.Second), others.due)
}
