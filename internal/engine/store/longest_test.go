package store_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// crowd is a queue of one shard with many messages of one size, and the calls
// that meet them all at once.
type crowd struct {
	testing.TB
	rdb    *redis.Client
	q      *store.Queue
	bridge *bridge
	n      int
	body   []byte
	tags   []string
	topic  string
	due    store.When

	// What is to be settled, and forgotten.
	settlement message.Settlement
	rowsTold   []store.RowFate
}

func newCrowd(tb testing.TB, rdb *redis.Client, n, size int) *crowd {
	q := storetest.New(tb, hookedClient{rdb}, 1).WithLedger(func(int) {})
	now, err := redisNow(tb.Context(), rdb)
	require.NoError(tb, err)
	c := &crowd{TB: tb, rdb: rdb, q: q, n: n, topic: "t", body: bytes.Repeat([]byte("x"), size)}
	c.bridge, c.due = newBridge(tb, q), store.When{Ms: now - never.Milliseconds()}
	return c
}

func (c *crowd) key(name string) string { return storetest.Key(c.q.Name(), 0, name) }

// id is as long as a ULID.
func (c *crowd) id(i int) string    { return fmt.Sprintf("m-%024d", i) }
func (c *crowd) token(i int) string { return rowToken(i) }

func (c *crowd) message(i int, body []byte) *message.Message {
	return &message.Message{ID: c.id(i), Topic: c.topic, Headers: must(message.WithTags(nil, c.tags)), Body: body}
}

// tagged gives the messages as many and as long tags as they may have.
func tagged(before func(*crowd)) func(*crowd) {
	return func(c *crowd) {
		for i := range message.MaxTags {
			c.tags = append(c.tags, fmt.Sprintf("%064d", i))
		}
		before(c)
	}
}

func (c *crowd) ids() []string {
	list := make([]string, c.n)
	for i := range list {
		list[i] = c.id(i)
	}
	return list
}

func (c *crowd) requests(body []byte, again func(id string) *store.UnknownCall) []store.Request {
	list := make([]store.Request, c.n)
	for i := range list {
		list[i] = store.Request{Message: c.message(i, body), When: c.due}
		if again != nil {
			list[i].Earlier = again(c.id(i))
		}
	}
	return list
}

func (c *crowd) rows(body []byte) []store.Row {
	list := make([]store.Row, c.n)
	for i := range list {
		list[i] = store.Row{
			Token: c.token(i), DueAt: time.UnixMilli(c.due.Ms), Message: c.message(i, body),
		}
	}
	return list
}

// renewed are the rows under their next tokens.
func (c *crowd) renewed() []store.Row {
	list := c.rows(c.body)
	for i := range list {
		list[i].Before, list[i].Token = list[i].Token, rowToken(c.n+i)
	}
	return list
}

func (c *crowd) ended() []store.RowFate {
	list := make([]store.RowFate, c.n)
	for i := range list {
		list[i] = store.RowFate{ID: c.id(i), Token: c.token(i), What: store.FateCancelled}
	}
	return list
}

func (c *crowd) all(code store.Code, answers []store.Answer) {
	c.Helper()
	for _, a := range answers {
		answered(c, code, a)
	}
}

// Who is there before the calls.

func (c *crowd) nobody() {}

func (c *crowd) waiting() {
	c.all(store.Created, c.q.Producer().Schedule(c.Context(), c.requests(c.body, nil), false, store.Durability{}))
}

func (c *crowd) ofRows() { c.all(store.Created, c.q.Rows().Put(c.Context(), c.rows(c.body))) }

// settleAll claims all in turn and settles them with the verdict.
func (c *crowd) settleAll(v message.Verdict) {
	c.Helper()
	for left := c.n; left > 0; { // What was tried is due again within a millisecond.
		claim := c.bridge.claim(store.MaxBatch)
		if left -= len(claim.Messages); len(claim.Messages) > 0 {
			c.bridge.settle(claim, v)
		}
	}
}

// harassed has the longest history there is: it keeps the promised due time, too.
var harassed = message.Verdict{
	Verb: message.VerbRetry, Published: true, Attempts: message.Attempts{Failures: 10, Begun: 11, MaybeOut: 1, Unknowns: 1},
}

// buriedMaybe is a dead letter that may be out.
var buriedMaybe = message.Verdict{Verb: message.VerbDeadLetter, Reason: buried.Reason, Attempts: harassed.Attempts}

func (c *crowd) tried()     { c.waiting(); c.settleAll(harassed) }
func (c *crowd) rowsTried() { c.ofRows(); c.settleAll(harassed) }
func (c *crowd) dead()      { c.waiting(); c.settleAll(buriedMaybe) }
func (c *crowd) rowsDead()  { c.ofRows(); c.settleAll(buriedMaybe) }

// others are entries beside those of the messages: just so many that Redis keeps
// them in one list, in which every search looks at all.
func (c *crowd) others() {
	const longestList = 512
	for _, key := range []string{"attempts", "gone", "settled"} {
		n, err := c.rdb.HLen(c.Context(), c.key(key)).Result()
		require.NoError(c, err)
		pipe := c.rdb.Pipeline()
		for ; n < longestList; n++ {
			field, value := fmt.Sprintf("o-%024d", n), harassed.Attempts.String()
			if key != "attempts" {
				field, value = rowToken(1_000_000_000+int(n)), "p"+field
			}
			pipe.HSet(c.Context(), c.key(key), field, value)
		}
		if _, err = pipe.Exec(c.Context()); pipe.Len() > 0 {
			require.NoError(c, err)
		}
	}
}

// moved leads from the token of each row to another one, as often as there may be another.
func (c *crowd) moved() {
	c.tried()
	gone := make([]any, 0, 16*c.n)
	for i := range c.n {
		for hop, was := 1, c.token(i); hop <= 8; hop++ {
			next := rowToken(hop*1_000_000 + i)
			gone = append(gone, was, "m"+next)
			was = next
		}
	}
	require.NoError(c, c.rdb.HSet(c.Context(), c.key("gone"), gone...).Err())
}

// crowdCall is a call that makes a script run for long, whose name its own begins with.
type crowdCall struct {
	name   string
	before func(*crowd)
	call   func(*crowd)
	reads  bool // or writes the bodies of all messages
}

// script is the name of the script's file.
func (c *crowdCall) script() string {
	name, _, _ := strings.Cut(c.name, " ")
	return strings.TrimSuffix(name, ",")
}

// producerCalls are those of producers and of what brings rows.
var producerCalls = []crowdCall{
	{"schedule", (*crowd).nobody, (*crowd).waiting, true},
	{"schedule of dead ids", (*crowd).dead, func(c *crowd) {
		list := c.q.Producer().Schedule(c.Context(), c.requests(nil, nil), false, store.Durability{})
		c.all(store.Dead, list)
		require.Equal(c, buried.Reason, list[c.n-1].Reason)
	}, true},
	{"schedule of waiting ids", (*crowd).tried, func(c *crowd) {
		c.all(store.Waiting, c.q.Producer().Schedule(c.Context(), c.requests(nil, nil), false, store.Durability{}))
	}, false},
	{"schedule, second run", (*crowd).tried, func(c *crowd) {
		c.all(store.Waiting, c.q.Producer().Schedule(c.Context(), c.requests(nil, c.again(false)), false, store.Durability{}))
	}, true},
	{"schedule, second run, free ids", (*crowd).nobody, func(c *crowd) {
		c.all(store.Created, c.q.Producer().Schedule(c.Context(), c.requests(c.body, c.again(false)), false, store.Durability{}))
	}, true},
	{"schedule of dead ids, second run", (*crowd).dead, func(c *crowd) {
		c.all(store.Dead, c.q.Producer().Schedule(c.Context(), c.requests(nil, c.again(false)), false, store.Durability{}))
	}, true},
	{"replace", (*crowd).tried, replaceAll, true},
	{"replace of rows", (*crowd).rowsTried, replaceAll, true},
	{"replace of dead ids", (*crowd).dead, replaceAll, true},
	{"replace of dead rows", (*crowd).rowsDead, replaceAll, true},
	{"replace, second run", (*crowd).tried, func(c *crowd) {
		for _, a := range c.q.Producer().Schedule(c.Context(), c.requests(nil, c.again(true)), true, store.Durability{}) {
			require.ErrorIs(c, a.Err, store.ErrUnknown)
		}
	}, true},
	{"put", (*crowd).nobody, (*crowd).ofRows, true},
	{"put, marked", (*crowd).nobody, func(c *crowd) {
		rows := c.rows(c.body)
		for i := range rows {
			rows[i].Mark, rows[i].Made = store.MarkDueIfOlder, time.UnixMilli(past().Ms)
			rows[i].Until = time.Now().Add(never) // As compensations bring them.
		}
		c.all(store.Created, c.q.Rows().Put(c.Context(), rows))
	}, true},
	{"put of what is here", (*crowd).rowsTried, func(c *crowd) { c.all(store.Mine, c.q.Rows().Put(c.Context(), c.rows(nil))) }, true},
	{"put of what was moved", (*crowd).moved, func(c *crowd) { c.all(store.EndedMoved, c.q.Rows().Put(c.Context(), c.rows(nil))) }, true},
	{"put of dead ids", (*crowd).dead, func(c *crowd) { c.all(store.Dead, c.q.Rows().Put(c.Context(), c.rows(nil))) }, true},
	{"put, peek", (*crowd).rowsTried, func(c *crowd) { c.all(store.Mine, c.q.Rows().Peek(c.Context(), c.rows(nil))) }, true},
	{"cancel", (*crowd).rowsTried, func(c *crowd) { c.all(store.DoneMaybePublished, c.q.Producer().CancelThese(c.Context(), c.ids()...)) }, true},
	{"cancel of dead ids", (*crowd).rowsDead, func(c *crowd) { c.all(store.DoneMaybePublished, c.q.Producer().CancelThese(c.Context(), c.ids()...)) }, true},
	{"reschedule", (*crowd).rowsTried, func(c *crowd) {
		c.all(store.DoneMaybePublished, c.q.Producer().RescheduleAll(c.Context(), later(), c.ids()...))
	}, true},
	{"reschedule of dead ids", (*crowd).rowsDead, func(c *crowd) {
		c.all(store.DoneMaybePublished, c.q.Producer().RescheduleAll(c.Context(), later(), c.ids()...))
	}, true},
	{"renew", (*crowd).rowsTried, func(c *crowd) { c.all(store.DoneMaybePublished, c.q.Rows().Renew(c.Context(), c.renewed())) }, true},
	{"renew, tagged", tagged((*crowd).ofRows), func(c *crowd) { c.all(store.Replaced, c.q.Rows().Renew(c.Context(), c.renewed())) }, true},
	{"remove", (*crowd).rowsTried, func(c *crowd) {
		n, err := c.q.Rows().Remove(c.Context(), c.ended())
		require.NoError(c, err)
		require.Equal(c, c.n, n)
	}, true},
	{"schedule, tagged", tagged((*crowd).nobody), (*crowd).waiting, true},
	{"replace, tagged", tagged((*crowd).rowsTried), replaceAll, true},
	{"put, tagged", tagged((*crowd).nobody), (*crowd).ofRows, true},
	{"cancel, tagged", tagged((*crowd).rowsTried), func(c *crowd) {
		c.all(store.DoneMaybePublished, c.q.Producer().CancelThese(c.Context(), c.ids()...))
	}, true},
	{"remove, tagged", tagged((*crowd).rowsTried), func(c *crowd) {
		n, err := c.q.Rows().Remove(c.Context(), c.ended())
		require.NoError(c, err)
		require.Equal(c, c.n, n)
	}, true},
	{"rows", (*crowd).ofRows, func(c *crowd) {
		n := 0
		for cursor := "0"; ; {
			rows, next, _, err := c.q.Rows().RowsPage(c.Context(), 0, cursor, store.MaxBatch)
			require.NoError(c, err)
			if n += len(rows); next == "0" {
				break
			}
			cursor = next
		}
		require.GreaterOrEqual(c, n, c.n)
	}, true},
}

func replaceAll(c *crowd) {
	c.all(store.Replaced, c.q.Producer().Schedule(c.Context(), c.requests(nil, nil), true, store.Durability{}))
}

// empty forgets all messages.
func (c *crowd) empty() {
	storetest.Remove(c.Context(), c.rdb, c.q.Name(), 2)
}

// again names an earlier call for each message, of which nothing is known.
func (c *crowd) again(replace bool) func(string) *store.UnknownCall {
	c.Helper()
	now, err := redisNow(c.Context(), c.rdb)
	require.NoError(c, err)
	for at := now; at <= now+50; { // What is there came before the calls, as far as clocks can tell.
		at, err = redisNow(c.Context(), c.rdb)
		require.NoError(c, err)
	}
	return c.q.Producer().EarlierCall(replace)
}

// TestScriptsReadLittle meets large messages: no script reads more than one of them.
func TestScriptsReadLittle(t *testing.T) {
	t.Parallel()
	url := testenvPrivate(t)
	for _, call := range producerCalls {
		t.Run(call.name, func(t *testing.T) {
			c := newCrowd(t, connect(t, url), 8, 900_000)
			call.before(c)
			before := scriptCalls(t, c.rdb)
			call.call(c)
			if call.reads {
				require.GreaterOrEqual(t, scriptCalls(t, c.rdb)-before, int64(c.n), "two of them are more than a script may read")
			}
			c.empty()
		})
	}
}
