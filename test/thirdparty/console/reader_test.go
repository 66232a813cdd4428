package console

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
)

// reads looks at a page as a screen reader gets it.
func (b *browser) reads(page string) {
	b.t.Helper()
	count := b.heard(page)
	for _, role := range []string{"heading 1", "banner", "navigation", "main"} {
		assert.Equal(b.t, 1, count[role], "%s: %s, of %v", page, role, count)
	}
	assert.Positive(b.t, count["table"], "%s: %v", page, count)
	if page == "" || page == "queue" {
		assert.Positive(b.t, count["image"], "%s: %v", page, count)
	}
	live := do(b, chromedp.Evaluate[[]string](`
		[...document.querySelectorAll('[aria-live], [role=status], [role=alert], [role=log], output')].map((e) => e.id)`))
	assert.ElementsMatch(b.t, []string{"live", "notes", "said"}, live, "%s: what is told by itself", page)
}

// heard counts the roles of what is on the page, and fails where something has no name that
// needs one.
func (b *browser) heard(page string) map[string]int {
	b.t.Helper()
	tree, err := chromedp.Call(b.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	require.NoError(b.t, err)
	nodes := map[accessibility.NodeID]*accessibility.Node{}
	for _, n := range tree.Nodes {
		nodes[n.NodeID] = n
	}
	count := map[string]int{}
	for _, n := range tree.Nodes {
		if n.Ignored {
			continue
		}
		role := said(n.Role)
		if role == "heading" {
			role += " " + property(n, "level")
		}
		count[role]++
		needsName := property(n, "focusable") == "true" || role == "image" || role == "columnheader" || role == "dialog"
		if needsName && role != "main" {
			assert.NotEmpty(b.t, said(n.Name), "%s: a nameless %s", page, role)
		}
		if role == "table" {
			assert.True(b.t, has(nodes, n, "columnheader"), "%s: the table %q has no header cells", page, said(n.Name))
		}
	}
	return count
}

// has reports whether something in a node has that role.
func has(nodes map[accessibility.NodeID]*accessibility.Node, n *accessibility.Node, role string) bool {
	for _, id := range n.ChildIDs {
		if child := nodes[id]; child != nil && (said(child.Role) == role || has(nodes, child, role)) {
			return true
		}
	}
	return false
}

func property(n *accessibility.Node, name string) string {
	for _, p := range n.Properties {
		if p.Name.String() == name {
			return said(p.Value)
		}
	}
	return ""
}

// said is a value as text.
func said(v *accessibility.Value) string {
	var value any
	if v == nil || json.Unmarshal(v.Value, &value) != nil || value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// TestFiguresAreNotTold: what changes each second is read on demand, and not told by itself.
func TestFiguresAreNotTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	b := newBrowser(t, w.address)
	b.open("")
	b.says("all well")
	do(b, chromedp.Evaluate[chromedp.Void](`
		window.told = [];
		for (const id of ['live', 'notes', 'said']) {
			new MutationObserver((changes) => window.told.push(id, changes.length))
				.observe(document.getElementById(id), { subtree: true, childList: true, characterData: true });
		}`))
	w.schedule(delay.Message{ID: "a"}, time.Hour)
	b.until(`document.querySelector('td[data-name=Waiting]').innerText === '1'`)
	assert.Empty(t, do(b, chromedp.Evaluate[[]any](`window.told`)))
}

// faint are texts whose contrast with what is behind them is less than 4.5 to 1, as WCAG 2.2
// reckons it.
const faint = `(() => {
	const parse = (text) => {
		const [r, g, b, a = 1] = text.match(/[0-9.]+/g).map(Number);
		return text.startsWith('color(') ? [255 * r, 255 * g, 255 * b, a] : [r, g, b, a];
	};
	const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
	const behind = (node) => {
		const layers = [];
		for (let n = node; n; n = n.parentElement) layers.push(parse(getComputedStyle(n).backgroundColor));
		return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255]);
	};
	const light = (color) => {
		const [r, g, b] = color.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const contrast = (one, other) => {
		const [darker, lighter] = [light(one), light(other)].sort((a, b) => a - b);
		return (lighter + 0.05) / (darker + 0.05);
	};
	const found = [];
	const judge = (node, color, text) => {
		const back = behind(node);
		const is = contrast(over(parse(color), back), back);
		if (!(is >= 4.5)) found.push(is.toFixed(2) + ' ' + node.nodeName + '.' + node.getAttribute('class') + ': ' + text.slice(0, 60));
	};
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let text = walk.nextNode(); text; text = walk.nextNode()) {
		const node = text.parentElement;
		if (!text.data.trim() || ['OPTION', 'title'].includes(node.nodeName) || !node.checkVisibility()) continue;
		const style = getComputedStyle(node);
		judge(node, node instanceof SVGElement ? style.fill : style.color, text.data);
	}
	for (const node of document.querySelectorAll('[placeholder]')) judge(node, getComputedStyle(node, '::placeholder').color, node.placeholder);
	return found;
})()`

// contrasts fails where a text cannot be read well.
func (b *browser) contrasts(where string) {
	b.t.Helper()
	assert.Empty(b.t, do(b, chromedp.Evaluate[[]string](faint)), where)
}
