package message

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A waiting message stands in its shard's order at a score, which Redis keeps
// as a float of 53 bits. The upper 11 are the slot that it is parked in, 0 where
// it is not parked; the lower 42 are milliseconds since 1970, up to the year
// 2109. So all that is parked comes behind all that is not, slot by slot, and
// within its slot in due order.
const slotSpan = int64(1) << 42

// ParkedFrom is the lowest score of a message that is parked.
const ParkedFrom = slotSpan

// attemptCounts is how many numbers [Attempts.String] has.
const attemptCounts = 4

// ParkedScore is where a message of that due time stands in the slot, 1 to
// [MaxSlot]. A due time before 1970 becomes 1970.
func ParkedScore(slot int, due time.Time) int64 {
	return int64(slot)*slotSpan + min(max(due.UnixMilli(), 0), slotSpan-1)
}

// SplitScore is the slot that a score is in, 0 where it is that of a message
// that is not parked, and the instant, in milliseconds since 1970.
func SplitScore(score int64) (slot int, ms int64) {
	if score < slotSpan {
		return 0, score
	}
	return int(score / slotSpan), score % slotSpan
}

// History is what Redis keeps of the earlier attempts of a message.
type History struct {
	Attempts Attempts
	// promised is the promised due time, where the score does not tell it.
	promised time.Time
}

// NewHistory is the history of a message whose score does not tell its promised
// due time, as that of a retry.
func NewHistory(a Attempts, promised time.Time) History {
	return History{Attempts: a, promised: promised}
}

// String is the history as Redis stores it: the counts, and behind them the
// promised due time in milliseconds where the score does not tell it.
func (h History) String() string {
	if h.promised.IsZero() {
		return h.Attempts.String()
	}
	return h.Attempts.String() + " " + strconv.FormatInt(h.promised.UnixMilli(), 10)
}

// ParseHistory is the inverse of [History.String]; the empty string is the
// history of a message without earlier attempts.
func ParseHistory(s string) (h History, err error) {
	counts := s
	if strings.Count(s, " ") == attemptCounts {
		at := strings.LastIndexByte(s, ' ')
		ms, err := strconv.ParseInt(s[at+1:], 10, 64)
		if err != nil {
			return h, fmt.Errorf("%w: attempts %q", ErrUndecodable, s)
		}
		counts, h.promised = s[:at], time.UnixMilli(ms)
	}
	h.Attempts, err = ParseAttempts(counts)
	return h, err
}

// Promised is the due time that the producer was promised, where the message
// stands at that score.
func (h History) Promised(score int64) time.Time {
	if !h.promised.IsZero() {
		return h.promised
	}
	_, ms := SplitScore(score)
	return time.UnixMilli(ms)
}
