package sinktest

import (
	"slices"
	"testing"
)

// sharedCase needs an ordinary broker.
type sharedCase struct {
	name string
	run  func(*testing.T, Broker)
}

// privateCase disturbs its broker and leaves it healthy.
type privateCase struct {
	name string
	run  func(*testing.T, PrivateBroker)
}

// sharedCases are run in parallel.
var sharedCases = []sharedCase{
	{"acknowledged_is_stored", acknowledgedIsStored},
	{"empty_batch", emptyBatch},
	{"order_of_a_key", orderOfAKey},
	{"large_batch", largeBatch},
	{"many_small_calls", manySmallCalls},
	{"byte_limit", byteLimit},
	{"invalid_topic", invalidTopic},
	{"too_large", tooLarge},
	{"too_large_for_topic", tooLargeForTopic},
	{"missing_topic", missingTopicInBatch},
	{"missing_topic_appears", missingTopicAppears},
	{"interleaved_topics", interleavedTopics},
	{"oversized_names", oversizedNames},
	{"full_topic", fullTopic},
	{"ended_context", endedContext},
	{"ping_up", pingUp},
	{"routes", routes},
	{"topic_appears_in_batch", topicAppearsInBatch},
	{"topic_replaced_in_batch", topicReplacedInBatch},
	{"hanging_topic", hangingTopic},
	{"slow_link", slowLink},
}

// aloneCases look for goroutines that stay behind, so nothing else may run beside them.
var aloneCases = []privateCase{
	{"close_idle", closeIdle},
	{"close_busy", closeBusy},
	{"close_paused", closePaused},
}

// privateCases are run one after the other, on the broker of the aloneCases.
var privateCases = []privateCase{
	{"paused_broker", pausedBroker},
	{"paused_connect", pausedConnect},
	{"publish_timeout", publishTimeout},
	{"wrong_password", wrongPassword},
	{"ping_follows_broker", pingFollowsBroker},
	{"broker_down", brokerDown},
	{"killed_mid_publish", killedMidPublish},
}

// checkGaps fails the suite where a gap names no case.
func checkGaps(t *testing.T, features Features) {
	t.Helper()
	known := map[string]bool{}
	for _, c := range sharedCases {
		known[c.name] = true
	}
	for _, c := range slices.Concat(aloneCases, privateCases) {
		known[c.name] = true
	}
	for name, reason := range features.Gaps {
		if !known[name] || reason == "" {
			t.Fatalf("gap %q (%q) must name a case and give a reason", name, reason)
		}
	}
}

func skipGap(t *testing.T, features Features, name string) {
	t.Helper()
	if reason, ok := features.Gaps[name]; ok {
		t.Skipf("the broker cannot express this: %s", reason)
	}
}
