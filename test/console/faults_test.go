package console

import (
	"net/url"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestSinkDown cuts the broker off: the page says so, since when and why, also to those who
// hear it, and that it is up again, all without a reload.
func TestSinkDown(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(testenv.NATS(t))
	require.NoError(t, err)
	proxy := testenv.NewProxy(t, address.Host)
	w := setting{nats: "nats://" + proxy.Addr()}.start(t)
	b := newBrowser(t, w.address)
	b.open("")
	b.says("all well")
	do(b, chromedp.Evaluate[chromedp.Void](`window.loaded = 'once'`))
	cut := time.Now()
	proxy.Refuse(true)
	proxy.Cut()
	b.says("Sink events is down")
	b.until(`document.getElementById('said').textContent === 'Sink events is down.'`)
	b.says("since")

	b.click("Sink events is down")
	b.says("Down since")
	since, err := time.Parse(time.RFC3339, do(b, chromedp.Evaluate[string](`document.querySelector('main time').dateTime`)))
	require.NoError(t, err)
	assert.WithinDuration(t, cut, since, patience)
	b.until(`[...document.querySelectorAll('main dt')].find((e) => e.innerText === 'Why')?.nextElementSibling.innerText.length > 5`)
	w.schedule(delay.Message{ID: "late"}, 0)

	proxy.Refuse(false)
	b.says("Up since")
	b.until(`document.getElementById('said').textContent === 'All sinks are up.'`)
	w.arrives("late")
	b.click("Overview")
	b.says("all well")
	assert.Equal(t, "once", do(b, chromedp.Evaluate[string](`window.loaded`)), "without a reload")
}

// TestBudget: a queue's page says how full the queue and Redis are, and when they will be, and
// the overview warns in time.
func TestBudget(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t, "--maxmemory", "1gb")
	w := setting{redis: server.URL(), queue: ", budget: {bytes: 1MiB}"}.start(t)
	b := newBrowser(t, w.address)
	b.open("")
	b.says("all well")
	b.open("queue", "queue", "orders")
	b.says("0 B of 1.0 MiB")
	b.says("of 1.0 GiB")
	for range 100 {
		w.schedule(delay.Message{Body: make([]byte, 1000)}, time.Hour)
	}
	b.until(`/ KiB of 1.0 MiB, full at ([0-9-]+ )?[0-9]{2}:[0-9]{2}, in /.test(document.querySelector('main').innerText)`)

	b.open("")
	b.says("Of its budget: ")
	b.click("Queue orders will be full")
	b.says("of 1.0 MiB, full at")
	require.NoError(t, w.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	b.open("")
	b.says("Of its memory: ")
	b.click("Redis is full")
	b.says("of 1 B, full")
}
