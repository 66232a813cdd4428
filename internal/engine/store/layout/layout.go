// Package layout keeps how a queue is spread over its shards: what every producer
// and every bridge must agree on, while it changes too. Package store tells how.
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

// MaxShards is how many shards a queue may have.
const MaxShards = 4096

var (
	// ErrNoLayout is returned for a queue that no bridge and no command has made yet.
	ErrNoLayout = errors.New("delay: no such queue in this Redis: no bridge that is configured for it has started yet, or its name or the prefix is another")
	// ErrShards is returned for a number of shards that is not from 1 to [MaxShards].
	ErrShards = fmt.Errorf("shards must be from 1 to %d", MaxShards)
)

// Layout is how a queue is spread: what every producer and every bridge must
// agree on.
type Layout struct {
	// Shards is how many shards the queue has, see [Registry.SetShards].
	Shards int
	// Epoch tells the layout from every other one: each change makes another,
	// and so does making a queue anew that was wiped.
	Epoch string
	// Sink is the broker whose rules the topics must follow.
	Sink message.SinkType
	// MaxMessage is the size limit of a message, in bytes.
	MaxMessage int
	Rules      Rules
	// Earlier are the shard counts of earlier layouts, oldest first, whose
	// messages have not all left yet.
	Earlier []int
	// Next is the shard count of a change that has begun and is not published
	// yet; 0 if there is none.
	Next int
	// Retired are the counters of shards that were dropped, summed up by name.
	Retired map[string]int64

	next     plan
	dropping []int
	loaded   time.Time
	keys     []keys.Shard
}

// Age is how long ago Redis told it.
func (l *Layout) Age() time.Duration { return time.Since(l.loaded) }

// Polled is how many shards may have a fence: those in use, and those of a
// change that is not published yet.
func (l *Layout) Polled() int { return max(l.InUse(), l.next.polled()) }

// InUse is how many shards may hold messages: those of the layout in force and
// of the earlier ones that live. Each of them has its meta. Those that a change
// adds are not among them until it is published.
func (l *Layout) InUse() int { return l.plan().polled() }

// SameLife reports whether both are layouts of one making of the queue: it is
// false where Redis was wiped between them.
func (l *Layout) SameLife(other *Layout) bool {
	return l.Life() == other.Life()
}

// Life tells a queue from the one that had its name before Redis was wiped.
func (l *Layout) Life() string { return LifeOf(l.Epoch) }

// LifeOf is the life that an epoch is of, empty where it is none.
func LifeOf(epoch string) string {
	_, life := parseEpoch(epoch)
	return life
}

// HasChanged reports whether another layout of the same life came before this one.
func (l *Layout) HasChanged() bool {
	counter, _ := parseEpoch(l.Epoch)
	return counter > 1
}

// Keys are the keys of the shards that may have a fence, by their numbers.
func (l *Layout) Keys() []keys.Shard { return l.keys }

func (l *Layout) plan() plan { return plan{epoch: l.Epoch, shards: l.Shards, earlier: l.Earlier} }

// Home is the shard where the message would be created.
func (l *Layout) Home(id, key string) int { return Home(key, id, l.Shards) }

// Homes are the shards where a message may be, each once; the last is where
// it would be created.
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

// Home returns the shard, 0 to shards-1, of the message (key, id): the jump
// hash of the key, or of the id where the key is empty. All messages of one key
// live in one shard, which is what keeps them in order. shards must be positive. What is
// stored is found by it, so it never changes.
func Home(key, id string, shards int) int {
	if key == "" {
		key = id
	}
	return jump(xxhash.Sum64String(key), shards)
}

// jump is the jump consistent hash of Lamping and Veach, "A Fast, Minimal
// Memory, Consistent Hash Algorithm" (2014): growing from n to m buckets moves
// only what must move.
func jump(hash uint64, buckets int) int {
	var bucket, next int64 = -1, 0
	for next < int64(buckets) {
		bucket = next
		hash = hash*2862933555777941757 + 1
		next = int64(float64(bucket+1) * (float64(int64(1)<<31) / float64((hash>>33)+1)))
	}
	return int(bucket)
}

// Rules are what the configuration of a queue says and its producers must know. Like
// sink and size limit they change without an epoch: whoever started last with a
// configuration has set them, and others learn of it within ten seconds.
type Rules struct {
	// Topics are those that the queue takes.
	Topics message.Topics `json:"topics,omitempty"`
	// History says which ends of messages are remembered.
	History History `json:"history,omitzero"`
}

// History limits how many ends of messages a queue remembers; the zero value is none.
type History struct {
	// Count is how many, over all shards: each has its even part.
	Count int `json:"count"`
	// Age is for how long.
	Age time.Duration `json:"age"`
}

// IsKept reports whether the queue remembers any ends.
func (h History) IsKept() bool { return h.Count > 0 && h.Age > 0 }

// historyOfShard is the limit of one shard of the layout, as the scripts take it: how many ends,
// and for how many milliseconds.
func (l *Layout) historyOfShard() string {
	return strconv.Itoa(l.EndsOfShard()) + " " + strconv.FormatInt(l.Rules.History.Age.Milliseconds(), 10)
}

// WithHistory adds the keys of the history, where the queue keeps one, to those of a script
// that are of shard k, and returns the limits of the shard's part as the scripts take them.
func (l *Layout) WithHistory(k keys.Shard, names []string) (all []string, limits string) {
	if !l.Rules.History.IsKept() {
		return names, ""
	}
	ended, ends := k.History()
	return append(names, ended, ends), l.historyOfShard()
}

// EndsOfShard is how many ends one shard of the layout remembers at the most.
func (l *Layout) EndsOfShard() int {
	if !l.Rules.History.IsKept() {
		return 0
	}
	return (l.Rules.History.Count + l.Shards - 1) / l.Shards
}

// encode is the rules as the layout's key has them: empty where there are none.
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

// newEpoch is "<counter>-<life>-<change>": the counter grows by one with each
// change; the life differs for a queue that was wiped and made anew, the change
// for each change. An empty life is a new one.
func newEpoch(counter int64, life string) string {
	var random [12]byte
	_, _ = rand.Read(random[:]) // It never fails.
	if life == "" {
		life = hex.EncodeToString(random[:6])
	}
	return fmt.Sprintf("%d-%s-%s", counter, life, hex.EncodeToString(random[6:]))
}

// NextEpoch is the epoch of a change that follows upon another of the same life.
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

// ahead reports whether the epoch of a shard is one that mine does not know: of
// the same life, not mine, and not older.
func ahead(epoch, mine string) bool {
	counter, life := parseEpoch(epoch)
	myCounter, myLife := parseEpoch(mine)
	return epoch != mine && life == myLife && counter >= myCounter
}

// plan is a layout that is being made: what a fence holds.
type plan struct {
	epoch   string
	shards  int
	earlier []int
}

// content is the plan without its epoch, as the shards keep it.
func (p plan) content() string { return strconv.Itoa(p.shards) + "|" + joinInts(p.earlier) }

// String is the whole plan, as the layout's key keeps it; that of no plan is empty.
func (p plan) String() string {
	if p.epoch == "" {
		return ""
	}
	return p.epoch + "|" + p.content()
}

// polled is how many shards may hold messages.
func (p plan) polled() int { return max(p.shards, slices.Max(append([]int{0}, p.earlier...))) }

// parsePlan reads an epoch and the content; ok is false where it is none.
func parsePlan(epoch, content string) (p plan, ok bool) {
	shards, earlier, found := strings.Cut(content, "|")
	n, err := strconv.Atoi(shards)
	list, okList := splitInts(earlier)
	if !found || err != nil || !okList || n < 1 || n > MaxShards || epoch == "" {
		return plan{}, false
	}
	return plan{epoch: epoch, shards: n, earlier: list}, true
}

// succeed is the plan that follows upon others: their shards are earlier ones.
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
