package console

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// browser is a tab of headless Chromium.
type browser struct {
	t      *testing.T
	ctx    context.Context //nolint:containedctx // It is how chromedp names a tab.
	home   string
	opened int // pages

	mu       sync.Mutex
	troubles []string
}

// chromium is one headless Chromium, started by the first tab: most of a browser's work is to begin.
var chromium context.Context //nolint:containedctx // It is how chromedp names a browser.

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 860),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, cancel := chromedp.NewContext(allocator)
	defer cancel()
	chromium = ctx //nolint:fatcontext // It is one for all tests.
	return m.Run()
}

var start = sync.OnceValue(func() error { return chromedp.Do(chromium) })

// newBrowser opens a tab with cookies and storage of its own. What the page throws or logs as an error fails the test.
func newBrowser(t *testing.T, home string) *browser {
	t.Helper()
	require.NoError(t, start(), "start Chromium; scripts/provision.sh installs it")
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx, home: home}
	require.NoError(t, chromedp.Do(ctx))
	require.NoError(t, chromedp.Listen(ctx, b.hear))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		assert.Empty(t, b.troubles, "the page has no errors")
	})
	return b
}

func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		b.troubles = append(b.troubles, fmt.Sprintf("%+v", event.ExceptionDetails))
	case *log.EventEntryAdded:
		// What the API refuses, the page tells; the browser logs it, too.
		if event.Entry.Level == log.EntryLevelError && event.Entry.Source != log.EntrySourceNetwork {
			b.troubles = append(b.troubles, event.Entry.Text)
		}
	}
}

// do does one thing, and returns its value; where it cannot, the test ends.
func do[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body.innerText`))
		require.NoError(b.t, err, "the page says: %s", text)
	}
	return value
}

// pollInterval is how often the page is asked: asked at each frame, as chromedp does by itself, Chromium draws all of them.
const pollInterval = 50 * time.Millisecond

// until waits for an expression to be true. A busy machine may ask the page that was there
// before, which the browser refuses.
func (b *browser) until(expression string) {
	b.t.Helper()
	poll := chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(patience), chromedp.WithPollingInterval(pollInterval))
	do(b, func(ctx context.Context, tab *chromedp.Target) (done chromedp.Void, err error) {
		for {
			done, err = poll(ctx, tab)
			if _, refused := errors.AsType[*cdproto.Error](err); !refused || ctx.Err() != nil {
				return done, err
			}
		}
	})
}

// forReal says in the question of a job that it is to change something, once it has counted:
// until then what it shows still grows.
func (b *browser) forReal() {
	b.t.Helper()
	b.until(`/messages? match(es)? now/.test(document.querySelector('dialog')?.innerText)`)
	do(b, chromedp.Click(chromedp.CSS("dialog [name=dry_run]")))
}

// open shows a page, such as "message", with its query: names and values.
func (b *browser) open(page string, query ...string) {
	b.t.Helper()
	values := url.Values{}
	for i := 0; i < len(query); i += 2 {
		values.Set(query[i], query[i+1])
	}
	b.opened++ // Else only the part behind the # changes, which loads nothing. By way of another page Chromium would start two processes.
	do(b, chromedp.Navigate(fmt.Sprintf("%s?%d#/%s?%s", b.home, b.opened, page, values.Encode())))
	b.until(`document.querySelector('main h1') !== null`)
}

// says waits until the page has the text.
func (b *browser) says(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`document.body?.innerText.includes(%q)`, text)) // A page that is being loaded has none.
}

// count waits until so many elements match.
func (b *browser) count(selector string, n int) {
	b.t.Helper()
	b.until(fmt.Sprintf(`document.querySelectorAll(%q).length === %d`, selector, n))
}

// click presses the button, or follows the link, with that text. A page that is drawn
// anew each second may have replaced it meanwhile, so it is found and pressed in one step.
func (b *browser) click(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`(() => {
		const shown = document.querySelector('dialog') || document;
		const found = [...shown.querySelectorAll('button, a')].find((e) => e.innerText.trim() === %q);
		found?.click();
		return found !== undefined;
	})()`, text))
}

// fill writes into a field.
func (b *browser) fill(name, value string) {
	b.t.Helper()
	do(b, chromedp.SetValue(chromedp.CSS(fmt.Sprintf(`dialog [name=%q], main [name=%q]`, name, name)), value))
}

// text is what the page shows.
func (b *browser) text() string {
	b.t.Helper()
	return do(b, chromedp.Evaluate[string](`document.body.innerText`))
}
