package console

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
)

// focus is what a key would go to.
type focus struct {
	Name string `json:"name"`
	// Body says that nothing has the focus, Dialog that it is in one.
	Body   bool `json:"body"`
	Dialog bool `json:"dialog"`
	// Outlined and Covered say whether it can be seen.
	Outlined bool `json:"outlined"`
	Covered  bool `json:"covered"`
}

func (b *browser) press(key string, modifiers ...chromedp.Modifier) {
	b.t.Helper()
	do(b, chromedp.KeyEvent(key, chromedp.KeyModifiers(modifiers...)))
}

func (b *browser) focus() focus {
	b.t.Helper()
	return do(b, chromedp.Evaluate[focus](`(() => {
		const e = document.activeElement;
		const box = e.getBoundingClientRect();
		const style = getComputedStyle(e);
		const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
		const label = e.labels?.[0];
		const name = e.getAttribute('aria-label') || label?.querySelector('span')?.innerText || label?.innerText || e.innerText;
		return {
			name: name.trim(), body: e === document.body, dialog: e.closest('dialog') !== null,
			outlined: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0,
			covered: e.getAttribute('role') !== 'region' && !(top && (e.contains(top) || top.contains(e))),
		};
	})()`))
}

// tabTo presses Tab until what has that name has the focus, which can be seen all the way.
func (b *browser) tabTo(name string) {
	b.t.Helper()
	for range 100 {
		b.press(kb.Tab)
		f := b.focus()
		if f.Body {
			continue // the browser's own controls
		}
		require.True(b.t, f.Outlined, "nobody sees the focus of %q", f.Name)
		require.False(b.t, f.Covered, "something hides %q", f.Name)
		if f.Name == name {
			return
		}
	}
	require.Fail(b.t, "no Tab leads there", name)
}

// follow presses Enter on what leads to another page, and waits for the focus to be there.
func (b *browser) follow() {
	b.t.Helper()
	b.press(kb.Enter)
	b.until(`document.activeElement.id === 'main'`)
}

// redrawn waits until the page of a message is drawn anew.
func (b *browser) redrawn() {
	b.t.Helper()
	const drawn = `document.querySelector('ol.story time').innerText`
	do(b, chromedp.Evaluate[chromedp.Void](`window.drawn = `+drawn))
	b.until(drawn + ` !== window.drawn`)
}

// TestKeyboardAlone goes from the overview to a message, and cancels it, without a mouse.
func TestKeyboardAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	ref := w.schedule(delay.Message{ID: "order-42"}, time.Hour)
	w.schedule(delay.Message{ID: "order-43"}, time.Hour)
	b := newBrowser(t, w.address)
	b.open("")
	b.count("main tbody tr", 1)
	b.press(kb.Tab)
	require.Equal(t, "Skip to the content", b.focus().Name)
	require.False(t, b.focus().Covered)
	b.follow()
	b.says("all well")

	b.tabTo("orders")
	b.follow()
	b.says("Forecast")
	b.tabTo("Messages")
	b.follow()
	b.count("main tbody tr", 2)
	b.tabTo("State")
	b.press(kb.ArrowDown)
	b.tabTo("List")
	b.follow()
	b.until(`location.hash.includes('state=scheduled')`)
	b.count("main tbody tr", 2)
	b.tabTo("order-42")
	b.follow()
	b.says("due in")

	b.tabTo("Cancel …")
	b.press(" ")
	b.count("dialog[open]", 1)
	for i := range 8 { // Round it both ways.
		if i < 4 {
			b.press(kb.Tab)
		} else {
			b.press(kb.Tab, chromedp.ModifierShift)
		}
		f := b.focus()
		require.True(t, f.Dialog || f.Body, "the focus has left the dialog for %q", f.Name)
	}
	b.redrawn()
	b.press(kb.Escape)
	b.count("dialog", 0)
	require.Equal(t, "Cancel …", b.focus().Name, "the focus is back")
	b.redrawn()
	require.Equal(t, "Cancel …", b.focus().Name, "it stays while the page is drawn anew")
	_, err := w.client.Get(t.Context(), ref)
	require.NoError(t, err, "Escape changes nothing")

	b.press(kb.Enter)
	b.count("dialog[open]", 1)
	b.tabTo("Cancel the message")
	b.press(kb.Enter)
	b.says("order-42 is cancelled.")
	w.gone(ref)
	b.says("It has left")
	require.False(t, b.focus().Body, "what had the focus is gone, and the next Tab begins at the content")
}
