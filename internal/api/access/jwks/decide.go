package jwks

import (
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// KeepFor is how long keys count after they were last fetched. It outlasts an issuer's outage, even
	// one that begins in the evening; and a key that the issuer has withdrawn is taken no longer than
	// this by a bridge that is kept from hearing so.
	KeepFor = 24 * time.Hour
	// fetchEvery and readEvery are how soon a bridge hears of a key that was withdrawn, from an issuer and from a file.
	fetchEvery = 5 * time.Minute
	readEvery  = 5 * time.Second
	// After a failure there is another fetch within these.
	firstRetry, lastRetry = time.Second, 30 * time.Second
	// askEvery is the least time between two fetches that calls ask for.
	askEvery = 10 * time.Second
)

// state is what is known of an issuer's keys.
type state struct {
	Found

	// fetchedAt is when the keys were, beganAt when the last fetch began; zero if never.
	fetchedAt, beganAt time.Time
	isUnderWay, failed bool
}

func (s *state) began(now time.Time) { s.beganAt, s.isUnderWay = now, true }

func (s *state) end(now time.Time, found Found, err error) {
	s.isUnderWay, s.failed = false, err != nil
	if err == nil {
		s.Found, s.fetchedAt = found, now
	}
}

// answer is what comes of a look at the keys.
type answer int

const (
	found answer = iota
	isUnknown
	isAway
	// ask: a fetch may bring the key.
	ask
)

func (a answer) err() error {
	switch a {
	case found:
		return nil
	case isUnknown:
		return ErrUnknown
	case isAway, ask:
	}
	return ErrAway
}

// decide returns the keys of that id, or what to do without any.
func (s *state) decide(id string, now time.Time) ([]jose.JSONWebKey, answer) {
	isFresh := !s.fetchedAt.IsZero() && now.Sub(s.fetchedAt) <= KeepFor
	if isFresh {
		if keys := withID(s.Keys, id); len(keys) > 0 {
			return keys, found
		}
	}
	switch {
	case s.isUnderWay || now.Sub(s.beganAt) >= askEvery:
		return nil, ask
	case isFresh:
		return nil, isUnknown
	default:
		return nil, isAway
	}
}

// withID are the keys of that id. The only key is that of a token which names none.
func withID(keys []jose.JSONWebKey, id string) (own []jose.JSONWebKey) {
	if id == "" && len(keys) == 1 {
		return keys
	}
	for i := range keys {
		if id != "" && keys[i].KeyID == id {
			own = append(own, keys[i])
		}
	}
	return own
}
