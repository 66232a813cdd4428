package rabbitmq

import (
	"sync"
	"time"
)

// limitLasts is how long a limit of channels is remembered at least. Then a
// new connection finds it out again.
const limitLasts = 10 * time.Minute

// channelLimit is how many channels the broker lets our user have, on all
// connections of the sink together, as far as that is known. The only way to learn
// it is to ask for one too many, for which the broker closes the connection with all
// that is under way on it. It is safe for concurrent use.
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

// begin returns what a new connection knows: the number of lessons so far.
func (l *channelLimit) begin(now time.Time) (lessons int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most > 0 && now.Sub(l.learned) >= limitLasts {
		l.most = 0
		l.lessons++
	}
	return l.lessons
}

// refused records that the broker has refused a channel of a connection that began with
// that many lessons. A connection that began before the last lesson teaches nothing new:
// several are refused at once, and the channels of those that ended before it are gone.
func (l *channelLimit) refused(lessons int, now time.Time) (most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lessons == l.lessons && (l.most == 0 || l.open < l.most) {
		l.most, l.learned = max(1, l.open), now
		l.lessons++
	}
	return l.most
}

// share returns how many channels the connection of that number may have: the
// connections share the known limit, less one for a ping. If it does not divide
// evenly, the first ones have one more, and the last may have none.
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

// allowsPing reports whether there is a channel for a ping in addition to the others.
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
