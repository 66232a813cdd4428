package fit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/rights"
)

// arguments are right for the commands that a bridge needs; "K" stands for a key of
// ours and "C" for a channel.
var arguments = map[string]string{
	"time": "", "get": "K", "set": "K v", "del": "K", "unlink": "K", "pttl": "K", "pexpire": "K 1",
	"hget": "K f", "hset": "K f v", "hsetnx": "K f v", "hmget": "K f", "hdel": "K f", "hexists": "K f", "hlen": "K",
	"hstrlen": "K f", "hvals": "K", "hkeys": "K", "hgetall": "K", "hscan": "K 0", "hincrby": "K f 1",
	"zadd": "K 0 m", "zrem": "K m", "zcard": "K", "zcount": "K 0 1", "zscore": "K m", "zrank": "K m", "zscan": "K 0",
	"zrange": "K 0 1", "zrangebyscore": "K 0 1", "zrangebylex": "K [a [b", "zremrangebyrank": "K 0 1",
	"zremrangebyscore": "K 0 1", "zrandmember": "K", "xadd": "K * f v", "xrevrange": "K + -", "spublish": "C m",
}

// tryAll calls each command from a script that may not write: Redis checks the
// user's rights first, and then refuses the write. So every user that may run
// scripts can learn its rights; ACL DRYRUN is only for administrators.
const tryAll = `#!lua flags=no-writes
local answers = {}
for i, command in ipairs(cjson.decode(ARGV[1])) do
  local answer = redis.pcall(unpack(command))
  answers[i] = type(answer) == 'table' and answer.err or ''
end
return answers
`

// rights returns findings for the rights that the user lacks.
func (n node) rights(ctx context.Context, want Want) []check.Finding {
	commands := rights.Data(rights.Bridge, false)
	calls := make([][]string, len(commands))
	for i, command := range commands {
		calls[i] = append([]string{command}, strings.Fields(arguments[command])...)
		for j, word := range calls[i] {
			switch word {
			case "K":
				calls[i][j] = n.key
			case "C":
				calls[i][j] = n.channel
			}
		}
	}
	asked, err := json.Marshal(calls)
	if err != nil {
		return []check.Finding{failed(n.addr, err)}
	}
	answers, err := n.Eval(ctx, tryAll, []string{n.key}, string(asked)).StringSlice()
	switch {
	case err == nil:
	case isDenied(err.Error()) && strings.Contains(err.Error(), " key"):
		return []check.Finding{lacksKeys(want, err.Error())}
	case isDenied(err.Error()):
		return []check.Finding{lacks(want, "EVAL", err.Error(), "+eval +evalsha")}
	case strings.Contains(err.Error(), "compil"): // Before 7.0 no script can be told that it may not write.
		return n.triedOne(ctx, want)
	default:
		return []check.Finding{failed(n.addr, err)}
	}
	var denied, keys []string
	isMute := false
	for i, answer := range answers {
		switch {
		case !isDenied(answer):
		case commands[i] == "spublish":
			isMute = true
		case strings.Contains(answer, "key"):
			keys = append(keys, commands[i])
		default:
			denied = append(denied, commands[i])
		}
	}
	var findings []check.Finding
	if len(denied) > 0 {
		findings = append(findings, lacks(want, strings.Join(denied, ", "), "the bridge calls it", "+"+strings.Join(denied, " +")))
	}
	if len(keys) > 0 {
		findings = append(findings, lacksKeys(want, "for "+strings.Join(keys, ", ")))
	}
	if isMute {
		findings = append(findings, lacksHints(want, "SPUBLISH", "hints are not given", "+spublish"))
	}
	findings = append(findings, n.confirmation(ctx, want)...)
	return append(findings, n.subscription(ctx, want)...)
}

// confirmation tries the commands that the queues' durability needs, with nothing to confirm.
func (n node) confirmation(ctx context.Context, want Want) []check.Finding {
	var findings []check.Finding
	for _, call := range []struct {
		isAsked bool
		args    []any
		right   string
	}{
		{want.Replicas > 0, []any{"wait", 0, 1}, "wait"},
		{want.Fsync, []any{"waitaof", 0, 0, 1}, "waitaof"},
	} {
		if !call.isAsked {
			continue
		}
		if err := n.Do(ctx, call.args...).Err(); err != nil && isDenied(err.Error()) {
			f := lacks(want, strings.ToUpper(call.right), "queues.*.durability asks for it", "+"+call.right)
			f.Why = "nothing is published until Redis confirms what it has written"
			findings = append(findings, f)
		}
	}
	return findings
}

// triedOne is the check for a Redis before 7.0, which can only show whether scripts may run.
func (n node) triedOne(ctx context.Context, want Want) []check.Finding {
	err := n.Eval(ctx, "return redis.call('HEXISTS', KEYS[1], 'f')", []string{n.key}).Err()
	switch {
	case err == nil:
		return nil
	case isDenied(err.Error()):
		return []check.Finding{lacks(want, "a script", err.Error(), "+eval +evalsha, and the others")}
	default:
		return []check.Finding{failed(n.addr, err)}
	}
}

// subscription tries to receive hints, like package hints. A server that does
// not know the command is older than 7.0, and has channels that are not sharded.
func (n node) subscription(ctx context.Context, want Want) []check.Finding {
	hints := n.SSubscribe(ctx, n.channel)
	_, err := hints.Receive(ctx)
	_ = hints.Close() // Nothing is pending.
	if err == nil || !isDenied(err.Error()) {
		return nil
	}
	return []check.Finding{lacksHints(want, "SSUBSCRIBE", "hints are not heard", "+ssubscribe +sunsubscribe")}
}

// queueKeys tries the keys of the queues outside shards, those of one shard of each, and that of what the API declares.
// A user limited to one queue has a pattern for each of them.
func queueKeys(ctx context.Context, rdb redis.UniversalClient, want Want) []check.Finding {
	pipe := rdb.Pipeline()
	asked := map[string]*redis.BoolCmd{}
	for _, name := range want.Queues {
		q := keys.Queue{Prefix: want.Prefix, Name: name}
		for _, key := range []string{q.Shard(0).Meta, q.Layout(), q.Instances(), q.Jobs(), q.Audit(), q.AuditCalls(), q.Paused(), q.Recurring()} {
			asked[key] = pipe.HExists(ctx, key, "f")
		}
	}
	if key := (keys.Queue{Prefix: want.Prefix}).Declared(); want.Declares {
		asked[key] = pipe.HExists(ctx, key, "f")
	}
	_, _ = pipe.Exec(ctx) // Each command has its own.
	var denied []string
	for key, cmd := range asked {
		if err := cmd.Err(); err != nil && isDenied(err.Error()) && strings.Contains(err.Error(), " key") {
			denied = append(denied, key)
		}
	}
	if len(denied) == 0 {
		return nil
	}
	slices.Sort(denied)
	return []check.Finding{lacksKeys(want, strings.Join(denied, ", "))}
}

func lacksKeys(want Want, detail string) check.Finding {
	return lacks(want, "keys or channels that begin with "+want.Prefix+":", detail, fmt.Sprintf("~%s:* &%s:*", want.Prefix, want.Prefix))
}

// lacksHints returns the finding for a user that cannot send or receive hints.
func lacksHints(want Want, command, detail, right string) check.Finding {
	f := lacks(want, command, detail, fmt.Sprintf("%s &%s:*", right, want.Prefix))
	f.Level = check.Warning
	f.Why = "a message that is due before all others is late by up to poller.max_sleep"
	return f
}

func lacks(want Want, what, detail, right string) check.Finding {
	return check.Finding{
		Level: check.Error, Code: "redis_denied",
		What: fmt.Sprintf("user %s is denied %s (%s)", want.User, what, detail),
		Why:  "a script that needs it fails, and its queue stands still",
		Remedy: "ACL SETUSER " + want.User + " " + right + ", then ACL SAVE or the same in users.acl; " +
			"`bridge config acl --config FILE --role bridge` prints all that is needed",
	}
}

// isDenied reports whether an answer is about the rights of the user. Inside
// scripts its code is ERR, and the text differs by version.
func isDenied(answer string) bool {
	return slices.ContainsFunc([]string{"NOPERM", "ACL failure in script", "The user executing the script can't"}, func(text string) bool {
		return strings.Contains(answer, text)
	})
}
