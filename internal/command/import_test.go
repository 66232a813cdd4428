package command

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// addTask adds a task as asynq does.
func (f *fixture) addTask(queue, id, kind string, due time.Time) {
	f.t.Helper()
	var record []byte
	for number, text := range map[protowire.Number]string{1: kind, 2: "{}", 3: id, 4: queue} {
		record = protowire.AppendString(protowire.AppendTag(record, number, protowire.BytesType), text)
	}
	f.add("asynq:{"+queue+"}:t:"+id, "asynq:{"+queue+"}:scheduled", id, float64(due.Unix()), "msg", record, "state", "scheduled")
	require.NoError(f.t, f.rdb.SAdd(f.t.Context(), "asynq:queues", queue).Err())
	f.t.Cleanup(func() { _ = f.rdb.SRem(f.t.Context(), "asynq:queues", queue).Err() })
}

// addJob adds a job as BullMQ does.
func (f *fixture) addJob(queue, id, name string, due time.Time) {
	f.t.Helper()
	f.add("bull:"+queue+":"+id, "bull:"+queue+":delayed", id, float64(due.UnixMilli()*4096), "name", name, "data", "{}")
	require.NoError(f.t, f.rdb.HSet(f.t.Context(), "bull:"+queue+":meta", "version", "bullmq:6.7.0").Err())
	f.t.Cleanup(func() { _ = f.rdb.Del(f.t.Context(), "bull:"+queue+":meta").Err() })
}

func (f *fixture) add(hash, set, id string, score float64, fields ...any) {
	f.t.Helper()
	require.NoError(f.t, f.rdb.HSet(f.t.Context(), hash, fields...).Err())
	require.NoError(f.t, f.rdb.ZAdd(f.t.Context(), set, redis.Z{Score: score, Member: id}).Err())
	f.t.Cleanup(func() { _ = f.rdb.Del(f.t.Context(), hash, set).Err() })
}

func TestImportAsynq(t *testing.T) {
	t.Parallel()
	f := setup(t)
	queue := testenv.Name(t, "q")
	due := time.Now().Add(48 * time.Hour)
	for i := range 20 {
		f.addTask(queue, fmt.Sprintf("order-%d", i), "order:timeout", due)
	}
	f.addTask(queue, "welcome", "mail", due)
	args := []string{"--asynq-queue", queue, "--topic-map", "order:timeout=order.timeout"}

	o := f.ok("import asynq", append(args, "--dry-run")...)
	assert.Regexp(t, `(?m)^waiting before +21`, o.stdout)
	assert.Regexp(t, `(?m)^would be moved +20`, o.stdout)
	assert.Regexp(t, `(?m)^  order:timeout +20`, o.stdout)
	assert.Regexp(t, `(?m)^  `+due.UTC().Format(time.DateOnly)+` +20`, o.stdout)
	assert.Regexp(t, `(?m)^stays: no topic +1 +welcome: mail has none`, o.stdout)
	assert.NotContains(t, f.ok("list").stdout, "order-")

	o = f.run("import asynq", args...)
	assert.Equal(t, exitRefused, o.code)
	assert.Contains(t, o.stderr, "1 task not moved")
	assert.Regexp(t, `(?m)^moved +20`, o.stdout)
	assert.Regexp(t, `(?m)^waiting now +1`, o.stdout)
	assert.Regexp(t, `(?m)^found in queue orders +20`, o.stdout)
	assert.Contains(t, f.ok("list").stdout, "order-19")
	log, err := inspect.NewAdmin(f.queue).AuditLog(t.Context(), "", 1)
	require.NoError(t, err)
	assert.Equal(t, "import", log[0].Action)
	assert.Equal(t, "cancelled 0, moved 20", log[0].Answer)

	o = f.ok("import asynq", append(args, "--topic-map", "mail=mail.welcome", "-o", "json", "--from", testenv.Redis(t))...)
	object := o.object(t)
	assert.EqualValues(t, 1, object["moved"])
	assert.EqualValues(t, 1, object["found"])
	assert.EqualValues(t, 0, object["waiting_after"])
	assert.Empty(t, object["left"])
}

func TestImportBullMQ(t *testing.T) {
	t.Parallel()
	f := setup(t)
	queue := testenv.Name(t, "q")
	f.addJob(queue, "17", "order.timeout", time.Now().Add(time.Hour))
	o := f.ok("import bullmq", "--bullmq-queue", queue, "--topic", "order.timeout", "--id-prefix", "orders/", "--key-pattern", "(.)7")
	assert.Regexp(t, `(?m)^moved +1`, o.stdout)
	assert.Contains(t, f.ok("get", "--id", "orders/17", "--key", "1").stdout, "order.timeout")
}

// TestImportRefuses: what is wrong with the command line is said, and changes nothing.
func TestImportRefuses(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for text, args := range map[string][]string{
		`"none-such"; asynq has `:    {"--asynq-queue", "none-such"},
		"has no group":               {"--key-pattern", "abc"},
		"--limit -1":                 {"--limit=-1"},
		"--give-up":                  {"--give-up", "everything"},
		"--from: redis.url":          {"--from", "http://user:hunter2@127.0.0.1"},
		"redis at 127.0.0.1:1: dial": {"--from", "redis://127.0.0.1:1"},
	} {
		o := f.run("import asynq", args...)
		assert.NotEqual(t, exitDone, o.code)
		assert.Contains(t, o.stderr, text)
		assert.NotContains(t, o.stderr, "hunter2")
	}
}

// TestImportKilled: a command that is killed at any moment, and run again, has moved each item once.
func TestImportKilled(t *testing.T) {
	t.Parallel()
	f := setup(t)
	queue := testenv.Name(t, "q")
	const many = 5000
	pipe := f.rdb.Pipeline()
	keys := []string{"bull:" + queue + ":delayed", "bull:" + queue + ":delaybridge:lock"}
	for i := range many {
		id := fmt.Sprintf("order-%d", i)
		keys = append(keys, "bull:"+queue+":"+id)
		pipe.HSet(t.Context(), "bull:"+queue+":"+id, "name", "order.timeout", "data", "{}")
		pipe.ZAdd(t.Context(), "bull:"+queue+":delayed", redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli() * 4096), Member: id})
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	f.addJob(queue, "last", "order.timeout", time.Now().Add(time.Hour))
	t.Cleanup(func() { _ = f.rdb.Del(context.WithoutCancel(t.Context()), keys...).Err() })
	waiting := func() int64 {
		n, err := f.rdb.ZCard(t.Context(), "bull:"+queue+":delayed").Result()
		require.NoError(t, err)
		return n
	}
	args := []string{"import", "bullmq", "--config", f.file, "--queue", "orders", "--bullmq-queue", queue, "--topic", "order.timeout"}
	kills := 0
	for before := waiting(); before > many/2; before = waiting() {
		p := start(t, nil, args...)
		require.Eventually(t, func() bool { return waiting() < before }, commandTimeout, time.Millisecond)
		p.signal(syscall.SIGKILL)
		p.wait()
		kills++
		require.NoError(t, f.rdb.Del(t.Context(), "bull:"+queue+":delaybridge:lock").Err(), "as it expires")
	}
	assert.Positive(t, kills)
	object := bridge(t, "", append(args, "-o", "json")...).object(t)
	assert.EqualValues(t, 0, object["waiting_after"])
	assert.EqualValues(t, 0, object["held_after"])
	stats, err := inspect.NewAdmin(f.queue).StatsOfAll(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, many+1, stats.Sum().Waiting)
}
