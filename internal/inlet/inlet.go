package inlet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/operate"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// HeaderError is the header that says why a message is in the dead topic.
const HeaderError = "delay-error"

const (
	// Batch is how many messages are handled together at most.
	Batch = 500
	// width is how many cancels and reschedules are under way at the same time; they share round trips.
	width = 64
	// readyTimeout bounds a look whether Redis is there.
	readyTimeout = 5 * time.Second
	// errorMost bounds the header of a dead message, in bytes.
	errorMost = 300
	// logEvery is the least time between two lines about refused messages.
	logEvery = time.Second
)

// Observer counts what became of messages.
type Observer interface {
	// Done counts a message. op is "" if it is not known; result is the status, or the code
	// of the error.
	Done(op, result string)
	// Repeated counts a message that could not be done, and is tried again.
	Repeated()
	// Waits notes how many messages wait at the broker.
	Waits(messages int64)
}

// Config is what an inlet needs.
type Config struct {
	Rules

	Queue *operate.Queue
	// Replies and Dead are topics of the broker that Broker publishes to; "" if there is none.
	Replies, Dead string
	Broker        sinks.Publisher
	// Remember is how long a message that is delivered again has no second effect.
	Remember time.Duration
	Observer Observer
	Logger   *slog.Logger
}

// Inlet does what the messages of one topic ask. Its Handle is the [source.Handler] of
// one source: one call at a time.
type Inlet struct {
	config  Config
	state   *state
	waiting bool // for Redis or the broker, and it was said
	refused struct {
		said   time.Time
		unsaid int
	}
}

// New returns an inlet; it does no I/O.
func New(config Config) *Inlet { return &Inlet{config: config, state: newState(time.Now())} }

// State is what this instance knows of the inlet.
func (in *Inlet) State() operate.InletState { return in.state.view(time.Now()) }

// Session notes what a source tells of its session, as [source.Options] has it.
func (in *Inlet) Session(err error) { in.state.session(err) }

// Waits notes how many messages a source says that wait behind those that it has delivered.
func (in *Inlet) Waits(messages int64) {
	in.state.behind(messages)
	in.config.Observer.Waits(messages)
}

// Ready is an error until Redis has answered once, as [source.Options] wants it.
func (in *Inlet) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	_, err := in.config.Queue.Store.Producer().Layout(ctx)
	if !errors.Is(ctx.Err(), context.Canceled) { // Else the source ends.
		in.state.ready(err)
	}
	return err
}

// item is a message on its way: it may be handed in more than once.
type item struct {
	*source.Delivery
	Operation

	result *Reply // nil until it is known
	// isTried is set if its operation may have run.
	isTried bool
	isToDie bool // it is refused, and not in the dead topic yet
	counted bool // as repeated
}

// Reply is the answer to a message.
type Reply struct {
	Op             string `json:"op"`
	ID             string `json:"id"`
	Key            string `json:"key"`
	Status         string `json:"status,omitempty"`
	MaybePublished *bool  `json:"maybe_published,omitempty"`
	Error          *Error `json:"error,omitempty"`
}

// Error is why a message was not done.
type Error struct {
	Code    string `json:"code"`
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Handle is a [source.Handler].
func (in *Inlet) Handle(ctx context.Context, deliveries []*source.Delivery) []error {
	errs, items := make([]error, len(deliveries)), make([]*item, len(deliveries))
	for i, d := range deliveries {
		known, isKnown := d.Kept.(*item)
		if !isKnown {
			known = in.parse(d)
			d.Kept = known
		}
		items[i] = known
	}
	in.state.holds(len(items))
	var waits holdup
	in.do(ctx, items, errs)
	waits.note(operate.CauseRedis, errs)
	in.bury(ctx, items, errs)
	waits.note(operate.CauseDead, errs)
	in.reply(ctx, items, errs)
	waits.note(operate.CauseReplies, errs)
	in.report(ctx, items, errs, waits)
	return errs
}

// holdup is why something must wait; none if it is empty.
type holdup struct {
	cause string
	err   error
}

// note notes the first error, which is of that cause.
func (w *holdup) note(cause string, errs []error) {
	if w.err != nil {
		return
	}
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		*w = holdup{cause, errs[i]}
	}
}

// parse sorts out what can never be done.
func (in *Inlet) parse(d *source.Delivery) *item {
	it := &item{Delivery: d}
	var refused *operate.Fault
	if it.Operation, refused = Parse(d, &in.config.Rules); refused != nil {
		it.refuse(refused)
	}
	return it
}

// refuse ends an item that has no effect.
func (it *item) refuse(why *operate.Fault) {
	it.result = &Reply{Op: it.Op, ID: it.ID, Key: it.Ref.Key, Error: &Error{Code: why.Code, Field: why.Field, Message: why.Detail}}
	it.isToDie = why.Code == operate.CodeInvalid
}

// levels parts the items into lists that are done one after the other. No list has
// two of one identity, and those of one identity are in their order.
func levels(items []*item) (lists [][]int) {
	next := map[delay.Ref]int{}
	for i, it := range items {
		if it.result != nil {
			continue
		}
		level := next[it.Ref]
		next[it.Ref] = level + 1
		if level == len(lists) {
			lists = append(lists, nil)
		}
		lists[level] = append(lists[level], i)
	}
	return lists
}

// do does what is not done yet. Behind what cannot be done now, nothing of its identity is.
func (in *Inlet) do(ctx context.Context, items []*item, errs []error) {
	blocked := map[delay.Ref]error{}
	for _, level := range levels(items) {
		var schedules, changes []int
		for _, i := range level {
			switch {
			case blocked[items[i].Ref] != nil:
				errs[i] = blocked[items[i].Ref]
			case items[i].Op == OpSchedule:
				schedules = append(schedules, i)
			default:
				changes = append(changes, i)
			}
		}
		var doing sync.WaitGroup
		doing.Go(func() { in.schedule(ctx, items, schedules, errs) })
		doing.Go(func() { in.change(ctx, items, changes, errs) })
		doing.Wait()
		for _, i := range level {
			if errs[i] != nil {
				blocked[items[i].Ref] = errs[i]
			}
		}
	}
}

// traced is the call of an item: it has one effect, however often the item comes.
func (in *Inlet) traced(it *item) error {
	verb := it.Op
	if it.Schedule.Conflict == "replace" {
		verb = "replace"
	}
	isFresh := it.IsAlike && !it.Redelivered && !it.isTried
	return in.config.Queue.Store.Producer().Traced(verb, it.ID, it.Ref.Key, in.config.Name+" "+it.Op+" "+it.Name, in.config.Remember, isFresh)
}

func (in *Inlet) schedule(ctx context.Context, items []*item, indices []int, errs []error) {
	if len(indices) == 0 {
		return
	}
	requests := make([]operate.Schedule, len(indices))
	for n, i := range indices {
		requests[n] = items[i].Schedule
		requests[n].Call = in.traced(items[i])
	}
	for n, r := range in.config.Queue.ScheduleAll(ctx, requests, func(int) error { return nil }) {
		errs[indices[n]] = items[indices[n]].end(r.Status, false, r.NotDurable, r.Error)
	}
}

func (in *Inlet) change(ctx context.Context, items []*item, indices []int, errs []error) {
	var group errgroup.Group
	group.SetLimit(width)
	for _, i := range indices {
		group.Go(func() error {
			it := items[i]
			var result operate.ChangeResult
			var err error
			again := delay.Repeat(in.traced(it))
			if it.Op == OpCancel {
				result, err = in.config.Queue.Cancel(ctx, it.Ref, again)
			} else {
				var when delay.When
				if when, err = it.When.Parse(); err == nil {
					result, err = in.config.Queue.Reschedule(ctx, it.Ref, when, again)
				}
			}
			var fault *operate.Fault
			if err != nil {
				fault = operate.Classify(err)
			}
			errs[i] = it.end(result.Status, result.MaybePublished, result.NotDurable, fault)
			return nil
		})
	}
	_ = group.Wait() // None returns an error.
}

// final are the codes of errors that another try does not change.
var final = map[string]bool{operate.CodeInvalid: true, "duplicate": true, "too_late": true, "not_found": true, "forbidden": true}

var errNotDurable = errors.New("done, but not confirmed as the queue's durability asks")

// end ends the item, or returns why it must be tried again.
func (it *item) end(status string, maybe, notDurable bool, fault *operate.Fault) error {
	switch {
	case fault != nil && final[fault.Code]:
		it.refuse(asHeader(fault))
	case fault != nil:
		it.isTried = it.isTried || fault.Code != "unavailable" && fault.Code != "full" && fault.Code != "no_layout"
		return fault
	case notDurable:
		it.isTried = true
		return errNotDurable
	default:
		it.result = &Reply{Op: it.Op, ID: it.ID, Key: it.Ref.Key, Status: status, MaybePublished: &maybe}
	}
	return nil
}

// publish publishes a message for each index, and leaves the error of those that must be tried again.
func (in *Inlet) publish(ctx context.Context, indices []int, errs []error, letter func(i int) message.Message) {
	if len(indices) == 0 {
		return
	}
	letters := make([]message.Message, len(indices))
	now := time.Now()
	for n, i := range indices {
		m := letter(i)
		m.Queue, m.DueAt, m.ScheduledAt, m.Attempt = in.config.Queue.Name, now, now, 1
		letters[n] = m
	}
	for n, outcome := range sinks.Publish(ctx, in.config.Broker, letters) {
		switch outcome.Class {
		case sinks.Acknowledged:
		case sinks.Permanent: // Keeping it would stop all that come after it.
			in.config.Logger.ErrorContext(ctx, "message of an inlet lost: its broker refuses it", "event", "inlet_lost",
				"topic", letters[n].Topic, "id", letters[n].ID, "err", outcome.Err)
			in.count("", "lost")
		default:
			errs[indices[n]] = fmt.Errorf("publish to %s: %s: %w", letters[n].Topic, outcome.Class, outcome.Err)
		}
	}
}

// bury takes what is refused to the dead topic, unchanged but for the reason.
func (in *Inlet) bury(ctx context.Context, items []*item, errs []error) {
	var dead []int
	for i, it := range items {
		if it.isToDie {
			dead = append(dead, i)
		}
	}
	if in.config.Dead != "" {
		in.publish(ctx, dead, errs, func(i int) message.Message { return in.letter(items[i]) })
	}
	for _, i := range dead {
		if it := items[i]; errs[i] == nil {
			it.isToDie = false
			in.state.refuses(it)
			in.logRefused(ctx, it)
		}
	}
}

// letter is a refused message for the dead topic. The broker's copy has headers of its own of
// the names that the bridge sets.
func (in *Inlet) letter(it *item) message.Message {
	headers := maps.Clone(it.Headers)
	for name := range headers {
		if lower := strings.ToLower(name); lower == HeaderID || lower == HeaderError {
			delete(headers, name)
		}
	}
	if headers == nil {
		headers = map[string]string{}
	}
	for _, name := range ofPublished {
		delete(headers, name)
	}
	headers[HeaderError] = source.HeaderText(it.result.Error.Message, errorMost)
	m := message.Message{ID: it.ID, Key: it.Delivery.Key, Topic: in.config.Dead, Token: digest("dead", it.Name)[:message.TokenLength], Headers: headers, Body: it.Body}
	if message.CheckIdentity(it.ID, "") != nil {
		m.ID = digest(it.Name)
	}
	return m
}

// logRefused says what was refused, at most once a second.
func (in *Inlet) logRefused(ctx context.Context, it *item) {
	now := time.Now()
	if now.Sub(in.refused.said) < logEvery {
		in.refused.unsaid++
		return
	}
	in.config.Logger.WarnContext(ctx, "message of an inlet refused", "event", "inlet_refused", "id", it.ID, "field", it.result.Error.Field,
		"reason", it.result.Error.Message, "dead", in.config.Dead, "more", in.refused.unsaid)
	in.refused.said, in.refused.unsaid = now, 0
}

// reply answers what has a result.
func (in *Inlet) reply(ctx context.Context, items []*item, errs []error) {
	if in.config.Replies == "" {
		return
	}
	var answered []int
	for i, it := range items {
		if it.result != nil && errs[i] == nil {
			answered = append(answered, i)
		}
	}
	in.publish(ctx, answered, errs, func(i int) message.Message {
		it := items[i]
		body, _ := json.Marshal(it.result) // It never fails.
		m := message.Message{
			ID: it.ID, Key: it.ID, Topic: in.config.Replies, Token: digest("reply", it.Op, it.Name)[:message.TokenLength],
			Headers: map[string]string{"content-type": "application/json"}, Body: body,
		}
		if message.CheckIdentity(it.ID, "") != nil {
			m.ID, m.Key = digest(it.Name), ""
		}
		return m
	})
}

// count counts a message.
func (in *Inlet) count(op, result string) {
	in.config.Observer.Done(op, result)
	in.state.done(op, result)
}

// report counts what is done, and says what must wait.
func (in *Inlet) report(ctx context.Context, items []*item, errs []error, waits holdup) {
	left := 0
	for i, it := range items {
		switch {
		case errs[i] == nil && it.result.Error != nil:
			in.count(it.Op, it.result.Error.Code)
		case errs[i] == nil:
			in.count(it.Op, it.result.Status)
		default:
			left++
			if !it.counted {
				it.counted = true
				in.config.Observer.Repeated()
				in.state.repeats()
			}
		}
	}
	in.state.holds(left)
	if ctx.Err() != nil { // It ends, so nothing can be said of Redis or the broker.
		return
	}
	in.state.waits(waits.cause, waits.err)
	switch {
	case waits.err != nil && !in.waiting:
		in.waiting = true
		in.config.Logger.WarnContext(ctx, "inlet waits", "event", "inlet_waits", "for", waits.cause, "err", waits.err)
	case waits.err == nil && in.waiting:
		in.waiting = false
		in.config.Logger.InfoContext(ctx, "inlet goes on", "event", "inlet_resumed")
	}
}
