//go:build linux

package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/test/trial"
)

// away is how long a part is cut off: longer than a lease, and than it takes to fail over.
const away = 7 * time.Second

// scenario is a schedule that somebody has thought of.
type scenario struct {
	name string
	world
	happen func(*site, context.Context, *trial.World) error
}

// TestNamedPartitions plays schedules that chance does not find soon.
func TestNamedPartitions(t *testing.T) {
	t.Parallel()
	canary := world{broker: "nats", queueKeys: "canary: {topic: " + canaries + ", every: 1s}"}
	list := []scenario{
		{"the sentinels are alone", world{broker: "nats"}, (*site).sentinelsAlone},
		{"a node of a Cluster comes back empty", world{broker: "nats", mode: "cluster"}, (*site).emptyNode},
		{"a job in a failover", world{broker: "nats", queueKeys: replicated}, (*site).jobInFailover},
		{"fsync in a split", world{broker: "nats", rows: true, queueKeys: "durability: fsync"}, (*site).split},
		{"over budget, rows are put back", world{broker: "nats", rows: true, queueKeys: "budget: {bytes: 1KiB}"}, (*site).putBack},
		{"canaries, and a pause", canary, (*site).pauses},
		{"nats is cut off", world{broker: "nats"}, (*site).brokerCutOff},
		{"nats, and a split with both sides writing", world{broker: "nats"}, (*site).split},
		{"kafka is cut off", world{broker: "kafka"}, (*site).brokerCutOff},
		{"kafka, and a split with both sides writing", world{broker: "kafka"}, (*site).split},
		{"kafka, and two failovers while it hangs", world{broker: "kafka"}, (*site).splitAgain},
		{"rabbitmq is cut off", world{broker: "rabbitmq"}, (*site).brokerCutOff},
		{"rabbitmq, and a split with both sides writing", world{broker: "rabbitmq"}, (*site).split},
	}
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(c.queueKeys, "fsync") && !confirmsFsync(t) {
				t.Skip("fsync needs a Redis from 8.0 on")
			}
			newSite(t).playOn(t, c.world, 1, c.happen)
		})
	}
}

// TestSplitLoses is the control: what a primary takes alone, and did not need to have
// confirmed, is lost when another takes its place. On a busy machine it may take nothing
// meanwhile, so there are more tries than one.
func TestSplitLoses(t *testing.T) {
	t.Parallel()
	for range 3 {
		s := newSite(t)
		o, err := trial.Trial{
			Options: world{broker: "nats"}.options(), Rate: rate, Before: time.Second, Impatient: true,
			Happen: func(ctx context.Context, w *trial.World) error {
				return errors.Join(s.divide(ctx, w), w.Group.AwaitFailover(ctx))
			},
		}.Run(s.context)
		require.NoError(t, err)
		t.Log(o.Report)
		assert.Zero(t, o.Report.Early)
		if o.Report.Lost > 0 {
			return
		}
	}
	t.Error("the control has lost nothing: the rig proves nothing")
}

func confirmsFsync(t *testing.T) bool {
	t.Helper()
	version, err := service.RedisVersion(t.Context())
	require.NoError(t, err)
	return regexp.MustCompile(`Redis server v=([89]|\d\d)\.`).MatchString(version)
}

// both is a cut between some hosts and all others but those of a third group.
func (s *site) both(some []*Host, but ...*Host) Trouble {
	others := slices.DeleteFunc(s.all(), func(h *Host) bool { return slices.Contains(some, h) || slices.Contains(but, h) })
	links := Between(some, others, Link{Cut: true})
	maps.Copy(links, Between(others, some, Link{Cut: true}))
	return Trouble{Name: "cut " + names(some) + " ↔ " + names(others), End: away, Links: links}
}

// divide has the primary, a bridge and the producers on one side, and most of the Sentinels
// and the replicas on the other, until a replica has become a primary and both were written to.
func (s *site) divide(ctx context.Context, w *trial.World) error {
	sides := s.both([]*Host{s.outside, s.groups["redis"][0], s.groups["bridge"][0], s.groups["sentinel"][0]})
	s.Set(s.hear([]Trouble{sides}, w.Broker.Name())[0].Links)
	defer s.Set(nil)
	err := await(ctx, "another primary", func() bool { return promoted(w) > 0 })
	return errors.Join(err, trial.Sleep(ctx, away/2))
}

// promotedLine is in the log of a server that has become a primary.
const promotedLine = "MODE enabled"

// promoted is how often a replica has become a primary.
func promoted(w *trial.World) (times int) {
	for _, node := range w.Group.Nodes() {
		times += strings.Count(node.Log(), promotedLine)
	}
	return times
}

func (s *site) split(ctx context.Context, w *trial.World) error {
	return errors.Join(s.divide(ctx, w), s.play(ctx, w, nil))
}

// splitAgain is a split after which the new primary stands still until another has taken its
// place, and the broker with it.
func (s *site) splitAgain(ctx context.Context, w *trial.World) error {
	if err := s.divide(ctx, w); err != nil {
		return err
	}
	stopped := []*service.Server{w.Broker.Server()}
	for _, node := range w.Group.Nodes() {
		if strings.Contains(node.Log(), promotedLine) {
			stopped = append(stopped, node)
		}
	}
	before := promoted(w)
	var err error
	for _, node := range stopped {
		err = errors.Join(err, node.Pause())
	}
	err = errors.Join(err, await(ctx, "a third primary", func() bool { return promoted(w) > before }))
	for _, node := range stopped {
		err = errors.Join(err, node.Resume())
	}
	return errors.Join(err, s.play(ctx, w, nil))
}

// brokerCutOff has the broker hear and not answer, and then not hear.
func (s *site) brokerCutOff(ctx context.Context, w *trial.World) error {
	broker, bridges := s.groups[w.Broker.Name()], s.groups["bridge"]
	return errors.Join(
		s.play(ctx, w, []Trouble{{Name: "the broker is not heard", End: away, Links: Between(broker, bridges, Link{Cut: true})}}),
		s.play(ctx, w, []Trouble{{Name: "the broker does not hear", End: away, Links: Between(bridges, broker, Link{Cut: true})}}),
		s.play(ctx, w, []Trouble{s.both(broker)}))
}

// sentinelsAlone has all go on while nobody reaches a Sentinel.
func (s *site) sentinelsAlone(ctx context.Context, w *trial.World) error {
	s.Set(s.both(s.groups["sentinel"]).Links)
	defer s.Set(nil)
	if err := trial.Sleep(ctx, away); err != nil {
		return err
	}
	before := w.Ledger.Arrived()
	if err := await(ctx, "messages without Sentinels", func() bool { return w.Ledger.Arrived() > before+rate }); err != nil {
		return err
	}
	return s.play(ctx, w, nil)
}

// emptyNode cuts a primary off until another has taken its place, and has it start without
// its data before it hears of that.
func (s *site) emptyNode(ctx context.Context, w *trial.World) error {
	cluster, isCluster := w.RDB.(*redis.ClusterClient)
	if !isCluster {
		return errors.New("no Cluster")
	}
	primary := func() string {
		node, err := cluster.MasterForKey(ctx, w.ShardKey(0))
		if err != nil {
			return ""
		}
		return node.Options().Addr
	}
	before := primary()
	nodes := w.Group.Nodes()
	i := slices.IndexFunc(nodes, func(node *service.Server) bool { return node.Addr() == before })
	if i < 0 {
		return fmt.Errorf("%s is no node", before)
	}
	alone := s.groups["cluster"][i : i+1]
	s.Set(s.both(alone).Links)
	defer s.Set(nil)
	if err := await(ctx, "a failover", func() bool { now := primary(); return now != "" && now != before }); err != nil {
		return err
	}
	s.Set(s.both(alone, s.outside).Links) // We start it from there.
	if err := errors.Join(nodes[i].Kill(), os.RemoveAll(filepath.Join(nodes[i].Dir(), "appendonlydir")), nodes[i].Start(ctx)); err != nil {
		return err
	}
	return s.play(ctx, w, nil)
}

// jobInFailover splits the network in the middle of a job.
func (s *site) jobInFailover(ctx context.Context, w *trial.World) error {
	const tagged = 600
	requests := make([]delay.Request, tagged)
	for i := range requests {
		m := delay.Message{ID: fmt.Sprint("tagged-", i), Topic: w.Topic, Tags: []string{"sale"}}
		requests[i] = delay.Request{Message: m, When: delay.After(time.Hour)}
	}
	results, err := w.Client.ScheduleBatch(ctx, requests)
	for _, result := range results {
		err = errors.Join(err, result.Err)
	}
	if err != nil {
		return err
	}
	jobs := job.New(w.Store())
	id, err := jobs.Start(ctx, job.Spec{Verb: job.Cancel, Filter: inspect.Filter{Tag: "sale"}, Rate: tagged / 10})
	if err != nil {
		return err
	}
	var found job.Job
	get := func() bool { found, err = jobs.Get(ctx, id); return err == nil }
	if err := await(ctx, "a job", func() bool { return get() && found.Tally.Done > tagged/10 }); err != nil {
		return err
	}
	if err := s.split(ctx, w); err != nil {
		return err
	}
	if err := await(ctx, "the job's end", func() bool { return get() && found.State.Ended() }); err != nil {
		return fmt.Errorf("%w: %+v", err, found)
	}
	if found.State != job.Done || found.Remaining == nil || *found.Remaining != 0 || found.Tally.Matched != tagged {
		return fmt.Errorf("the job says %+v", found)
	}
	return nil
}

// putBack has Redis lose all while nobody reaches the database, in a queue that is over its
// budget: producers are refused, and rows are put back.
func (s *site) putBack(ctx context.Context, w *trial.World) error {
	refused := func() bool {
		_, err := w.Client.Schedule(ctx, delay.Message{ID: "probe", Topic: w.Topic}, delay.After(time.Hour))
		return errors.Is(err, delay.ErrFull) || err == nil && w.Client.Cancel(ctx, delay.Ref{ID: "probe"}) != nil
	}
	if err := await(ctx, "the budget's end", refused); err != nil {
		return err
	}
	s.Set(s.both(s.groups["postgres"]).Links)
	err := w.RDB.FlushAll(ctx).Err()
	return errors.Join(err, s.play(ctx, w, []Trouble{s.both(s.groups["postgres"])}))
}

// canaries is their topic.
const canaries = "canaries"

// pauses has the queue paused while a bridge is cut off from Redis, and then one bridge
// stopped by the kernel, and the other.
func (s *site) pauses(ctx context.Context, w *trial.World) error {
	sent := func() (n int64) { n, _ = w.Broker.Stored(ctx, canaries); return n }
	admin := inspect.NewAdmin(w.Store())
	goOn := func(when string) error {
		before := sent()
		err := await(ctx, "canaries "+when, func() bool {
			// On a busy machine a primary may pass for dead, and what no replica has confirmed goes with it.
			if promoted(w) > 0 {
				_, _ = admin.Resume(ctx, "") // If it fails, or is lost, too, it is tried again.
			}
			return sent() > before+2
		})
		for i := 0; err != nil && i < len(w.Bridges()); i++ {
			err = fmt.Errorf("%w; %d failovers; bridge %d: %s", err, promoted(w), i, end(w.Bridges()[i].Log()))
		}
		return err
	}
	if err := errors.Join(w.Broker.MakeTopic(ctx, canaries), goOn("at first")); err != nil {
		return err
	}
	for i, b := range w.Bridges() {
		_, err := admin.Pause(ctx, "", "test")
		paused := sent()
		cut := s.both(s.groups["bridge"][i : i+1])
		if err = errors.Join(err, s.Play(ctx, s.hear([]Trouble{cut}, w.Broker.Name()))); err != nil {
			return err
		}
		// One may be in flight, and one may come before the bridge that misses the hint hears of the pause by a heartbeat.
		if n := sent() - paused; n > 2 {
			return fmt.Errorf("%d canaries in a pause", n)
		}
		if _, err = admin.Resume(ctx, ""); err == nil {
			err = errors.Join(goOn("after a pause of the queue"), b.Pause())
		}
		if err == nil {
			err = errors.Join(goOn("while a bridge hangs"), b.Resume(), goOn("after it hung"))
		}
		if err != nil {
			return err
		}
	}
	return s.play(ctx, w, nil)
}

// await waits until something is so.
func await(ctx context.Context, what string, is func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for !is() {
		if err := trial.Sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("await %s: %w", what, err)
		}
	}
	return nil
}
