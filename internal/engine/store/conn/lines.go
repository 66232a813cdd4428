package conn

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// Lines lets callers that send to the same place at the same time send together, without
// waiting for company: a caller that finds its line idle sends at once, and those that
// arrive until it has returned are sent together. One of the callers sends for all; there
// is no goroutine. The zero value is ready. It is safe for concurrent use.
type Lines[K comparable, T any] struct {
	mu    sync.Mutex
	lines map[K][]*place[T] // those that wait; an entry says that one is sending
}

// place is one caller's place in a line.
type place[T any] struct {
	item T
	size int
	lead chan struct{} // of 1: "you send now"; nil for a caller that need not wait
	done chan struct{} // closed when the item was sent; nil alike
}

// Do returns when send has returned for a batch that has the item, or ctx has ended
// before it was taken: then its error is that of ctx. A batch has the first waiting
// items, whose sizes together are within most, but at least one. The sender's ctx must
// not end the call of others.
func (l *Lines[K, T]) Do(ctx context.Context, line K, item T, size, most int, send func([]T)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p := &place[T]{item: item, size: size}
	if busy := l.join(line, p); busy {
		select {
		case <-p.done:
			return nil
		case <-p.lead:
			runtime.Gosched() // Callers that were just answered may want to join.
		case <-ctx.Done():
			if l.leave(line, p) {
				return ctx.Err()
			}
			<-p.done // It was taken.
			return nil
		}
	}
	batch := l.take(line, most)
	defer func() {
		l.pass(line)
		for _, p := range batch {
			if p.done != nil {
				close(p.done)
			}
		}
	}()
	send(items(batch))
	return nil
}

func (l *Lines[K, T]) join(line K, p *place[T]) (busy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		l.lines = map[K][]*place[T]{}
	}
	waiting, busy := l.lines[line]
	if busy {
		p.lead, p.done = make(chan struct{}, 1), make(chan struct{})
	}
	l.lines[line] = append(waiting, p)
	return busy
}

func (l *Lines[K, T]) take(line K, most int) []*place[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting, n := l.lines[line], 0
	for n < len(waiting) && (n == 0 || waiting[n].size <= most) {
		most -= waiting[n].size
		n++
	}
	l.lines[line] = waiting[n:]
	return waiting[:n:n]
}

// leave removes a place that was not taken yet, and reports whether it could. If
// that caller was to send, the next one does.
func (l *Lines[K, T]) leave(line K, p *place[T]) bool {
	l.mu.Lock()
	i := slices.Index(l.lines[line], p)
	if i >= 0 {
		l.lines[line] = slices.Delete(slices.Clone(l.lines[line]), i, i+1)
	}
	l.mu.Unlock()
	select {
	case <-p.lead:
		l.pass(line)
	default:
	}
	return i >= 0
}

// pass makes the first waiting caller send, if there is one.
func (l *Lines[K, T]) pass(line K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if waiting := l.lines[line]; len(waiting) > 0 {
		waiting[0].lead <- struct{}{}
		return
	}
	delete(l.lines, line)
}

// Waiting is how many wait in all lines.
func (l *Lines[K, T]) Waiting() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, waiting := range l.lines {
		n += len(waiting)
	}
	return n
}

func items[T any](places []*place[T]) []T {
	list := make([]T, len(places))
	for i, p := range places {
		list[i] = p.item
	}
	return list
}
