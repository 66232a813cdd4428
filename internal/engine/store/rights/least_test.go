package rights_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/rights"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// What the users of these tests have. The second queue is for what needs one that
// remembers nothing.
const (
	password = "PASSWORD"
	main     = "orders"
	other    = "moved"
	database = 1
)

// life is what a role does with a queue, as a user of its own, beside root, who may do
// everything.
type life struct {
	prefix    string
	root, rdb *redis.Client
	// near is the queue as root has it, q as the user does.
	near, q *store.Queue
	number  uint64 // of the last claim
}

// step is a part of a life.
type step struct {
	name string
	do   func(context.Context, *life) error
}

// tolerated is what a role is denied, and does without.
var tolerated = map[rights.Role]string{rights.Producer: "info"}

// TestLeast lives the life of each role: with its rights nothing is denied, and without
// any one of them something is.
func TestLeast(t *testing.T) {
	t.Parallel()
	for _, role := range rights.Roles() {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			root := client(t, testenv.StartRedis(t).Addr(), "default", "")
			runs := 0
			lack := func(leave func(r *rights.Rights, prefix string)) []redis.ACLLogEntry {
				runs++
				prefix := fmt.Sprint("p", runs)
				r := rights.For(role, rights.Setup{Prefix: prefix, Queues: []string{main, other}, OtherDatabase: true})
				leave(&r, prefix)
				return live(t, root, role, r, prefix)
			}
			require.Empty(t, lack(func(*rights.Rights, string) {}), "what %s is denied", role)
			whole := rights.For(role, rights.Setup{Prefix: "PREFIX", Queues: []string{main}, OtherDatabase: true})
			for _, left := range whole.Commands {
				denied := lack(func(r *rights.Rights, _ string) { r.Commands = without(r.Commands, left) })
				assert.True(t, slices.ContainsFunc(denied, func(e redis.ACLLogEntry) bool { return e.Reason == "command" && e.Object == left }),
					"%s needs no +%s: %+v", role, left, denied)
			}
			for _, left := range whole.Keys {
				denied := lack(func(r *rights.Rights, prefix string) {
					r.Keys = without(r.Keys, strings.ReplaceAll(left, "PREFIX", prefix))
				})
				assert.True(t, has(denied, "key"), "%s needs no ~%s: %+v", role, left, denied)
			}
			for _, left := range whole.Channels {
				denied := lack(func(r *rights.Rights, prefix string) {
					r.Channels = without(r.Channels, strings.ReplaceAll(left, "PREFIX", prefix))
				})
				assert.True(t, has(denied, "channel"), "%s needs no &%s: %+v", role, left, denied)
			}
		})
	}
}

func without(list []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == one })
}

func has(denied []redis.ACLLogEntry, reason string) bool {
	return slices.ContainsFunc(denied, func(e redis.ACLLogEntry) bool { return e.Reason == reason })
}

// live makes a user with these rights, and lives until it is denied anything.
func live(t *testing.T, root *redis.Client, role rights.Role, r rights.Rights, prefix string) []redis.ACLLogEntry {
	t.Helper()
	ctx := t.Context()
	words := []any{}
	for word := range strings.FieldsSeq(r.SetUser("user-"+prefix, password)) {
		words = append(words, word)
	}
	require.NoError(t, root.Do(ctx, words...).Err())
	rdb := client(t, root.Options().Addr, "user-"+prefix, password)
	defer func() { _ = rdb.Close() }()
	l := &life{
		prefix: prefix, root: root, rdb: rdb, near: store.New(root, prefix, main), q: store.New(rdb, prefix, main),
	}
	require.NoError(t, l.prepare(ctx))
	require.NoError(t, root.ScriptFlush(ctx).Err())
	require.NoError(t, root.ConfigResetStat(ctx).Err())
	require.NoError(t, root.ACLLogReset(ctx).Err())
	for _, step := range lives[role] {
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		err := step.do(limited, l)
		cancel()
		denied, errLog := l.denied(ctx, tolerated[role])
		require.NoError(t, errLog)
		if len(denied) > 0 {
			return denied
		}
		require.NoError(t, err, "%s: %s", role, step.name)
	}
	return nil
}

// denied is what the user was denied, but for what it does without.
func (l *life) denied(ctx context.Context, tolerated string) (denied []redis.ACLLogEntry, err error) {
	entries, err := l.root.ACLLog(ctx, 100).Result()
	for _, entry := range entries {
		if entry.Object != tolerated {
			denied = append(denied, *entry)
		}
	}
	return denied, err
}

func client(t *testing.T, addr, user, secret string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: addr, Username: user, Password: secret, DB: database, ClientName: "life", DisableIdentity: true, MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// prepare makes the queue, with a message in each of the places where one may be.
func (l *life) prepare(ctx context.Context) error {
	want := store.Layout{
		Shards: 1, Sink: message.RabbitMQ, MaxMessage: message.DefaultMaxSize,
		Rules: layout.Rules{History: layout.History{Count: 100, Age: time.Hour}},
	}
	if _, err := l.near.Layouts().Ensure(ctx, want); err != nil {
		return err
	}
	for _, m := range []struct {
		id      string
		lease   time.Duration
		verdict message.Verdict
	}{
		{"dead", time.Minute, message.Verdict{Verb: message.VerbDeadLetter, Reason: "refused"}},
		{"parked", time.Minute, message.Verdict{Verb: message.VerbPark, Slot: 7}},
		{"flying", time.Millisecond, message.Verdict{}},
	} {
		if err := schedule(ctx, l.near, due, m.id); err != nil {
			return err
		}
		claim, err := l.claim(ctx, l.near, "root", m.lease)
		if err != nil {
			return err
		}
		if m.id == "flying" {
			continue
		}
		settlement := message.Settlement{Claim: claim, Verdicts: []message.Verdict{m.verdict}}
		if _, err := l.near.Shard(0).Settle(ctx, settlement); err != nil {
			return err
		}
	}
	return schedule(ctx, l.near, store.When{Relative: true, Ms: 2 * time.Hour.Milliseconds()}, "waits", "waits, too")
}

// Due times.
var (
	due   = store.When{Ms: 1_000_000}
	later = store.When{Relative: true, Ms: time.Hour.Milliseconds()}
)

// none asks nothing to be confirmed, replica asks for what there is not.
var (
	none    = store.Durability{}
	replica = store.Durability{Replicas: 1, Timeout: 10 * time.Millisecond}
)

// note is a message that has a tag.
func note(id string) *message.Message {
	return &message.Message{ID: id, Topic: "topic", Headers: map[string]string{message.HeaderTags: "red"}, Body: []byte(id)}
}

func schedule(ctx context.Context, q *store.Queue, when store.When, ids ...string) error {
	requests := make([]store.Request, len(ids))
	for i, id := range ids {
		requests[i] = store.Request{Message: note(id), When: when}
	}
	return errorOf(q.Producer().Schedule(ctx, requests, false, none)...)
}

func errorOf(answers ...store.Answer) error {
	for i := range answers {
		if err := answers[i].Err; err != nil {
			return err
		}
	}
	return nil
}

// claim takes what is due in the one shard, for an instance.
func (l *life) claim(
	ctx context.Context, q *store.Queue, instance string, lease time.Duration, change ...func(*message.ClaimRequest),
) (message.Claim, error) {
	l.number++
	request := message.ClaimRequest{
		Token: message.ClaimToken{Instance: instance, Number: l.number}, Max: 100, Timeout: time.Minute, Lease: lease, Free: []int{3},
	}
	for _, set := range change {
		set(&request)
	}
	if _, err := q.Layout(ctx); err != nil {
		return message.Claim{}, err
	}
	return q.Shard(0).Claim(ctx, request)
}
