package api_test

import (
	"cmp"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTrafficIsNotAudited: however much producers do, what an operator did stays.
func TestTrafficIsNotAudited(t *testing.T) {
	t.Parallel()
	for name, setting := range map[string]struct {
		scenery
		producer, operator []string
	}{
		"tokens":    {scenery{tokens: threeRoles}, bearer(producerToken), bearer(operatorToken)},
		"no tokens": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, setting.scenery)
			s.call("POST", "/queues/QUEUE:pause", nil, setting.operator...).is(http.StatusOK)
			for i := range 20 {
				id := fmt.Sprint("m", i)
				s.call("POST", "/queues/QUEUE/messages", map[string]any{"id": id, "topic": "t", "in": "1h", "body": "b"}, setting.producer...).is(http.StatusCreated)
				s.call("POST", "/queues/QUEUE/messages:batch", `{"messages": [{"topic": "t", "in": "1h"}]}`, setting.producer...).is(http.StatusOK)
				if setting.producer != nil {
					s.call("GET", "/queues/QUEUE/messages/"+id+"?body=1", nil, setting.producer...).is(http.StatusOK)
					s.call("POST", "/queues/QUEUE/messages/"+id+":reschedule", `{"in": "2h"}`, setting.producer...).is(http.StatusOK)
					s.call("DELETE", "/queues/QUEUE/messages/"+id, nil, setting.producer...).is(http.StatusOK)
				}
			}
			require.Len(t, s.changes(setting.operator...), 1)
		})
	}
}

// nextMillisecond returns when Redis' clock shows another millisecond.
func (s *scene) nextMillisecond() {
	s.t.Helper()
	for began, now := int64(0), int64(0); now == began; {
		at, err := s.rdb.Time(s.t.Context()).Result()
		require.NoError(s.t, err)
		now = at.UnixMilli()
		began = cmp.Or(began, now)
	}
}

// TestOperatorsAreAudited: what they change and which payloads they read, in two lists, so
// that much of the one leaves room for the other.
func TestOperatorsAreAudited(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: threeRoles})
	operator := bearer(operatorToken)
	s.call("POST", "/queues/QUEUE:pause", nil, operator...).is(http.StatusOK)
	s.nextMillisecond() // What follows is in another list: within a millisecond the two have no order.
	s.call("POST", "/queues/QUEUE/messages", map[string]any{"id": "a", "topic": "t", "in": "1h", "body": "payload"}, operator...).is(http.StatusCreated)
	s.call("POST", "/queues/QUEUE/messages:batch", `{"messages": [{"topic": "t", "in": "1h"}, {"topic": "t"}]}`, operator...).is(http.StatusOK)
	s.call("GET", "/queues/QUEUE/messages/a?body=1", nil, bearer(viewerToken)...).is(http.StatusOK)
	s.call("GET", "/queues/QUEUE/messages/a", nil, bearer(viewerToken)...).is(http.StatusOK)
	s.call("DELETE", "/queues/QUEUE/messages/a", nil, operator...).is(http.StatusOK)
	all := s.changes(operator...)
	require.Len(t, all, 5)
	assert.Equal(t, []string{"ann cancel a cancelled", "ann schedule  created 1, invalid 1", "ann schedule a created", "ann pause  done"}, append(all[:1:1], all[2:]...))
	assert.Regexp(t, "^viewer-[0-9a-f]{6} read body a shown$", all[1])
	assert.EqualValues(t, 1, s.rdb.XLen(t.Context(), s.queue.Keys().Audit()).Val())
	var paged []string
	for cursor := "?limit=1"; cursor != ""; {
		page := s.call("GET", "/audit"+cursor, nil, operator...).is(http.StatusOK)
		for _, c := range page["changes"].([]any) {
			paged = append(paged, text(c.(map[string]any)["action"]))
		}
		if cursor = text(page["next_cursor"]); cursor != "" {
			cursor = "?limit=1&cursor=" + cursor
		}
	}
	assert.Equal(t, []string{"cancel", "read body", "schedule", "schedule", "pause"}, paged)
}

// TestRefusalsAreAudited: logins and calls that were refused are counted, and told so that
// their number fills nothing.
func TestRefusalsAreAudited(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: threeRoles + "pay-only-token producer name=pay topics=pay.due\n"})
	s.call("POST", "/queues/QUEUE/messages", map[string]any{"id": "o", "topic": "order.due", "in": "1h"}, bearer(producerToken)...).is(http.StatusCreated)
	for range 300 {
		s.call("GET", "/queues", nil, bearer("not-a-token")...).refused(http.StatusUnauthorized, "unauthorized")
	}
	s.call("POST", "/queues/QUEUE:pause", nil, bearer(producerToken)...).refused(http.StatusForbidden, "forbidden")
	for range 10 {
		s.call("DELETE", "/queues/QUEUE/messages/o", nil, bearer("pay-only-token")...).refused(http.StatusForbidden, "forbidden")
	}
	assert.Equal(t, []string{
		"pay cancel  forbidden, 10 within the hour", "pay cancel  forbidden", "shop pause  forbidden",
		" overview  unauthorized, 100 within the hour", " overview  unauthorized, 10 within the hour", " overview  unauthorized",
	}, s.changes(bearer(operatorToken)...))
	assert.Equal(t, []int{300, 11, 0}, []int{s.refusals.of("unauthorized"), s.refusals.of("forbidden"), s.refusals.of("read_only")})
	assert.Contains(t, s.log.String(), `answer="unauthorized, 100 within the hour"`)
	assert.NotContains(t, s.log.String()+fmt.Sprint(s.changes(bearer(operatorToken)...)), "not-a-token")
}
