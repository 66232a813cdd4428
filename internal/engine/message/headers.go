package message

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Headers with a message's data for the bridge. Whatever carries headers carries them, and
// consumers see them, except the seal, which no published message has.
const (
	// HeaderTags has the tags, joined by commas. The store finds messages by it.
	HeaderTags = "delay-tags"
	// HeaderLate has the message's own [Late], as "drop 1h0m0s".
	HeaderLate = "delay-late"
	// HeaderFirstAt has the time of the first of the messages that have replaced one another and are bounded by it. It is
	// stored as 13 digits of milliseconds, which Redis writes in the place of zeros.
	HeaderFirstAt = "delay-first-at"
	// HeaderSealed has the id of the key, if the body is sealed. It is removed when the body
	// is opened.
	HeaderSealed = "delay-sealed"
)

// Limits on a message's tags.
const (
	MaxTags      = 8
	MaxTagLength = 64
)

const tagSeparator = ","

// with returns the headers with one more, without changing those given.
func with(headers map[string]string, name, value string) map[string]string {
	all := make(map[string]string, len(headers)+1)
	maps.Copy(all, headers)
	all[name] = value
	return all
}

// withNew is with for a header that nobody may have set yet; an empty value adds nothing.
func withNew(headers map[string]string, name, value string) (map[string]string, error) {
	if _, taken := headers[name]; taken {
		return nil, reservedHeader(name)
	}
	if value == "" {
		return headers, nil
	}
	return with(headers, name, value), nil
}

// cut is the inverse of with; own is nil if there are no other headers.
func cut(headers map[string]string, name string) (own map[string]string, value string, has bool) {
	value, has = headers[name]
	if !has {
		return headers, "", false
	}
	if len(headers) > 1 {
		own = maps.Clone(headers)
		delete(own, name)
	}
	return own, value, true
}

// Tags are the message's tags.
func (m *Message) Tags() []string {
	if joined, tagged := m.Headers[HeaderTags]; tagged {
		return strings.Split(joined, tagSeparator)
	}
	return nil
}

// CountTags is how many tags the message has.
func (m *Message) CountTags() int {
	if joined, tagged := m.Headers[HeaderTags]; tagged {
		return strings.Count(joined, tagSeparator) + 1
	}
	return 0
}

// WithTags returns the headers with the tags, sorted and each once. It does not change
// the headers given, which must have no reserved one. The error is an [*InvalidError].
func WithTags(headers map[string]string, tags []string) (map[string]string, error) {
	sorted := slices.Compact(slices.Sorted(slices.Values(tags)))
	if err := checkTags(sorted); err != nil {
		return nil, err
	}
	return withNew(headers, HeaderTags, strings.Join(sorted, tagSeparator))
}

// CutTags is the inverse of WithTags.
func CutTags(headers map[string]string) (own map[string]string, tags []string) {
	own, joined, tagged := cut(headers, HeaderTags)
	if tagged {
		tags = strings.Split(joined, tagSeparator)
	}
	return own, tags
}

// CheckTag returns an [*InvalidError] if the text cannot be a tag.
func CheckTag(tag string) error {
	if err := checkLength("tag", tag, 1, MaxTagLength); err != nil {
		return err
	}
	isRefused := func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) }
	if !utf8.ValidString(tag) || strings.Contains(tag, tagSeparator) || strings.ContainsFunc(tag, isRefused) {
		return &InvalidError{Field: "tag", Value: tag, Limit: "must be printable UTF-8 without spaces and commas"}
	}
	return nil
}

func checkTags(tags []string) error {
	if len(tags) > MaxTags {
		return &InvalidError{Field: "tag", Value: fmt.Sprintf("%d tags", len(tags)), Limit: fmt.Sprintf("allowed are %d", MaxTags)}
	}
	for _, tag := range tags {
		if err := CheckTag(tag); err != nil {
			return err
		}
	}
	return nil
}

// SealedBy returns the id of the key that has sealed the body; isSealed is false if the
// body is not sealed.
func (m *Message) SealedBy() (id string, isSealed bool) {
	id, isSealed = m.Headers[HeaderSealed]
	return id, isSealed
}

// WithSealed returns the headers with the id of the key that has sealed the body; an empty
// id adds nothing. It does not change the headers given, which must have no reserved one.
// The error is an [*InvalidError].
func WithSealed(headers map[string]string, id string) (map[string]string, error) {
	return withNew(headers, HeaderSealed, id)
}

// CutSealed is the inverse of WithSealed. The error is an [*InvalidError].
func CutSealed(headers map[string]string) (own map[string]string, id string, err error) {
	own, id, isSealed := cut(headers, HeaderSealed)
	if isSealed {
		err = checkKeyID(id)
	}
	return own, id, err
}

// LateOr returns the message's own Late, or else the given one.
func (m *Message) LateOr(queues Late) Late {
	if text, has := m.Headers[HeaderLate]; has {
		if own, err := parseLate(text); err == nil {
			return own
		}
	}
	return queues
}

// WithLate returns the headers with the message's own Late; a zero Late adds nothing. It
// does not change the headers given, which must have no reserved one. The error is an
// [*InvalidError].
func WithLate(headers map[string]string, late Late) (map[string]string, error) {
	if late == (Late{}) {
		return withNew(headers, HeaderLate, "")
	}
	if err := late.check(); err != nil {
		return nil, err
	}
	return withNew(headers, HeaderLate, late.String())
}

// CutLate is the inverse of WithLate. The error is an [*InvalidError].
func CutLate(headers map[string]string) (own map[string]string, late Late, err error) {
	own, text, has := cut(headers, HeaderLate)
	if has {
		late, err = parseLate(text)
	}
	return own, late, err
}

// noFirst stands for the time that Redis writes.
const noFirst = "0000000000000"

// WithFirst returns the headers with a place for the time of [HeaderFirstAt], if it is bounded. It does not change the
// headers given, which must have no reserved one. The error is an [*InvalidError].
func WithFirst(headers map[string]string, isBounded bool) (map[string]string, error) {
	if !isBounded {
		return withNew(headers, HeaderFirstAt, "")
	}
	return withNew(headers, HeaderFirstAt, noFirst)
}

// CutFirst is the inverse of WithFirst.
func CutFirst(headers map[string]string) (own map[string]string) {
	own, _, _ = cut(headers, HeaderFirstAt)
	return own
}

// firstAt is the value of [HeaderFirstAt] for consumers.
func firstAt(stored string) string {
	ms, err := strconv.ParseInt(stored, 10, 64)
	if err != nil {
		return stored // Somebody else wrote it.
	}
	return time.UnixMilli(ms).UTC().Format(TimeFormat)
}

// WithUID returns the headers with a UID, without changing those given; an empty UID adds
// nothing.
func WithUID(headers map[string]string, uid string) map[string]string {
	if uid == "" {
		return headers
	}
	return with(headers, HeaderUID, uid)
}

// CutUID is the inverse of WithUID, and also reads what a reschedule has stored.
func CutUID(headers map[string]string) (own map[string]string, uid string) {
	own, uid, _ = cut(headers, HeaderUID)
	return own, uid
}
