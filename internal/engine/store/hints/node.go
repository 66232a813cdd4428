package hints

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// nodeClient is the client of one Redis node.
type nodeClient interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Times of one subscription connection.
const (
	// quietPeriod is how long a connection may be silent before it is asked for
	// a sign of life, and how long that may take.
	quietPeriod = 2 * time.Second
	// firstPause and longPause bound the wait before a new connection.
	firstPause = 5 * time.Millisecond
	longPause  = time.Second
)

// errNoSign ends a connection whose node does not answer.
var errNoSign = errors.New("no sign of life on a subscription")

// nodeSubscriber receives the hints of one Redis node's channels.
type nodeSubscriber struct {
	all  *Subscriber
	node nodeClient
	stop context.CancelFunc

	mu    sync.Mutex
	want  map[string]bool
	again chan struct{} // "look at want again", of 1
}

func newNodeSubscriber(all *Subscriber, node nodeClient) *nodeSubscriber {
	return &nodeSubscriber{all: all, node: node, again: make(chan struct{}, 1)}
}

// set chooses the channels; those that the node has refused are tried again.
func (n *nodeSubscriber) set(channels map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.want = channels
	wait.Wake(n.again)
}

func (n *nodeSubscriber) wanted() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.want // Never changed, but replaced.
}

// run keeps one connection until ctx ends.
func (n *nodeSubscriber) run(ctx context.Context) {
	pause := wait.Backoff{Initial: firstPause, Limit: longPause}
	for {
		if n.connect(ctx) {
			pause.Reset()
		}
		wait.Wake(n.all.moved) // Perhaps the node is gone.
		if !wait.Sleep(ctx, pause.Next()) {
			return
		}
	}
}

// delivery is what a connection has received.
type delivery struct {
	value any
	err   error
}

// connect listens on one connection until it fails or ctx ends, and reports
// whether it has received anything.
func (n *nodeSubscriber) connect(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	s := &subscription{
		nodeSubscriber: n, pubsub: n.node.Subscribe(ctx), state: map[string]channelState{},
	}
	// go-redis subscribes to all channels again by itself on another connection,
	// in one command, which a Cluster refuses: so each connection has its PubSub.
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() { _ = s.pubsub.Close() }()
	defer cancel()
	if s.apply(ctx, true) != nil {
		return false
	}
	received := make(chan delivery)
	reading.Go(func() { receive(ctx, s.pubsub, received) })
	s.listen(ctx, received)
	return s.useful
}

// receive passes on everything that arrives, and ends with ctx.
func receive(ctx context.Context, pubsub *redis.PubSub, to chan<- delivery) {
	for {
		value, err := pubsub.Receive(ctx)
		select {
		case to <- delivery{value, err}:
		case <-ctx.Done():
			return
		}
	}
}

// channelState is the state of a channel's subscription.
type channelState int

const (
	subscribeAsked channelState = iota + 1
	subscribeDone
	subscribeRefused
)

// request is a command whose answer is awaited; answers come in order.
type request struct {
	channel string
	on      bool
}

// subscription is the state of one connection.
type subscription struct {
	*nodeSubscriber
	pubsub  *redis.PubSub
	state   map[string]channelState
	pending []request
	// known says that the node knows or does not know sharded channels, plain
	// that it does not.
	known, plain bool
	useful       bool
	silent       int // ticks
}

func (s *subscription) listen(ctx context.Context, received <-chan delivery) {
	ticker := time.NewTicker(quietPeriod)
	defer ticker.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-s.again:
			err = s.apply(ctx, true)
		case in := <-received:
			s.silent = 0
			err = s.take(ctx, in)
		case <-ticker.C:
			err = s.tick(ctx)
		}
		if err != nil {
			return
		}
	}
}

// tick asks a silent node for a sign of life.
func (s *subscription) tick(ctx context.Context) error {
	s.silent++
	if s.silent > 1 {
		return errNoSign
	}
	return s.pubsub.Ping(ctx)
}

// apply subscribes to the wanted channels that are missing, and leaves the others.
// Until it is known whether the node supports sharded channels, it asks for only one.
func (s *subscription) apply(ctx context.Context, again bool) error {
	want := s.wanted()
	for channel, state := range s.state {
		if state == subscribeRefused && (again || !want[channel]) {
			delete(s.state, channel)
		} else if !want[channel] {
			if err := s.ask(ctx, channel, false); err != nil {
				return err
			}
		}
	}
	for channel := range want {
		if s.state[channel] != 0 {
			continue
		}
		if !s.known && len(s.pending) > 0 {
			return nil
		}
		if err := s.ask(ctx, channel, true); err != nil {
			return err
		}
	}
	return nil
}

// ask sends one command: in a Cluster its channels must be of one slot.
func (s *subscription) ask(ctx context.Context, channel string, on bool) error {
	s.pending = append(s.pending, request{channel, on})
	if !on {
		delete(s.state, channel)
		if s.plain {
			return s.pubsub.Unsubscribe(ctx, channel)
		}
		return s.pubsub.SUnsubscribe(ctx, channel)
	}
	s.state[channel] = subscribeAsked
	if s.plain {
		return s.pubsub.Subscribe(ctx, channel)
	}
	return s.pubsub.SSubscribe(ctx, channel)
}

// take handles a reply; its error ends the connection.
func (s *subscription) take(ctx context.Context, in delivery) error {
	if in.err != nil {
		return s.refused(ctx, in.err)
	}
	switch value := in.value.(type) {
	case *redis.Message:
		s.all.act(value.Channel)
	case *redis.Subscription:
		return s.confirmed(ctx, value)
	}
	return nil
}

func (s *subscription) confirmed(ctx context.Context, answer *redis.Subscription) error {
	on := answer.Kind == "ssubscribe" || answer.Kind == "subscribe"
	if i := slices.Index(s.pending, request{answer.Channel, on}); i >= 0 {
		s.pending = slices.Delete(s.pending, i, i+1)
	} else if !on {
		delete(s.state, answer.Channel) // The slot has left this node.
		wait.Wake(s.all.moved)
	}
	if !on {
		return nil
	}
	if s.wanted()[answer.Channel] {
		s.state[answer.Channel] = subscribeDone
	}
	s.useful = true
	s.all.act(answer.Channel) // Earlier hints were missed.
	if s.known {
		return nil
	}
	s.known = true
	return s.apply(ctx, false)
}

// elsewhere are the codes with which a node says that a channel is not its own,
// or that nobody knows whose it is.
var elsewhere = []string{"MOVED", "ASK", "CLUSTERDOWN", "TRYAGAIN"}

// refused handles an error: that of the oldest command, or of the connection.
func (s *subscription) refused(ctx context.Context, err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) || len(s.pending) == 0 {
		return err
	}
	code := rediserr.ReplyCode(reply.Error())
	head := s.pending[0]
	s.pending = s.pending[1:]
	switch {
	case code == "ERR" && !s.known:
		// The only error without a code of its own: no such command, as before
		// Redis 7.0. There the scripts publish on channels that are not sharded.
		s.known, s.plain = true, true
		delete(s.state, head.channel)
	case slices.Contains(elsewhere, code):
		s.known = true
		if head.on {
			s.state[head.channel] = subscribeRefused
		}
		wait.Wake(s.all.moved)
	default:
		return err
	}
	return s.apply(ctx, false)
}
