package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/test/trial"
)

const (
	// operateDay is over how long the messages of the figure fall due.
	operateDay = 24 * time.Hour
	// operateTag is on those of them that are tagged.
	operateTag = "customer-7"
	// lookAgain is longer than the bridge shows the same overview again.
	lookAgain = 1100 * time.Millisecond
	// longestScript is what no script may take.
	longestScript = 5 * time.Millisecond
)

// operateFigure measures what operators' looks and changes take while very many
// messages wait.
func operateFigure(ctx context.Context, r run) error {
	w, err := r.world(ctx, trial.Options{})
	if err != nil {
		return err
	}
	defer w.Close()
	count := cmp.Or(r.count, 5_000_000)
	o := &operating{run: r, w: w, count: count, tagged: max(1, count/50)}
	for _, step := range []func(context.Context) error{o.fill, o.reads, o.job, o.walk, o.scripts} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return errors.Join(o.problems...)
}

// operating is one run of the figure.
type operating struct {
	run
	w             *trial.World
	count, tagged int
	problems      []error
}

func (o *operating) say(format string, args ...any) {
	fmt.Printf("operate  %s\n", fmt.Sprintf(format, args...))
}

// fill schedules what is to wait, and has Redis note what takes long from then on.
func (o *operating) fill(ctx context.Context) error {
	begin := time.Now()
	for _, f := range []filling{{ids: "plain", count: o.count - o.tagged}, {ids: "tagged", count: o.tagged, tags: []string{operateTag}}} {
		f.due, f.step = begin.Add(time.Hour), operateDay/time.Duration(f.count)
		if err := fill(ctx, o.w, f); err != nil {
			return err
		}
	}
	memory, err := usedMemory(ctx, o.w)
	o.say("%d waiting, %d of them tagged, scheduled in %s; Redis has %d MiB",
		o.count, o.tagged, time.Since(begin).Round(time.Second), memory>>20)
	return errors.Join(err,
		o.w.RDB.ConfigSet(ctx, "slowlog-log-slower-than", "1000").Err(),
		o.w.RDB.ConfigSet(ctx, "slowlog-max-len", "10000").Err(),
		o.w.RDB.Do(ctx, "SLOWLOG", "RESET").Err())
}

// looks are what an operator asks, by name.
func (o *operating) looks() map[string]string {
	q := "/api/v1/queues/" + o.w.Queue()
	far := url.QueryEscape(time.Now().Add(operateDay / 2).UTC().Format(time.RFC3339))
	return map[string]string{
		"console": "/", "metrics": "/metrics", "overview": "/api/v1/queues", "queue": q, "shards": q + "/shards", "instances": "/api/v1/instances",
		"sinks": "/api/v1/sinks", "jobs": "/api/v1/jobs", "audit": "/api/v1/audit", "a message": q + "/messages/" + fmt.Sprintf("plain-%024d", 7),
		"demand": q + "/demand?within=2m", "forecast of a day": q + "/forecast", "forecast by minute": q + "/forecast?step=1m",
		"list": q + "/messages?limit=100", "list 1,000": q + "/messages?limit=1000", "list by tag": q + "/messages?limit=100&tag=" + operateTag,
		"list 1,000 by tag": q + "/messages?limit=1000&tag=" + operateTag, "list from noon on": q + "/messages?limit=100&due_from=" + far,
		"list by topic": q + "/messages?limit=100&topic=" + o.w.Topic, "list by prefix": q + "/messages?limit=100&id_prefix=plain-",
		"list what is not there": q + "/messages?limit=100&id_prefix=none", "list the dead": q + "/messages?limit=100&state=dead",
	}
}

// reads takes each look several times.
func (o *operating) reads(ctx context.Context) error {
	const rounds = 10
	looks, took := o.looks(), map[string][]time.Duration{}
	for range rounds {
		for name, path := range looks {
			begin := time.Now()
			if _, err := o.call(ctx, http.MethodGet, path, ""); err != nil {
				return err
			}
			took[name] = append(took[name], time.Since(begin))
		}
		if err := trial.Sleep(ctx, lookAgain); err != nil {
			return err
		}
	}
	for name := range looks {
		slices.Sort(took[name])
	}
	names := make([]string, 0, len(looks))
	for name := range looks {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(took[b][rounds/2], took[a][rounds/2]) })
	for _, name := range names {
		o.say("%-24s median %6.1f ms, most %6.1f ms", name, inMs(took[name][rounds/2]), inMs(took[name][rounds-1]))
	}
	return nil
}

// inMs is a time in milliseconds.
func inMs(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 } //nolint:mnd // µs in a ms

// call makes a call, and returns its answer.
func (o *operating) call(ctx context.Context, method, path, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+o.w.Bridges()[0].Admin()+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %s", method, path, response.Status, content)
	}
	return content, err
}

// job cancels all that are tagged.
func (o *operating) job(ctx context.Context) error {
	matched, done, took, err := o.cancel(ctx, `{"tag":"`+operateTag+`"}`)
	if err != nil {
		return err
	}
	o.say("cancel all of a tag: %d matched, %d done in %.1f s, %.0f a second", matched, done, took.Seconds(), rate(done, took))
	if done != o.tagged {
		o.problems = append(o.problems, fmt.Errorf("the job has cancelled %d of %d", done, o.tagged))
	}
	return nil
}

// walk has jobs look at all that waits and find nothing.
func (o *operating) walk(ctx context.Context) error {
	for _, filter := range []string{`{"topic":"nobodys"}`, `{"id_prefix":"nobodys"}`, `{"due_to":"2001-01-01T00:00:00.000Z"}`} {
		matched, _, took, err := o.cancel(ctx, filter)
		if err != nil {
			return err
		}
		o.say("cancel all of %s: %d matched, in %.1f s", filter, matched, took.Seconds())
	}
	return nil
}

func (o *operating) cancel(ctx context.Context, filter string) (matched, done int, took time.Duration, err error) {
	begin := time.Now()
	content, err := o.call(ctx, http.MethodPost, "/api/v1/queues/"+o.w.Queue()+"/messages:cancel", `{"filter":`+filter+`}`)
	if err != nil {
		return 0, 0, 0, err
	}
	var started struct {
		Job string `json:"job"`
	}
	if err := json.Unmarshal(content, &started); err != nil {
		return 0, 0, 0, err
	}
	var job struct {
		State         string `json:"state"`
		Matched, Done int
	}
	for job.State != "done" && job.State != "failed" {
		if err := trial.Sleep(ctx, 100*time.Millisecond); err != nil { //nolint:mnd // often enough
			return 0, 0, 0, err
		}
		if content, err = o.call(ctx, http.MethodGet, "/api/v1/jobs/"+started.Job, ""); err != nil {
			return 0, 0, 0, err
		}
		if err := json.Unmarshal(content, &job); err != nil {
			return 0, 0, 0, err
		}
	}
	if job.State == "failed" {
		err = errors.New("the job has failed")
	}
	return job.Matched, job.Done, time.Since(begin), err
}

// scripts says what has taken Redis long since the messages wait.
func (o *operating) scripts(ctx context.Context) error {
	entries, err := o.w.RDB.SlowLogGet(ctx, 10_000).Result() //nolint:mnd // all of them
	if err != nil {
		return err
	}
	var longest time.Duration
	over, name := 0, "none"
	for _, entry := range entries {
		if entry.Duration > longest {
			longest, name = entry.Duration, strings.Join(entry.Args[:min(2, len(entry.Args))], " ")
		}
		if entry.Duration > longestScript {
			over++
		}
	}
	o.say("commands of more than 1 ms: %d, of more than 5 ms: %d; the longest %.1f ms (%s)", len(entries), over, inMs(longest), name)
	return nil
}
