package table

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// CanListen reports whether the database notifies: PostgreSQL does.
func (d *Database) CanListen() bool { return d.listen != nil }

// Listen calls heard once it listens on the channel with the table's name, without its schema, for what
// was notified before, and then with each notification. It has a session of its own,
// and returns why that has ended: ctx, or the connection.
func (d *Database) Listen(ctx context.Context, heard func()) error {
	connect, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := d.listen(connect)
	if err != nil {
		return fmt.Errorf("connect to listen: %w", err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
		defer cancel()
		_ = conn.Close(end) // Nothing is lost with it.
	}()
	if _, err := conn.Exec(connect, "LISTEN "+pgx.Identifier{d.name}.Sanitize()); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	heard()
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return fmt.Errorf("wait for notification: %w", err)
		}
		heard()
	}
}
