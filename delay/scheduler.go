package delay

import "context"

// Scheduler has the methods of a [Client] that a producer calls. Code that takes it instead of a
// Client can be tested with a queue of package delaytest, or with a type that embeds such a
// queue and returns errors from some method. Code that calls only one or two of the methods
// should declare its own interface. Scheduler grows with Client.
type Scheduler interface {
	Schedule(ctx context.Context, m Message, when When, opts ...CallOption) (Result, error)
	ScheduleBatch(ctx context.Context, requests []Request) ([]Result, error)
	Cancel(ctx context.Context, ref Ref, opts ...CallOption) error
	CancelBatch(ctx context.Context, refs []Ref) ([]Result, error)
	CancelAll(ctx context.Context, filter Filter) (CancelCount, error)
	Reschedule(ctx context.Context, ref Ref, when When, opts ...CallOption) error
	PublishNow(ctx context.Context, ref Ref, opts ...CallOption) error
	Get(ctx context.Context, ref Ref) (Info, error)
}

var _ Scheduler = (*Client)(nil)
