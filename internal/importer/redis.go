package importer

import (
	"context"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // Redis' scripts have no other hash; it only tells whether something has changed.
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const (
	// pageItems and pageBytes are how much is read and moved at a time, at most, but for one item that is larger.
	pageItems = 250
	pageBytes = 4 << 20
	// contentRest is room in what is read of an item for all that its message does not have.
	contentRest = 64 << 10
	// callTimeout bounds each call to the origin's Redis.
	callTimeout = 5 * time.Second
	// lockLife is how long a dead import keeps others out, lockPause the time between two looks at its lock.
	lockLife  = 30 * time.Second
	lockPause = 200 * time.Millisecond
	// mark is the field of an item's hash that has the nonce, and the name of our keys beside the origin's.
	mark = "delaybridge"
)

var (
	//go:embed scripts/locked.lua
	lockedText string
	//go:embed scripts/forget.lua
	forgetText string
	//go:embed scripts/hold.lua
	holdText string
	//go:embed scripts/remove.lua
	removeText string
	//go:embed scripts/release.lua
	releaseText string
	//go:embed scripts/unlock.lua
	unlockText string

	holdScript, removeScript    = redis.NewScript(lockedText + holdText), redis.NewScript(lockedText + removeText)
	releaseScript, forgetScript = redis.NewScript(lockedText + releaseText), redis.NewScript(lockedText + forgetText)
	unlockScript                = redis.NewScript(unlockText)
)

// The errors of an origin in Redis.
var (
	// ErrNoQueue is returned for a queue that the other system does not have.
	ErrNoQueue = errors.New("there is no such queue")
	// ErrLocked is returned while another import of the queue is at work.
	ErrLocked   = errors.New("another import of this queue is at work")
	errLockLost = errors.New("another import has taken over, since this one did nothing for half a minute")
)

// system is what asynq and BullMQ have different.
type system struct {
	// name is asynq or bullmq, as the scripts know it.
	name string
	// prefix is that of all keys of the queue, item that of the items' hashes.
	prefix, item string
	// sets are the names of the sorted sets in which items wait, which are also the ends of their keys.
	sets []string
	// content is the field that has the payload, fields are all that decode needs.
	content string
	fields  []string
	// children are ends of keys that an item has if it belongs to others.
	children []string
	due      func(score float64) time.Time
	decode   func(it *Item, fields []string)
	// exists is an error if the queue does not exist; notes are those of [Origin].
	exists func(ctx context.Context, rdb redis.UniversalClient) error
	notes  func(ctx context.Context, rdb redis.UniversalClient) ([]string, error)
}

// Redis is an [Origin] that keeps its items in Redis: a hash for each, and sorted sets by due time.
type Redis struct {
	system

	rdb     redis.UniversalClient
	maxSize int
	owner   string
}

var _ Origin = (*Redis)(nil)

func newRedis(rdb redis.UniversalClient, maxSize int, s system) *Redis {
	return &Redis{system: s, rdb: rdb, maxSize: maxSize, owner: rand.Text()}
}

func (o *Redis) journal() string { return o.prefix + mark + ":journal" }
func (o *Redis) lock() string    { return o.prefix + mark + ":lock" }

// held is the set of items that are held. For asynq it is that of the state of this name.
func (o *Redis) held() string { return o.prefix + mark }

// Lock implements [Origin].
func (o *Redis) Lock(ctx context.Context) (unlock func(), err error) {
	if err := o.check(ctx); err != nil {
		return nil, err
	}
	for end := time.Now().Add(lockLife + callTimeout); ; {
		taken, err := o.tryLock(ctx)
		if err != nil {
			return nil, o.failed("lock", err)
		}
		if taken {
			break
		}
		if time.Now().After(end) {
			return nil, ErrLocked
		}
		if wait.Sleep(ctx, lockPause); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		_ = unlockScript.Run(ctx, o.rdb, []string{o.lock()}, o.owner).Err() // Else it expires.
	}, nil
}

func (o *Redis) tryLock(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return o.rdb.SetNX(ctx, o.lock(), o.owner, lockLife).Result()
}

func (o *Redis) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return o.exists(ctx, o.rdb)
}

// Count implements [Origin].
func (o *Redis) Count(ctx context.Context) (c Count, err error) {
	if err := o.check(ctx); err != nil {
		return c, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pipe := o.rdb.Pipeline()
	var waiting []*redis.IntCmd
	for _, set := range o.sets {
		waiting = append(waiting, pipe.ZCard(ctx, o.prefix+set))
	}
	held := pipe.HLen(ctx, o.journal())
	if _, err := pipe.Exec(ctx); err != nil {
		return c, o.failed("count", err)
	}
	for _, cmd := range waiting {
		c.Waiting += cmd.Val()
	}
	c.Held = held.Val()
	return c, nil
}

// Notes implements [Origin].
func (o *Redis) Notes(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	notes, err := o.notes(ctx, o.rdb)
	return notes, o.failed("look", err)
}

// Sets implements [Origin].
func (o *Redis) Sets() []string { return o.sets }

// Scan implements [Origin].
func (o *Redis) Scan(ctx context.Context, set string, cursor uint64, yield func([]*Item) error) (uint64, error) {
	list, next, err := o.scan(ctx, func(ctx context.Context) *redis.ScanCmd {
		return o.rdb.ZScan(ctx, o.prefix+set, cursor, "", pageItems)
	})
	if err != nil {
		return 0, err
	}
	items := make([]*Item, 0, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		it := &Item{Set: set, ID: list[i], score: list[i+1]}
		it.setDue(o.due)
		items = append(items, it)
	}
	return next, o.read(ctx, items, yield)
}

// Held implements [Origin].
func (o *Redis) Held(ctx context.Context, cursor uint64, yield func([]*Item) error) (uint64, error) {
	list, next, err := o.scan(ctx, func(ctx context.Context) *redis.ScanCmd {
		return o.rdb.HScan(ctx, o.journal(), cursor, "", pageItems)
	})
	if err != nil {
		return 0, err
	}
	items := make([]*Item, 0, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		it := &Item{ID: list[i], entry: &entry{}}
		if err := json.Unmarshal([]byte(list[i+1]), it.entry); err != nil {
			return 0, fmt.Errorf("journal of %s, entry %q: %w", o.prefix, it.ID, err)
		}
		it.Set, it.score = it.entry.Set, it.entry.Score
		it.setDue(o.due)
		items = append(items, it)
	}
	return next, o.read(ctx, items, yield)
}

func (o *Redis) scan(ctx context.Context, scan func(context.Context) *redis.ScanCmd) ([]string, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, next, err := scan(ctx).Result()
	return list, next, o.failed("scan", err)
}

// setDue reads the score.
func (it *Item) setDue(due func(float64) time.Time) {
	score, err := strconv.ParseFloat(it.score, 64)
	if it.Err = err; err == nil {
		it.Due = due(score)
	}
}

// read reads the items, in parts that are bounded, and yields each part.
func (o *Redis) read(ctx context.Context, items []*Item, yield func([]*Item) error) error {
	sizes, err := o.sizes(ctx, items)
	if err != nil {
		return err
	}
	for len(items) > 0 {
		n, bytes := 0, int64(0)
		for n < len(items) && n < pageItems && (n == 0 || bytes+sizes[n] <= pageBytes) {
			bytes += sizes[n]
			n++
		}
		if err := o.readPart(ctx, items[:n], sizes[:n]); err != nil {
			return err
		}
		if err := yield(items[:n]); err != nil {
			return err
		}
		items, sizes = items[n:], sizes[n:]
	}
	return nil
}

// sizes are the bytes of the items' contents.
func (o *Redis) sizes(ctx context.Context, items []*Item) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pipe := o.rdb.Pipeline()
	cmds := make([]*redis.IntCmd, len(items))
	for i, it := range items {
		cmds[i] = pipe.HStrLen(ctx, o.item+it.ID, o.content)
	}
	if len(items) > 0 {
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, o.failed("read", err)
		}
	}
	sizes := make([]int64, len(items))
	for i, cmd := range cmds {
		sizes[i] = cmd.Val()
	}
	return sizes, nil
}

// readPart reads items, but those that are larger than any message of the queue.
func (o *Redis) readPart(ctx context.Context, items []*Item, sizes []int64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pipe := o.rdb.Pipeline()
	hashes, scores := make([]*redis.SliceCmd, len(items)), make([]*redis.FloatCmd, len(items))
	kin := make([]*redis.IntCmd, len(items))
	for i, it := range items {
		key := o.item + it.ID
		scores[i] = pipe.ZScore(ctx, o.held(), it.ID)
		if len(o.children) > 0 {
			kin[i] = pipe.Exists(ctx, o.childKeys(key)...)
		}
		if most := int64(o.maxSize + contentRest); sizes[i] > most {
			it.Err = fmt.Errorf("%d bytes, and the queue takes messages of %d", sizes[i], o.maxSize)
			continue
		}
		hashes[i] = pipe.HMGet(ctx, key, append([]string{mark, o.content}, o.fields...)...)
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return o.failed("read", err)
	}
	for i, it := range items {
		if hashes[i] == nil {
			continue
		}
		fields := texts(hashes[i].Val())
		isHeld := scores[i].Err() == nil && it.entry != nil && fields[0] == it.entry.Nonce
		it.isGone = it.entry != nil && !isHeld
		if it.isGone || it.Err != nil {
			continue
		}
		sum := sha1.Sum([]byte(fields[1])) //nolint:gosec // See the import.
		it.digest = hex.EncodeToString(sum[:])
		if kin[i] != nil && kin[i].Val() > 0 {
			it.Needs = append(it.Needs, NeedsFlow)
		}
		o.decode(it, fields[1:])
	}
	return nil
}

func (o *Redis) childKeys(key string) (keys []string) {
	for _, end := range o.children {
		keys = append(keys, key+end)
	}
	return keys
}

// texts are values of a hash; one that is not there is empty.
func texts(values []any) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i], _ = v.(string)
	}
	return list
}

// Hold implements [Origin].
func (o *Redis) Hold(ctx context.Context, items []*Item, isBusy func(*Item) bool) ([]bool, error) {
	var args []any
	for _, it := range items {
		note, err := json.Marshal(it.entry)
		if err != nil {
			return nil, err
		}
		busy := ""
		if isBusy(it) {
			busy = "busy"
		}
		args = append(args, it.ID, it.score, it.digest, it.entry.Nonce, busy, note)
	}
	return o.run(ctx, holdScript, items, append([]any{o.content}, args...))
}

// Remove implements [Origin].
func (o *Redis) Remove(ctx context.Context, items []*Item) ([]bool, error) {
	return o.run(ctx, removeScript, items, namesOf(items))
}

// Release implements [Origin].
func (o *Redis) Release(ctx context.Context, items []*Item) error {
	bySet := map[string][]*Item{}
	for _, it := range items {
		bySet[it.Set] = append(bySet[it.Set], it)
	}
	for set, part := range bySet {
		if _, err := o.run(ctx, releaseScript, part, append([]any{set}, namesOf(part)...)); err != nil {
			return err
		}
	}
	return nil
}

// namesOf are the arguments that name items, with their scores.
func namesOf(items []*Item) (args []any) {
	for _, it := range items {
		args = append(args, it.ID, it.entry.Nonce, it.score)
	}
	return args
}

// run runs a script for items, of one set if it names that, and returns its answers by index.
func (o *Redis) run(ctx context.Context, script *redis.Script, items []*Item, args []any) ([]bool, error) {
	if len(items) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	keys := []string{o.lock(), o.held(), o.journal(), o.prefix + items[0].Set}
	for _, it := range items {
		keys = append(keys, o.item+it.ID)
	}
	head := []any{o.owner, lockLife.Milliseconds(), o.name, o.prefix}
	answers, err := script.Run(ctx, o.rdb, keys, append(head, args...)...).Int64Slice()
	if err != nil {
		return nil, o.failed("move", err)
	}
	done := make([]bool, len(items))
	for i := range done {
		done[i] = i < len(answers) && answers[i] == 1
	}
	return done, nil
}

// Forget implements [Origin].
func (o *Redis) Forget(ctx context.Context, items []*Item) error {
	_, err := o.run(ctx, forgetScript, items, namesOf(items))
	return err
}

// failed adds to an error where it is from.
func (o *Redis) failed(verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "LOCKLOST"):
		return errLockLost
	}
	return fmt.Errorf("%s %s: %w", verb, strings.TrimSuffix(o.prefix, ":"), err)
}
