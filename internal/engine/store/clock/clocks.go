package clock

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Clocks are those of the servers behind one connection: each node of a Cluster
// has its own.
type Clocks struct {
	// Queue is the clock of the only server. In a Cluster it is that of whoever has
	// told the time last, as the answer to a claim or of the layout.
	Queue Clock

	conn  *conn.Conn
	nodes sync.Map // of a Cluster: redis.UniversalClient to *Clock
}

// New returns clocks of which nothing is known yet; it does no I/O.
func New(c *conn.Conn) *Clocks { return &Clocks{conn: c} }

// Of is the clock of the server that holds the key. It asks that server where the
// estimate cannot bound a run. An error says that nothing was sent but that
// question.
func (cs *Clocks) Of(ctx context.Context, key string) (*Clock, error) {
	node, several, err := cs.conn.Node(ctx, key)
	if err != nil {
		return nil, err
	}
	c := &cs.Queue
	if several {
		stored, _ := cs.nodes.LoadOrStore(node, new(Clock))
		c = stored.(*Clock)
	}
	if c.Known() {
		return c, nil
	}
	if err := cs.ask(ctx, node, c); err != nil {
		return nil, err
	}
	return c, nil
}

// ask has the node tell the time.
func (cs *Clocks) ask(ctx context.Context, node redis.UniversalClient, c *Clock) error {
	asked := scripts.NewCommand(ctx, "time")
	err := cs.conn.Patient(ctx, node, 0).Process(ctx, asked)
	parts, errParts := asked.Int64Slice()
	switch {
	case err != nil:
		cs.conn.Refresh(ctx, err)
		return notSent(fmt.Errorf("ask for the time: %w", conn.Blame(node, err)))
	case errParts != nil || len(parts) != 2:
		return fmt.Errorf("ask for the time: %w", scripts.ErrReply)
	}
	c.Observe(parts[0]*1000 + parts[1]/1000)
	return nil
}

// notSent marks the error of what came before a run, unless it will come again.
func notSent(err error) error {
	if rediserr.Classify(err) == rediserr.Fatal {
		return err
	}
	return fmt.Errorf("%w: %w", rediserr.ErrNotSent, err)
}
