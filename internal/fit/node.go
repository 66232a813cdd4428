package fit

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
)

// Want is what the configuration asks of a Redis.
type Want struct {
	// Mode is standalone, sentinel or cluster.
	Mode string
	// User is who we log in as; Prefix begins all keys.
	User, Prefix string
	// Queues are those of the configuration.
	Queues []string
	// Declares is set if queues may be declared by the API.
	Declares bool
	// Replicas and Fsync are the most that the durability of any queue asks.
	Replicas int
	Fsync    bool
}

// node is one server, and a key and a channel of ours that live there.
type node struct {
	redis.UniversalClient

	addr, key, channel string
}

// observation is what the check has learnt of a node.
type observation struct {
	findings []check.Finding
	// off is how far its clock is ahead of ours, if it told the time.
	off      time.Duration
	hasClock bool
}

// look asks one node for everything.
func (n node) look(ctx context.Context, want Want) observation {
	s := observation{}
	text, err := n.Info(ctx).Result()
	switch {
	case redis.IsPermissionError(err), redis.HasErrorPrefix(err, "NOPERM"):
		s.add(hidden("INFO", "eviction, persistence, replicas and memory were not looked at", want.User, "+info"))
	case err != nil:
		s.add(failed(n.addr, err))
		return s
	default:
		info := ParseInfo(text)
		if wrong := info.misplaced(want.Mode); wrong != nil {
			s.add(*wrong)
			return s
		}
		s.add(Settings(info)...)
		s.add(info.state()...)
		s.add(info.durability(want)...)
		s.add(n.config(ctx, info, want)...)
	}
	s.add(n.rights(ctx, want)...)
	s.clock(ctx, n)
	for i := range s.findings {
		s.findings[i].Subject = n.addr
	}
	return s
}

func (s *observation) add(list ...check.Finding) { s.findings = append(s.findings, list...) }

// clock compares the clocks: the server's and ours, and the server's inside a
// script, which some engines do not have.
func (s *observation) clock(ctx context.Context, n node) {
	before := time.Now()
	now, err := n.Time(ctx).Result()
	if err != nil {
		return // The rights have told.
	}
	took := time.Since(before)
	s.off, s.hasClock = check.Certain(now.Sub(before.Add(took/2)), took), true
	s.add(check.Skew("redis at "+n.addr, s.off)...)
	told, err := n.Eval(ctx, "return redis.call('TIME')[1]", []string{n.key}).Text()
	if err != nil {
		return
	}
	sec, err := strconv.ParseInt(told, 10, 64)
	later := time.Unix(sec, 0).Sub(now)
	if err != nil || later < -2*check.MaxSkew || later > time.Since(before)+2*check.MaxSkew {
		s.add(check.Finding{
			Level: check.Error, Code: "redis_script_time",
			What:   fmt.Sprintf("TIME is %d inside a script, and %d outside of one", sec, now.Unix()),
			Why:    "the scripts decide by it what is due: nothing ever would be, or everything at once",
			Remedy: "use Redis or Valkey: this engine cannot run the bridge's scripts",
		})
	}
}

// config asks for what INFO does not tell. Who may not ask is not told more.
func (n node) config(ctx context.Context, info Info, want Want) []check.Finding {
	values := map[string]string{}
	for _, name := range []string{"appendfsync", "aof-load-truncated", "min-replicas-to-write", "lua-time-limit"} {
		answer, err := n.ConfigGet(ctx, name).Result()
		if err != nil {
			return nil // The documented user may not, and managed servers have no such command.
		}
		values[name] = answer[name]
	}
	limit, err := strconv.ParseInt(values["lua-time-limit"], 10, 64)
	return found(
		when(want.Fsync && conn.ConfirmsEarly(info["redis_version"], values["appendfsync"]), check.Finding{
			Level: check.Error, Code: "redis_waitaof",
			What:   "durability fsync is asked for, appendfsync is everysec, and this version confirms before its disk has it",
			Why:    "nothing is published, or accepted with fsync, because a power cut could undo it",
			Remedy: "CONFIG SET appendfsync always, and the same in redis.conf, or use Redis 8",
		}),
		when(values["appendfsync"] == "no" && info["aof_enabled"] == "1", check.Finding{
			Level: check.Warning, Code: "redis_fsync",
			What:   "appendfsync is no",
			Why:    "a crash of the machine loses what the kernel has not written yet, half a minute and more",
			Remedy: "CONFIG SET appendfsync everysec, or always",
		}),
		when((values["appendfsync"] == "always" || want.Fsync) && values["aof-load-truncated"] == "yes" && info["aof_enabled"] == "1", check.Finding{
			Level: check.Warning, Code: "redis_aof_truncated",
			What:   "aof-load-truncated is yes",
			Why:    "a power cut may leave half a script at the end of the file, and the restart after the next one runs that half, which loses messages",
			Remedy: "CONFIG SET aof-load-truncated no, the same in redis.conf, and redis-check-aof --fix when Redis refuses its file",
		}),
		when(values["min-replicas-to-write"] == "0" && info.number("connected_slaves") > 0, check.Finding{
			Level: check.Warning, Code: "redis_min_replicas",
			What:   "min-replicas-to-write is 0",
			Why:    "a primary that is cut off keeps taking messages, which are lost when it comes back as a replica",
			Remedy: "CONFIG SET min-replicas-to-write 1, and min-replicas-max-lag 10",
		}),
		when(err == nil && limit > 0 && limit < leastScriptTime.Milliseconds(), check.Finding{
			Level: check.Warning, Code: "redis_script_limit",
			What:   fmt.Sprintf("lua-time-limit (busy-reply-threshold) is %d ms", limit),
			Why:    "one slow script makes Redis answer BUSY to everybody",
			Remedy: "CONFIG SET lua-time-limit 5000, the default",
		}),
	)
}

// leastScriptTime is far above what a script of ours takes.
const leastScriptTime = 100 * time.Millisecond

// failed is the finding of a server that does not do what it is asked.
func failed(addr string, err error) check.Finding {
	f := check.Finding{
		Level: check.Error, Code: "redis_unreachable", Subject: addr,
		What:   rediserr.Cause(err),
		Why:    "nothing is scheduled or published without Redis",
		Remedy: "correct redis.url (or sentinels, addrs), or start the server; `redis-cli -u URL ping` answers PONG if all is well",
	}
	text := err.Error()
	switch {
	case redis.IsAuthError(err), strings.Contains(text, "WRONGPASS"), strings.Contains(text, "NOAUTH"),
		strings.Contains(text, "without any password configured"):
		f.Code, f.Remedy = "redis_login", "correct redis.username and redis.password (or password_file); `ACL LIST` shows the users"
	case strings.Contains(text, "cluster support disabled"):
		f.Code, f.Remedy = "redis_mode", "set redis.mode to standalone and redis.url: this server is not a node of a Cluster"
	case strings.Contains(text, "tls:"), strings.Contains(text, "x509:"):
		f.Code, f.Remedy = "redis_tls", "correct redis.tls: ca_file must hold the CA that signed the server's certificate, server_name the certificate's name"
	}
	return f
}

// hidden is the finding that something could not be seen.
func hidden(command, what, user, right string) check.Finding {
	return check.Finding{
		Level: check.Warning, Code: "redis_hidden",
		What:   command + " is denied: " + what,
		Why:    "neither the check nor the bridge can see settings that lose messages",
		Remedy: "ACL SETUSER " + user + " " + right,
	}
}
