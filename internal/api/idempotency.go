package api

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/operate"
)

const (
	// idempotencyHeader names a request, as the IETF's draft of that name and others have it.
	idempotencyHeader = "Idempotency-Key"
	// mostIdempotencyKey is how many bytes its value has at most.
	mostIdempotencyKey = 255
	// onceLease is how long a request under a key may take, with the telling of its end.
	onceLease = callTimeout + 2*onceEnd
	onceEnd   = time.Second
)

// IdempotencyParam names a request that may be repeated.
type IdempotencyParam struct {
	Idempotency string `header:"Idempotency-Key" doc:"Identifies the request among those of the token for the queue: for 24 h, a repetition schedules nothing again and gets the first answer. 1 to 255 printable ASCII characters, with or without quotes around them."`
}

// ReplayHeader says that the answer is that of an earlier request.
type ReplayHeader struct {
	Replayed string `header:"Idempotent-Replayed" doc:"true if the answer is that of the first request under the Idempotency-Key."`
}

// idempotencyKey is the key of a call; empty if it has none.
func idempotencyKey(header http.Header) (string, error) {
	values := header.Values(idempotencyHeader)
	if len(values) == 0 {
		return "", nil
	}
	key := unquote(values[0])
	isBad := func(r rune) bool { return r < ' ' || r > '~' }
	switch {
	case len(values) > 1:
		return "", invalid(idempotencyHeader, "Idempotency-Key is given twice")
	case key == "" || len(key) > mostIdempotencyKey || strings.ContainsFunc(key, isBad):
		return "", invalid(idempotencyHeader, fmt.Sprintf("Idempotency-Key has %d bytes: it must have 1 to %d printable ASCII characters", len(key), mostIdempotencyKey))
	}
	return key, nil
}

// unquote takes the quotes from a string that is given as RFC 8941 has it.
func unquote(s string) string {
	if len(s) > 1 && strings.HasPrefix(s, `"`) && strings.HasSuffix(s, `"`) {
		return s[1 : len(s)-1]
	}
	return s
}

// fingerprint tells a request from another: by the call, and what was read of its body, so
// that neither blanks nor the order of members matter.
func fingerprint(call string, messages []operate.Schedule) (string, error) {
	hash := sha256.New()
	encoder := json.NewEncoder(hash) // A line each.
	for i := range messages {
		if err := encoder.Encode(&messages[i]); err != nil {
			return "", err
		}
	}
	return store.Digest(call, base64.RawURLEncoding.EncodeToString(hash.Sum(nil))), nil
}

// scheduleOnce schedules messages. If the call has an idempotency key and is not the first
// under it, it returns the answer of the first. See [store.Once].
func (s *schedules) scheduleOnce(ctx context.Context, queue, call string, messages []operate.Schedule) ([]operate.ScheduleResult, ReplayHeader, error) {
	caller := callOf(ctx)
	key, err := idempotencyKey(caller.request.Header)
	if err != nil || key == "" {
		if err == nil {
			return s.scheduleAll(ctx, queue, messages), ReplayHeader{}, nil
		}
		return nil, ReplayHeader{}, err
	}
	request, err := fingerprint(call, messages)
	if err != nil {
		return nil, ReplayHeader{}, err
	}
	once, err := queuesOf(ctx)[queue].Store.Producer().Once(ctx, store.Digest(caller.Identity(), key), request, onceLease)
	if err != nil {
		return nil, ReplayHeader{}, err
	}
	switch once.State {
	case store.OnceOther:
		p := newProblem(http.StatusUnprocessableEntity, "key_reused", "the Idempotency-Key was used for another request in the last 24 h: take a new one")
		p.Field = idempotencyHeader
		return nil, ReplayHeader{}, p
	case store.OnceUnderWay:
		p := newProblem(http.StatusConflict, "key_in_use", "the first request under the Idempotency-Key is under way: repeat this one in a second")
		p.Field = idempotencyHeader
		return nil, ReplayHeader{}, p
	case store.OnceAnswered:
		results, err := replay(once, messages)
		return results, ReplayHeader{"true"}, err
	case store.OnceBegun, store.OnceAgain:
	}
	results := s.scheduleAll(ctx, queue, inOnce(once, messages))
	if err := s.end(ctx, once, results); err != nil {
		return nil, ReplayHeader{}, err
	}
	return results, ReplayHeader{}, nil
}

// inOnce are the messages as those of the request: with its ids, where they have none.
func inOnce(once *store.Once, messages []operate.Schedule) []operate.Schedule {
	list := make([]operate.Schedule, len(messages))
	for i := range messages {
		list[i] = messages[i]
		m := &list[i]
		if m.ID == "" {
			m.ID = once.ID(i)
		}
		m.Call = once.Call(i, m.ID, m.Key, m.Conflict == "replace")
	}
	return list
}

// end ends the request. Its answer is kept if no part of it may change later;
// if nothing was done, its key is free again; else a repetition finds out.
func (s *schedules) end(ctx context.Context, once *store.Once, results []operate.ScheduleResult) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), onceEnd) // What was done is done, whoever has gone.
	defer cancel()
	told, open, unknown := tell(results)
	isFirst := once.State == store.OnceBegun
	var err error
	switch {
	case unknown || open && (told || !isFirst):
		err = once.LetGo(ctx)
	case !told && isFirst:
		err = once.Forget(ctx)
	default:
		var answer []byte
		if answer, err = json.Marshal(keep(results)); err != nil {
			return err
		}
		if err = once.Answered(ctx, answer); err == nil {
			return nil
		}
		return newProblem(http.StatusGatewayTimeout, "unknown", "the answer could not be kept: repeat the request under the same Idempotency-Key ("+err.Error()+")")
	}
	if err != nil { // The lease ends by itself.
		s.config.Logger.WarnContext(ctx, "record of an idempotency key was not removed", "event", "api",
			"request", callOf(ctx).request.Header.Get(requestID), "err", err)
	}
	return nil
}

// tell reports whether something was done, or refused for what is there; whether something
// was not done that a repetition may do; and whether the outcome of something is unknown.
func tell(results []operate.ScheduleResult) (told, open, unknown bool) {
	for i := range results {
		switch results[i].Answer() {
		case "invalid", "forbidden": // The caller's mistake, which it may correct under the key.
		case "unavailable", "full", "no_layout":
			open = true
		case "unknown", "not_durable", "failed":
			unknown = true
		default:
			told = true
		}
	}
	return told, open, unknown
}

// keep are the results without what a repetition brings again.
func keep(results []operate.ScheduleResult) []operate.ScheduleResult {
	kept := make([]operate.ScheduleResult, len(results))
	for i := range results {
		kept[i] = results[i]
		kept[i].ID, kept[i].Key = "", ""
	}
	return kept
}

var errReplay = errors.New("the kept answer is not of this request")

// replay is the answer of the first request.
func replay(once *store.Once, messages []operate.Schedule) (results []operate.ScheduleResult, err error) {
	if err := json.Unmarshal(once.Answer, &results); err != nil {
		return nil, err
	}
	if len(results) != len(messages) {
		return nil, errReplay
	}
	for i := range results {
		if results[i].ID = messages[i].ID; results[i].ID == "" {
			results[i].ID = once.ID(i)
		}
		results[i].Key = messages[i].Key
	}
	return results, nil
}
