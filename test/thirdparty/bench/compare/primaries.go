package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/test/trial"
)

// primaries is a Redis Cluster without replicas.
type primaries struct {
	nodes []*memory
	rdb   *redis.ClusterClient
	buses []int          // the nodes' ports for each other
	free  []func() error // of the ports and the shares, once the nodes are gone
}

// primaryShare is how many percent of a processor each primary has: so little that four and the
// rest of the path find room on two processors.
const primaryShare = 10

const clusterSlots = 16384

// startPrimaries divides the slots so that each has as many of the queue's shards.
func startPrimaries(ctx context.Context, count int) (p *primaries, err error) {
	p = &primaries{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	for range count {
		bus, free, err := service.ReservePort()
		if err != nil {
			return p, err
		}
		p.buses = append(p.buses, bus)
		p.free = append(p.free, func() error { free(); return nil })
		node, err := startRedis(ctx, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port", strconv.Itoa(bus))
		if err != nil {
			return p, err
		}
		p.nodes = append(p.nodes, node)
	}
	first := p.nodes[0].rdb
	var slots []int
	for _, shard := range (keys.Queue{Prefix: prefix, Name: queue}).Shards(shards) {
		slot, err := first.ClusterKeySlot(ctx, shard.Msg).Result()
		if err != nil {
			return p, err
		}
		slots = append(slots, int(slot))
	}
	slices.Sort(slots)
	from := 0
	for i, node := range p.nodes {
		to := clusterSlots
		if i < count-1 {
			to = slots[shards*(i+1)/count]
		}
		if err := node.rdb.ClusterAddSlotsRange(ctx, from, to-1).Err(); err != nil {
			return p, err
		}
		from = to
		host, port, _ := strings.Cut(node.Addr(), ":")
		if err := first.Do(ctx, "cluster", "meet", host, port, p.buses[i]).Err(); i > 0 && err != nil {
			return p, err
		}
	}
	for _, node := range p.nodes {
		if err := agreed(ctx, node.rdb, count); err != nil {
			return p, err
		}
	}
	p.rdb = redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: p.addrs(), PoolSize: 100, ReadTimeout: patience, ContextTimeoutEnabled: true, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	return p, nil
}

// agreed waits until a node knows all others and their slots.
func agreed(ctx context.Context, rdb *redis.Client, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		info, err := rdb.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", nodes)) {
			return nil
		}
		if err := sleepUntil(ctx, time.Now().Add(50*time.Millisecond)); err != nil {
			return fmt.Errorf("the cluster does not agree: %w", err)
		}
	}
}

func (p *primaries) addrs() (list []string) {
	for _, node := range p.nodes {
		list = append(list, node.Addr())
	}
	return list
}

func (p *primaries) section() string {
	return `{mode: cluster, addrs: ["` + strings.Join(p.addrs(), `", "`) + `"]}`
}

func (p *primaries) cpu() (sum time.Duration) {
	for _, node := range p.nodes {
		sum += ofServer(node.Server)()
	}
	return sum
}

// share gives each primary its share of a processor.
func (p *primaries) share(ctx context.Context) error {
	for _, node := range p.nodes {
		info, err := node.rdb.InfoMap(ctx, "server").Result()
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(info["Server"]["process_id"])
		if err != nil {
			return err
		}
		free, err := share(pid, primaryShare)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: a control group for each primary: %w", errSkip, err)
		}
		if err != nil {
			return err
		}
		p.free = append(p.free, free)
	}
	return nil
}

func (p *primaries) close() (err error) {
	if p.rdb != nil {
		err = p.rdb.Close()
	}
	for _, node := range p.nodes {
		node.close()
	}
	for _, free := range p.free {
		err = errors.Join(err, free())
	}
	return err
}

func openPrimaries(ctx context.Context, b *bench) (*field, error) {
	f, err := openBroker(ctx, b, "kafka", func(broker trial.Broker) []contender {
		to := target{Broker: broker, makeTopic: broker.MakeTopic, dropTopic: dropKafka(broker)}
		return []contender{{nameOne, b.bridgedFrom(1, to)}, {nameTwo, b.bridgedFrom(2, to)}, {nameFour, b.bridgedFrom(4, to)}}
	})
	if err == nil {
		f.versions = append(f.versions, kafkaVersion())
	}
	return f, err
}

// bridgedFrom measures the drain from so many primaries.
func (b *bench) bridgedFrom(count int, to target) func(context.Context) (sample, error) {
	return func(ctx context.Context) (s sample, err error) {
		p, err := startPrimaries(ctx, count)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, p.close()) }()
		w := &through{bench: b, rdb: p.rdb, to: to, filled: p.share}
		return w.drained(ctx, p.section(), p.cpu)
	}
}
