package membership

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
)

// losses are what this instance has noticed and Redis does not know yet: whoever looks at
// the queue later must not take it for one that was always empty. Where this instance dies
// first, another one has noticed the same; where all do, only the log has it.
type losses struct {
	mu      sync.Mutex
	pending []store.Loss
}

func (l *losses) add(loss store.Loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if loss.At = time.Now(); len(l.pending) < layout.MostLosses { // Redis keeps no more either.
		l.pending = append(l.pending, loss)
	}
}

// record writes down what is pending, as far as it goes; the rest the next time.
func (l *losses) record(ctx context.Context, config *Config) {
	l.mu.Lock()
	pending := slices.Clone(l.pending)
	l.mu.Unlock()
	done := 0
	for _, loss := range pending {
		loss.Instance = message.InstanceName(config.Instance)
		if config.Registry.RecordLoss(ctx, loss) != nil {
			break
		}
		done++
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = slices.Delete(l.pending, 0, done)
}
