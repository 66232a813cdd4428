package nats_test

import (
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/test/natstest"
)

// TestMovingLeaders has a stream of three replicas whose leader is deposed, killed, stopped
// and left alone under load. What it has proposed by then is not answered, and may be stored.
func TestMovingLeaders(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	c, topic := natstest.New(t), testenv.Name(t, "topic")
	c.Stream(topic)
	depose, deposeBoth := func() { c.Depose(topic) }, func() { c.DeposeBoth(topic) }
	kill, stop, killAll := func() { c.Kill(topic) }, func() { c.Stop(topic) }, func() { c.KillAll(topic) }
	alone := func() { c.LeaveAlone(topic, 2*timeout) }
	sinktest.MovingLeaders(t, broker{url: c.URL(), user: natstest.User}, topic, sinktest.Options{PublishTimeout: timeout},
		depose, kill, deposeBoth, alone, stop, depose, killAll, depose, stop, deposeBoth, alone, kill, depose)
}
