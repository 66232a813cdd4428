package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const (
	orderEvery = time.Second
	// payWithin is how long an order may remain unpaid.
	payWithin = 5 * time.Second
	// callTimeout bounds what is done for one order.
	callTimeout = 5 * time.Second
)

// shop has both ways to schedule.
type shop struct {
	client *delay.Client
	db     *sql.DB
	box    *outbox.Outbox
	// opened tells one run's orders from another's.
	opened int64
}

// produce places an order a second until ctx ends. What fails is printed: the next may work.
func produce(ctx context.Context, redisURL, databaseURL string) (err error) {
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	defer func() { err = errors.Join(err, rdb.Close()) }()
	db, err := sql.Open("pgx", databaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	client, err := delay.NewClient(rdb, queue)
	if err != nil {
		return err
	}
	s := &shop{client: client, db: db, box: outbox.New(outbox.PostgreSQL), opened: time.Now().Unix()}
	for number := 1; wait.Sleep(ctx, orderEvery); number++ {
		s.report("placed", number, s.place(ctx, number))
		// Two of three orders are paid, two seconds after they were placed.
		if paid := number - 2; paid > 0 && paid%3 != 0 {
			s.report("paid", paid, s.pay(ctx, paid))
		}
	}
	return nil
}

func (s *shop) report(what string, number int, err error) {
	if err != nil {
		fmt.Printf("%s: not %s: %v\n", s.ref(number).Key, what, err)
		return
	}
	fmt.Printf("%s: %s\n", s.ref(number).Key, what)
}

func (s *shop) ref(number int) delay.Ref {
	key := fmt.Sprintf("order-%d-%d", s.opened, number)
	return delay.Ref{ID: key + "/timeout", Key: key}
}

// place schedules the timeout of an order: of every second one in the transaction that would write the order, too.
func (s *shop) place(ctx context.Context, number int) error {
	ref := s.ref(number)
	m := delay.Message{ID: ref.ID, Key: ref.Key, Topic: topic, Body: fmt.Appendf(nil, `{"order":%d}`, number)}
	return s.do(ctx, number, func(ctx context.Context) error {
		_, err := s.client.Schedule(ctx, m, delay.After(payWithin))
		return err
	}, func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.box.Schedule(ctx, tx, queue, m, delay.After(payWithin))
		return err
	})
}

// pay cancels the timeout of an order in the way in which it was scheduled.
func (s *shop) pay(ctx context.Context, number int) error {
	return s.do(ctx, number, func(ctx context.Context) error {
		return s.client.Cancel(ctx, s.ref(number))
	}, func(ctx context.Context, tx *sql.Tx) error {
		return s.box.Cancel(ctx, tx, queue, s.ref(number))
	})
}

func (s *shop) do(ctx context.Context, number int, direct func(context.Context) error, inTx func(context.Context, *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if number%2 == 1 {
		return direct(ctx)
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := inTx(ctx, tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
