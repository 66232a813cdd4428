package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/test/flow"
)

// foreignRows are due, of a queue that no bridge serves.
const foreignRows = 300_000

// sizeFigure compares the lateness of a queue whose table is full with that of one
// whose table has nothing else, both at the same time, so that what else the machine
// does counts for both. The full one has -count rows (10,000,000) that are due within
// a year, foreign ones that are due, and for the whole -window an open snapshot, as a
// dump holds one: while it is there, no database forgets an entry of an index.
func sizeFigure(ctx context.Context, r run) error {
	var problems []error
	for name := range strings.SplitSeq(r.databases, ",") {
		if err := r.size(ctx, name); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

// sized is one of the two worlds.
type sized struct {
	run   run
	name  string
	w     *flow.World
	d     *database
	watch *watch
}

func (r run) size(ctx context.Context, name string) error {
	full, err := r.sized(ctx, "full", name)
	if err != nil {
		return err
	}
	defer full.close()
	alone, err := r.sized(ctx, "alone", name)
	if err != nil {
		return err
	}
	defer alone.close()
	full.say("%s", full.d.version)
	if err := full.fill(ctx); err != nil {
		return err
	}
	release, err := full.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	for _, s := range []*sized{full, alone} {
		stop, err := carry(ctx, s.w, s.d, r.shards, s.watch.note, s.watch.audited)
		if err != nil {
			return err
		}
		defer func() { _ = stop() }()
	}
	// What the snapshot costs grows with what has been relayed since it was taken.
	for _, part := range []struct {
		name   string
		window time.Duration
	}{{"warm", min(r.window, 15*time.Second)}, {"grows", r.window * 4 / 5}, {"grown", r.window / 5}} {
		if err := together(ctx, full, alone, func(ctx context.Context, s *sized) error { return s.part(ctx, part.name, part.window, time.Second) }); err != nil {
			return err
		}
	}
	for _, s := range []*sized{full, alone} {
		if err := s.sizes(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r run) sized(ctx context.Context, name, kind string) (s *sized, err error) {
	s = &sized{run: r, name: name, watch: newWatch()}
	if s.w, err = r.world(ctx); err == nil {
		s.d, err = startDatabase(ctx, kind)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *sized) close() {
	if s.w != nil {
		s.w.Close()
	}
	if s.d != nil {
		s.d.close()
	}
}

func (s *sized) say(format string, args ...any) {
	fmt.Printf("size  %-8s %-5s  %s\n", s.d.name, s.name, fmt.Sprintf(format, args...))
}

// together does the same in both worlds at the same time.
func together(ctx context.Context, full, alone *sized, do func(context.Context, *sized) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range []*sized{full, alone} {
		group.Go(func() error { return do(ctx, s) })
	}
	return group.Wait()
}

// fill writes what is not measured. Of the queue itself nothing becomes due
// meanwhile.
func (s *sized) fill(ctx context.Context) error {
	begin := time.Now()
	far := filling{
		queue: s.w.Store().Name(), ids: "far", topic: "far", count: cmp.Or(s.run.count, 10_000_000), body: 32,
		first: begin.Add(6 * time.Hour), over: 365 * 24 * time.Hour,
	}
	foreign := filling{
		queue: "nobodys", ids: "foreign", topic: "foreign", count: foreignRows, body: 32, first: begin.Add(-time.Hour), over: time.Hour,
	}
	for _, list := range []filling{far, foreign} {
		if err := s.d.fill(ctx, list); err != nil {
			return fmt.Errorf("fill the table: %w", err)
		}
	}
	analyze := "ANALYZE " + schema.DefaultTable
	if s.d.dialect == schema.MySQL {
		analyze = "ANALYZE TABLE " + schema.DefaultTable
	}
	_, err := s.d.ExecContext(ctx, analyze)
	s.say("%d far rows and %d due ones of a foreign queue, written in %s", far.count, foreign.count, time.Since(begin).Round(time.Second))
	return err
}

// hold takes a snapshot, as a dump does, and holds it until it is released.
func (s *sized) hold(ctx context.Context) (release func(), err error) {
	tx, err := s.d.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	var n int64
	if err := tx.QueryRowContext(ctx, "SELECT id FROM "+schema.DefaultTable+" LIMIT 1").Scan(&n); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return func() { _ = tx.Rollback() }, nil // It was for reading only.
}

// part runs the load for a window, each message due within spread, and says how late they
// came, and which statements took long.
func (s *sized) part(ctx context.Context, name string, window, spread time.Duration) error {
	p := producing{
		by: s.d.schedule(s.w.Store().Name()), ids: name, topic: s.w.Topic + "-" + name, ledger: flow.NewLedger(),
		rate: s.run.rate, window: window, spread: spread,
	}
	if err := s.w.Broker.MakeTopic(ctx, p.topic); err != nil {
		return err
	}
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	var consumer errgroup.Group
	consumer.Go(func() error { return s.w.Broker.Consume(consuming, p.topic, p.ledger.Got) })
	s.watch.forget()
	if err := p.run(ctx); err != nil {
		return errors.Join(err, consumer.Wait())
	}
	s.watch.show(s.say, name)
	p.ledger.Await(time.Minute, time.Second)
	stop()
	report := p.ledger.Report()
	s.say("%-12s %s", name, report)
	totals, err := s.w.Totals(ctx)
	if err != nil {
		return err
	}
	s.say("%-12s until then reclaimed %d  released %d  stale %d  put back by the auditor %d; of the copies here %d have no later attempt",
		name, totals.Counters["reclaimed"], totals.Counters["released"], totals.Counters["stale"], s.watch.putBack.Load(), report.DuplicatesUnmarked)
	if report.Wrong() > 0 {
		return fmt.Errorf("%s: broken promises: %d", s.name, report.Wrong())
	}
	return consumer.Wait()
}

// sizes says how large table and indexes are, and how much of it is dead.
func (s *sized) sizes(ctx context.Context) error {
	queries := []string{
		"SELECT relname, pg_relation_size(oid) / 1048576 AS mib FROM pg_class WHERE relname LIKE 'delay_outbox%' AND relkind IN ('r', 'i') ORDER BY relname",
		"SELECT n_live_tup, n_dead_tup, autovacuum_count, n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relname = 'delay_outbox'",
	}
	if s.d.dialect == schema.MySQL {
		queries = []string{
			"SELECT index_name, stat_value * @@innodb_page_size DIV 1048576 AS mib FROM mysql.innodb_index_stats WHERE table_name = 'delay_outbox' AND stat_name = 'size'",
			"SELECT table_rows, data_length DIV 1048576 AS data_mib, index_length DIV 1048576 AS index_mib FROM information_schema.tables WHERE table_name = 'delay_outbox'",
			"SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'",
		}
	}
	for _, query := range queries {
		rows, err := s.d.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		list, err := lines(rows)
		if err != nil {
			return err
		}
		s.say("%s", strings.Join(list, "\n    "))
	}
	return nil
}
