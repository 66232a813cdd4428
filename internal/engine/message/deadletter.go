package message

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// DeadLetter is a message that is not tried again unless somebody redrives it.
type DeadLetter struct {
	Message
	// Member is its identity in Redis, see [Member].
	Member string
	// Reason says why it died, for operators.
	Reason string
	// Attempts counts its attempts.
	Attempts Attempts
	// DiedAt is when it was moved here, by Redis' clock.
	DiedAt time.Time
	// Err is set if the stored message cannot be decoded.
	Err error
}

// DecodeDeadLetter reads a dead letter: "due_ms:attempts:length of reason:",
// reason and the stored message.
func DecodeDeadLetter(member, stored string) DeadLetter {
	letter := DeadLetter{Member: member}
	letter.ID, letter.Key = SplitMember(member)
	due, counts, reason, rest, ok := cutLetter(stored)
	dueMs, errDue := strconv.ParseInt(due, 10, 64)
	if !ok || errDue != nil {
		letter.Err = fmt.Errorf("%w: dead letter", ErrUndecodable)
		return letter
	}
	letter.DueAt = time.UnixMilli(dueMs)
	letter.Reason = reason
	if letter.Attempts, letter.Err = ParseAttempts(counts); letter.Err == nil {
		letter.Err = letter.Decode(rest)
	}
	letter.Attempt = letter.Attempts.Begun + 1
	return letter
}

// StoredOf is the stored message of a dead letter; empty if there is none.
func StoredOf(letter string) string {
	_, _, _, stored, _ := cutLetter(letter)
	return stored
}

func cutLetter(letter string) (due, counts, reason, stored string, ok bool) {
	due, rest, _ := strings.Cut(letter, ":")
	counts, rest, _ = strings.Cut(rest, ":")
	length, rest, found := strings.Cut(rest, ":")
	n, err := strconv.Atoi(length)
	if !found || err != nil || n < 0 || n > len(rest) {
		return "", "", "", "", false
	}
	return due, counts, rest[:n], rest[n:], true
}
