package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/fit"
)

// redis checks each primary, and then the queues, unless no primary answers. The
// sinks wait for the topics that it finds.
func (f *Flight) redis(ctx context.Context) []check.Finding {
	defer close(f.found)
	cfg := f.config.Redis
	want := fit.Want{
		Mode: string(cfg.Mode), User: user(cfg), Prefix: f.config.Prefix, Queues: slices.Sorted(maps.Keys(f.config.Queues)), Declares: f.config.IsDeclaredByAPI(),
	}
	for _, queue := range f.config.Queues {
		switch queue.Durability {
		case config.Replicas:
			want.Replicas = max(want.Replicas, queue.Replicas)
		case config.Fsync:
			want.Fsync = true
		case config.Memory:
		}
	}
	findings := fit.Check(ctx, f.rdb, want)
	if slices.ContainsFunc(findings, fit.IsOut) {
		return findings
	}
	return append(findings, f.queues(ctx)...)
}

// user returns the user as whom we log in.
func user(cfg config.Redis) string {
	inURL := ""
	if u, err := url.Parse(cfg.URL); err == nil && u.User != nil {
		inURL = u.User.Username()
	}
	return cmp.Or(cfg.Username, inURL, "default")
}

// sentinels checks each sentinel, and whether they agree.
func (f *Flight) sentinels(ctx context.Context) []check.Finding {
	clients, err := f.config.Redis.OpenSentinels()
	if err != nil {
		return []check.Finding{{Level: check.Error, Code: "sentinel_login", What: err.Error(), Why: "no sentinel can be asked", Remedy: "correct the file that is named"}}
	}
	var findings []check.Finding
	primaries := map[string]bool{}
	answered := 0
	for i, client := range clients {
		primary, list := fit.Sentinel(ctx, client, f.config.Redis.Sentinels[i], f.config.Redis.Master)
		_ = client.Close() // Nothing is pending.
		findings = append(findings, list...)
		if primary != "" {
			primaries[primary] = true
			answered++
		}
	}
	if len(primaries) > 1 {
		findings = append(findings, check.Finding{
			Level: check.Error, Code: "sentinel_split",
			What:   "they name different primaries: " + strings.Join(slices.Sorted(maps.Keys(primaries)), ", "),
			Why:    "bridges and producers that ask different sentinels write to different servers",
			Remedy: "wait for a failover to end; else SENTINEL RESET " + f.config.Redis.Master + " on those that are wrong",
		})
	}
	if answered < 2 {
		findings = append(findings, check.Finding{
			Level: check.Warning, Code: "sentinel_few",
			What:   fmt.Sprintf("%d of %d configured sentinels can be asked", answered, len(clients)),
			Why:    "with one gone, the primary is not found at the next start",
			Remedy: "name at least three in redis.sentinels",
		})
	}
	return findings
}

// queues compares each queue's configuration with its layout in Redis, and
// finds the topics of waiting messages.
func (f *Flight) queues(ctx context.Context) []check.Finding {
	var findings []check.Finding
	for _, name := range slices.Sorted(maps.Keys(f.config.Queues)) {
		queue := store.New(f.rdb, f.config.Prefix, name)
		topics, err := inspect.NewAdmin(queue).Topics(ctx)
		switch {
		case errors.Is(err, store.ErrNoLayout):
			continue // Nobody has used the queue yet.
		case err != nil:
			findings = append(findings, check.Finding{
				Level: check.Note, Code: "queue_unread", Subject: "queue " + name,
				What: err.Error(), Why: "the topics of waiting messages were not checked", Remedy: "name them: --topic " + name + "=TOPIC",
			})
			continue
		}
		f.waiting[name] = topics
		findings = append(findings, f.layout(name, queue)...)
	}
	return findings
}

// layout compares the configuration of a queue with its layout in Redis.
func (f *Flight) layout(name string, queue *store.Queue) []check.Finding {
	layout := queue.Layouts().InUse()
	cfg := f.config.Queues[name]
	var findings []check.Finding
	if layout.Shards != cfg.Shards {
		findings = append(findings, check.Finding{
			Level: check.Warning, Code: "queue_shards", Subject: "queue " + name,
			What:   fmt.Sprintf("it has %d shards, and the configuration says %d", layout.Shards, cfg.Shards),
			Why:    "the configured number counts only when the queue is made",
			Remedy: fmt.Sprintf("queues.%s.shards: %d, or bridge shards set %d --config FILE --queue %s", name, layout.Shards, cfg.Shards, name),
		})
	}
	if sink := f.config.Sinks[cfg.Sink].Type; layout.Sink != sink {
		findings = append(findings, check.Finding{
			Level: check.Warning, Code: "queue_sink", Subject: "queue " + name,
			What:   fmt.Sprintf("it was made for %s, and its sink is %s", layout.Sink, sink),
			Why:    "waiting messages were checked against the other broker's rules: their topics may be impossible now",
			Remedy: "let the queue drain first, or use another queue for the new sink",
		})
	}
	return findings
}
