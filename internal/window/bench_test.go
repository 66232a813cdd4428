package window_test

import (
	"sync"
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/window"
)

// BenchmarkAcknowledgements is what an acknowledgement costs: shares of eight
// goroutines reserve up to 100 messages and have each acknowledged by itself.
func BenchmarkAcknowledgements(b *testing.B) {
	const goroutines = 8
	w := window.New()
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			awake := make(chan struct{}, 1)
			share := w.Join("orders", func() {
				select {
				case awake <- struct{}{}:
				default:
				}
			})
			defer share.Leave()
			for left := b.N / goroutines; left > 0; {
				messages, _, _ := share.Reserve(100, true)
				if messages == 0 {
					<-awake
					continue
				}
				used := min(messages, left)
				share.Hold(used, used*each, true)
				for held := used - 1; held >= 0; held-- {
					w.Answered(1, each, time.Millisecond)
					share.Hold(held, held*each, false)
				}
				left -= used
			}
		})
	}
	all.Wait()
}
