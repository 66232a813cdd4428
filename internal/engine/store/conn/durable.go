package conn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Durability asks that a call is confirmed within Timeout: by that many replicas or,
// with Fsync, by the disk of the primary. Zero asks for nothing.
type Durability struct {
	Replicas int
	Fsync    bool
	Timeout  time.Duration
}

// IsSet reports whether it asks for any confirmation.
func (d Durability) IsSet() bool { return d.Replicas > 0 || d.Fsync }

// within is how long the confirmation may take: a part of the time that ctx
// leaves, so that a script that has answered in time still counts as answered.
func (d Durability) within(ctx context.Context) time.Duration {
	wait := d.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)*3/4)
	}
	return max(wait, time.Millisecond) // 0 would be for ever.
}

// confirmation is how many copies are certain, and the error if Redis could not be asked
// for more.
type confirmation struct {
	copies int64
	err    error
}

// missing says what a call lacks to be durable; nil if it lacks nothing.
func (d Durability) missing(c confirmation) error {
	switch {
	case d.Fsync && c.copies > 0, !d.Fsync && c.copies >= int64(d.Replicas):
		return nil
	case c.err != nil:
		return c.err
	case d.Fsync:
		return errNotOnDisk
	}
	return fmt.Errorf("%d of %d replicas did", c.copies, d.Replicas)
}

var errNotOnDisk = errors.New("redis has not written it to disk yet")

// ErrNoFsync is returned if Redis cannot confirm writes to its disk; nothing
// was written.
var ErrNoFsync = errors.New("redis cannot confirm what is on its disk")

// Confirmer runs scripts of a connection and waits until they are confirmed.
type Confirmer struct {
	*Conn
	loadedScripts sync.Map // the scripts that nodes have, by node
	syncs         sync.Map // the clients of nodes that answer WAITAOF
	gates         sync.Map // the gates, by gateKey
}

// NewConfirmer returns the confirmer of the connection; it does no I/O.
func NewConfirmer(c *Conn) *Confirmer { return &Confirmer{Conn: c} }

// RunConfirmed executes the script in a place that [Confirmer.Enter] has returned,
// and says what its effect lacks to be durable; nil if it lacks nothing. The
// anchor is a key of that node with the field epoch. again says that an earlier
// run of the call may have happened.
func (u *Confirmer) RunConfirmed(
	ctx context.Context, p *Place, d Durability, again bool, anchor string, s *scripts.Script, keys []string, args ...any,
) (cmd *redis.Cmd, missing, err error) {
	// A second run is made anyway: refusing it would leave the first run's effect unknown.
	if d.Fsync && !again {
		if err := u.checkFsync(ctx, anchor); err != nil {
			return nil, nil, err
		}
	}
	within := d.within(ctx)
	last, open := p.gate.opens(within)
	if !open {
		cmd, err := u.Run(ctx, s, keys, args...)
		return cmd, d.missing(last), err
	}
	cmd, c, err := u.runAndWait(ctx, s, d, within, anchor, keys, args...)
	if err != nil {
		return nil, nil, err
	}
	if d.Fsync && c.err != nil {
		u.ForgetFsync(ctx, anchor)
	}
	missing = d.missing(c)
	p.gate.learn(within, c, missing == nil)
	return cmd, missing, nil
}

// RunCopied executes the script and waits until that many replicas have its effect.
// It returns how many certainly do. The key is like the anchor of RunConfirmed.
func (u *Confirmer) RunCopied(
	ctx context.Context, d Durability, s *scripts.Script, key string, args ...any,
) (cmd *redis.Cmd, copies int64, err error) {
	cmd, done, err := u.runAndWait(ctx, s, d, d.within(ctx), key, []string{key}, args...)
	return cmd, done.copies, err
}

// nodeScript is a script that a node knows.
type nodeScript struct {
	node   redis.UniversalClient
	script *scripts.Script
}

// runAndWait executes the script and waits for the confirmation on the same
// connection.
func (u *Confirmer) runAndWait(
	ctx context.Context, s *scripts.Script, d Durability, within time.Duration, anchor string, keys []string, args ...any,
) (*redis.Cmd, confirmation, error) {
	node, several, err := u.Node(ctx, keys[0])
	if err != nil {
		return nil, confirmation{}, err
	}
	// Send the source if the node may not know the script: an unknown one would show only after the wait.
	at := nodeScript{node, s}
	_, bySHA := u.loadedScripts.Load(at)
	command, c := u.pipeline(ctx, s.Command(ctx, !bySHA, keys, args), node, d, within, anchor)
	if redis.HasErrorPrefix(command.Err(), "NOSCRIPT") {
		command, c = u.pipeline(ctx, s.Command(ctx, true, keys, args), node, d, within, anchor)
	}
	if command.Err() == nil {
		u.loadedScripts.Store(at, true)
	}
	if several {
		u.Refresh(ctx, command.Err())
		if errors.Is(command.Err(), redis.ErrClosed) {
			return nil, confirmation{}, fmt.Errorf("%w of %s: %w", rediserr.ErrNoNode, keys[0], command.Err())
		}
	}
	return command, c, command.Err()
}

func (u *Confirmer) pipeline(
	ctx context.Context, command scripts.Command, node redis.UniversalClient, d Durability, within time.Duration, anchor string,
) (*redis.Cmd, confirmation) {
	pipe := u.Patient(ctx, node, within).Pipeline()
	_ = pipe.Process(ctx, command)
	w := newWaitCommands(ctx, pipe, d, anchor, within)
	_, err := pipe.Exec(ctx)
	switch {
	case command.Val() != nil:
		command.SetErr(nil) // It was answered; go-redis gives it the error of the wait.
	case command.Err() == nil:
		command.SetErr(err)
	}
	return command.Cmd, w.result()
}

// waitCommands are the last commands of a pipeline that waits for confirmation.
type waitCommands struct {
	fsync       bool
	touch, wait scripts.Command
}

func newWaitCommands(ctx context.Context, pipe redis.Pipeliner, d Durability, anchor string, within time.Duration) *waitCommands {
	w := &waitCommands{fsync: d.Fsync, touch: scripts.Touch.Command(ctx, true, []string{anchor}, nil)}
	if d.Fsync {
		w.wait = scripts.NewCommand(ctx, "waitaof", 1, 0, within.Milliseconds())
	} else {
		w.wait = scripts.NewCommand(ctx, "wait", d.Replicas, within.Milliseconds())
	}
	_ = pipe.Process(ctx, w.touch)
	_ = pipe.Process(ctx, w.wait)
	return w
}

func (w *waitCommands) result() (c confirmation) {
	if err := w.touch.Err(); err != nil {
		return confirmation{err: err} // The script failed, so the wait confirms nothing.
	}
	if !w.fsync {
		c.copies, c.err = w.wait.Int64()
		return c
	}
	counts, err := w.wait.Int64Slice()
	if err == nil && len(counts) == 0 {
		err = scripts.ErrReply
	}
	if err != nil {
		return confirmation{err: err}
	}
	return confirmation{copies: counts[0]}
}

// ConfirmsEarly reports whether WAITAOF confirms writes before an fsync has reached them, so that
// a power cut takes what was confirmed. With appendfsync everysec, that is Redis before 8
// (redis/redis#13793), and Valkey, whose redis_version is 7 as well. Both arguments are as INFO
// and CONFIG GET have them.
func ConfirmsEarly(redisVersion, appendfsync string) bool {
	return appendfsync == "everysec" && strings.HasPrefix(redisVersion, "7.")
}

// checkFsync asks the node once, before anything is written, whether it can
// confirm writes to its disk. Its error is [ErrNoFsync], or one that says that
// nothing was sent. A user who may not read version and appendfsync is trusted to
// have set them right.
func (u *Confirmer) checkFsync(ctx context.Context, anchor string) error {
	node, several, err := u.Node(ctx, anchor)
	if err != nil {
		return err
	}
	if _, ok := u.syncs.Load(node); ok {
		return nil
	}
	pipe := u.Client(ctx).Pipeline()
	if several {
		pipe = node.Pipeline()
	}
	w := newWaitCommands(ctx, pipe, Durability{Fsync: true}, anchor, time.Millisecond)
	info, setting := pipe.InfoMap(ctx, "server"), pipe.ConfigGet(ctx, "appendfsync")
	_, _ = pipe.Exec(ctx)
	c := w.result()
	var refusal redis.Error
	switch {
	case c.err == nil && ConfirmsEarly(info.Item("Server", "redis_version"), setting.Val()["appendfsync"]):
		return fmt.Errorf("%w: with appendfsync everysec, this version says so too early", ErrNoFsync)
	case c.err == nil:
		u.syncs.Store(node, true)
		return nil
	case w.touch.Err() == nil && errors.As(c.err, &refusal):
		return fmt.Errorf("%w: %w", ErrNoFsync, c.err)
	}
	err = fmt.Errorf("%w: %w", rediserr.ErrNotSent, c.err)
	u.Refresh(ctx, err)
	return err
}

// ForgetFsync makes checkFsync ask the node again, after the node could no longer confirm.
func (u *Confirmer) ForgetFsync(ctx context.Context, anchor string) {
	if node, _, err := u.Node(ctx, anchor); err == nil {
		u.syncs.Delete(node)
	}
}
