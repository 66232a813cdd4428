package command

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestRecurring: people see all that a recurring schedule does, when it fires next, and that it is paused.
func TestRecurring(t *testing.T) {
	t.Parallel()
	f := setup(t)
	assert.Regexp(t, `^daily: next firing \d{4}-\S+Z \(in .*\)\n$`, f.ok("recurring set", "daily", "--cron", "0 20 * * *", "--zone", "Europe/Berlin", "--topic", "t", "--key", "k",
		"--tag", "vip", "--header", "a=b", "--late", "1h", "--missed", "catch_up", "--catch-up", "3", "--jitter", "30s", "--until", "2031-01-01T00:00:00Z", "payload").stdout)
	f.ok("recurring set", "hourly", "--cron", "@hourly", "--topic", "t")

	shown := f.ok("recurring show", "daily", "--body").stdout
	for _, line := range []string{
		`name +daily`, `queue +orders`, `cron +0 20 \* \* \*`, `zone +Europe/Berlin`, `topic +t`, `key +k`, `missed +catch_up`, `catch up +3`, `jitter +30s`,
		`until +2031-01-01T00:00:00.000Z \(in .*\)`, `late +dead 1h0m0s`, `tags +vip`, `header +a: b`, `set +\S+ \(.* ago\)`, `next +\S+ \(in .*\)`, `scheduled +0`, `skipped +0`, `payload`,
	} {
		assert.Regexp(t, `(?m)^`+line+`$`, shown)
	}
	assert.NotContains(t, shown, "paused")

	assert.Regexp(t, `^hourly: paused since \S+ by \S+\n$`, f.ok("recurring pause", "hourly").stdout)
	shown = f.ok("recurring show", "hourly").stdout
	assert.Regexp(t, `(?m)^paused +\S+ \(.* ago\) by \S+$`, shown)
	assert.NotContains(t, shown, "next")
	listed := f.ok("recurring list").stdout
	assert.Regexp(t, `(?m)^hourly +@hourly +UTC +t +paused +0 +0$`, listed)
	assert.Regexp(t, `(?m)^daily .* \(in .*\) +0 +0$`, listed)
}
