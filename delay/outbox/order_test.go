package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestBatchesInOppositeOrder: two transactions with batches of the same ids, in whatever
// order, wait for each other and do not deadlock.
func TestBatchesInOppositeOrder(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *database{
		"postgres": func(t *testing.T) *database { return openSQL(t, "pgx", outbox.PostgreSQL, testenv.Postgres(t)) },
		"mariadb":  func(t *testing.T) *database { return openSQL(t, "mysql", outbox.MySQL, testenv.MariaDB(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			db.migrate(t)
			box := outbox.New(db.dialect)
			const size = 300
			for round := range 10 {
				forth := make([]delay.Request, size)
				for i := range forth {
					forth[i] = delay.Request{Message: delay.Message{ID: fmt.Sprintf("%d-%03d", round, i), Topic: "t"}, When: delay.After(0)}
				}
				back := slices.Clone(forth)
				slices.Reverse(back)
				var group errgroup.Group
				created := make([]int, 2)
				for i, batch := range [][]delay.Request{forth, back} {
					group.Go(func() (err error) {
						created[i], err = writeBatch(t.Context(), db, box, batch)
						return err
					})
				}
				require.NoError(t, group.Wait())
				require.Equal(t, size, created[0]+created[1])
			}
		})
	}
}

// writeBatch commits a batch, and returns how many of its messages were no duplicates.
func writeBatch(ctx context.Context, db *database, box *outbox.Outbox, batch []delay.Request) (created int, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()                      // Nothing, if it was committed.
	results, _ := box.ScheduleBatch(ctx, tx, "orders", batch) // Of duplicates, too.
	for i, result := range results {
		switch {
		case result.Ref.ID != batch[i].Message.ID:
			return 0, fmt.Errorf("result %d is of %s", i, result.Ref.ID)
		case result.Err == nil:
			created++
		case !errors.Is(result.Err, delay.ErrDuplicate):
			return 0, result.Err
		}
	}
	return created, tx.Commit()
}
