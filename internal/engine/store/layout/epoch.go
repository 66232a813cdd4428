package layout

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

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
