package overhttp

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is why the context of a call has ended whose sink was closed.
var ErrClosed = errors.New("the sink is closed")

// Calls are those of a sink that are under way, and end with it.
type Calls struct {
	root context.Context //nolint:containedctx // the sink's life
	stop context.CancelFunc

	mu    sync.Mutex // keeps calls from beginning when root has ended
	calls sync.WaitGroup
}

// NewCalls begins the life of a sink.
func NewCalls() *Calls {
	c := &Calls{}
	c.root, c.stop = context.WithCancel(context.Background()) //nolint:forbidigo // its own life, ended by Close
	return c
}

// Begin returns a context that also ends with the sink, whose Close waits for end.
func (c *Calls) Begin(ctx context.Context) (_ context.Context, end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.root.Err() != nil {
		return ctx, nil, ErrClosed
	}
	c.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.root, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		c.calls.Done()
	}, nil
}

// Close ends the calls, waits for them, and then runs last. It returns early when ctx ends.
func (c *Calls) Close(ctx context.Context, last func()) error {
	c.mu.Lock()
	c.stop()
	c.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.calls.Wait()
		last()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
