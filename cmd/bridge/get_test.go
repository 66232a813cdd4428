package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store/layout"
	"github.com/delaybridge/delaybridge/internal/store/storetest"
)

// TestGetOfWhatHasEnded tells of it where the queue keeps a history, and else says that it
// is not found.
func TestGetOfWhatHasEnded(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.ok("schedule", "--topic", "t", "--id", "cancelled", "--key", "k", "--in", "1h", "body")
	f.ok("cancel", "--id", "cancelled")
	code, _ := f.run("get", "--id", "cancelled", "--key", "k", "-o", "json").errorOf(t)
	require.Equal(t, "not_found", code)

	storetest.SetRules(t, f.queue, layout.Rules{History: layout.History{Count: 100, Age: time.Hour}})
	f.ok("schedule", "--topic", "t", "--id", "cancelled", "--key", "k", "--in", "1h", "body")
	f.ok("cancel", "--id", "cancelled")
	got := f.ok("get", "--id", "cancelled", "--key", "k", "-o", "json").object(t)
	require.Equal(t, "cancelled", got["state"])
	requireFields(t, got, "ended_at")

	f.ok("schedule", "--topic", "t", "--id", "published", "--in", "0s", "body")
	f.settle(f.claim(), message.Verdict{Verb: message.VerbAck, Published: true, Place: "partition 3 offset 8812"})
	require.Contains(t, f.ok("get", "--id", "published").stdout, "partition 3 offset 8812")
	require.Equal(t, exitRefused, f.run("get", "--id", "never").code)
}
