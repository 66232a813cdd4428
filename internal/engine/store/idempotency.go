package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

const (
	// OnceKept is how long Redis keeps the answer of a request under an idempotency key.
	OnceKept = 24 * time.Hour
	// onceTraced is how long the tombstone of a message created under such a key
	// lives: longer than the record, whose node may have another clock.
	onceTraced = OnceKept + time.Hour
)

// OnceState is the state of a request under an idempotency key.
type OnceState int

// The states, as oncebegin.lua has them.
const (
	// OnceBegun: this is the first request, and must be ended.
	OnceBegun OnceState = 1
	// OnceAgain: as OnceBegun, but an earlier request has begun and never ended.
	OnceAgain OnceState = 2
	// OnceAnswered: the first request has an answer.
	OnceAnswered OnceState = 3
	// OnceUnderWay: the first request is under way.
	OnceUnderWay OnceState = 4
	// OnceOther: the key was used for a different request.
	OnceOther OnceState = 5
)

// Once is a request that schedules messages under an idempotency key.
//
// # Why it creates each message once
//
// Its record in Redis is written before anything is scheduled. It has the fingerprint of
// the request, a plan, from which the ids and the tokens of all its messages are derived,
// and a lease, longer than the request may take. The script that creates a message leaves
// a tombstone under its token in the same step, with code and due time, which outlives
// the record. So if the bridge died before the end of a request, a repetition finds for
// each message what was done, whatever has happened to it since; or it finds that nothing
// was done and nobody else will do it, so the message needs no mark. Tombstones stay in
// their shards: if the layout has changed since, the result of an unended request is
// unknown, and its repetition creates nothing.
//
// Record and tombstones are as durable as Redis: if a failover or an eviction takes the
// record, a repetition is a new request. On one primary, a confirmed message has a
// confirmed record.
type Once struct {
	State OnceState
	// Answer is the first request's, for OnceAnswered.
	Answer []byte

	q           *Producer
	key, owner  string
	seed, epoch string // the plan
	begun       ulid.ULID
}

// onceCall marks a call that leaves a trace under its token, and is not made again where it finds one:
// of a [Once], or of [Producer.Traced].
type onceCall struct {
	traces
	isRepeat bool
	epoch    string // when it began
}

// traces says what a call leaves under its token. The zero value is that of a call under a
// token that nobody else can have: nothing, but that of a cancel or reschedule that was done.
type traces struct {
	kept    time.Duration
	ofAll   bool // also where nothing was done, since a repetition must not do it later
	isFresh bool // a trace that is there is that of another call
}

// errOnceMoved is why a repetition changes nothing.
var errOnceMoved = errors.New("the queue's layout has changed since the first request began")

// errTraced is the cause of a call that nobody has made yet.
var errTraced = errors.New("the call was not made yet")

// errOnceLost is returned if a request cannot record its end.
var errOnceLost = errors.New("the record of the idempotency key is another's by now, or is gone")

// Once begins a request under an idempotency key. name is the [Digest] of the key,
// fingerprint that of the request. The request must end within the lease. Redis keeps the
// record for [OnceKept]. The errors are [ErrUnavailable], [ErrNoLayout] and [ErrFull];
// nothing was scheduled then.
func (q *Producer) Once(ctx context.Context, name, fingerprint string, lease time.Duration) (*Once, error) {
	o := &Once{q: q, key: q.keys.Once(name), owner: rand.Text()}
	var full error
	err := q.repeat(ctx, func(l *Layout) error {
		cmd, err := q.conn.Run(ctx, scripts.OnceBegin, []string{o.key}, fingerprint, o.owner,
			ulid.MustNew(ulid.Now(), rand.Reader).String()+"."+l.Epoch, lease.Milliseconds(), OnceKept.Milliseconds())
		if rediserr.Classify(err) == rediserr.Full {
			full = fmt.Errorf("%w: begin a request: %w", ErrFull, err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("begin a request: %w", err)
		}
		r := scripts.NewReply(cmd)
		o.State, o.Answer = OnceState(r.Int(0)), []byte(r.Text(2))
		return errors.Join(r.Err, o.parse(r.Text(1)))
	})
	return o, errors.Join(err, full)
}

// parse parses a plan, which some states do not need.
func (o *Once) parse(plan string) (err error) {
	if plan == "" {
		return nil
	}
	o.seed, o.epoch, _ = strings.Cut(plan, ".")
	if o.begun, err = ulid.ParseStrict(o.seed); err != nil {
		return fmt.Errorf("%w: plan %q: %w", scripts.ErrReply, plan, err)
	}
	return nil
}

// Digest hashes texts, each with its length, so that different texts have different digests.
func Digest(texts ...string) string {
	hash := sha256.New()
	for _, text := range texts {
		_ = binary.Write(hash, binary.BigEndian, uint64(len(text))) // It never fails.
		_, _ = hash.Write([]byte(text))
	}
	return base64.RawURLEncoding.EncodeToString(hash.Sum(nil))
}

// ID returns the id of the request's n-th message, if that has none of its own: always the same.
func (o *Once) ID(n int) string {
	id := o.begun
	sum := sha256.Sum256(fmt.Appendf(nil, "id %s %d", o.seed, n))
	_ = id.SetEntropy(sum[:10]) // The length is right.
	return id.String()
}

// Call returns the request's n-th message as a call for [Request.Earlier], wrapped in an error.
func (o *Once) Call(n int, id, key string, replace bool) error {
	verb := scheduleVerb.name
	if replace {
		verb = replaceVerb.name
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "token %s %d", o.seed, n))
	return &UnknownError{Cause: errOnceMoved, Call: UnknownCall{
		Queue: o.q.keys.Name, Verb: verb, ID: id, Key: key,
		token: base64.RawURLEncoding.EncodeToString(sum[:12]), once: &onceCall{
			traces: traces{kept: onceTraced}, isRepeat: o.State == OnceAgain, epoch: o.epoch,
		},
	}}
}

// Traced names a call that takes effect once, whoever makes it and how often: its token is made of
// the name, so each who makes it has the same. As long as its trace is kept, at least [Tombstone], a further
// one changes nothing and has the first one's answer, whatever has become of the message since. Traces of
// earlier calls of that name do not count if it is known to be fresh, which is to say, made for the
// first time. verb is "schedule", "replace", "cancel" or "reschedule". It is a call as [Once.Call] returns one.
func (q *Producer) Traced(verb, id, key, name string, kept time.Duration, isFresh bool) error {
	sum := sha256.Sum256([]byte("traced " + name))
	return &UnknownError{Cause: errTraced, Call: UnknownCall{
		Queue: q.keys.Name, Verb: verb, ID: id, Key: key, token: base64.RawURLEncoding.EncodeToString(sum[:12]),
		once: &onceCall{traces: traces{kept: max(kept, Tombstone), ofAll: true, isFresh: isFresh}},
	}}
}

// TokenOf returns the token under which a call of [Producer.Traced] takes effect: that of the message
// that it schedules.
func TokenOf(call error) (string, error) {
	var unknown *UnknownError
	if !errors.As(call, &unknown) {
		return "", fmt.Errorf("no call of a name: %w", call)
	}
	return unknown.Call.token, nil
}

// leavesTrace reports whether each run of the call leaves a trace, by which others know that it has happened.
func (c *call) leavesTrace() bool { return c.once != nil && c.once.ofAll && !c.once.isFresh }

// isToBeSought reports whether a trace of the call may be in any of several homes.
func (c *call) isToBeSought() bool {
	return c.leavesTrace() && len(c.visit.homes) > 1 && !c.visit.isSought
}

// findTraces has calls of [Producer.Traced] first visit the home that has their trace, and returns the calls that may run now.
// After a change of the layout that may be any home, and the one that is visited first may have a later message of the id.
//
// Nobody else can leave a trace meanwhile that the call does not meet: all visit the homes in one order, and an older one gets no more
// messages, so whoever has not found one there goes on to the next; and whoever knows an earlier layout changes nothing in a shard that is bound to this one,
// which is why that is read first.
func (q *core) findTraces(ctx context.Context, l *Layout, calls []*call) (ready []*call) {
	if !slices.ContainsFunc(calls, (*call).isToBeSought) {
		return calls
	}
	epochs, traces := map[int]*redis.StringCmd{}, map[*call][]*redis.StringCmd{}
	_, _ = q.conn.Client(ctx).Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, c := range calls {
			for _, home := range c.visit.homes {
				switch {
				case !c.isToBeSought():
					continue
				case epochs[home] == nil:
					epochs[home] = p.HGet(ctx, l.Keys()[home].Meta, "epoch")
				}
				traces[c] = append(traces[c], p.HGet(ctx, l.Keys()[home].Gone, c.params.token))
			}
		}
		return nil
	}) // Each has its own error.
	for _, c := range calls {
		if traces[c] != nil {
			if err := c.sought(l, epochs, traces[c]); err != nil {
				c.notRun(fmt.Errorf("look for the trace: %w", err))
				continue
			}
		}
		ready = append(ready, c)
	}
	return ready
}

// sought moves the home that has a trace to the front.
func (c *call) sought(l *Layout, epochs map[int]*redis.StringCmd, traces []*redis.StringCmd) error {
	first := -1
	for i, home := range c.visit.homes {
		for _, cmd := range []*redis.StringCmd{epochs[home], traces[i]} {
			if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
		}
		if err := l.Bound(home, epochs[home].Val()); err != nil {
			return err
		}
		if traces[i].Err() == nil && first < 0 {
			first = home
		}
	}
	if c.visit.isSought = true; first >= 0 && first != c.visit.homes[0] {
		c.visit.homes = append([]int{first}, c.visit.homes...)
	}
	return nil
}

// Answered ends the request and stores its answer, which repetitions return from now on.
// After an error, the request counts as one that has not ended.
func (o *Once) Answered(ctx context.Context, answer []byte) error { return o.end(ctx, "a", answer) }

// LetGo leaves the request to its next repetition.
func (o *Once) LetGo(ctx context.Context) error { return o.end(ctx, "r", nil) }

// Forget ends a request that has changed nothing, so that its key counts as unused.
func (o *Once) Forget(ctx context.Context) error { return o.end(ctx, "f", nil) }

func (o *Once) end(ctx context.Context, what string, answer []byte) error {
	var lost error
	err := o.q.repeat(ctx, func(*Layout) error {
		cmd, err := o.q.conn.Run(ctx, scripts.OnceEnd, []string{o.key}, o.owner, what, OnceKept.Milliseconds(), answer)
		if err != nil {
			return fmt.Errorf("end a request: %w", err)
		}
		n, err := cmd.Int()
		if err == nil && n == 0 {
			lost = errOnceLost
		}
		return err
	})
	return errors.Join(err, lost)
}
