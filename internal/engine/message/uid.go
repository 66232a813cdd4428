package message

import (
	"encoding/hex"
	"maps"
)

// UID names the message, where its ID may be used again: every copy of it has the same,
// whatever its attempt, and each schedule gives a new one. It is the token of the schedule.
// A reschedule gives the message another token, and leaves the first in [HeaderUID]; so does
// the row of an outbox. Messages that an earlier version has stored are named by the token
// that they had then.
func (m *Message) UID() string {
	if len(m.Headers) > 0 {
		if uid, isStored := m.Headers[HeaderUID]; isStored {
			return uid
		}
	}
	return UIDOf(m.Token)
}

// UIDOf is how a token is written in [HeaderUID]: as it is, unless somebody has written one
// into a row that no header may hold.
func UIDOf(token string) string {
	for i := range len(token) {
		if token[i] <= ' ' || token[i] >= 0x7f {
			return hex.EncodeToString([]byte(token))
		}
	}
	return token
}

// WithUID returns the headers with a UID; an empty one says nothing. The headers given are
// left alone.
func WithUID(headers map[string]string, uid string) map[string]string {
	if uid == "" {
		return headers
	}
	all := make(map[string]string, len(headers)+1)
	maps.Copy(all, headers)
	all[HeaderUID] = uid
	return all
}

// CutUID parts what WithUID has joined, and what a reschedule has stored.
func CutUID(headers map[string]string) (own map[string]string, uid string) {
	uid, isStored := headers[HeaderUID]
	if !isStored {
		return headers, ""
	}
	if len(headers) == 1 {
		return nil, uid
	}
	own = maps.Clone(headers)
	delete(own, HeaderUID)
	return own, uid
}
