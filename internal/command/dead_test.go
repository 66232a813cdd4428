package command

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDeadListAndShow(t *testing.T) {
	t.Parallel()
	f := setup(t)
	assert.Contains(t, f.ok("dead list").stdout, "no dead letters in queue orders")
	f.bury("a", "b", "c")

	letters := f.ok("dead list", "-o", "json").objects(t)
	assert.Len(t, letters, 3)
	for _, letter := range letters {
		requireFields(t, letter, "reason", "end")
		assert.Equal(t, []any{"dead", "permanent: too large", 2.0}, []any{letter["state"], letter["reason"], letter["attempt"]})
	}
	requireFields(t, f.ok("dead list", "-o", "json", "--body").objects(t)[0], "reason", "end", "body")
	o := f.ok("dead list", "--limit", "2")
	assert.Contains(t, o.stderr, "more than these 2")
	assert.Contains(t, o.stdout, "REASON")
	assert.Contains(t, o.stdout, "permanent: too large")
	assert.Empty(t, f.ok("dead list", "--limit", "3").stderr)

	letter := f.ok("dead show", "a", "-o", "json", "--body").object(t)
	requireFields(t, letter, "reason", "end", "body")
	assert.Equal(t, f.ok("dead show", "--id", "a", "-o", "json", "--body").object(t), letter)
	text := f.ok("dead show", "a", "--body").stdout
	assert.Contains(t, text, "permanent: too large")
	assert.Contains(t, text, "body of a")
	requireFields(t, f.ok("get", "--id", "a", "-o", "json").object(t), "reason", "end")

	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "alive", "x")
	o = f.run("dead show", "alive", "-o", "json")
	assert.Equal(t, exitRefused, o.code)
	code, _ := o.errorOf(t)
	assert.Equal(t, "not_dead", code)
	assert.Equal(t, exitRefused, f.run("dead show", "nobody").code)
}

func TestDeadRedrive(t *testing.T) {
	t.Parallel()
	f := setup(t)
	assert.Contains(t, f.ok("dead redrive", "--all").stdout, "redrove 0 dead letters")
	f.bury("a", "b", "c")

	assert.Equal(t, "redrove a\n", f.ok("dead redrive", "a").stdout)
	assert.Equal(t, "scheduled", f.ok("get", "--id", "a", "-o", "json").object(t)["state"])
	o := f.run("dead redrive", "a", "-o", "json")
	assert.Equal(t, exitRefused, o.code)
	code, id := o.errorOf(t)
	assert.Equal(t, []string{"not_dead", "a"}, []string{code, id})
	assert.Equal(t, exitRefused, f.run("dead redrive", "nobody").code)

	letters := f.ok("dead redrive", "--all", "-o", "json").objects(t)
	assert.Len(t, letters, 2)
	for _, letter := range letters {
		requireFields(t, letter)
		assert.Equal(t, "scheduled", letter["state"])
		dueAt(t, letter)
	}
	assert.Empty(t, f.ok("dead list", "-o", "json").stdout)
	assert.Equal(t, exitRefused, f.run("dead show", "b").code)
}

func TestDeadPurge(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.bury("a", "b", "c")
	assert.Equal(t, "purged a\n", f.ok("dead purge", "--id", "a").stdout)
	assert.Equal(t, exitRefused, f.run("dead purge", "a").code)
	o := f.run("dead purge", "--all")
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "--yes")
	assert.Len(t, f.ok("dead list", "-o", "json").objects(t), 2)
	assert.Contains(t, f.ok("dead purge", "--all", "--yes").stdout, "purged 2 dead letters of queue orders")
	assert.Equal(t, exitRefused, f.run("get", "--id", "b").code)
}

func TestDeadIsChanged(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.bury("a", "b", "c")
	o := f.run("schedule", "--topic", "t", "--in", "1h", "--id", "a", "x")
	assert.Equal(t, exitRefused, o.code)
	assert.Contains(t, o.stderr, "in the dead letters: permanent: too large")
	assert.Equal(t, "cancelled a\n", f.ok("cancel", "--id", "a").stdout)
	assert.Equal(t, "scheduled", f.ok("reschedule", "--id", "b", "--in", "1h", "-o", "json").object(t)["state"])
}

// TestDeadWithoutBody shows a letter that has lost its message.
func TestDeadWithoutBody(t *testing.T) {
	t.Parallel()
	f := setupWith(t, 1, "nats://127.0.0.1:1", "")
	f.bury("a")
	key := testPrefix(t, f) + ":{orders:0}:deadmsg"
	assert.NoError(t, f.rdb.HSet(t.Context(), key, "a", "1:0 0 0 0:4:lost").Err())
	assert.Contains(t, f.ok("dead list").stdout, "lost")
	assert.Equal(t, exitFailed, f.run("dead show", "a").code)
	o := f.run("dead redrive", "a", "-o", "json")
	assert.Equal(t, exitRefused, o.code)
	code, _ := o.errorOf(t)
	assert.Equal(t, "no_body", code)
	assert.Equal(t, exitRefused, f.run("dead redrive", "--all").code)
	f.ok("dead purge", "a")
	tombstones, err := f.rdb.HKeys(t.Context(), testPrefix(t, f)+":{orders:0}:gone").Result()
	assert.NoError(t, err)
	assert.NotContains(t, tombstones, "", "no token, whose tombstone nothing would remove")
}
