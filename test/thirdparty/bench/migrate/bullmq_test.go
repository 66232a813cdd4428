package migrate_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/importer"
)

// bullFiles are the program that speaks for BullMQ, and its versions.
//
//go:embed bullmq
var bullFiles embed.FS

// bull is BullMQ in a process of Node.
type bull struct {
	t       *testing.T
	input   io.WriteCloser
	answers *bufio.Scanner
}

// installBull returns the folder of the program with its libraries, which npm fetches once.
func installBull(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("this machine has no %s, so BullMQ does not run; internal/importer has jobs as it writes them", program)
		}
	}
	hash := sha256.New()
	files := map[string][]byte{}
	for _, name := range []string{"package.json", "jobs.mjs"} {
		text, err := bullFiles.ReadFile("bullmq/" + name)
		require.NoError(t, err)
		files[name] = text
		_, _ = hash.Write(text)
	}
	cache := filepath.Join("..", "..", "..", "..", ".cache")
	folder := filepath.Join(cache, "bullmq-"+hex.EncodeToString(hash.Sum(nil)[:6]))
	if _, err := os.Stat(folder); err == nil {
		return folder
	}
	require.NoError(t, os.MkdirAll(cache, 0o755))
	fresh, err := os.MkdirTemp(cache, "bullmq-new-") //nolint:usetesting // It is renamed, so it must be on that disk.
	require.NoError(t, err)
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(fresh, name), text, 0o600))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = fresh
	if out, err := install.CombinedOutput(); err != nil {
		require.NoError(t, os.RemoveAll(fresh))
		t.Skipf("npm cannot get BullMQ here: %v: %s; internal/importer has jobs as it writes them", err, out)
	}
	if err := os.Rename(fresh, folder); err != nil { // Another test was first.
		require.NoError(t, os.RemoveAll(fresh))
	}
	return folder
}

func startBull(t *testing.T, w *world) *bull {
	t.Helper()
	folder := installBull(t)
	_, port, err := net.SplitHostPort(w.rdb.Options().Addr)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	cmd := exec.CommandContext(ctx, "node", "jobs.mjs", port)
	cmd.Dir, cmd.Stderr = folder, t.Output()
	input, err := cmd.StdinPipe()
	require.NoError(t, err)
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait()
		cancel()
	})
	return &bull{t, input, bufio.NewScanner(output)}
}

// call asks BullMQ, and returns its answer.
func (b *bull) call(do string, more map[string]any) any {
	b.t.Helper()
	request := map[string]any{"do": do}
	maps.Copy(request, more)
	text, err := json.Marshal(request)
	require.NoError(b.t, err)
	_, err = fmt.Fprintf(b.input, "%s\n", text)
	require.NoError(b.t, err)
	require.True(b.t, b.answers.Scan(), "BullMQ's process has ended")
	var answer struct {
		Result any
		Error  string
	}
	require.NoError(b.t, json.Unmarshal(b.answers.Bytes(), &answer))
	require.Empty(b.t, answer.Error)
	return answer.Result
}

// add adds jobs that are due after a delay.
func (b *bull) add(ids []string, delay time.Duration, options map[string]any) {
	b.t.Helper()
	jobs := make([]map[string]any, len(ids))
	for i, id := range ids {
		opts := map[string]any{"jobId": id, "delay": delay.Milliseconds(), "removeOnComplete": true}
		maps.Copy(opts, options)
		jobs[i] = map[string]any{"name": "order.timeout", "data": map[string]any{"order": 42}, "opts": opts}
	}
	b.call("add", map[string]any{"jobs": jobs})
}

func (w *world) bullOptions() importer.Options {
	o := w.options(importer.BullMQ(w.rdb, "bull", "orders", message.DefaultMaxSize))
	o.Rules.Topic = "order.timeout"
	return o
}

func orders(n int) (ids []string) {
	for i := range n {
		ids = append(ids, "order-"+strconv.Itoa(i))
	}
	return ids
}

// TestImportBullMQ: what BullMQ has delayed arrives as it was, and what has no counterpart stays.
func TestImportBullMQ(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := startBull(t, w)
	before := time.Now()
	b.add(orders(600), 24*time.Hour, nil)
	b.call("changeDelay", map[string]any{"id": "order-7", "delay": (48 * time.Hour).Milliseconds()})
	b.add([]string{"deduplicated"}, time.Hour, map[string]any{"deduplication": map[string]any{"id": "d"}})
	b.call("flow", map[string]any{"delay": time.Hour.Milliseconds()})
	b.call("recur", map[string]any{"pattern": "0 0 1 1 *"})
	r, err := importer.New(w.bullOptions()).Run(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 600, r.Moved)
	assert.EqualValues(t, 600, r.Found)
	assert.Zero(t, r.Unaccounted())
	for _, reason := range []importer.Reason{importer.NeedsDeduplication, importer.NeedsFlow, importer.NeedsRecurring} {
		if assert.Contains(t, r.Left, reason) {
			assert.EqualValues(t, 1, r.Left[reason].Count)
		}
	}
	assert.Len(t, r.Notes, 1, "the job scheduler")
	info, err := w.client.Get(t.Context(), delay.Ref{ID: "order-7"})
	require.NoError(t, err)
	assert.WithinRange(t, info.DueAt, before.Add(48*time.Hour).Truncate(time.Millisecond), time.Now().Add(48*time.Hour))
	assert.JSONEq(t, `{"order":42}`, string(info.Body))
	counts, ok := b.call("counts", nil).(map[string]any)
	require.True(t, ok)
	assert.EqualValues(t, 3, counts["delayed"])

	o := w.bullOptions()
	o.Rules.GiveUp = []importer.Reason{importer.NeedsDeduplication}
	r, err = importer.New(o).Run(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, r.Moved)
	b.add([]string{"anew"}, time.Hour, map[string]any{"deduplication": map[string]any{"id": "d"}})
	r, err = importer.New(o).Run(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, r.Moved, "BullMQ takes the deduplication id again")
}

// TestImportBullMQKeepsCancels: what BullMQ removes while it is held waits in neither, also if the import is broken
// off there; and it refuses to remove what is due too soon.
func TestImportBullMQKeepsCancels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := startBull(t, w)
	ids := orders(30)
	for _, step := range []string{"held", "scheduled"} {
		b.add(ids, 24*time.Hour, nil)
		b.add([]string{"soon"}, 30*time.Second, nil)
		o := w.bullOptions()
		o.Step = func(name string) error {
			if name != step {
				return nil
			}
			for _, id := range ids[:10] {
				assert.EqualValues(t, 1, b.call("remove", map[string]any{"id": id}), "removed")
			}
			assert.EqualValues(t, 0, b.call("remove", map[string]any{"id": "soon"}), "as it is locked")
			return errCrash
		}
		_, err := importer.New(o).Run(t.Context())
		require.ErrorIs(t, err, errCrash)
		r, err := importer.New(w.bullOptions()).Run(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 10, r.Cancelled)
		assert.EqualValues(t, 21, r.Moved)
		for i, id := range ids {
			assert.Equal(t, i >= 10, w.isHere(id), id)
		}
		for _, id := range append(ids[10:], "soon") {
			require.NoError(t, w.client.Cancel(t.Context(), delay.Ref{ID: id}))
		}
	}
	keys, err := w.rdb.Keys(t.Context(), "bull:orders:order-*").Result()
	require.NoError(t, err)
	assert.Empty(t, keys)
}

// TestImportBesideBullMQ: while BullMQ's processors take jobs that fall due, each is processed there or is here, never both.
func TestImportBesideBullMQ(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := startBull(t, w)
	ids := orders(900)
	for i := range 6 {
		b.add(ids[i*150:(i+1)*150], time.Duration(i)*400*time.Millisecond+time.Millisecond, nil)
	}
	b.call("work", nil)
	steps := 0
	o := w.bullOptions()
	o.Step = func(string) error {
		if steps++; steps%5 == 0 {
			return errCrash
		}
		return nil
	}
	for {
		_, err := importer.New(o).Run(t.Context())
		if !errors.Is(err, errCrash) {
			require.NoError(t, err)
			break
		}
	}
	handled := map[string]int{}
	require.Eventually(t, func() bool {
		counts, _ := b.call("counts", nil).(map[string]any)
		return counts["active"] == 0.0 && counts["waiting"] == 0.0 && counts["delayed"] == 0.0
	}, patience, 50*time.Millisecond)
	list, _ := b.call("handled", nil).([]any)
	for _, id := range list {
		handled[fmt.Sprint(id)]++
	}
	here := 0
	for _, id := range ids {
		n := handled[id]
		if w.isHere(id) {
			here++
			n++
		}
		assert.Equal(t, 1, n, id)
	}
	t.Logf("%d of %d are here", here, len(ids))
}
