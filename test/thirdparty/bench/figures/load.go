package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/test/trial"
)

const (
	// loadToken is that of all callers: its rate is beyond what can be reached.
	loadToken = "load-token-without-a-limit"
	// loadCallers is how many call at once where it is not one.
	loadCallers = 64
	// loadBatch is how many messages a batch has.
	loadBatch = 500
	// loadBody is the body of each message.
	loadBody = 256
	// loadWarm is for how long each way runs before it is measured: connections are made, and a JVM compiles.
	loadWarm = 8 * time.Second
)

// generator schedules as fast as it can, in some way and for some time, and returns how many messages
// that were. cpu is the processor time of its process.
type generator struct {
	name, how string
	run       func(ctx context.Context, d time.Duration) (int, error)
	cpu       func() time.Duration
}

// loadFigure measures what the API takes and what each SDK reaches, before one bridge and one Redis. All ways run one after the
// other, in -repeat rounds of -window each.
func loadFigure(ctx context.Context, r run) (err error) {
	if r.broker != "nats" {
		return errors.New("it is measured with nats only")
	}
	dir, err := os.MkdirTemp("", "delaybridge-load-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte(loadToken+" operator name=load rate=1000000\n"), 0o600); err != nil {
		return err
	}
	if err := os.Setenv("DELAYBRIDGE__ADMIN__AUTH__TOKENS_FILE", tokens); err != nil {
		return err
	}
	for language := range loaders {
		if err := install(ctx, language, dir); err != nil {
			return err
		}
	}
	var generators []generator
	var rows [][]loaded
	for range r.repeat {
		var measured []loaded
		if generators, measured, err = r.loadRound(ctx, dir); err != nil {
			return err
		}
		rows = append(rows, measured)
	}
	fmt.Printf("messages of %d bytes, batches of %d, one Redis (appendonly everysec), one bridge, %s each after %s, medians of %d; CPU in µs a message\n\n", loadBody, loadBatch, r.window, loadWarm, r.repeat)
	fmt.Println("| who | how | messages/s | load average | CPU of who | bridge | Redis | two cores would do /s |")
	fmt.Println("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	for i, g := range generators {
		fmt.Printf("| %s | %s | %s |\n", g.name, g.how, medianLoad(rows, i))
	}
	return nil
}

// loadRound measures all ways once, before a Redis that is empty at first.
func (r run) loadRound(ctx context.Context, dir string) (generators []generator, rows []loaded, err error) {
	w, err := r.world(ctx, trial.Options{})
	if err != nil {
		return nil, nil, err
	}
	defer w.Close()
	server := "http://" + w.Bridge.Admin()
	generators = append(plainGenerators(server), goGenerators(w.Client)...)
	for _, language := range slices.Sorted(maps.Keys(loaders)) {
		l, err := startLoader(ctx, language, dir, server)
		if err != nil {
			return nil, nil, err
		}
		defer l.close()
		generators = append(generators, l.generators...)
	}
	for _, g := range generators {
		row, err := measureLoad(ctx, w, g, r.window)
		if err != nil {
			return nil, nil, fmt.Errorf("%s, %s: %w", g.name, g.how, err)
		}
		rows = append(rows, row)
	}
	return generators, rows, nil
}

// loaded is a measurement of one generator.
type loaded struct {
	rate, average        float64
	own, bridge, inRedis float64 // µs a message
}

func (l loaded) String() string {
	const cores = 2
	all := l.own + l.bridge + l.inRedis
	return fmt.Sprintf("%.0f | %.0f | %.0f | %.0f | %.0f | %.0f", l.rate, l.average, l.own, l.bridge, l.inRedis, cores*1e6/all)
}

// medianLoad is the median of each column of the i-th row by itself.
func medianLoad(rounds [][]loaded, i int) loaded {
	of := func(field func(loaded) float64) float64 {
		values := make([]float64, 0, len(rounds))
		for _, rows := range rounds {
			values = append(values, field(rows[i]))
		}
		return median(values)
	}
	return loaded{
		rate: of(func(l loaded) float64 { return l.rate }), average: of(func(l loaded) float64 { return l.average }),
		own: of(func(l loaded) float64 { return l.own }), bridge: of(func(l loaded) float64 { return l.bridge }),
		inRedis: of(func(l loaded) float64 { return l.inRedis }),
	}
}

func measureLoad(ctx context.Context, w *trial.World, g generator, d time.Duration) (l loaded, err error) {
	if _, err := g.run(ctx, loadWarm); err != nil {
		return l, err
	}
	begin, own, before, redis := time.Now(), g.cpu(), w.Bridge.CPU(), trial.CPUBelow(w.Redis.Dir())
	count, err := g.run(ctx, d)
	if err != nil {
		return l, err
	}
	if count == 0 {
		return l, errors.New("nothing was scheduled")
	}
	took := time.Since(begin)
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(count) }
	l = loaded{rate: rate(count, took), own: each(g.cpu() - own), bridge: each(w.Bridge.CPU() - before), inRedis: each(trial.CPUBelow(w.Redis.Dir()) - redis)}
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return l, err
	}
	l.average, err = strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	return l, err
}

func ownCPU() time.Duration { return trial.CPU(os.Getpid()) }

// during has so many callers call until the time is over, and returns the sum of what they have scheduled.
func during(ctx context.Context, callers int, d time.Duration, call func(context.Context) (int, error)) (int, error) {
	end := time.Now().Add(d)
	var sum atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range callers {
		group.Go(func() error {
			for time.Now().Before(end) {
				n, err := call(ctx)
				if err != nil {
					return err
				}
				sum.Add(int64(n))
			}
			return nil
		})
	}
	err := group.Wait()
	return int(sum.Load()), err
}

// plainGenerators are requests that are made once and sent again and again over connections that stay: what the API itself takes.
func plainGenerators(server string) []generator {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: loadCallers, MaxConnsPerHost: loadCallers}, Timeout: time.Minute}
	one := `{"topic":"load","in":"24h","body":"` + strings.Repeat("x", loadBody) + `"}`
	batch := `{"messages":[` + strings.TrimSuffix(strings.Repeat(one+",", loadBatch), ",") + `]}`
	var keys atomic.Int64
	send := func(path, body string, count int, isKeyed bool) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, server+"/api/v1/queues/orders/"+path, strings.NewReader(body))
			if err != nil {
				return 0, err
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Authorization", "Bearer "+loadToken)
			if isKeyed {
				request.Header.Set("Idempotency-Key", strconv.FormatInt(keys.Add(1), 10))
			}
			response, err := client.Do(request)
			if err != nil {
				return 0, err
			}
			answer, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || response.StatusCode/100 != 2 {
				return 0, errors.Join(err, fmt.Errorf("%s: %.200s", response.Status, answer))
			}
			return count, nil
		}
	}
	ways := []struct {
		how     string
		callers int
		call    func(context.Context) (int, error)
	}{
		{"single calls, 1 connection", 1, send("messages", one, 1, false)},
		{"single calls, 64 connections", loadCallers, send("messages", one, 1, false)},
		{"the same with Idempotency-Key", loadCallers, send("messages", one, 1, true)},
		{"batches, 4 connections", 4, send("messages:batch", batch, loadBatch, false)},
		{"batches, 8 connections", 8, send("messages:batch", batch, loadBatch, false)},
		{"the same with Idempotency-Key", 8, send("messages:batch", batch, loadBatch, true)}, //nolint:mnd // named beside it
	}
	all := make([]generator, 0, len(ways))
	for _, way := range ways {
		run := func(ctx context.Context, d time.Duration) (int, error) { return during(ctx, way.callers, d, way.call) }
		all = append(all, generator{name: "the API", how: way.how, run: run, cpu: ownCPU})
	}
	return all
}

// goGenerators are the SDK for Go, which asks Redis, and no bridge.
func goGenerators(client *delay.Client) []generator {
	m := delay.Message{Topic: "load", Body: bytes.Repeat([]byte("x"), loadBody)}
	due := delay.After(24 * time.Hour)
	one := func(ctx context.Context) (int, error) {
		_, err := client.Schedule(ctx, m, due)
		return 1, err
	}
	requests := make([]delay.Request, loadBatch)
	for i := range requests {
		requests[i] = delay.Request{Message: m, When: due}
	}
	batch := func(ctx context.Context) (int, error) {
		_, err := client.ScheduleBatch(ctx, requests)
		return loadBatch, err
	}
	run := func(callers int, call func(context.Context) (int, error)) func(context.Context, time.Duration) (int, error) {
		return func(ctx context.Context, d time.Duration) (int, error) { return during(ctx, callers, d, call) }
	}
	return []generator{
		{"Go, at Redis", "1 caller", run(1, one), ownCPU},
		{"Go, at Redis", "64 callers", run(loadCallers, one), ownCPU},
		{"Go, at Redis", "ScheduleBatch", run(1, batch), ownCPU},
	}
}

// loader is the process of one SDK, in an empty project into which its package was installed.
type loader struct {
	command    *exec.Cmd
	orders     io.WriteCloser
	answers    *bufio.Reader
	generators []generator
}

// loaders are the programs, by language.
var loaders = map[string]struct {
	name, program string
	ways          [][2]string // as the program knows it, and as the table does
}{
	"python": {"Python", "sdk/python/tests/load.py", [][2]string{
		{"one", "1 caller"},
		{"many", "64 threads"},
		{"batcher", "Batcher"},
		{"async-one", "asyncio, 1 caller"},
		{"async-many", "asyncio, 64 callers"},
		{"async-batcher", "AsyncBatcher"},
	}},
	"typescript": {"TypeScript", "sdk/typescript/test/load.mjs", [][2]string{{"one", "1 caller"}, {"many", "64 callers"}, {"batcher", "Batcher"}}},
	"java":       {"Java", "sdk/java/tests/load/Load.java", [][2]string{{"one", "1 caller"}, {"many", "64 threads"}, {"batcher", "Batcher"}}},
}

// install builds the SDK's package, and installs it into an empty project.
func install(ctx context.Context, language, dir string) error {
	root, err := service.Root()
	if err != nil {
		return err
	}
	packages, project := filepath.Join(dir, language+"-package"), filepath.Join(dir, language)
	if err := errors.Join(os.Mkdir(packages, 0o700), os.Mkdir(project, 0o700)); err != nil {
		return err
	}
	for _, arguments := range [][]string{
		{"scripts/sdk-package.sh", language, packages},
		{"scripts/sdk-project.sh", language, packages, filepath.Join(root, loaders[language].program)},
	} {
		command := exec.CommandContext(ctx, filepath.Join(root, arguments[0]), arguments[1:]...) //nolint:gosec // ours
		command.Dir = project
		if said, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(arguments, " "), err, said)
		}
	}
	return nil
}

// startLoader starts the program of a project.
func startLoader(ctx context.Context, language, dir, server string) (l *loader, err error) {
	l = &loader{command: exec.CommandContext(ctx, "./run", server)}
	l.command.Dir, l.command.Stderr = filepath.Join(dir, language), os.Stderr
	l.command.Env = append(os.Environ(), "TOKEN="+loadToken)
	if l.orders, err = l.command.StdinPipe(); err != nil {
		return nil, err
	}
	answers, err := l.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	l.answers = bufio.NewReader(answers)
	if err := l.command.Start(); err != nil {
		return nil, err
	}
	for _, way := range loaders[language].ways {
		l.generators = append(l.generators, generator{
			name: loaders[language].name, how: way[1],
			run: func(_ context.Context, d time.Duration) (int, error) { return l.order(way[0], d) },
			cpu: func() time.Duration { return trial.CPU(l.command.Process.Pid) },
		})
	}
	return l, nil
}

// order has the program schedule for a time. It ends with the context that the program was started with.
func (l *loader) order(way string, d time.Duration) (int, error) {
	if _, err := fmt.Fprintf(l.orders, "%s %g\n", way, d.Seconds()); err != nil {
		return 0, err
	}
	answer, err := l.answers.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("the program has ended: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(answer))
}

// close ends the program, which reads no more orders.
func (l *loader) close() {
	_ = l.orders.Close()
	_ = l.command.Wait() // What has failed was the answer to an order.
}
