package fit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/check"
)

// commands are what the scripts call, each with arguments that would be right; "K"
// stands for a key of ours and "C" for a channel.
var commands = []string{
	"time", "get K", "set K v", "del K", "unlink K", "pttl K",
	"hget K f", "hset K f v", "hsetnx K f v", "hmget K f", "hdel K f", "hexists K f", "hlen K", "hstrlen K f", "hvals K", "hgetall K",
	"hscan K 0", "hincrby K f 1",
	"zadd K 0 m", "zrem K m", "zcard K", "zcount K 0 1", "zscore K m", "zrank K m", "zscan K 0", "zrange K 0 1", "zrangebyscore K 0 1",
	"zremrangebyrank K 0 1", "zremrangebyscore K 0 1", "zrandmember K",
	"xadd K * f v", "xrevrange K + -", "publish C m", "spublish C m",
}

// tryAll calls each command as a script that may not write: Redis looks at the
// rights of the user first, and refuses to write then. So it tells the rights to
// every user who may run scripts, where ACL DRYRUN is for administrators.
const tryAll = `#!lua flags=no-writes
local answers = {}
for i, command in ipairs(cjson.decode(ARGV[1])) do
  local answer = redis.pcall(unpack(command))
  answers[i] = type(answer) == 'table' and answer.err or ''
end
return answers
`

// rights are the rights that the user lacks.
func (n node) rights(ctx context.Context, want Want) []check.Finding {
	calls := make([][]string, len(commands))
	for i, command := range commands {
		calls[i] = strings.Fields(command)
		for j, word := range calls[i] {
			switch word {
			case "K":
				calls[i][j] = n.key
			case "C":
				calls[i][j] = n.key + ":wake"
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
	for i, answer := range answers {
		name, _, _ := strings.Cut(commands[i], " ")
		switch {
		case !isDenied(answer), name == "spublish": // Hints go by publish where they cannot go by spublish.
		case strings.Contains(answer, "key"), strings.Contains(answer, "channel"):
			keys = append(keys, name)
		default:
			denied = append(denied, name)
		}
	}
	var findings []check.Finding
	if len(denied) > 0 {
		findings = append(findings, lacks(want, strings.Join(denied, ", "), "the scripts call it", "+"+strings.Join(denied, " +")))
	}
	if len(keys) > 0 {
		findings = append(findings, lacksKeys(want, "for "+strings.Join(keys, ", ")))
	}
	findings = append(findings, n.confirmation(ctx, want)...)
	return append(findings, n.subscription(ctx, want)...)
}

// confirmation tries what the queues' durability asks, for nobody's confirmation.
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

// triedOne is what can be told of a Redis before 7.0: whether scripts may be run.
func (n node) triedOne(ctx context.Context, want Want) []check.Finding {
	err := n.Eval(ctx, "return redis.call('HEXISTS', KEYS[1], 'f')", []string{n.key}).Err()
	switch {
	case err == nil:
		return nil
	case isDenied(err.Error()):
		return []check.Finding{lacks(want, "a script", err.Error(), "+eval +evalsha, and what docs/operations.md lists")}
	default:
		return []check.Finding{failed(n.addr, err)}
	}
}

// subscription tries to hear hints.
func (n node) subscription(ctx context.Context, want Want) []check.Finding {
	client, ok := n.UniversalClient.(interface {
		Subscribe(ctx context.Context, channels ...string) *redis.PubSub
	})
	if !ok {
		return nil
	}
	hints := client.Subscribe(ctx, n.key+":wake")
	defer func() { _ = hints.Close() }() // Nothing is pending.
	if _, err := hints.Receive(ctx); err != nil && isDenied(err.Error()) {
		f := lacks(want, "SUBSCRIBE", "hints are not heard", "+subscribe +unsubscribe +ssubscribe +sunsubscribe &"+want.Prefix+":*")
		f.Level = check.Warning
		f.Why = "a message that is due before all others is late by up to poller.max_sleep"
		return []check.Finding{f}
	}
	return nil
}

func lacksKeys(want Want, detail string) check.Finding {
	return lacks(want, "keys or channels that begin with "+want.Prefix+":", detail, fmt.Sprintf("~%s:* &%s:*", want.Prefix, want.Prefix))
}

func lacks(want Want, what, detail, right string) check.Finding {
	return check.Finding{
		Level: check.Error, Code: "redis_denied",
		What:   fmt.Sprintf("user %s is denied %s (%s)", want.User, what, detail),
		Why:    "a script that meets it fails, and its queue stands still",
		Remedy: "ACL SETUSER " + want.User + " " + right + ", then ACL SAVE or the same in users.acl",
	}
}

// isDenied reports whether an answer is about the rights of the user. Inside
// scripts its code is ERR, and the text differs by version.
func isDenied(answer string) bool {
	return slices.ContainsFunc([]string{"NOPERM", "ACL failure in script", "The user executing the script can't"}, func(text string) bool {
		return strings.Contains(answer, text)
	})
}
