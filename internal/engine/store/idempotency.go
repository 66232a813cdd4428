package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

const (
	// OnceKept is how long the answer of a request under an idempotency key is kept.
	OnceKept = 24 * time.Hour
	// onceTraced is how long a message that was created under one leaves a tombstone:
	// longer than its record, which may be of another node's clock.
	onceTraced = OnceKept + time.Hour
)

// OnceState is what becomes of a request under an idempotency key.
type OnceState int

// The states, as oncebegin.lua has them.
const (
	// OnceBegun: it is the first one, and is to be ended.
	OnceBegun OnceState = 1
	// OnceAgain: as OnceBegun, but an earlier one has begun and told of no end.
	OnceAgain OnceState = 2
	// OnceAnswered: the first one has its answer.
	OnceAnswered OnceState = 3
	// OnceUnderWay: the first one is.
	OnceUnderWay OnceState = 4
	// OnceOther: the first one was another request.
	OnceOther OnceState = 5
)

// Once is a request that schedules messages under an idempotency key.
//
// # Why it creates each message once
//
// Its record, in Redis, is written before anything is scheduled: it has the fingerprint
// of the request, a plan, of which the ids and the tokens of all its messages are made,
// and a lease, longer than the request may take. A script that creates one of them
// leaves a tombstone under its token in the same step, which tells code and due time, and
// outlives the record. So whoever repeats a request that told of no end, since its bridge
// died, finds for each message what was done, whatever has become of it since, or that
// nothing was: then it is not done by anybody else, and is not marked maybe published.
// Tombstones stay in their shards: where the layout has changed since, what an unended
// request did is unknown, and it creates nothing any more.
//
// Record and tombstones are as durable as Redis: where a failover, or an eviction, takes
// the record, a repetition is a new request. Of one primary, a message that is confirmed
// has its record confirmed.
type Once struct {
	State OnceState
	// Answer is the first one's, of OnceAnswered.
	Answer []byte

	q           *Producer
	key, owner  string
	seed, epoch string // the plan
	begun       ulid.ULID
}

// onceCall says that a call is one of a [Once].
type onceCall struct {
	isRepeat bool
	epoch    string // when it began
}

// errOnceMoved is why a repetition does nothing.
var errOnceMoved = errors.New("the queue's layout has changed since the first request began")

// errOnceLost is returned where a request cannot tell of its end.
var errOnceLost = errors.New("the record of the idempotency key is another's by now, or is gone")

// Once begins a request under an idempotency key of that name, whose fingerprint tells it
// from other requests, both [Digest]s. It must end within the lease. Redis keeps the
// record for [OnceKept]. The errors are [ErrUnavailable], [ErrNoLayout] and [ErrFull]:
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

// parse reads a plan, which is of no use in some states.
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

// Digest is of texts, each with its length, so that other texts have another one.
func Digest(texts ...string) string {
	hash := sha256.New()
	for _, text := range texts {
		_ = binary.Write(hash, binary.BigEndian, uint64(len(text))) // It never fails.
		_, _ = hash.Write([]byte(text))
	}
	return base64.RawURLEncoding.EncodeToString(hash.Sum(nil))
}

// ID is the id of the request's n-th message, where it brings none: always the same.
func (o *Once) ID(n int) string {
	id := o.begun
	sum := sha256.Sum256(fmt.Appendf(nil, "id %s %d", o.seed, n))
	_ = id.SetEntropy(sum[:10]) // It is as long as it must be.
	return id.String()
}

// Call is the request's n-th message as a call, for [Request.Earlier], inside an error.
func (o *Once) Call(n int, id, key string, replace bool) error {
	verb := scheduleVerb.name
	if replace {
		verb = replaceVerb.name
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "token %s %d", o.seed, n))
	return &UnknownError{Cause: errOnceMoved, Call: UnknownCall{
		Queue: o.q.keys.Name, Verb: verb, ID: id, Key: key,
		token: base64.RawURLEncoding.EncodeToString(sum[:12]), once: &onceCall{isRepeat: o.State == OnceAgain, epoch: o.epoch},
	}}
}

// Answered ends the request: its answer is kept, and repeated from now on. Where there is
// an error, it is not, and the request is as one that told of no end.
func (o *Once) Answered(ctx context.Context, answer []byte) error { return o.end(ctx, "a", answer) }

// LetGo leaves the request to whoever repeats it.
func (o *Once) LetGo(ctx context.Context) error { return o.end(ctx, "r", nil) }

// Forget ends a request of which nothing was done: its key counts as unused.
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
