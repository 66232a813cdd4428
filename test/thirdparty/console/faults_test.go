package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
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

// TestInlets: one look shows what an inlet has done and refused, and why it stands still while Redis or the broker is away.
func TestInlets(t *testing.T) {
	t.Parallel()
	behind := func(address string) *testenv.Proxy {
		parsed, err := url.Parse(address)
		require.NoError(t, err)
		return testenv.NewProxy(t, parsed.Host)
	}
	redis, broker := behind(testenv.Redis(t)), behind(testenv.NATS(t))
	w := setting{redis: "redis://" + redis.Addr(), nats: "nats://" + broker.Addr(), hasInlet: true}.start(t)
	state := func(is string) string {
		return fmt.Sprintf(`document.querySelector('main h2 .badge')?.innerText === %q`, is)
	}
	b := newBrowser(t, w.address)
	b.open("")
	b.click("Inlets")
	b.until(state("consuming"))
	b.says("As night-shift sees them")
	w.ask("delay-id", "a", "delay-in", "1h")
	w.ask("delay-id", "b", "delay-op", "explode")
	b.until(`[...document.querySelectorAll('main tbody tr')].some((e) => /schedule\s+created\s+1/.test(e.innerText))`)
	b.says(`delay-op "explode"`)

	away := func(proxy *testenv.Proxy, isAway bool) {
		proxy.Refuse(isAway)
		if isAway {
			proxy.Cut()
		}
	}
	away(redis, true)
	w.ask("delay-id", "c", "delay-in", "1h")
	b.until(state("waiting"))
	b.says("Redis is away")
	away(redis, false)
	b.until(state("consuming"))
	away(broker, true)
	b.until(state("disconnected"))
	b.says("The broker is away")
	b.until(`[...document.querySelectorAll('main dt')].find((e) => e.innerText === 'Waiting at the broker')?.nextElementSibling.innerText === 'unknown'`)
	away(broker, false)
	b.until(state("consuming"))
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

// TestPausedIsNotWell: while a queue is paused, the overview says who has paused it and since
// when, and can end it.
func TestPausedIsNotWell(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	b := newBrowser(t, w.address)
	b.open("")
	b.says("all well")
	_, err := inspect.NewAdmin(w.queue).Pause(t.Context(), "", "ann")
	require.NoError(t, err)
	b.says("Queue orders is paused since")
	b.says("by ann")
	assert.NotContains(t, b.text(), "all well")
	b.until(`document.getElementById('said').textContent === 'Queue orders is paused.'`)
	ref := w.schedule(delay.Message{ID: "held"}, 0)
	b.open("message", "queue", "orders", "id", ref.ID)
	b.says("Queue orders is paused since")
	b.says("It is published when that is resumed.")
	b.open("")
	b.click("Resume …")
	b.click("Resume")
	w.arrives("held")
	b.says("all well")
}

// TestRedisGone: where Redis is away nothing is zero, and where it comes back empty nothing is
// well until somebody has acknowledged it.
func TestRedisGone(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	w := setting{redis: server.URL()}.start(t)
	w.schedule(delay.Message{ID: "a"}, time.Hour)
	b := newBrowser(t, w.address)
	b.open("")
	b.says("all well")
	server.Kill()
	b.says("Queue orders cannot be read")
	b.until(`document.querySelector('td[data-name=Waiting]').innerText === 'unknown'`)
	text := b.text()
	assert.NotContains(t, text, "all well")
	for _, cell := range []string{"Waiting", "Due", "Parked", "In flight", "Dead", "Oldest due"} {
		assert.Equal(t, "unknown", do(b, chromedp.Evaluate[string](fmt.Sprintf(`document.querySelector('td[data-name=%q]').innerText`, cell))), cell)
	}
	b.click("Sinks")
	b.says("Which routes of orders are open is not known")

	server.Start() // It keeps nothing on a disk.
	b.click("Overview")
	b.says("Redis has lost queue orders and all its messages")

	assert.NotContains(t, b.text(), "all well")
	b.open("message", "queue", "orders", "id", "a")
	b.says("Redis has lost messages of this queue, and this may have been one.")
	b.says("The queue keeps no history")
	b.open("")
	b.click("Acknowledge …")
	b.click("Acknowledge")
	b.says("all well")
	b.says("Queue orders was made")
}

// TestBridgeSilent: where the bridge is not heard, what is shown says how old it is; afterwards it
// is fresh again by itself, on the pages that ask, too.
func TestBridgeSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.schedule(delay.Message{ID: "a"}, time.Hour)
	address, err := url.Parse(w.address)
	require.NoError(t, err)
	proxy := testenv.NewProxy(t, address.Host)
	b := newBrowser(t, "http://"+proxy.Addr()+"/")
	b.open("queue", "queue", "orders")
	b.says("Shards")
	b.until(`document.getElementById('live').innerText === 'live'`)
	proxy.Refuse(true)
	proxy.Cut()
	b.until(`document.getElementById('live').innerText === 'not connected'`)
	b.says("What is shown is from")
	b.until(`document.querySelector('main .stale .facts') !== null`)

	b.click("Overview")
	b.says("Nobody knows how it is now.")
	assert.NotContains(t, b.text(), "all well")

	w.schedule(delay.Message{ID: "b"}, time.Hour)
	proxy.Refuse(false)
	b.says("all well")
	b.until(`document.querySelector('td[data-name=Waiting]').innerText === '2' && document.querySelector('main .stale') === null`)
}

// TestWhyNot: the page of a message says what holds it back, whatever that is.
func TestWhyNot(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(testenv.NATS(t))
	require.NoError(t, err)
	proxy := testenv.NewProxy(t, address.Host)
	w := setting{nats: "nats://" + proxy.Addr(), queue: `, rate: {messages: 1000}, late: {after: 3h, then: dead}, history: {count: 100, age: 1h}`}.start(t)
	b := newBrowser(t, w.address)
	page := func(id string, says ...string) {
		t.Helper()
		b.open("message", "queue", "orders", "id", id)
		for _, text := range says {
			b.says(text)
		}
	}
	_, err = inspect.NewAdmin(w.queue).Pause(t.Context(), w.topic+".mail", "ann")
	require.NoError(t, err)
	w.schedule(delay.Message{ID: "later", Topic: w.topic + ".mail"}, time.Hour)
	page("later", "is never published before", "by ann. Unless that is resumed before, it will be late.", "within 3 h of its due time")
	w.schedule(delay.Message{ID: "held", Topic: w.topic + ".mail"}, 0)
	page("held", "parked", "It is published when that is resumed.")
	w.schedule(delay.Message{ID: "astray", Topic: "missing-" + w.topic}, 0)
	page("astray", "is unavailable: ", "leaves when the route is there")
	page("nobody", "There is no such message now", "The queue remembers the last 100 messages that ended, for 1 h: this one is not among them.")
	w.schedule(delay.Message{ID: "early"}, 0)
	w.arrives("early")
	page("early", "Published to "+w.topic+".timeout")
	proxy.Refuse(true)
	proxy.Cut()
	w.schedule(delay.Message{ID: "cut off"}, 0)
	page("cut off", "The sink events is down since", "The queue publishes at most 1,000 messages a second")

	w.died("too late")
	page("too late", "It is in the dead letters, and stays there until it is put back: late: more than 1m")
	proxy.Refuse(false)
	w.arrives("cut off")
}

// TestRecent: a page that is opened now has the rates of before.
func TestRecent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	require.Eventually(t, func() bool {
		w.schedule(delay.Message{}, time.Hour)
		answer, err := http.Get(w.address + "api/v1/queues/orders/recent") //nolint:noctx // a test
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		var recent struct {
			Points []struct{ Scheduled *float64 }
		}
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&recent))
		for _, p := range recent.Points[:max(1, len(recent.Points))-1] {
			if p.Scheduled != nil && *p.Scheduled > 0 {
				return true
			}
		}
		return false
	}, 2*patience, 100*time.Millisecond)
	b := newBrowser(t, w.address)
	b.open("")
	b.until(`[...document.querySelectorAll('main svg polyline')].some((line) => line.getBBox().width > 0)`)
	// Points of a busy bridge are the means of more than their 20 s; what is not known parts two lines.
	b.until(`(window.drawing ??= import(new URL('plot.js', document.baseURI)).then(({ lines }) => {
		const points = [0, 20, 50, 80, 100, 120].map((at, i, all) => ({ at: 1000 * at, over: 1000 * (at - (all[i - 1] ?? -20)), n: at === 80 ? undefined : at }));
		const figure = lines('', points, [{ name: 'n', of: (p) => p.n }], String);
		window.drawn = [...figure.querySelectorAll('polyline')].map((line) => line.getAttribute('points').split(' ').length).join();
	})) && window.drawn === '3,2'`)
	b.says("Forecast: falls due in the next 24 hours")
	b.until(`/[0-9]+ messages, about/.test(document.querySelector('main').innerText)`)
}
