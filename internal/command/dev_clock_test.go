//go:build !production

package command

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// devWorld is a running `bridge dev`, seen by a producer and a consumer.
type devWorld struct {
	t      *testing.T
	client *delay.Client
	js     jetstream.JetStream
	admin  string
}

func newDevWorld(t *testing.T, path string, args ...string) *devWorld {
	t.Helper()
	_, commands := startDev(t, path, args...)
	text, err := os.ReadFile(configOf(t, commands[0]))
	require.NoError(t, err)
	find := func(pattern string) string {
		match := regexp.MustCompile(pattern).FindSubmatch(text)
		require.NotNil(t, match, "%s in %s", pattern, text)
		return string(match[1])
	}
	options, err := redis.ParseURL(find(`(redis://[^"\s]+)`))
	require.NoError(t, err)
	rdb := redis.NewClient(options)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	conn, err := nats.Connect(find(`(nats://[^"\s]+)`))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	w := &devWorld{t: t, admin: "http://" + find(`listen: "?(127[^"\s]+)`)}
	w.js, err = jetstream.New(conn)
	require.NoError(t, err)
	w.client, err = delay.NewClient(rdb, devQueue)
	require.NoError(t, err)
	return w
}

// post asks for the clock to be moved.
func (w *devWorld) post(body string, header ...string) (code int, answer string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.admin+"/dev/clock/advance", strings.NewReader(body))
	require.NoError(w.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(w.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	return response.StatusCode, string(text)
}

// arrived are the messages that NATS has, in their order.
func (w *devWorld) arrived() (ids []string) {
	w.t.Helper()
	stream, err := w.js.Stream(w.t.Context(), "order")
	if err != nil {
		require.ErrorIs(w.t, err, jetstream.ErrStreamNotFound)
		return nil
	}
	for n := uint64(1); n <= stream.CachedInfo().State.Msgs; n++ {
		msg, err := stream.GetMsg(w.t.Context(), n)
		require.NoError(w.t, err)
		require.Equal(w.t, "1", msg.Header.Get(message.HeaderAttempt), "the clock is no fault")
		ids = append(ids, msg.Header.Get(message.HeaderID))
	}
	return ids
}

// TestDevClock lets 30 days pass, as a user in any language would: what is due arrives
// at a real broker, in due order, and nothing before that.
func TestDevClock(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	w := newDevWorld(t, "", "--memory")
	for _, days := range []int{31, 30, 10, 20} {
		m := delay.Message{
			ID: fmt.Sprint("day ", days), Key: "k", Topic: devTopic, Late: delay.Late{After: time.Hour, Then: delay.LateDrop},
		}
		_, err := w.client.Schedule(t.Context(), m, delay.After(time.Duration(days)*day))
		require.NoError(t, err)
	}
	code, answer := w.post(`{"by": "9d23h"}`)
	require.Equal(t, http.StatusOK, code, answer)
	require.Empty(t, w.arrived(), "none early")

	began := time.Now()
	code, answer = w.post(`{"by": "20d1h"}`)
	require.Equal(t, http.StatusOK, code, answer)
	t.Log("20 days took ", time.Since(began))
	assert.Equal(t, []string{"day 10", "day 20", "day 30"}, w.arrived())
	assert.Regexp(t, `^\{"now":"20\d\d-[^"]+Z"\}\n$`, answer)

	// Producers that know the clock of before go on.
	result, err := w.client.Schedule(t.Context(), delay.Message{ID: "next", Key: "k", Topic: devTopic}, delay.After(time.Minute))
	require.NoError(t, err)
	assert.WithinDuration(t, began.Add(30*day), result.DueAt, time.Hour)
	code, answer = w.post(`{"by": "2d"}`)
	require.Equal(t, http.StatusOK, code, answer)
	assert.Equal(t, []string{"day 10", "day 20", "day 30", "next", "day 31"}, w.arrived())
}

// TestDevClockRefuses says what is wrong with a request.
func TestDevClockRefuses(t *testing.T) {
	t.Parallel()
	w := newDevWorld(t, "")
	for body, want := range map[string]string{
		``: "give", `{"by": "soon"}`: "is not a duration", `{"by": "-1s"}`: "must be from 0", `{"by": "11000d"}`: "must be from 0",
		`{"to": "1s"}`: "to is unknown", `{"by": "1s"} {"by": "1d"}`: "after top-level value", `{"by": "1s"}x`: "after top-level value",
		`{"By": "1s"}`:             "By is unknown: it is called by",
		`{"by": "1s", "by": "1d"}`: "by is given twice",
	} {
		code, answer := w.post(body)
		assert.Equal(t, http.StatusBadRequest, code, body)
		assert.Contains(t, answer, want, body)
	}
	code, _ := w.post(`{"by": "1d"}`, "Origin", "http://evil.example")
	assert.Equal(t, http.StatusForbidden, code)
}

// TestDevClockOfRedisServer says what to do.
func TestDevClockOfRedisServer(t *testing.T) {
	t.Parallel()
	testenv.Program(t, "redis-server")
	w := newDevWorld(t, os.Getenv("PATH"))
	code, answer := w.post(`{"by": "1d"}`)
	assert.Equal(t, http.StatusConflict, code)
	assert.Contains(t, answer, "bridge dev --memory")
}
