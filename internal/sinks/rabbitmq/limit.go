package rabbitmq

import (
	"sync"
	"time"
)

// limitLasts is how long a limit of channels is remembered at least. Then a
// connection that is made anew finds out again.
const limitLasts = 10 * time.Minute

// channelLimit is how many channels the broker lets our user have, on all
// connections of the sink together, as far as that is known: nothing tells it but a
// connection that the broker closes because it has asked for one more, with all that
// is under way on it. It is safe for concurrent use.
type channelLimit struct {
	connections int

	mu      sync.Mutex
	open    int       // that the broker has opened
	most    int       // that were open when it refused one; 0 is not known
	lessons int       // how often most has changed
	learned time.Time // the last time
}

// opened records that the broker has opened that many more channels, or fewer.
func (l *channelLimit) opened(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open += n
}

// begin is what a new connection knows: the number of lessons so far.
func (l *channelLimit) begin(now time.Time) (lessons int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most > 0 && now.Sub(l.learned) >= limitLasts {
		l.most = 0
		l.lessons++
	}
	return l.lessons
}

// refused notes that the broker has refused a channel of a connection that began with
// so many lessons. One that began before the last of them tells nothing new: several
// are refused at once, and what was open on those that ended before it is gone.
func (l *channelLimit) refused(lessons int, now time.Time) (most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lessons == l.lessons && (l.most == 0 || l.open < l.most) {
		l.most, l.learned = max(1, l.open), now
		l.lessons++
	}
	return l.most
}

// share is how many channels the connection of that number may have: all share what
// is known to be allowed, but for one that is left for a ping. The first have one more
// where it does not divide, and the last may have none.
func (l *channelLimit) share(number int) (channels int, isLimited bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most == 0 {
		return 0, false
	}
	all := max(1, l.most-1)
	channels = all / l.connections
	if number < all%l.connections {
		channels++
	}
	return channels, true
}

// allowsPing reports whether there is a channel for a ping beside the others.
func (l *channelLimit) allowsPing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most != 1
}

// lesson is the number of lessons so far.
func (l *channelLimit) lesson() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lessons
}
