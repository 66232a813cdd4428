package command

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestList(t *testing.T) {
	t.Parallel()
	f := setup(t)
	assert.Equal(t, "no such messages in queue orders\n", f.ok("list").stdout)
	f.bury("dead")
	day := time.Now().UTC().AddDate(1, 0, 0).Format(time.DateOnly)
	for i := range 5 {
		f.ok("schedule", "--topic", fmt.Sprint("t-", i%2), "--at", fmt.Sprintf("%sT00:00:0%dZ", day, i), "--id", fmt.Sprint("m-", i), "x")
	}
	f.ok("schedule", "--topic", "t-0", "--in", "1h", "--id", "of-7", "--key", "customer-7", "--tag", "sale", "--tag", "gold", "x")

	ids := func(args ...string) (ids []string) {
		for _, m := range f.ok("list", append(args, "-o", "json")...).objects(t) {
			ids = append(ids, m["id"].(string)) //nolint:forcetypeassert // a panic fails the test
		}
		return ids
	}
	assert.Equal(t, []string{"of-7", "m-0", "m-1", "m-2", "m-3", "m-4", "dead"}, ids())
	assert.Equal(t, []string{"of-7"}, ids("--key", "customer-7"))
	assert.Equal(t, []string{"of-7"}, ids("--tag", "sale"))
	assert.Empty(t, ids("--tag", "sale", "--topic", "t-1"))
	assert.Regexp(t, `tags +gold sale\n`, f.ok("get", "--id", "of-7").stdout)
	assert.NotContains(t, f.ok("get", "--id", "of-7").stdout, "header")
	assert.Equal(t, []any{"gold", "sale"}, f.ok("get", "--id", "of-7", "-o", "json").objects(t)[0]["tags"])
	assert.Equal(t, []string{"m-1", "m-3"}, ids("--topic", "t-1", "--id-prefix", "m-"))
	assert.Equal(t, []string{"m-3"}, ids("--due-from", day+"T00:00:03Z", "--due-to", day+"T00:00:04Z"))
	assert.Equal(t, []string{"dead"}, ids("--state", "dead"))

	o := f.ok("list", "--limit", "3", "-o", "json", "--body")
	objects := o.objects(t)
	assert.Len(t, objects, 3)
	requireFields(t, objects[0], "tags", "body")
	assert.Equal(t, "scheduled", objects[0]["state"])
	_, cursor, found := strings.Cut(strings.TrimSpace(o.stderr), "--cursor ")
	assert.True(t, found, o.stderr)
	assert.Equal(t, []string{"m-2", "m-3", "m-4", "dead"}, ids("--cursor", cursor))

	text := f.ok("list").stdout
	assert.Contains(t, text, "ID")
	assert.Contains(t, text, "customer-7")
	assert.Contains(t, text, day+"T00:00:04.000Z")

	for flag, value := range map[string]string{"--state": "gone", "--limit": "0", "--cursor": "!", "--tag": "a b", "--due-to": "soon"} {
		o := f.run("list", flag, value)
		assert.Equal(t, exitUsage, o.code)
		assert.Contains(t, o.stderr, value)
	}
	assert.Equal(t, exitUsage, f.run("list", "--body").code)
}
