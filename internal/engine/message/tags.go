package message

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits on a message's tags.
const (
	MaxTags      = 8
	MaxTagLength = 64
)

// HeaderTags is the header in which a message carries its tags, joined by commas: so
// whatever carries headers carries them, and consumers see them. The store finds
// messages by it.
const HeaderTags = "delay-tags"

const tagSeparator = ","

// WithTags returns the headers with the tags, sorted and each once. The headers
// given are left alone, and must have no reserved one. The error is an [*InvalidError].
func WithTags(headers map[string]string, tags []string) (map[string]string, error) {
	if _, taken := headers[HeaderTags]; taken {
		return nil, reservedHeader(HeaderTags)
	}
	if len(tags) == 0 {
		return headers, nil
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(tags)))
	if err := checkTags(sorted); err != nil {
		return nil, err
	}
	all := make(map[string]string, len(headers)+1)
	maps.Copy(all, headers)
	all[HeaderTags] = strings.Join(sorted, tagSeparator)
	return all, nil
}

// CutTags parts what WithTags has joined.
func CutTags(headers map[string]string) (own map[string]string, tags []string) {
	joined, tagged := headers[HeaderTags]
	if !tagged {
		return headers, nil
	}
	own = maps.Clone(headers)
	delete(own, HeaderTags)
	return own, strings.Split(joined, tagSeparator)
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

// CheckTag reports whether it may be a tag. The error is an [*InvalidError].
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
