package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
)

const (
	inletAsked, inletReplies = "asked", "answered"
	// inletGroup is the bridges' consumer group, or durable, for an inlet of that name.
	inletGroup = "delaybridge-in"
)

// InletConfig are the lines of a configuration that give a world of that broker an inlet.
func InletConfig(broker string) string {
	from := inletAsked
	if broker == "nats" {
		from = fmt.Sprintf("{stream: %s, subject: %s}", inletAsked, inletAsked)
	}
	return fmt.Sprintf("inlets: {in: {sink: broker, from: %s, queue: %s, replies: %s}}", from, queueName, inletReplies)
}

// Inlet is what producers publish to the inlet of a world, and what they are answered. It is
// safe for concurrent use.
type Inlet struct {
	world *World
	ids   string

	mu    sync.Mutex
	asked map[string]*asked // by id
	// confirmed counts what the broker has confirmed to its producer, and answered the
	// operations that have an answer.
	confirmed, answered int64
	problems            []string
}

// asked is what was asked about one message.
type asked struct {
	message    delay.Message
	due, moved time.Time
	// confirmed are the operations that the broker has confirmed, and answers what came back.
	confirmed map[string]bool
	answers   map[string]inletAnswer
}

// isFar reports whether it is due long after the run.
func (a *asked) isFar() bool { return time.Until(a.due) > time.Hour/2 }

// inletAnswer is an answer of an inlet.
type inletAnswer struct {
	Op             string `json:"op"`
	ID             string `json:"id"`
	Status         string `json:"status"`
	MaybePublished bool   `json:"maybe_published"`
	Error          struct {
		Code string `json:"code"`
	} `json:"error"`
}

// SeenInlet is what a bridge says of an inlet.
type SeenInlet struct{ State, Cause string }

// Inlets are those of the bridge, as its API has them.
func (b *Bridge) Inlets(ctx context.Context) ([]SeenInlet, error) {
	var all struct{ Inlets []SeenInlet }
	err := b.get(ctx, "/api/v1/inlets", func(text io.Reader) error { return json.NewDecoder(text).Decode(&all) })
	return all.Inlets, err
}

// MakeInlet makes the topics of the world's inlet.
func (w *World) MakeInlet(ctx context.Context) error {
	return errors.Join(w.Broker.MakeTopic(ctx, inletAsked), w.Broker.MakeTopic(ctx, inletReplies))
}

// NewInlet begins a part of a run, whose ids begin with that prefix.
func NewInlet(w *World, ids string) *Inlet {
	return &Inlet{world: w, ids: ids, asked: map[string]*asked{}}
}

// Listen takes the answers until the returned function is called.
func (in *Inlet) Listen(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- in.world.Broker.Consume(ctx, inletReplies, in.got) }()
	return func() error {
		cancel()
		return <-done
	}
}

// got takes an answer. One may come more than once, but always the same.
func (in *Inlet) got(r Record) {
	in.mu.Lock()
	defer in.mu.Unlock()
	var a inletAnswer
	if err := json.Unmarshal(r.Body, &a); err != nil {
		in.problems = append(in.problems, fmt.Sprintf("answer %q: %v", r.Body, err))
		return
	}
	about := in.asked[a.ID]
	if about == nil && !strings.HasPrefix(a.ID, in.ids) {
		return // It is of an earlier part.
	}
	if about == nil {
		in.problems = append(in.problems, a.ID+": nobody has asked")
		return
	}
	if before, isAnswered := about.answers[a.Op]; !isAnswered {
		in.answered++
		about.answers[a.Op] = a
	} else if before != a {
		in.problems = append(in.problems, fmt.Sprintf("%s: answered with %+v, and then with %+v", a.ID, before, a))
	}
}

// Ask has several producers publish to the inlet until ctx ends: schedules, of which one in five is cancelled, and one in
// five rescheduled.
func (in *Inlet) Ask(ctx context.Context, seed uint64) error {
	const producers, pause = 6, 20 * time.Millisecond
	var group errgroup.Group
	for producer := range producers {
		random := rand.New(rand.NewPCG(seed, uint64(producer))) //nolint:gosec // a seed makes the run repeatable
		group.Go(func() error {
			p := inletProducer{in: in}
			defer p.hangUp()
			for n := 0; Sleep(ctx, pause) == nil; n++ {
				if p.connect(ctx) {
					p.ask(context.WithoutCancel(ctx), fmt.Sprintf("%s%d-%d", in.ids, producer, n), random)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// inletProducer publishes one message after the other. It makes a new client after an error, and
// never repeats: nobody knows whether the message is there.
type inletProducer struct {
	in      *Inlet
	publish outbox.Publisher
	end     func()
}

// connect returns false while the broker is away.
func (p *inletProducer) connect(ctx context.Context) bool {
	if p.publish == nil {
		p.publish, p.end, _ = p.in.world.Broker.Publisher(publishLimit)
	}
	return p.publish != nil
}

func (p *inletProducer) hangUp() {
	if p.publish != nil {
		p.end()
		p.publish = nil
	}
}

// ask schedules a message, and may ask for more about it. On Kafka, which keeps the order, one that is to be cancelled is
// due in an hour, so the cancel must find it.
func (p *inletProducer) ask(ctx context.Context, id string, random *rand.Rand) {
	w := p.in.world
	soon := func() time.Time {
		return time.Now().Add(time.Duration(random.Int64N(int64(4 * time.Second)))).Truncate(time.Millisecond)
	}
	about := &asked{
		message:   delay.Message{ID: id, Key: "k" + id, Topic: w.Topic, Body: []byte("for " + id), Headers: map[string]string{"their": "own"}},
		due:       soon(),
		confirmed: map[string]bool{}, answers: map[string]inletAnswer{},
	}
	ops := [][]string{{"schedule"}, {"schedule"}, {"schedule"}, {"schedule", "cancel"}, {"schedule", "reschedule"}}[random.IntN(5)]
	if len(ops) > 1 && ops[1] == "cancel" && w.Broker.Name() == "kafka" {
		about.due = about.due.Add(time.Hour)
	}
	if len(ops) > 1 && ops[1] == "reschedule" {
		about.moved = soon().Add(time.Second)
	}
	p.in.mu.Lock()
	p.in.asked[id] = about
	p.in.mu.Unlock()
	for _, op := range ops {
		if !p.say(ctx, op, about) {
			return
		}
	}
}

// say publishes one operation, and returns whether that was confirmed.
func (p *inletProducer) say(ctx context.Context, op string, about *asked) bool {
	headers := map[string]string{"delay-op": op, "delay-id": about.message.ID, "delay-key": about.message.Key}
	var body []byte
	switch op {
	case "schedule":
		headers["delay-at"], headers["delay-topic"], headers["their"] = about.due.Format(time.RFC3339Nano), about.message.Topic, "own"
		body = about.message.Body
	case "reschedule":
		headers["delay-at"] = about.moved.Format(time.RFC3339Nano)
	}
	if err := p.publish(ctx, inletAsked, headers, body); err != nil {
		p.hangUp()
		_ = Sleep(ctx, 200*time.Millisecond) // The broker is away; each try makes a message that may be there.
		return false
	}
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	p.in.confirmed++
	about.confirmed[op] = true
	return true
}

// Unanswered are the confirmed operations that have no answer yet.
func (in *Inlet) Unanswered() (list []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for id, about := range in.asked {
		for op := range about.confirmed {
			if _, isAnswered := about.answers[op]; !isAnswered {
				list = append(list, op+" "+id)
			}
		}
	}
	return list
}

// Ahead is by how many the acknowledged messages outnumber the answers that came, at least; 0 or less if
// none was acknowledged too early. It counts while no bridge runs.
func (in *Inlet) Ahead(ctx context.Context) (int64, error) {
	in.mu.Lock()
	confirmed := in.confirmed
	in.mu.Unlock()
	left, err := in.Left(ctx) // Looked for later, it may be more.
	in.mu.Lock()
	defer in.mu.Unlock()
	return confirmed - left - in.answered, err
}

// Left is how many messages the broker has that were not acknowledged.
func (in *Inlet) Left(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	switch b := in.world.Broker.(type) {
	case kafkaBroker:
		return b.uncommitted(ctx, inletAsked, inletGroup)
	case natsBroker:
		return b.unacknowledged(ctx, inletAsked, inletGroup)
	default:
		return b.Stored(ctx, inletAsked)
	}
}

// CancelRest cancels what is due in an hour, because its cancel never reached the broker.
func (in *Inlet) CancelRest(ctx context.Context) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	for id, about := range in.asked {
		_, isThere := about.answers["schedule"]
		_, isCancelled := about.answers["cancel"]
		if !isThere || isCancelled || !about.isFar() {
			continue
		}
		if err := in.world.Client.Cancel(ctx, delay.Ref{ID: id, Key: about.message.Key}); err != nil {
			return fmt.Errorf("cancel %s: %w", id, err)
		}
		about.answers["cancel"] = inletAnswer{Op: "cancel", ID: id, Status: "cancelled"}
	}
	return nil
}

// Effects are how many operations had which effect, by their answers.
type Effects struct{ Created, Cancelled, Rescheduled, None, Unsure int }

// Judge tells the ledger what was promised, once all is answered, and returns what was done by all the answers.
func (in *Inlet) Judge(ledger *Ledger) (e Effects, problems []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for id, about := range in.asked {
		if a, isAnswered := about.answers["schedule"]; !isAnswered {
			ledger.Refused(about.message, id) // It never reached the broker.
			e.Unsure++
			continue
		} else if a.Status != "created" {
			in.problems = append(in.problems, fmt.Sprintf("%s: scheduled once, and the answer is %+v", id, a))
		}
		e.Created++
		ledger.Scheduled(about.message, delay.Result{Ref: delay.Ref{ID: id, Key: about.message.Key}, DueAt: about.due})
		in.judgeChange(ledger, &e, id, about)
	}
	return e, in.problems
}

// judgeChange is for a cancel or reschedule. Where the message is out, or another bridge has been faster, it
// has no effect.
func (in *Inlet) judgeChange(ledger *Ledger, e *Effects, id string, about *asked) {
	for op, a := range about.answers {
		switch {
		case op == "schedule":
		case op == "cancel" && a.Status == "cancelled":
			e.Cancelled++
			if ledger.Cancelled(id); a.MaybePublished {
				ledger.Maybe(id)
			}
		case op == "reschedule" && a.Status == "rescheduled":
			e.Rescheduled++
			if a.MaybePublished {
				ledger.Maybe(id, about.moved)
			} else {
				ledger.Rescheduled(id, about.moved)
			}
		case a.Error.Code != "not_found" && a.Error.Code != "too_late", op == "cancel" && in.world.Broker.Name() == "kafka":
			in.problems = append(in.problems, fmt.Sprintf("%s: %+v", id, a))
		default:
			e.None++
		}
	}
}

// uncommitted is how many records of a topic a group has not committed.
func (b kafkaBroker) uncommitted(ctx context.Context, topic, group string) (left int64, err error) {
	client, done := b.client()
	defer done()
	asked := kafkago.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{}}
	var ends []kafkago.OffsetRequest
	for partition := range partitions {
		asked.Topics[topic] = append(asked.Topics[topic], partition)
		ends = append(ends, kafkago.LastOffsetOf(partition))
	}
	committed, err := client.OffsetFetch(ctx, &asked)
	if err != nil {
		return 0, err
	}
	stored, err := client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{topic: ends}})
	if err != nil {
		return 0, err
	}
	err = committed.Error
	for _, offsets := range stored.Topics[topic] {
		err = errors.Join(err, offsets.Error)
		left += offsets.LastOffset
	}
	for _, offset := range committed.Topics[topic] {
		err = errors.Join(err, offset.Error)
		left -= max(offset.CommittedOffset, 0) // -1 if there is none
	}
	return left, err
}

// unacknowledged is how many messages of a stream a durable has not acknowledged.
func (b natsBroker) unacknowledged(ctx context.Context, stream, durable string) (int64, error) {
	nc, js, err := b.connect()
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	consumer, err := js.Consumer(ctx, stream, durable)
	if err != nil {
		return 0, err
	}
	info, err := consumer.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int64(info.NumPending) + int64(info.NumAckPending), nil
}
