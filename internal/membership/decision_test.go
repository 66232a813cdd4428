package membership

import (
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/decision"
)

// TestNamesakeTable: which of two instances with one name ends.
func TestNamesakeTable(t *testing.T) {
	t.Parallel()
	beats := map[string]int64{"stands still": 0, "came once": 1, "came twice": 2}
	decision.Walk(t, "roll.go", []decision.Input{
		decision.Bool("the other was there before us"), decision.Or("its heartbeat", decision.Names(beats)...),
		decision.Bool("it is here for longer than the patience"), decision.Or("the greater boot id is", "ours", "its"),
	}, func(c decision.Case) string {
		n := &namesakes{self: "name/b"}
		other := map[string]string{"ours": "name/a", "its": "name/c"}[c["the greater boot id is"]]
		if !c.Is("the other was there before us") {
			n.hear(time.Time{}, nil)
		}
		now, keeps := time.Unix(1<<30, 0), ""
		n.hear(now, []store.Heartbeat{{Instance: other}})
		now = now.Add(namesakePatience)
		if c.Is("it is here for longer than the patience") {
			now = now.Add(1)
		}
		for at := range beats[c["its heartbeat"]] + 1 {
			keeps = n.hear(now, []store.Heartbeat{{Instance: other, At: at}})
		}
		if keeps != "" {
			return "end"
		}
		return "stay"
	})
}
