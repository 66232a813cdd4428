package console

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// screens is where pictures of all pages go; none are made without it.
var screens = flag.String("screens", "", "folder for pictures of all pages")

// died schedules messages that become dead letters.
func (w *world) died(ids ...string) {
	w.t.Helper()
	w.diedAfter(time.Minute, ids...)
}

// diedAfter schedules messages that become dead letters, with the time in the reason.
func (w *world) diedAfter(after time.Duration, ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		_, err := w.client.Schedule(w.t.Context(), delay.Message{
			ID: id, Topic: w.topic + ".timeout", Late: delay.Late{After: after, Then: delay.LateDead},
		}, delay.At(time.Now().Add(-time.Hour)))
		require.NoError(w.t, err)
	}
	w.eventually(func(info *delay.Info) bool { return info.State == delay.Dead }, ids...)
}

// eventually waits until all of these messages are so.
func (w *world) eventually(is func(*delay.Info) bool, ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		require.Eventually(w.t, func() bool {
			info, err := w.client.Get(w.t.Context(), delay.Ref{ID: id})
			return err == nil && is(&info)
		}, patience, 10*time.Millisecond, id)
	}
}

func TestPublishNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	ref := w.schedule(delay.Message{ID: "a"}, time.Hour)
	b := newBrowser(t, w.address)
	b.open("message", "queue", "orders", "id", ref.ID)
	b.click("Publish now …")
	b.says("It is due at once")
	b.click("Publish now")
	w.arrives("a")
	w.gone(ref)
}

// TestDeadLetters tries one and all others again, which all arrive, and purges the rest.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.died("a", "b", "c", "d")
	b := newBrowser(t, w.address)
	b.open("dead", "queue", "orders")
	b.says("4 × late: more than 1m")
	b.count("main tbody tr", 4)
	b.click("Redrive")
	b.says("It leaves the dead letters")
	b.click("Redrive")
	b.says("is tried again.")
	first := <-w.arrived
	w.gone(delay.Ref{ID: first})

	b.open("dead", "queue", "orders")
	b.count("main tbody tr", 3)
	b.click("Redrive these …")
	b.forReal()
	b.click("Redrive 3 dead letters")
	b.until(`document.querySelector('td[data-name=Done]')?.innerText === '3'`)
	got := []string{first, <-w.arrived, <-w.arrived, <-w.arrived}
	assert.ElementsMatch(t, []string{"a", "b", "c", "d"}, got)

	w.died("e", "f")
	b.open("dead", "queue", "orders")
	b.click("Purge all …")
	b.forReal()
	b.click("Purge 2 dead letters")
	w.gone(delay.Ref{ID: "e"})
	w.gone(delay.Ref{ID: "f"})
}

// TestPurgeThese deletes the dead letters of a group, and not those of another one whose reason
// begins alike. The question names what it is about, and its button says what it does.
func TestPurgeThese(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.died("a", "b")
	w.diedAfter(90*time.Second, "c")
	b := newBrowser(t, w.address)
	b.open("dead", "queue", "orders")
	b.says("2 × late: more than 1m\n")
	b.says("1 × late: more than 1m30s")
	b.click("Purge these …") // the larger group is the first
	b.until(`/^2 messages match now, among them:\s+(a to .*\s+b to |b to .*\s+a to )/m.test(document.querySelector('dialog').innerText)`)
	asked := do(b, chromedp.Evaluate[string](`document.querySelector('dialog').innerText`))
	assert.Contains(t, asked, "Queue\norders")
	assert.Contains(t, asked, "Reason\nlate: more than 1m\n")
	assert.Contains(t, asked, "This cannot be undone.")

	const button = `document.querySelector('dialog [type=submit]')`
	assert.Equal(t, "Only count them", do(b, chromedp.Evaluate[string](button+`.innerText`)), "by default nothing is changed")
	assert.NotContains(t, do(b, chromedp.Evaluate[string](button+`.className`)), "danger")
	b.forReal()
	b.until(button + `.className === 'danger'`)
	b.click("Purge 2 dead letters")
	b.until(`document.querySelector('td[data-name=Done]')?.innerText === '2'`)
	w.gone(delay.Ref{ID: "a"})
	w.gone(delay.Ref{ID: "b"})
	info, err := w.client.Get(t.Context(), delay.Ref{ID: "c"})
	require.NoError(t, err, "it died for another reason")
	assert.Equal(t, "late: more than 1m30s", info.Reason)
}

// TestStopJob begins a job that would take a minute, stops it, and lets another one do the rest.
func TestStopJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	const all = 60
	for i := range all {
		w.schedule(delay.Message{ID: fmt.Sprint("a-", i), Tags: []string{"sale"}}, time.Hour)
	}
	b := newBrowser(t, w.address)
	begin := func(rate string) {
		b.open("messages", "queue", "orders", "tag", "sale")
		b.click("Reschedule all that match …")
		b.fill("by", "1d")
		b.fill("rate", rate)
		b.forReal()
		b.until(`/^Reschedule [0-9]+ messages$/.test(document.querySelector('dialog [type=submit]').innerText)`)
		do(b, chromedp.Click(chromedp.CSS("dialog [type=submit]")))
	}
	begin("1")
	b.until(`Number(document.querySelector('td[data-name=Done]')?.innerText) > 0`)
	b.click("Stop …")
	b.says("What is done stays done")
	b.click("Stop")
	b.until(`document.querySelector('td[data-name=State]').innerText === 'stopped'`)
	assert.Less(t, len(w.dueIn(t, 24*time.Hour)), all)

	begin("")
	b.until(fmt.Sprintf(`[...document.querySelectorAll('td[data-name=Done]')].some((e) => e.innerText === '%d')`, all))
	assert.Len(t, w.dueIn(t, 24*time.Hour), all)
}

// dueIn are the ids of messages that are due after so long.
func (w *world) dueIn(t *testing.T, in time.Duration) (ids []string) {
	t.Helper()
	page, err := inspect.NewAdmin(w.queue).List(t.Context(), inspect.ListRequest{Filter: inspect.Filter{From: time.Now().Add(in)}, Limit: inspect.MaxList})
	require.NoError(t, err)
	for _, m := range page.Messages {
		ids = append(ids, m.Found.ID)
	}
	return ids
}

// TestTheme goes through the themes, and is remembered.
func TestTheme(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	b := newBrowser(t, w.address)
	b.open("")
	background := func() string {
		return do(b, chromedp.Evaluate[string](`getComputedStyle(document.body).backgroundColor`))
	}
	b.likes("light")
	light := background()
	b.click("Theme: system")
	b.click("Theme: light")
	b.says("Theme: dark")
	assert.NotEqual(t, light, background())
	b.open("")
	b.says("Theme: dark")
	assert.NotEqual(t, light, background())
	b.click("Theme: dark")
	b.says("Theme: system")
	assert.Equal(t, light, background())
}

// newBusyWorld has something on every page.
func newBusyWorld(t *testing.T) *world {
	t.Helper()
	w := setting{hasInlet: true}.start(t)
	w.ask("delay-id", "a", "delay-in", "1h")
	w.ask("delay-id", "b", "delay-op", "explode")
	w.busy()
	return w
}

// busy makes a queue that has something of everything.
func (w *world) busy() {
	w.t.Helper()
	for i := range 120 {
		m := delay.Message{
			ID: fmt.Sprintf("order-%d/timeout", 4200+i), Key: fmt.Sprintf("customer-%d", i%9), Body: []byte(`{"order":42}`),
			Headers: map[string]string{"content-type": "application/json"},
		}
		if i%4 == 0 {
			m.Tags = []string{"spring-sale"}
		}
		w.schedule(m, time.Duration(i*i)*6*time.Second+time.Hour)
	}
	w.schedule(delay.Message{ID: "invoice-7", Topic: "missing-" + w.topic}, 0)
	require.Eventually(w.t, func() bool {
		found, ok, err := inspect.Get(w.t.Context(), w.queue, "invoice-7", "")
		return err == nil && ok && found.Parked != nil
	}, patience, 10*time.Millisecond)
	w.died("order-17/timeout", "order-18/timeout")
	_, err := inspect.NewAdmin(w.queue).Pause(w.t.Context(), w.topic+".mail", "ann")
	require.NoError(w.t, err)
	for name, cron := range map[string]string{"daily-report": "0 20 * * MON-FRI", "heartbeat": "@every 90s"} {
		_, err := w.client.SetRecurring(w.t.Context(), delay.Recurring{Name: name, Cron: cron, Zone: "Europe/Berlin", Message: delay.Message{Topic: w.topic + ".timeout"}})
		require.NoError(w.t, err)
	}
	_, err = w.client.PauseRecurring(w.t.Context(), "heartbeat", "ann")
	require.NoError(w.t, err)
}

// works keeps the queue at work until the test ends: messages come all the time, in waves, and
// are published a little later. It returns when there is something to see of it.
func (w *world) works() {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	var working sync.WaitGroup
	w.t.Cleanup(func() { stop(); working.Wait() })
	working.Go(func() {
		for {
			select {
			case <-w.arrived:
			case <-ctx.Done():
				return
			}
		}
	})
	working.Go(func() {
		for began := time.Now(); wait.Sleep(ctx, 100*time.Millisecond); {
			requests := make([]delay.Request, 4+int(3*math.Sin(time.Since(began).Seconds()/12)))
			for i := range requests {
				requests[i] = delay.Request{Message: delay.Message{Topic: w.topic + ".timeout"}, When: delay.After(time.Duration(2+i) * time.Second)}
			}
			_, _ = w.client.ScheduleBatch(ctx, requests) // The picture shows what came of it.
		}
	})
	wait.Sleep(ctx, 100*time.Second) // So long a line the charts show.
}

// pages are all of them, with what is there once they are drawn.
var pages = map[string]string{
	"": "main:has(figure:nth-child(3) svg) tbody tr", "queue": "main:has(svg) section:last-of-type tbody tr", "messages": "main tbody tr", "message": "main ol.story", "dead": "main tbody tr",
	"sinks": "main tbody tr", "instances": "main tbody tr", "audit": "main tbody tr", "find": "main tbody tr", "jobs": "main tbody tr",
	"recurring": "main tbody tr:nth-child(2)", "inlets": "main tbody tr:nth-child(2)", "owners": "main section:last-of-type tbody tr",
}

// openBusy shows a page of a busy world, and waits until it is drawn.
func (b *browser) openBusy(page string) {
	b.t.Helper()
	b.open(page, "queue", "orders", "id", "order-4201/timeout", "key", "customer-1")
	b.until(fmt.Sprintf(`document.querySelector(%q) !== null`, pages[page]))
	b.until(`!document.querySelector('main').innerText.includes('Looking …')`)
}

// begun begins a job, which is in the list of jobs and in the audit.
func (b *browser) begun() {
	b.t.Helper()
	b.open("messages", "queue", "orders", "tag", "spring-sale")
	b.click("Cancel all that match …")
	b.says("Only count what matches")
	b.click("Only count them")
	b.until(`document.querySelector('td[data-name=State]')?.innerText === 'done'`)
}

// TestLooks draws each page, dark and light, on a screen and on a phone: nothing is cut
// off, all that can be used has a name for those who cannot see it, a screen reader finds
// its way, and all text can be read, in dialogs and notes, too.
func TestLooks(t *testing.T) {
	t.Parallel()
	w := newBusyWorld(t)
	if *screens != "" {
		w.works()
	}
	b, schemes := newBrowser(t, w.address), []string{"light", "dark"}
	b.begun()
	for _, size := range [][2]int64{{1280, 860}, {390, 844}} {
		do(b, chromedp.EmulateViewport(size[0], size[1]))
		for page := range pages {
			b.openBusy(page)
			b.check(page, size[0])
			b.reads(page)
			for _, scheme := range schemes {
				b.likes(scheme)
				b.contrasts(scheme + ", " + page)
				if *screens != "" {
					b.until(`document.querySelector('header').innerText.includes('live')`)
					b.until(`![...document.querySelectorAll('main dt')].some((e) => e.innerText === 'Scheduled' && e.nextElementSibling.innerText === '–')`)
					b.picture(page, scheme, size[0])
				}
			}
		}
		for _, scheme := range schemes {
			b.likes(scheme)
			b.openBusy("message")
			b.click("Reschedule …")
			b.count("dialog[open]", 1)
			assert.Equal(t, 1, b.heard("dialog")["dialog"])
			b.fill("in", "soon")
			b.click("Reschedule")
			b.says("Reschedule order-4201/timeout: ")
			b.click("Cancel …")
			b.says("This cannot be undone.")
			b.contrasts(scheme + ", a dialog and a note")
		}
	}
}

// likes has the page see whether the reader likes it dark or light.
func (b *browser) likes(scheme string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	require.NoError(b.t, err)
}

// check fails where the page is wider than the window, or has something without a name.
func (b *browser) check(page string, width int64) {
	b.t.Helper()
	assert.LessOrEqual(b.t, do(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)), width, page)
	nameless := do(b, chromedp.Evaluate[[]string](`
		[...document.querySelectorAll('button, a[href], input, select, textarea, svg')]
			.filter((e) => !(e.innerText || '').trim() && !e.getAttribute('aria-label') && !e.getAttribute('aria-hidden') &&
				!e.getAttribute('title') && !e.labels?.length && !e.querySelector?.('title, img[alt]'))
			.map((e) => e.outerHTML.slice(0, 200))`))
	assert.Empty(b.t, nameless, page)
}

func (b *browser) picture(page, scheme string, width int64) {
	b.t.Helper()
	if page == "" {
		page = "overview"
	}
	on := "desktop"
	if width < 640 {
		on = "phone"
	}
	image := do(b, chromedp.CaptureScreenshot())
	require.NoError(b.t, os.WriteFile(filepath.Join(*screens, fmt.Sprintf("%s-%s-%s.png", page, on, scheme)), image, 0o600))
}
