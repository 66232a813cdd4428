package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/fit"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

var _ sinks.Checker = (*Sink)(nil)

// Check implements [sinks.Checker]. It changes nothing.
func (s *Sink) Check(ctx context.Context, plan sinks.Plan) []check.Finding {
	if err := s.client.Ping(ctx).Err(); err != nil {
		return []check.Finding{unanswered("", err)}
	}
	var (
		mu       sync.Mutex
		findings []check.Finding
	)
	look := func(ctx context.Context, server *goredis.Client) error {
		found := examine(ctx, server, plan)
		mu.Lock()
		defer mu.Unlock()
		findings = append(findings, found...)
		return nil
	}
	var err error
	switch client := s.client.(type) {
	case *goredis.ClusterClient:
		err = client.ForEachMaster(ctx, look)
	case *goredis.Client:
		err = look(ctx, client)
	}
	if err != nil {
		findings = append(findings, unanswered("", err))
	}
	slices.SortStableFunc(findings, func(a, b check.Finding) int { return strings.Compare(a.Subject, b.Subject) })
	for _, topic := range plan.Topics {
		findings = append(findings, s.checkStream(ctx, topic)...)
	}
	return findings
}

// unanswered is the finding of a server that does not answer, or refuses us.
func unanswered(server string, err error) check.Finding {
	f := check.Finding{
		Level: check.Error, Code: "redis_sink_unreachable", Subject: server,
		What:   rediserr.Cause(err),
		Why:    "nothing is published until it answers; messages wait",
		Remedy: "correct the sink's address, or start the server",
	}
	if why(err) == sinks.ReasonAuth {
		f.Code, f.Remedy = "redis_sink_login", "correct the login of the sink and its tls"
	}
	return f
}

// examine looks at one server.
func examine(ctx context.Context, server *goredis.Client, plan sinks.Plan) (findings []check.Finding) {
	addr := server.Options().Addr
	add := func(applies bool, f check.Finding) {
		if f.Subject = addr; applies {
			findings = append(findings, f)
		}
	}
	text, err := server.Info(ctx).Result()
	switch {
	case isReply(err):
		add(true, check.Finding{
			Level: check.Note, Code: "redis_sink_hidden",
			What:   "INFO is denied: " + rediserr.Cause(err),
			Why:    "the check could not see whether the server keeps acknowledged messages",
			Remedy: "allow the user to run INFO, and CONFIG GET",
		})
	case err != nil:
		return []check.Finding{unanswered(addr, err)}
	}
	info := fit.ParseInfo(text)
	policy, isEvicting := info["maxmemory_policy"], strings.HasPrefix(info["maxmemory_policy"], "allkeys-")
	add(info.IsTooOld(), check.Finding{
		Level: check.Error, Code: "redis_sink_version",
		What:   "version " + info["redis_version"] + ", need " + fit.Oldest + " or later",
		Why:    "its XADD has no NOMKSTREAM, so every message is refused",
		Remedy: "upgrade Redis",
	})
	add(info["role"] == "slave", check.Finding{
		Level: check.Error, Code: "redis_sink_replica",
		What:   "it is a replica",
		Why:    "it takes no writes; messages wait",
		Remedy: "name the primary, or the Sentinels that know it",
	})
	add(isEvicting, check.Finding{
		Level: check.Warning, Code: "redis_sink_eviction",
		What:   "maxmemory-policy is " + policy,
		Why:    "a full server throws away whole streams, with messages that it has acknowledged",
		Remedy: "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
	})
	add(info["aof_enabled"] == "0", check.Finding{
		Level: check.Warning, Code: "redis_sink_aof",
		What:   "appendonly is off",
		Why:    "a restart loses messages acknowledged since the last snapshot, or all of them if there is none",
		Remedy: "CONFIG SET appendonly yes, and the same in redis.conf",
	})
	settings := map[string]string{}
	for _, name := range []string{"appendfsync", "proto-max-bulk-len"} {
		answer, err := server.ConfigGet(ctx, name).Result()
		if err != nil {
			return findings // Managed servers have no such command.
		}
		settings[name] = answer[name]
	}
	fsync := settings["appendfsync"]
	add(info["aof_enabled"] == "1" && fsync != "always" && fsync != "", check.Finding{
		Level: check.Warning, Code: "redis_sink_fsync",
		What:   "appendfsync is " + fsync,
		Why:    "a crash of the machine loses messages acknowledged in the last second, with `no` in the last half minute",
		Remedy: "CONFIG SET appendfsync always, if that must not happen",
	})
	most, err := strconv.Atoi(settings["proto-max-bulk-len"])
	add(err == nil && most < plan.MaxMessage, check.Finding{
		Level: check.Warning, Code: "redis_sink_message_size",
		What:   fmt.Sprintf("proto-max-bulk-len is %d bytes, and a message may have %d", most, plan.MaxMessage),
		Why:    "larger ones go to the dead letters when they are due; the producer does not learn it earlier",
		Remedy: fmt.Sprintf("CONFIG SET proto-max-bulk-len %d, or queues.*.max_message: %d", plan.MaxMessage, most),
	})
	return findings
}

// checkStream checks the type of a topic's key, and whether entries may be added to it.
func (s *Sink) checkStream(ctx context.Context, topic string) (findings []check.Finding) {
	f := check.Finding{
		Level: check.Error, Code: "redis_sink_stream", Subject: "stream " + topic,
		Why:    "its messages wait, and after park_patience they go to the dead letters",
		Remedy: "XGROUP CREATE " + topic + " GROUP $ MKSTREAM: the bridge makes no stream",
	}
	switch kind, err := s.client.Type(ctx, topic).Result(); {
	case isReply(err):
		hidden := check.Finding{
			Level: check.Note, Code: "redis_sink_hidden", Subject: f.Subject,
			What:   "TYPE is denied: " + rediserr.Cause(err),
			Why:    "the check could not see whether the stream exists",
			Remedy: "allow the user to run TYPE on the key",
		}
		findings = append(findings, hidden)
	case err != nil:
		return []check.Finding{unanswered(f.Subject, err)}
	case kind == "none":
		f.What = "there is no such stream"
		findings = append(findings, f)
	case kind != "stream":
		f.What, f.Remedy = "the key is a "+kind+", and no stream", "publish to another topic, or delete the key"
		findings = append(findings, f)
	}
	// No entry can have this ID, and Redis says so after it has looked at the user's rights.
	err := s.client.Do(ctx, "XADD", topic, "NOMKSTREAM", "0-0", FieldBody, "").Err()
	if code(err) == "NOPERM" {
		f.Code, f.What = "redis_sink_denied", "XADD is denied: "+rediserr.Cause(err)
		f.Remedy = "ACL SETUSER with +xadd and ~" + topic
		findings = append(findings, f)
	}
	return findings
}
