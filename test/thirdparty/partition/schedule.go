//go:build linux

package partition

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/test/trial"
)

// Trouble is what happens to some directions of a network for a while.
type Trouble struct {
	Name       string
	Start, End time.Duration
	Links      map[Direction]Link
}

func (t Trouble) String() string {
	return fmt.Sprintf("%s from %s to %s", t.Name, t.Start.Round(time.Millisecond), t.End.Round(time.Millisecond))
}

// Between is what happens to all that goes from some hosts to others.
func Between(from, to []*Host, link Link) map[Direction]Link {
	links := map[Direction]Link{}
	for _, a := range from {
		for _, b := range to {
			if a != b {
				links[Direction{a, b}] = link
			}
		}
	}
	return links
}

// Play has all troubles happen, each at its time, and heals the network.
func (n *Network) Play(ctx context.Context, troubles []Trouble) error {
	defer n.Set(nil)
	var steps []time.Duration
	for _, t := range troubles {
		steps = append(steps, t.Start, t.End)
	}
	slices.Sort(steps)
	begin := time.Now()
	for _, at := range steps {
		if err := trial.Sleep(ctx, at-time.Since(begin)); err != nil {
			return err
		}
		links := map[Direction]Link{}
		for _, t := range troubles {
			if t.Start > at || t.End <= at {
				continue
			}
			for direction, link := range t.Links {
				if !links[direction].Cut {
					links[direction] = link
				}
			}
		}
		n.Set(links)
	}
	return nil
}

// longest is how long a random schedule takes.
const longest = 7 * time.Second

// random is a schedule from a seed: one to four troubles, which may overlap. Each is a host
// that is alone, a split in two, or one pair of hosts; and the packets are cut in one
// direction or both, or come late, in another order, and not all.
func random(random *rand.Rand, hosts []*Host) []Trouble {
	var troubles []Trouble
	for range 1 + random.IntN(4) {
		start := time.Duration(random.Int64N(int64(longest / 2)))
		t := Trouble{Start: start, End: start + longest/20 + time.Duration(random.Int64N(int64(longest/2)))}
		shuffled := slices.Clone(hosts)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		some, others := shuffled[:1], shuffled[1:]
		switch random.IntN(3) {
		case 0:
			n := 2 + random.IntN(len(hosts)-3)
			some, others = shuffled[:n], shuffled[n:]
		case 1:
			others = shuffled[1:2]
		}
		link, what := Link{Cut: true}, "cut"
		if random.IntN(4) == 0 {
			link, what = Link{
				Loss: random.Float64() / 4, Delay: time.Duration(random.Int64N(int64(200 * time.Millisecond))),
				Jitter: time.Duration(random.Int64N(int64(300 * time.Millisecond))),
			}, "disturbed"
		}
		t.Links = Between(some, others, link)
		arrow := "→"
		if random.IntN(2) == 0 {
			arrow = "↔"
			maps.Copy(t.Links, Between(others, some, link))
		}
		t.Name = fmt.Sprintf("%s %s %s %s", what, names(some), arrow, names(others))
		troubles = append(troubles, t)
	}
	return troubles
}

// names are those of hosts, shortened.
func names(hosts []*Host) string {
	var list []string
	for _, h := range hosts {
		list = append(list, h.Name)
	}
	return strings.Join(list, "+")
}
