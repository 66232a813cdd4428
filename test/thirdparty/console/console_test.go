package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

func TestCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	ref := w.schedule(delay.Message{ID: "order-42/timeout", Key: "customer-7", Body: []byte("<b>secret</b>")}, time.Hour)
	b := newBrowser(t, w.address)
	b.open("message", "queue", "orders", "id", ref.ID, "key", ref.Key)
	b.says("due in")
	assert.NotContains(t, b.text(), "secret", "the body is shown on demand")
	b.click("Show the body")
	b.says("<b>secret</b>")
	drawn := do(b, chromedp.Evaluate[string](`document.querySelector('ol.story time').innerText`))
	b.until(fmt.Sprintf(`document.querySelector('ol.story time').innerText !== %q`, drawn))
	assert.Contains(t, b.text(), "<b>secret</b>", "it stays while the rest is drawn anew")

	b.click("Cancel …")
	b.says("This cannot be undone.")
	b.click("Cancel")
	_, err := w.client.Get(t.Context(), ref)
	require.NoError(t, err, "who changes his mind changes nothing")

	b.click("Cancel …")
	b.click("Cancel the message")
	b.says("order-42/timeout is cancelled.")
	w.gone(ref)
	b.says("It has left")
	b.open("audit")
	b.says("cancel")
	b.says("order-42/timeout")
	b.until(`document.querySelector('td[data-name=Via]')?.innerText === 'api'`)

	require.NoError(t, inspect.NewAdmin(w.queue).Audit(t.Context(), &inspect.Change{Who: "ann", From: "laptop", Via: inspect.ViaCommand, Action: "pause", Answer: "done"}))
	b.open("audit")
	b.until(`document.querySelector('td[data-name=Via]')?.innerText === 'command'`) // the newest first
}

// TestEncryptedBody is not shown, and the page says why.
func TestEncryptedBody(t *testing.T) {
	t.Parallel()
	ring, err := delay.ParseKeyring([]byte("2026-11 " + strings.Repeat("0f", 32)))
	require.NoError(t, err)
	w := setting{options: []delay.Option{delay.WithEncryption(ring)}}.start(t)
	ref := w.schedule(delay.Message{ID: "a", Body: []byte("secret")}, time.Hour)
	b := newBrowser(t, w.address)
	b.open("message", "queue", "orders", "id", ref.ID)
	b.click("Show the body")
	b.says("It is encrypted with the key 2026-11, and not shown here.")
	b.says("delay-sealed")
	assert.NotContains(t, b.text(), "base64")
}

func TestReschedule(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	ref := w.schedule(delay.Message{ID: "a"}, time.Hour)
	b := newBrowser(t, w.address)
	b.open("message", "queue", "orders", "id", ref.ID)
	b.click("Reschedule …")
	b.fill("in", "soon")
	b.click("Reschedule")
	b.says("Reschedule a: ")
	b.click("Reschedule …")
	b.fill("in", "2d")
	b.click("Reschedule")
	b.says("a is rescheduled.")
	info, err := w.client.Get(t.Context(), ref)
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now().Add(48*time.Hour), info.DueAt, 2*patience)
}

func TestFilter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	for _, id := range []string{"a-1", "a-2", "b-1"} {
		w.schedule(delay.Message{ID: id}, time.Hour)
	}
	w.schedule(delay.Message{ID: "a-3", Topic: w.topic + ".other"}, time.Hour)
	b := newBrowser(t, w.address)
	b.open("messages", "queue", "orders")
	b.count("main tbody tr", 4)
	b.fill("id_prefix", "a-")
	b.fill("topic", w.topic+".timeout")
	b.click("List")
	b.count("main tbody tr", 2)
	b.says("That is all.")
	b.click("a-2")
	b.says("Message a-2")
}

// TestFind looks for a message whose key nobody remembers.
func TestFind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.schedule(delay.Message{ID: "order-42", Key: "customer-7"}, time.Hour)
	b := newBrowser(t, w.address)
	b.open("")
	do(b, chromedp.SendKeys(chromedp.CSS("#find input"), "order-42\n"))
	b.click("order-42")
	b.says("customer-7")
	b.open("find", "id", "customer-7")
	b.says("1 found; all 1 messages were looked at, by id and by key.")
	b.click("order-42")
	b.says("Message order-42")
}

// TestSearchGoesOn by itself, through more than one call looks at, and says how far it is.
func TestSearchGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	const many = 25_000
	requests := make([]delay.Request, 0, 1000)
	for i := range many {
		requests = append(requests, delay.Request{Message: delay.Message{ID: fmt.Sprint("m-", i), Topic: w.topic + ".timeout"}, When: delay.After(time.Hour)})
		if len(requests) == cap(requests) {
			results, err := w.client.ScheduleBatch(t.Context(), requests)
			require.NoError(t, err)
			require.Len(t, results, len(requests))
			requests = requests[:0]
		}
	}
	w.schedule(delay.Message{ID: "the last", Key: "k"}, 2*time.Hour)
	b := newBrowser(t, w.address)
	b.open("find", "id", "the l")
	b.says("1 found; all 25,001 messages were looked at, by id and by key.")
	b.count("main tbody tr", 1)
}

// TestForeignCharacters: an id can neither turn the text around it, nor hide a part of itself,
// in lists, headings and questions.
func TestForeignCharacters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	const id = "order-\u202e24\u200b"
	w.schedule(delay.Message{ID: id}, time.Hour)
	b := newBrowser(t, w.address)
	const shown = "order-⟨U+202E⟩24⟨U+200B⟩"
	b.open("messages", "queue", "orders")
	b.until(fmt.Sprintf(`document.querySelector('td[data-name=Id] bdi')?.innerText === %q`, shown))
	b.click(shown)
	b.until(fmt.Sprintf(`document.querySelector('h1 bdi')?.innerText === %q`, shown))
	assert.Equal(t, "Message "+shown+" – delaybridge", do(b, chromedp.Evaluate[string](`document.title`)))
	b.click("Cancel …")
	b.until(fmt.Sprintf(`document.querySelector('dialog h2 bdi')?.innerText === %q`, shown))
	b.click("Cancel the message")
	b.says(shown + " is cancelled.")
	w.gone(delay.Ref{ID: id})
	for _, dots := range []string{".", ".."} {
		w.schedule(delay.Message{ID: dots}, time.Hour)
		b.open("find", "id", dots)
		b.until(fmt.Sprintf(`[...document.querySelectorAll('td[data-name=Id]')].some((e) => e.innerText === %q)`, dots))
		b.click(dots)
		b.says("due in")
		b.click("Cancel …")
		b.click("Cancel the message")
		w.gone(delay.Ref{ID: dots})
	}
}

// TestTopicViewer finds, lists and sees what is of its topic, and nothing else.
func TestTopicViewer(t *testing.T) {
	t.Parallel()
	const token, topic = "0123456789abcdef0123456789abcdef", "viewer-topic.mail"
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, []byte(token+" viewer name=ann topics="+topic+"\n"), 0o600))
	w := newWorld(t, `, auth: {tokens_file: `+file+`}`)
	w.schedule(delay.Message{ID: "order-1", Topic: topic}, time.Hour)
	w.schedule(delay.Message{ID: "order-2"}, time.Hour)
	b := newBrowser(t, w.address)
	b.open("")
	b.fill("token", token)
	b.click("Use it")
	b.until(`document.getElementById('who').innerText.startsWith('ann')`)
	for _, page := range []string{"find", "messages"} {
		b.open(page, "queue", "orders", "id", "order-")
		b.count("main tbody tr", 1)
		assert.NotContains(t, b.text(), "order-2")
	}
	b.click("order-1")
	b.says("due in")
}

// TestZone shows and asks times by the clock of the reader, or by UTC.
func TestZone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	ref := w.schedule(delay.Message{ID: "a"}, time.Hour)
	b := newBrowser(t, w.address)
	_, err := chromedp.Call(b.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"})
	require.NoError(t, err)
	b.open("message", "queue", "orders", "id", ref.ID)
	b.says("Time: Asia/Tokyo")
	info, err := w.client.Get(t.Context(), ref)
	require.NoError(t, err)
	const layout = "2006-01-02 15:04:05"
	b.says(info.DueAt.Add(9 * time.Hour).UTC().Format(layout))
	b.click("Time: Asia/Tokyo")
	b.says("Time: UTC")
	b.says(info.DueAt.UTC().Format(layout))
	b.click("Reschedule …")
	b.fill("at", "2031-01-31T09:00:30")
	b.click("Reschedule")
	b.says("a is rescheduled.")
	info, err = w.client.Get(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, "2031-01-31T09:00:30Z", info.DueAt.UTC().Format(time.RFC3339))
}

// TestLive sees the figures move without a reload, and the focus stay where it is.
func TestLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	b := newBrowser(t, w.address)
	b.open("")
	b.says("all well")
	do(b, chromedp.Focus(chromedp.CSS("main tbody a")))
	w.schedule(delay.Message{ID: "a"}, time.Hour)
	b.until(`document.querySelector('td[data-name=Waiting]').innerText === '1'`)
	assert.Equal(t, "orders", do(b, chromedp.Evaluate[string](`document.activeElement.innerText`)))
}

func TestToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	const token = "0123456789abcdef0123456789abcdef"
	require.NoError(t, os.WriteFile(file, []byte(token+" viewer\n"), 0o600))
	w := newWorld(t, `, auth: {tokens_file: `+file+`}`)
	ref := w.schedule(delay.Message{ID: "a"}, time.Hour)
	b := newBrowser(t, w.address)
	b.open("")
	b.says("This bridge asks for a token")
	b.fill("token", token)
	b.click("Use it")
	b.says("all well")
	b.until(`document.getElementById('who').innerText.startsWith('viewer')`)
	b.open("message", "queue", "orders", "id", ref.ID)
	b.says("due in")
	offered := do(b, chromedp.Evaluate[[]string](`[...document.querySelectorAll('main button')].filter((e) => e.checkVisibility()).map((e) => e.innerText)`))
	assert.Equal(t, []string{"Show the body"}, offered, "a viewer changes nothing")
	b.click("Sign out")
	b.says("This bridge asks for a token")
}

// TestPages opens each page, on a screen and on a phone, behind a path of a proxy.
func TestPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	ref := w.schedule(delay.Message{ID: "a"}, time.Hour)
	target, err := url.Parse(w.address)
	require.NoError(t, err)
	proxy := httptest.NewServer(http.StripPrefix("/ops/delay", httputil.NewSingleHostReverseProxy(target)))
	t.Cleanup(proxy.Close)
	b := newBrowser(t, proxy.URL+"/ops/delay/")
	for _, size := range [][2]int64{{1280, 860}, {360, 740}} {
		do(b, chromedp.EmulateViewport(size[0], size[1]))
		for page, text := range map[string]string{
			"": "all well", "queue": "Forecast", "messages": "That is all.", "message": "due in", "dead": "There are none.",
			"sinks": "All routes are open.", "instances": "night-shift", "audit": "newest first", "find": "orders",
		} {
			b.open(page, "queue", "orders", "id", ref.ID)
			if page == "audit" { // Its text is for those who hear the page.
				b.count("main table", 1)
			} else {
				b.says(text)
			}
			wide := do(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`))
			assert.LessOrEqual(t, wide, size[0], page)
		}
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	b := newBrowser(t, w.address)
	b.open("queue", "queue", "orders")
	b.says("Shards")
	b.click("Pause …")
	do(b, chromedp.SendKeys(chromedp.CSS("dialog [name=topic]"), w.topic+".timeout\n"))
	b.count("dialog[open]", 1)
	paused, err := inspect.NewAdmin(w.queue).Paused(t.Context())
	require.NoError(t, err)
	assert.Empty(t, paused, "Enter pauses nothing")
	b.click("Pause")
	b.says("is paused.")
	b.says("Topic " + w.topic + ".timeout")
	w.schedule(delay.Message{ID: "late"}, 0)
	w.schedule(delay.Message{ID: "on time", Topic: w.topic + ".other"}, 0)
	w.arrives("on time")
	b.says("Parked\n1")
	b.click("Resume …")
	b.says("What is due is published at once")
	b.click("Resume")
	w.arrives("late")
}

// TestRecurring pauses, resumes and deletes a recurring schedule; its next firing is a message.
func TestRecurring(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	_, err := w.client.SetRecurring(t.Context(), delay.Recurring{Name: "daily-report", Cron: "@daily", Message: delay.Message{Key: "k", Topic: w.topic + ".timeout"}})
	require.NoError(t, err)
	b := newBrowser(t, w.address)
	b.open("queue", "queue", "orders")
	b.says("Shards")
	b.click("Recurring")
	b.says("daily-report")
	b.until(`document.querySelector('td[data-name=Scheduled]')?.innerText === '1'`)
	do(b, chromedp.Click(chromedp.CSS("td[data-name=Next] a")))
	b.says("daily-report@")
	b.says("Cancel …")
	b.open("recurring", "queue", "orders")
	b.click("Pause …")
	b.says("cancelled")
	b.click("Pause")
	b.says("daily-report is paused.")
	state, err := w.client.Recurring(t.Context(), "daily-report")
	require.NoError(t, err)
	require.False(t, state.PausedAt.IsZero())
	b.click("Resume …")
	b.says("from now on")
	b.click("Resume")
	b.says("daily-report is resumed.")
	b.click("Delete …")
	b.says("makes it again")
	b.click("Delete")
	b.says("daily-report is deleted.")
	b.says("There are none.")
	_, err = w.client.Recurring(t.Context(), "daily-report")
	require.ErrorIs(t, err, delay.ErrNotFound)
}

// TestJobs counts what matches first, and then cancels just that.
func TestJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	for _, id := range []string{"a", "b"} {
		w.schedule(delay.Message{ID: id, Tags: []string{"spring-sale"}}, time.Hour)
	}
	other := w.schedule(delay.Message{ID: "c"}, time.Hour)
	b := newBrowser(t, w.address)
	b.open("messages", "queue", "orders", "tag", "spring-sale")
	b.count("main tbody tr", 2)
	b.click("Cancel all that match …")
	b.says("Only count what matches")
	b.click("Only count them")
	b.says("count only: cancel")
	b.until(`document.querySelector('td[data-name=State]')?.innerText === 'done'`)
	b.until(`document.querySelector('td[data-name=Matched]').innerText === '2'`)

	b.open("messages", "queue", "orders", "tag", "spring-sale")
	b.count("main tbody tr", 2)
	b.click("Cancel all that match …")
	b.says("Only count what matches")
	b.forReal()
	b.click("Cancel 2 messages")
	w.gone(delay.Ref{ID: "a"})
	w.gone(delay.Ref{ID: "b"})
	b.until(`document.querySelector('td[data-name=Done]')?.innerText === '2'`)
	_, err := w.client.Get(t.Context(), other)
	require.NoError(t, err)
}
