package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRecurring sets, shows, pauses, resumes and deletes a recurring schedule; what was shown can be set again.
func TestRecurring(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	const path = "/queues/QUEUE/recurring/daily"
	asked := map[string]any{
		"cron": "0 20 * * *", "zone": "Europe/Berlin", "topic": "report", "key": "k", "headers": map[string]any{"a": "b"}, "body": "hi", "tags": []any{"vip"},
		"late": map[string]any{"after": "1h0m0s", "then": "drop"}, "missed": "catch_up", "catch_up": 3, "jitter": "30s", "until": "2031-01-31T09:00:00.000Z",
	}
	set := s.call("PUT", path, asked).is(http.StatusOK)
	assert.NotContains(t, set, "body")
	shown := s.call("GET", path+"?body=1", nil).is(http.StatusOK)
	for name, value := range asked {
		assert.EqualValues(t, value, shown[name], name)
	}
	assert.Regexp(t, `T(18|19):00:00\.000Z$`, shown["next"])
	assert.Equal(t, set["set_at"], s.call("PUT", path, asked).is(http.StatusOK)["set_at"], "an equal one stays as it is")
	paused := s.call("POST", path+":pause", nil).is(http.StatusOK)
	assert.Equal(t, true, paused["paused"])
	assert.NotContains(t, paused, "next")
	assert.Equal(t, false, s.call("POST", path+":resume", nil).is(http.StatusOK)["paused"])
	assert.Len(t, s.call("GET", "/queues/QUEUE/recurring", nil).is(http.StatusOK)["recurring"], 1)
	assert.Equal(t, map[string]any{"name": "daily", "status": "deleted"}, s.call("DELETE", path, nil).is(http.StatusOK))
	s.call("GET", path, nil).refused(http.StatusNotFound, "not_found")
	changes := s.call("GET", "/audit?queue=QUEUE", nil).is(http.StatusOK)["changes"].([]any)
	assert.Equal(t, "delete recurring", changes[0].(map[string]any)["action"])
}

// TestWrongRecurring: what is refused says which field it is.
func TestWrongRecurring(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	for body, field := range map[string]string{
		`{"topic": "t", "cron": "* * *"}`:                                                 "cron",
		`{"topic": "t", "cron": "@daily", "zone": "Mars"}`:                                "zone",
		`{"topic": "t..t", "cron": "@daily", "until": "soon"}`:                            "until",
		`{"topic": "t", "cron": "@daily", "jitter": "2h"}`:                                "jitter",
		`{"topic": "t", "cron": "@daily", "catch_up": 3}`:                                 "catch_up",
		`{"topic": "t", "cron": "@daily", "body": "a", "body_base64": "YQ=="}`:            "body_base64",
		`{"topic": "t", "cron": "@daily", "headers": {"delay-recurring": "x"}}`:           "headers",
		`{"topic": "t", "cron": "@daily", "late": {"after": "sometime", "then": "drop"}}`: "late.after",
	} {
		assert.Equal(t, field, s.call("PUT", "/queues/QUEUE/recurring/n", body).refused(http.StatusBadRequest, "invalid"), body)
	}
	assert.Equal(t, "name", s.call("PUT", "/queues/QUEUE/recurring/a%20b", `{"topic": "t", "cron": "@daily"}`).refused(http.StatusBadRequest, "invalid"))
}

// TestRecurringOfATopic: who may use certain topics sees and changes the schedules of these only, also where a
// schedule of another topic has the name.
func TestRecurringOfATopic(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: "pay-only-token producer topics=pay.due\n" + operatorToken + " operator\n"})
	pay, operator := bearer("pay-only-token"), bearer(operatorToken)
	s.call("PUT", "/queues/QUEUE/recurring/pays", `{"topic": "pay.due", "cron": "@daily"}`, pay...).is(http.StatusOK)
	s.call("PUT", "/queues/QUEUE/recurring/orders", `{"topic": "order.due", "cron": "@daily"}`, pay...).refused(http.StatusForbidden, "forbidden")
	s.call("PUT", "/queues/QUEUE/recurring/orders", `{"topic": "order.due", "cron": "@daily"}`, operator...).is(http.StatusOK)
	s.call("PUT", "/queues/QUEUE/recurring/orders", `{"topic": "pay.due", "cron": "@daily"}`, pay...).refused(http.StatusForbidden, "forbidden")
	s.call("DELETE", "/queues/QUEUE/recurring/orders", nil, pay...).refused(http.StatusForbidden, "forbidden")
	s.call("POST", "/queues/QUEUE/recurring/orders:pause", nil, pay...).refused(http.StatusForbidden, "forbidden")
	s.call("GET", "/queues/QUEUE/recurring/orders", nil, pay...).refused(http.StatusForbidden, "forbidden")
	list := s.call("GET", "/queues/QUEUE/recurring", nil, pay...).is(http.StatusOK)["recurring"].([]any)
	require.Len(t, list, 1)
	assert.Equal(t, "pays", list[0].(map[string]any)["name"])
	s.call("DELETE", "/queues/QUEUE/recurring/pays", nil, pay...).is(http.StatusOK)
}
