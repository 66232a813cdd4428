package outbox

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// tokenDigits are 64 characters in byte order, so that tokens sort by the time
// at which they were made.
const tokenDigits = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"

// A token is the mark and 15 digits of 6 bits: 42 bits of milliseconds since
// 1970, and 48 that are random or continue from the previous token.
const randomBits = 48

// tokens makes tokens that rise and never repeat within the process; the random
// part distinguishes those of different processes.
type tokens struct {
	mu     sync.Mutex
	ms     uint64
	random uint64
}

// All outboxes of the process share it.
var processTokens tokens

// next returns the token for an instant. If the clock stands still or goes
// back, it counts up from the previous one.
func (t *tokens) next(now time.Time) string {
	t.mu.Lock()
	ms := uint64(max(now.UnixMilli(), 0))
	if ms > t.ms {
		// The first bit is 0, so that counting up never overflows.
		t.ms, t.random = ms, randomNumber()>>(64-randomBits+1)
	} else {
		t.random++
	}
	ms, random := t.ms, t.random
	t.mu.Unlock()
	return encodeToken(ms, random)
}

func randomNumber() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // It never fails, see its documentation.
	return binary.BigEndian.Uint64(b[:])
}

// encodeToken writes 7 digits of milliseconds and 8 of the random part.
func encodeToken(ms, random uint64) string {
	const digits, bits, mask = 8, 6, 63
	token := [message.TokenLength]byte{message.OutboxMark[0]}
	for i := range digits {
		token[message.TokenLength-1-i] = tokenDigits[random>>(bits*i)&mask]
	}
	for i := range message.TokenLength - 1 - digits {
		token[message.TokenLength-1-digits-i] = tokenDigits[ms>>(bits*i)&mask]
	}
	return string(token[:])
}
