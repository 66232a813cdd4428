package auditor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/statespace"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/relay"
	"github.com/delaybridge/delaybridge/internal/outbox/settler"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestModelAudit takes the steps of docs/model/Audit.tla with the real relay, auditor and settler, on a real Redis and database:
// each goes on when the model's worker does, before its script, before its commit, and before it removes an entry of the ledger.
func TestModelAudit(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		private, clock := testenv.StartRedisWithClock(t)
		w := &auditWorld{Scene: outboxtest.NewScene(t, d), t: t, clock: clock, rdb: outboxtest.Connect(t, private.URL()+statespace.Patient)}
		t.Cleanup(w.abandon)
		statespace.Play[auditState](t, "AuditWalk", "walk_audit", w)
	})
}

// auditState is the state of the model.
type auditState struct {
	R struct {
		Tok       int
		Place     string
		Mark      bool
		Tomb, Led []string
	}
	D struct {
		Life, Tok int
		Fate      []string
		Maybe     bool
		Op        struct{ Kind, Ans string }
	}
	Job       map[string]struct{ PC, Kind, St string }
	Pol       map[string]struct{ Tok int }
	Fast      []string
	Due, Aged []int
}

// auditSeen is what of it is in Redis and in the database. "-" is nothing.
type auditSeen struct {
	Tok       int
	Place     string
	Mark      bool
	Tomb, Led []string
	RowTok    int
	Fate, Op  string
	Maybe     bool
	Broken    string
}

// auditWorld is an outbox of one row, and what works on it.
type auditWorld struct {
	*outboxtest.Scene
	t       *testing.T
	clock   *testenv.Clock
	rdb     *redis.Client
	q       *store.Queue
	now     time.Time
	due     map[int]time.Time // by the model's token
	tokens  []string          // likewise
	row, op int64
	work    *work
	claim   message.Claim
	claims  uint64
}

// long is when a message is due whose time does not come.
const long = 100 * time.Hour

func (w *auditWorld) Begin(t testing.TB, walk []statespace.Step) {
	w.abandon()
	require.NoError(t, w.rdb.FlushAll(t.Context()).Err())
	w.DB.Exec(w.t, "DELETE FROM {t}")
	w.DB.Exec(w.t, "DELETE FROM {t}_lives")
	w.now = time.Now().Truncate(time.Millisecond)
	w.set(t, 0)
	w.q = store.New(w.rdb, storetest.Prefix, "q-model").WithLedger(func(int) {})
	_, err := w.q.Layouts().Ensure(t.Context(), storetest.Layout(1))
	require.NoError(t, err)
	require.NoError(t, w.rdb.HSet(t.Context(), w.key("meta"), "born", w.now.Add(-time.Hour).UnixMilli()).Err())
	w.Orders, w.row, w.op, w.claims = w.q.Name(), 0, 0, 0
	w.tokens = []string{"", "~r00000000000001", "~r00000000000002"}
	w.plan(t, walk)
}

// plan sets when the messages are due, as the walk will want it: one becomes due when the clock has gone on by what [auditWorld.goOn] says.
func (w *auditWorld) plan(t testing.TB, walk []statespace.Step) {
	w.due = map[int]time.Time{1: w.now.Add(long), 2: w.now.Add(long)}
	at, before := w.now, auditState{}
	for _, step := range walk {
		var after auditState
		require.NoError(t, json.Unmarshal(step.State, &after))
		at = at.Add(goOn(&before, &after))
		for _, tok := range after.Due {
			if w.due[tok].After(at.Add(time.Hour)) {
				w.due[tok] = at
			}
		}
		before = after
	}
}

// goOn is how far the clock goes on: longer than a relay may take from its look to its question, and less than a
// tombstone lives, or more than that.
func goOn(before, after *auditState) time.Duration {
	switch {
	case len(before.Due) != len(after.Due):
		return 20 * time.Second
	case len(before.Aged) != len(after.Aged):
		return 70 * time.Second
	}
	return 0
}

func (w *auditWorld) set(t testing.TB, passed time.Duration) {
	w.now = w.now.Add(passed)
	w.clock.Stop(w.now)
}

func (w *auditWorld) key(name string) string { return storetest.Key("q-model", 0, name) }

var errModel = errors.New("not as in the model")

func (w *auditWorld) Take(t testing.TB, action string, before, after *auditState) error {
	if passed := goOn(before, after); passed > 0 {
		w.set(t, passed)
	}
	job := after.Job["w1"]
	switch action {
	case "Commit":
		w.row = w.Insert(outboxtest.Insert{ID: "x", Token: w.tokens[1], DueMs: w.due[1].UnixMilli(), Body: "b"})
	case "Submit":
		verb := map[string]table.Verb{"cancel": table.VerbCancel, "move": table.VerbReschedule}[after.D.Op.Kind]
		w.op = w.Insert(outboxtest.Insert{ID: "x", Token: w.tokens[2], DueMs: w.due[2].UnixMilli(), Verb: verb, Tried: true})
	case "FastPath":
		return w.fastPath(t, before, after)
	case "Time":
	case "Expire":
		return w.expire(t, w.tokens[one(before.R.Tomb, after.R.Tomb)+1])
	case "Begin":
		return w.begin(job.Kind == "bring" && job.St == "stored")
	case "RunBring", "RunOp", "Tell":
		return w.work.goOn(true)
	case "Finish", "Forget":
		return w.work.goOn(false)
	case "LoseLock":
		if before.Job["w1"].Kind == "op" || before.Job["w1"].St == "pending" { // The auditor has none.
			return w.kill()
		}
	case "Abandon":
		w.abandon()
	case "ReadLedger":
		return w.settle()
	case "OpByTable":
		_, err := w.relay(w.store()).TakeIdentity(t.Context(), w.q.Name(), "", "x")
		return err
	case "Claim":
		return w.take(t)
	case "Publish":
	case "Settle":
		stale, err := w.q.Shard(0).Settle(t.Context(), storetest.Settlement(w.claim, storetest.Acked))
		if stale {
			err = fmt.Errorf("%w: stale", errModel)
		}
		return err
	default:
		return fmt.Errorf("%w: %s", errModel, action)
	}
	return nil
}

// one is where two lists differ.
func one(before, after []string) int {
	i := 0
	for before[i] == after[i] {
		i++
	}
	return i
}

// expire removes a tombstone, and the answer of the operation that has left it.
func (w *auditWorld) expire(t testing.TB, token string) error {
	for _, name := range []string{token, "=" + w.tokens[2][1:]} {
		require.NoError(t, w.rdb.HDel(t.Context(), w.key("gone"), name).Err())
		require.NoError(t, w.rdb.ZRem(t.Context(), w.key("gonettl"), name).Err())
	}
	return nil
}

// fastPath puts the message as its producer does, unless it dies first.
func (w *auditWorld) fastPath(t testing.TB, before, after *auditState) error {
	isKnown := before.R.Tok != 0 || before.R.Tomb[0] != "-" || before.R.Led[0] != "-"
	if after.R.Tok == before.R.Tok && !isKnown {
		return nil
	}
	m := &message.Message{ID: "x", Topic: "topic", Body: []byte("b")}
	answer := w.q.Rows().PutWithin(t.Context(), time.Now().Add(time.Minute), []store.Row{{Token: w.tokens[1], Message: m, DueAt: w.due[1]}})[0]
	return answer.Err
}

func (w *auditWorld) take(t testing.TB) (err error) {
	w.claims++
	w.claim, err = w.q.Shard(0).Claim(t.Context(), message.ClaimRequest{
		Token: message.ClaimToken{Instance: "poller", Number: w.claims}, Max: 1, Timeout: 10 * long, Lease: 10 * long,
	})
	if err == nil && len(w.claim.Messages) != 1 {
		err = fmt.Errorf("%w: claimed %+v", errModel, w.claim)
	}
	return err
}

func (w *auditWorld) relay(s outbox.Store) *relay.Relay {
	relaying, err := relay.New(relay.Config{Database: w.DB.Database, Queues: []outbox.Queue{w.queue(s)}, Clock: w.q.Clock, Horizon: 2 * long})
	require.NoError(w.t, err)
	return relaying
}

func (w *auditWorld) store() outbox.Store { return outbox.NewStore(w.q.Rows()) }

func (w *auditWorld) queue(s outbox.Store) outbox.Queue {
	return outbox.Queue{Name: w.q.Name(), Store: s, Sink: message.RabbitMQ, MaxMessage: message.DefaultMaxSize}
}

// begin has the relay lock the row, or the auditor read it.
func (w *auditWorld) begin(byAuditor bool) error {
	return w.start(func(ctx context.Context, g *stop) error {
		gated := &gatedStore{Store: w.store(), stop: g}
		if !byAuditor {
			_, err := w.relay(gated).TakeIdentity(ctx, w.q.Name(), "", "x")
			return err
		}
		a, err := New(Config{Databases: []*table.Database{w.DB.Database}, Queues: []Queue{{Queue: w.queue(gated)}}, grace: time.Nanosecond})
		if err != nil {
			return err
		}
		p := &pass{Auditor: a, db: w.DB.Database, queue: &a.config.Queues[0], report: &report{}}
		return p.run(ctx)
	})
}

// settle has the settler read the ledger.
func (w *auditWorld) settle() error {
	return w.start(func(ctx context.Context, g *stop) error {
		s, err := settler.New(settler.Config{
			Databases: []settler.Database{{Database: w.DB.Database}},
			Queues:    []settler.Queue{{Name: w.q.Name(), Store: &gatedLedger{w.q.Rows(), g}, Held: func() []int { return []int{0} }}},
		})
		if err != nil {
			return err
		}
		return s.Flush(ctx)
	})
}

// work is one call of a worker, which stops where the model's worker does.
type work struct {
	*stop
	cancel context.CancelFunc
	ended  chan error
}

func (w *auditWorld) start(do func(ctx context.Context, g *stop) error) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	w.work = &work{&stop{came: make(chan struct{}), next: make(chan struct{}), over: make(chan struct{})}, cancel, make(chan error, 1)}
	go func(this *work) { this.ended <- do(ctx, this.stop) }(w.work)
	return w.work.wait(true)
}

// wait waits until the work stops again, or has ended.
func (k *work) wait(stops bool) error {
	select {
	case <-k.came:
		if !stops {
			return fmt.Errorf("%w: it asks for more", errModel)
		}
		return nil
	case err := <-k.ended:
		k.ended <- err
		if stops {
			return fmt.Errorf("%w: it has ended: %w", errModel, err)
		}
		if errors.Is(err, store.ErrUnavailable) { // See isLast.
			return nil
		}
		return err
	case <-time.After(time.Minute):
		return fmt.Errorf("%w: it neither stops nor ends", errModel)
	}
}

func (k *work) goOn(stops bool) error {
	k.isLast = !stops
	k.next <- struct{}{}
	return k.wait(stops)
}

// abandon has the worker die: what it waits for does not come.
func (w *auditWorld) abandon() {
	if w.work != nil {
		w.work.cancel()
		close(w.work.over)
		<-w.work.ended //nolint:errcheck // it has died
		w.work = nil
	}
}

// stop is where work stops.
type stop struct {
	came, next chan struct{}
	over       chan struct{} // closed: it has died
	// isLast: what follows fails. A relay that has moved a row puts it in the same transaction, which in the model is other work.
	isLast bool
}

// here reports whether the work goes on.
func (s *stop) here() bool {
	if s.isLast {
		return false
	}
	select {
	case s.came <- struct{}{}:
	case <-s.over:
		return false
	}
	select {
	case <-s.next:
		return true
	case <-s.over:
		return false
	}
}

// gatedStore stops before and after each write.
type gatedStore struct {
	outbox.Store
	*stop
}

func (g *gatedStore) Pin(ctx context.Context) (outbox.Store, error) {
	pinned, err := g.Store.Pin(ctx)
	return &gatedStore{pinned, g.stop}, err
}

// Peek knows nothing, as if it had been asked before somebody else has put the message: what matters is the put.
func (g *gatedStore) Peek(_ context.Context, rows []store.Row) []store.Answer {
	answers := make([]store.Answer, len(rows))
	for i := range answers {
		answers[i].Code = store.Absent
	}
	return answers
}

func (g *gatedStore) Put(ctx context.Context, rows []store.Row) (answers []store.Answer) {
	g.around(func() { answers = g.Store.Put(ctx, rows) }, func() { answers = []store.Answer{{Err: store.ErrUnavailable}} })
	return answers
}

func (g *gatedStore) CancelRow(ctx context.Context, o store.Operation) (answer store.Answer) {
	g.around(func() { answer = g.Store.CancelRow(ctx, o) }, func() { answer.Err = store.ErrUnavailable })
	return answer
}

func (g *gatedStore) RescheduleRow(ctx context.Context, o store.Operation, due time.Time) (answer store.Answer) {
	g.around(func() { answer = g.Store.RescheduleRow(ctx, o, due) }, func() { answer.Err = store.ErrUnavailable })
	return answer
}

func (g *gatedStore) around(run, fail func()) {
	if !g.here() {
		fail()
		return
	}
	if run(); !g.here() {
		fail()
	}
}

// gatedLedger stops after it was read, and before an entry is removed.
type gatedLedger struct {
	*store.Rows
	*stop
}

func (g *gatedLedger) FatePage(ctx context.Context, shard int, cursor uint64, most int) (rows []store.RowFate, next uint64, err error) {
	rows, next, err = g.Rows.FatePage(ctx, shard, cursor, most)
	if !g.here() {
		err = context.Canceled
	}
	return rows, next, err
}

func (g *gatedLedger) ForgetFates(ctx context.Context, shard int, rows []store.RowFate) error {
	if !g.here() {
		return context.Canceled
	}
	return g.Rows.ForgetFates(ctx, shard, rows)
}

// kill ends the session that has the lock.
func (w *auditWorld) kill() error {
	list, kill := "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID() AND command = 'Sleep'", "KILL %d"
	if w.DB.IsPostgres() {
		list, kill = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'", "SELECT pg_terminate_backend(%d)"
	}
	ctx := w.t.Context()
	var id int64
	var ids []int64
	if err := w.DB.Query(ctx, w.DB.SQL, []any{&id}, func() { ids = append(ids, id) }, list); err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := w.DB.SQL.ExecContext(ctx, fmt.Sprintf(kill, id)); err != nil && w.DB.IsPostgres() {
			return err
		}
	}
	for all, locked := w.Count("1 = 1"), true; locked; { // The session ends a little later.
		tx, err := w.DB.SQL.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		rows := 0
		err = w.DB.Query(ctx, tx, []any{&id}, func() { rows++ }, "SELECT id FROM {t} FOR UPDATE SKIP LOCKED")
		locked = rows < all
		if err := errors.Join(err, tx.Rollback()); err != nil {
			return err
		}
	}
	return nil
}

func (w *auditWorld) Seen(t testing.TB, model *auditState) (is, want any) {
	should := auditSeen{
		Tok: model.R.Tok, Place: model.R.Place, Mark: model.R.Mark && model.R.Tok != 0, Tomb: model.R.Tomb[:2], Led: model.R.Led[:2],
		RowTok: model.D.Tok, Fate: model.D.Fate[0], Maybe: model.D.Maybe, Op: model.D.Op.Ans,
	}
	if should.Tok == 0 {
		should.Place = "-"
	}
	s, err := storetest.Dump(t.Context(), w.rdb, w.q.Name(), 0)
	require.NoError(t, err)
	got := auditSeen{Place: "-", Fate: "none", Op: "-", RowTok: 1}
	if err := s.Check(); err != nil {
		got.Broken = err.Error()
	}
	if stored := s.Msg["x"]; stored != "" {
		got.Place = "flight"
		if _, waits := s.Due["x"]; waits {
			got.Place = "waits"
		}
	}
	history, err := message.ParseHistory(s.Attempts["x"])
	require.NoError(t, err)
	got.Mark = history.Attempts.MaybeOut > 0
	row, _ := w.Read(w.row)
	for tok := 1; tok <= 2; tok++ {
		token := w.tokens[tok]
		if strings.HasPrefix(s.Msg["x"][min(14, len(s.Msg["x"])):], token) {
			got.Tok = tok
		}
		got.Tomb, got.Led = append(got.Tomb, first(s.Gone[token])), append(got.Led, first(s.Settled[token]))
		if row != nil && row.Token == token {
			got.RowTok = tok
		}
	}
	if row != nil {
		got.Fate, got.Maybe = row.State.String(), row.Maybe
	}
	if op, _ := w.Read(w.op); op != nil {
		got.Op = map[table.State]string{
			table.StatePending: "pending", table.StateStored: "in time", table.StateCancelled: "in time", table.StateTooLate: "too late", table.StateUnknown: "unknown",
		}[op.State]
	}
	return got, should
}

// first is the sign of a tombstone or of an entry in the ledger.
func first(entry string) string { return (entry + "-")[:1] }
