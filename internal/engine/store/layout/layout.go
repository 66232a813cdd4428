// Package layout stores how a queue is spread over its shards. All producers and bridges
// must agree on that, even while it changes. The comment of package store says how.
package layout

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
)

// MaxShards limits the shards of a queue.
const MaxShards = 4096

var (
	// ErrNoLayout is returned for a queue that no bridge and no command has made yet.
	ErrNoLayout = errors.New("delay: no such queue in this Redis: no bridge that is configured for it has started yet, or its name or the prefix is another")
	// ErrShards is returned for a number of shards that is not from 1 to [MaxShards].
	ErrShards = fmt.Errorf("shards must be from 1 to %d", MaxShards)
)

// Layout says how a queue is spread over its shards. All producers and bridges
// must agree on it.
type Layout struct {
	// Shards is how many shards the queue has, see [Registry.SetShards].
	Shards int
	// Epoch identifies the layout: each change makes a new one, and so does
	// making a wiped queue again.
	Epoch string
	// Sink is the broker whose rules the topics must follow.
	Sink message.SinkType
	// MaxMessage is the size limit of a message, in bytes.
	MaxMessage int
	Rules      Rules
	// Earlier are the shard counts of earlier layouts that still have messages,
	// oldest first.
	Earlier []int
	// Next is the shard count of a change that has begun and is not published
	// yet; 0 if there is none.
	Next int
	// Retired are the counters of dropped shards, summed by name.
	Retired map[string]int64

	next     plan
	dropping []int
	loaded   time.Time
	keys     []keys.Shard
}

// Age returns how long ago the layout was read from Redis.
func (l *Layout) Age() time.Duration { return time.Since(l.loaded) }

// Polled returns how many shards may have a fence: those in use, and those of a
// change that is not published yet.
func (l *Layout) Polled() int { return max(l.InUse(), l.next.polled()) }

// InUse returns how many shards may hold messages: those of the layout in force
// and of the live earlier ones. Each of them has its meta. Shards that a change
// adds count once it is published.
func (l *Layout) InUse() int { return l.plan().polled() }

// SameLife reports whether both layouts belong to one life of the queue, that
// is, whether Redis was not wiped between them.
func (l *Layout) SameLife(other *Layout) bool {
	return l.Life() == other.Life()
}

// Life distinguishes the queue from one of the same name before Redis was wiped.
func (l *Layout) Life() string { return LifeOf(l.Epoch) }

// LifeOf returns the life in an epoch, empty if it has none.
func LifeOf(epoch string) string {
	_, life := parseEpoch(epoch)
	return life
}

// HasChanged reports whether another layout of the same life came before this one.
func (l *Layout) HasChanged() bool {
	counter, _ := parseEpoch(l.Epoch)
	return counter > 1
}

// Keys returns the keys of the shards that may have a fence, by number.
func (l *Layout) Keys() []keys.Shard { return l.keys }

func (l *Layout) plan() plan { return plan{epoch: l.Epoch, shards: l.Shards, earlier: l.Earlier} }

// Home returns the shard in which the message would be created.
func (l *Layout) Home(id, key string) int { return Home(key, id, l.Shards) }

// Homes returns the shards in which a message may be, each once; it would be
// created in the last one.
func (l *Layout) Homes(id, key string) []int {
	return l.AppendHomes(make([]int, 0, 1+len(l.Earlier)), id, key)
}

// AppendHomes appends what [Layout.Homes] returns.
func (l *Layout) AppendHomes(homes []int, id, key string) []int {
	newest, first := l.Home(id, key), len(homes)
	for _, shards := range l.Earlier {
		if home := Home(key, id, shards); home != newest && !slices.Contains(homes[first:], home) {
			homes = append(homes, home)
		}
	}
	return append(homes, newest)
}

func parseLayout(fields map[string]string) (*Layout, bool) {
	now, ok := parsePlan(fields["epoch"], fields["shards"]+"|"+fields["earlier"])
	maxMessage, err := strconv.Atoi(fields["max_message"])
	dropping, okDropping := splitInts(fields["dropping"])
	rules, errRules := parseRules(fields["rules"])
	layout := &Layout{
		Shards: now.shards, Epoch: now.epoch, Sink: message.SinkType(fields["sink"]), MaxMessage: maxMessage, Rules: rules,
		Earlier: now.earlier, Retired: map[string]int64{}, dropping: dropping,
	}
	if text := fields["next"]; text != "" {
		var okNext bool
		epoch, content, _ := strings.Cut(text, "|")
		layout.next, okNext = parsePlan(epoch, content)
		layout.Next, ok = layout.next.shards, ok && okNext
	}
	for field := range strings.FieldsSeq(fields["retired"]) {
		name, value, _ := strings.Cut(field, "=")
		layout.Retired[name], _ = strconv.ParseInt(value, 10, 64)
	}
	return layout, ok && okDropping && err == nil && errRules == nil
}

// Home returns the shard, 0 to shards-1, of the message (key, id): the jump hash of the
// key, or of the id if the key is empty. All messages of one key live in one shard,
// which keeps them in order. shards must be positive. Stored messages are found by this
// function, so it must never change.
func Home(key, id string, shards int) int {
	if key == "" {
		key = id
	}
	return jump(xxhash.Sum64String(key), shards)
}

// jump is the jump consistent hash of Lamping and Veach, "A Fast, Minimal
// Memory, Consistent Hash Algorithm" (2014). Growing from n to m buckets moves
// as few keys as possible.
func jump(hash uint64, buckets int) int {
	var bucket, next int64 = -1, 0
	for next < int64(buckets) {
		bucket = next
		hash = hash*2862933555777941757 + 1
		next = int64(float64(bucket+1) * (float64(int64(1)<<31) / float64((hash>>33)+1)))
	}
	return int(bucket)
}

// Rules are the part of a queue's configuration that producers must know. Like sink and
// size limit they change without a new epoch: the last bridge or command that started
// with a configuration has set them, and the others learn of it within ten seconds.
type Rules struct {
	// Topics are the topics that the queue accepts.
	Topics message.Topics `json:"topics,omitempty"`
	// History limits which ends of messages are remembered.
	History History `json:"history,omitzero"`
}

// History limits the ends of messages that a queue remembers; the zero value means none.
type History struct {
	// Count is the limit over all shards, each of which has an even part.
	Count int `json:"count"`
	// Age is how long an end is remembered.
	Age time.Duration `json:"age"`
}

// IsKept reports whether the queue remembers any ends.
func (h History) IsKept() bool { return h.Count > 0 && h.Age > 0 }

// historyOfShard returns the limits of one shard as the scripts take them: number of ends, and
// milliseconds.
func (l *Layout) historyOfShard() string {
	return strconv.Itoa(l.EndsOfShard()) + " " + strconv.FormatInt(l.Rules.History.Age.Milliseconds(), 10)
}

// WithHistory adds the history's keys in shard k to a script's keys, if the queue keeps a
// history, and returns the shard's limits as the scripts take them.
func (l *Layout) WithHistory(k keys.Shard, names []string) (all []string, limits string) {
	if !l.Rules.History.IsKept() {
		return names, ""
	}
	ended, ends := k.History()
	return append(names, ended, ends), l.historyOfShard()
}

// EndsOfShard limits how many ends one shard of the layout remembers.
func (l *Layout) EndsOfShard() int {
	if !l.Rules.History.IsKept() {
		return 0
	}
	return (l.Rules.History.Count + l.Shards - 1) / l.Shards
}

// encode returns the rules as the layout's key stores them, empty if there are none.
func (r Rules) encode() (string, error) {
	text, err := json.Marshal(r)
	if string(text) == "{}" {
		return "", nil
	}
	return string(text), err
}

func parseRules(text string) (r Rules, err error) {
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("rules: %w", err)
	}
	return r, nil
}

// newEpoch returns "<counter>-<life>-<change>": the counter grows by one with
// each change, the life is new for a queue that was wiped and made again, and
// the last part is random. An empty life makes a new one.
func newEpoch(counter int64, life string) string {
	var random [12]byte
	_, _ = rand.Read(random[:]) // It never fails.
	if life == "" {
		life = hex.EncodeToString(random[:6])
	}
	return fmt.Sprintf("%d-%s-%s", counter, life, hex.EncodeToString(random[6:]))
}

// NextEpoch returns a new epoch that succeeds the given one in the same life.
func NextEpoch(before string) string {
	counter, life := parseEpoch(before)
	return newEpoch(counter+1, life)
}

func parseEpoch(epoch string) (counter int64, life string) {
	number, rest, _ := strings.Cut(epoch, "-")
	counter, _ = strconv.ParseInt(number, 10, 64)
	life, _, _ = strings.Cut(rest, "-")
	return counter, life
}

// ahead reports whether a shard's epoch is newer than mine may know: of the
// same life, not mine, and not older.
func ahead(epoch, mine string) bool {
	counter, life := parseEpoch(epoch)
	myCounter, myLife := parseEpoch(mine)
	return epoch != mine && life == myLife && counter >= myCounter
}

// plan is a layout that is being made, as a fence stores it.
type plan struct {
	epoch   string
	shards  int
	earlier []int
}

// content is the plan without its epoch, as the shards store it.
func (p plan) content() string { return strconv.Itoa(p.shards) + "|" + joinInts(p.earlier) }

// String is the whole plan, as the layout's key stores it; empty if there is no plan.
func (p plan) String() string {
	if p.epoch == "" {
		return ""
	}
	return p.epoch + "|" + p.content()
}

// polled returns how many shards may hold messages.
func (p plan) polled() int { return max(p.shards, slices.Max(append([]int{0}, p.earlier...))) }

// parsePlan parses an epoch and the content; ok is false if they are no plan.
func parsePlan(epoch, content string) (p plan, ok bool) {
	shards, earlier, found := strings.Cut(content, "|")
	n, err := strconv.Atoi(shards)
	list, okList := splitInts(earlier)
	if !found || err != nil || !okList || n < 1 || n > MaxShards || epoch == "" {
		return plan{}, false
	}
	return plan{epoch: epoch, shards: n, earlier: list}, true
}

// succeed returns the plan that succeeds others, whose shards become earlier ones.
func succeed(epoch string, shards int, before ...plan) plan {
	p := plan{epoch: epoch, shards: shards}
	for _, b := range before {
		for _, n := range append(slices.Clone(b.earlier), b.shards) {
			if n != shards && !slices.Contains(p.earlier, n) {
				p.earlier = append(p.earlier, n)
			}
		}
	}
	return p
}

func joinInts(list []int) string {
	parts := make([]string, len(list))
	for i, n := range list {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ",")
}

func splitInts(text string) (list []int, ok bool) {
	if text == "" {
		return nil, true
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n > MaxShards {
			return nil, false
		}
		list = append(list, n)
	}
	return list, true
}
