package console

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
)

// declare declares a queue by the API.
func (w *world) declare(name, queue, token string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPut, w.address+"api/v1/declarations/"+name, strings.NewReader(queue))
	require.NoError(w.t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	require.NoError(w.t, err)
	require.NoError(w.t, response.Body.Close())
	require.Equal(w.t, http.StatusCreated, response.StatusCode)
}

// row waits until a table, by its caption, has a row with that first cell in which these columns begin so.
func (b *browser) row(table, first string, cells map[string]string) {
	b.t.Helper()
	for column, text := range cells {
		b.until(fmt.Sprintf(`[...document.querySelectorAll('main table')].some((t) => t.caption.innerText === %q &&
			[...t.tBodies[0].rows].some((r) => r.cells[0].innerText.trim() === %q && r.querySelector('td[data-name=%q]').innerText.startsWith(%q)))`, table, first, column, text))
	}
}

// TestOwners: the page has what each owner takes, and where each queue is declared, by whom and since when; a caller sees it of its own queues.
func TestOwners(t *testing.T) {
	t.Parallel()
	const operator, team = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	folder := t.TempDir()
	file, carts := filepath.Join(folder, "tokens"), filepath.Join(folder, "shop.yaml")
	require.NoError(t, os.WriteFile(file, []byte(operator+" operator name=ann\n"+team+" viewer name=payments queues=pay-bills\n"), 0o600))
	require.NoError(t, os.WriteFile(carts, []byte("owner: shop\ncontacts: ['#shop', desk@example.com]\nqueues: {shop-carts: {sink: events}}\n"), 0o600))
	w := setting{admin: ", auth: {tokens_file: " + file + "}", queueFiles: "api: {prefix: pay-}, teams: {files: [" + carts + "]}"}.start(t)
	w.schedule(delay.Message{ID: "a"}, time.Hour)
	w.declare("pay-bills", `{"sink": "events", "owner": "payments", "contacts": ["<b>pay</b>"]}`, operator)
	b := newBrowser(t, w.address)
	b.open("")
	b.fill("token", operator)
	b.click("Use it")
	b.until(`document.getElementById('who').innerText.startsWith('ann')`)
	b.click("Owners")

	const usage, declared = "Usage by owner and queue", "Where queues are declared"
	b.row(usage, "no owner", map[string]string{"Waiting": "1", "of all bytes": "100.0 %", "Published": "0", "of all published": "–"})
	b.row(usage, "orders", map[string]string{"Waiting": "1", "Scheduled": "1", "Counted since": "20"})
	b.row(usage, "payments", map[string]string{"Waiting": "0", "Bytes": "0 B", "of all bytes": "0.0 %"})
	b.row(usage, "all", map[string]string{"Waiting": "1"})
	b.row(declared, "orders", map[string]string{"Owner": "none", "Declared in": "the main configuration", "State": "in force", "Last change": "20"})
	b.row(declared, "shop-carts", map[string]string{"Owner": "shop", "Contacts": "#shop, desk@example.com", "Declared in": carts, "State": "in force", "Last change": "20"})
	b.row(declared, "pay-bills", map[string]string{"Owner": "payments", "Contacts": "<b>pay</b>", "Declared in": "the API", "State": "in force", "Last change": "20"})
	b.says(" by ann")
	if *screens != "" {
		do(b, chromedp.EmulateViewport(1280, 1100))
		b.picture("owners-of-teams", "light", 1280)
	}

	require.NoError(t, os.WriteFile(carts, []byte("queues: {shop-carts: {sink: events}, pay-bills: {sink: events, owner: shop}}\n"), 0o600))
	b.row(declared, "pay-bills", map[string]string{"Declared in": carts, "State": "in force", "Owner": "shop"})
	b.row(declared, "pay-bills", map[string]string{"Declared in": "the API", "State": "wrong"})
	b.says("is declared in " + carts)

	b.click("Sign out")
	b.fill("token", team)
	b.click("Use it")
	b.until(`document.getElementById('who').innerText.startsWith('payments')`)
	b.open("owners")
	b.row(declared, "pay-bills", map[string]string{"Declared in": "the API"})
	assert.NotContains(t, b.text(), "orders")
	assert.NotContains(t, b.text(), "shop-carts")
}
