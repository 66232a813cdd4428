// Package scripts holds what Redis runs: one Lua file per verb, each with a
// header that documents its keys, arguments and answer. Go reads the answers by
// [Reply]. Package conn runs the scripts.
//
// Redis prints a number that a script passes to a command with %.17g, which takes
// as long as a small command does. So constants are strings, and whole numbers are
// printed with %d, which is exact: a script's numbers stay below 2^53.
package scripts

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua shared/*.lua
var sources embed.FS

// Script is one verb in Lua.
type Script struct {
	source, sha string
}

// The scripts, by their verbs.
var (
	Schedule   = load("schedule", within, topic, limit, tags)
	Replace    = load("replace", within, topic, limit, tags, first)
	Put        = load("put", within, tags)
	Cancel     = load("cancel", within, topic, limit, ends, tags, uid)
	Reschedule = load("reschedule", within, topic, limit, uid)
	Get        = load("get")
	Claim      = load("claim")
	Confirm    = load("confirm")
	Settle     = load("settle", topic, ends)
	Mark       = load("mark")
	Parked     = load("parked")
	Reclaim    = load("reclaim")
	HandOver   = load("handover")
	Heartbeat  = load("heartbeat")
	Leave      = load("leave")
	Pause      = load("pause")
	Forget     = load("forget")
	Stats      = load("stats")
	Layout     = load("layout")
	Change     = load("change")
	Budget     = load("budget")
	Fence      = load("fence")
	Scan       = load("scan")
	Drained    = load("drained")
	Drop       = load("drop")
	Touch      = load("touch")
	Rows       = load("rows")
	Remove     = load("remove", topic, ends, tags)
	Renew      = load("renew", within, tags)
	Page       = load("page")
	Tagged     = load("tagged", where)
	Members    = load("members", topic, where)
	Mend       = load("mend")
	JobStart   = load("jobstart")
	JobKeep    = load("jobkeep")
	OnceBegin  = load("oncebegin")
	OnceEnd    = load("onceend")
	Rate       = load("rate")
	Recurring  = load("recurring")
	Turns      = load("turns", within)
	Declare    = load("declare")
)

// Shared functions at the beginning of scripts: the index of tags, the history, a
// message's topic, the topics that a caller may touch, a new token for a message, the
// place of a message, whether a run may take effect now, when a debounced message was first scheduled, and what they share.
const (
	tags, ends, topic = "shared/tags", "shared/ends", "shared/topic"
	limit, uid, where = "shared/limit", "shared/uid", "shared/where"
	within, first     = "shared/within", "shared/first"
	number            = "shared/number"
)

func load(verb string, shared ...string) *Script {
	var all strings.Builder
	if len(shared) > 0 {
		all.WriteString(source(number)) // Some of them call it.
	}
	for _, name := range append(shared, verb) {
		all.WriteString(source(name))
	}
	return script(all.String())
}

func source(name string) string {
	text, err := sources.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // The file is part of the program.
	}
	return string(text)
}

func script(source string) *Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see above
	return &Script{source: source, sha: hex.EncodeToString(sum[:])}
}

// Command runs a script. go-redis must not resend it by itself: only we know
// which run of a call it is.
type Command struct{ *redis.Cmd }

// NewCommand returns a command that go-redis must not resend.
func NewCommand(ctx context.Context, args ...any) Command {
	return Command{redis.NewCmd(ctx, args...)}
}

// NoRetry turns go-redis' resending off.
func (Command) NoRetry() bool { return true }

// Command runs the script by its SHA-1, which Redis may not know, or by its
// source.
func (s *Script) Command(ctx context.Context, bySource bool, keys []string, args []any) Command {
	all := make([]any, 0, 3+len(keys)+len(args))
	if bySource {
		all = append(all, "eval", s.source, len(keys))
	} else {
		all = append(all, "evalsha", s.sha, len(keys))
	}
	for _, key := range keys {
		all = append(all, key)
	}
	return NewCommand(ctx, append(all, args...)...)
}

var (
	// called is the first argument of a call: its command, or one for Redis 7.0 and another
	// one for earlier versions, or a variable.
	called = regexp.MustCompile(`redis\.p?call\(([^,)]*)`)
	// listed are the commands of a call whose command is a variable.
	listed  = regexp.MustCompile(`(?m)^ *-- CALLS ([A-Z]+(?: or [A-Z]+)*)\.$`)
	command = regexp.MustCompile(`[A-Z]{3,}`)
	literal = regexp.MustCompile(`'[A-Z]+'`)
)

// Commands returns the commands that the script may call, in lower case and
// sorted: those of its calls, and, for a call by a variable, those in the comment
// that begins with CALLS.
func (s *Script) Commands() []string {
	found := map[string]bool{}
	add := func(text string) {
		for _, name := range command.FindAllString(text, -1) {
			found[strings.ToLower(name)] = true
		}
	}
	for _, call := range called.FindAllStringSubmatch(s.source, -1) {
		for _, name := range literal.FindAllString(call[1], -1) {
			add(name)
		}
	}
	for _, line := range listed.FindAllStringSubmatch(s.source, -1) {
		add(strings.ReplaceAll(line[1], " or ", " "))
	}
	return slices.Sorted(maps.Keys(found))
}
