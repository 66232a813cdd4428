package inputs

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/delaybridge/delaybridge/delay"
)

// The limits that the documentation promises.
const (
	mostName      = 255
	mostTopic     = 255
	mostHeaders   = 64
	mostTags      = 8
	mostTag       = 64
	mostSize      = 960 << 10
	mostDelay     = 10 * 366 * 24 * time.Hour
	endlessDelay  = time.Duration(math.MaxInt64)
	randomTexts   = 40
	longestRandom = 200
	beyondNanos   = "2262-04-12T00:00:00Z" // since 1970, in 63 bits
)

// controls are texts with each control character in them.
func controls(but string) (list []string) {
	for r := range rune(0xa0) {
		isControl := r < ' ' || r >= 0x7f
		if isControl && !strings.ContainsRune(but, r) {
			list = append(list, "a"+string(r)+"b")
		}
	}
	return list
}

// notUTF8 are texts whose bytes are no UTF-8: a lone one, an overlong form, half of a
// pair, beyond the last character, cut short; and random ones.
func notUTF8(rnd *rand.Rand) []string {
	list := []string{"\xff", "a\x80b", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\xe2\x82"}
	for len(list) < randomTexts {
		if text := string(randomBytes(rnd)); !utf8.ValidString(text) {
			list = append(list, text[:min(len(text), mostTag)]+"\xff")
		}
	}
	return list
}

func randomBytes(rnd *rand.Rand) []byte {
	text := make([]byte, 1+rnd.IntN(longestRandom))
	for i := range text {
		text[i] = byte(rnd.Uint32())
	}
	return text
}

// outerSpaces are texts that a space begins or ends.
func outerSpaces() []string {
	return []string{" a", "a ", " ", "\u00a0a", "a\u2003", "\u3000a", "a\u2028"}
}

// tooLong are texts just beyond a limit, and far beyond it.
func tooLong(most int) []string {
	return []string{strings.Repeat("a", most+1), strings.Repeat("é", most/2+1), strings.Repeat("a", 100*most)}
}

// badNames are no ids and no keys.
func badNames(rnd *rand.Rand) []string {
	return concat(tooLong(mostName), controls(""), outerSpaces(), notUTF8(rnd))
}

// badTopics are no subjects of NATS.
func badTopics(rnd *rand.Rand) []string {
	wrong := []string{"", ".", "a..b", ".a", "a.", "a b", "a.*", "a.>", "*", ">", "$SYS.a", "$JS.API", "_INBOX.a"}
	return concat(wrong, tooLong(mostTopic), controls(""), notUTF8(rnd))
}

// badQueues are no names of queues.
func badQueues() []string {
	return concat([]string{"", "Orders", "-a", "_a", "a b", "a.b", "a/b", "ä", "a\xff", strings.Repeat("a", 64)}, controls(""))
}

// badPrefixes are no prefixes of keys: a brace would tear the keys of a shard apart in
// a Redis Cluster.
func badPrefixes() []string {
	return concat([]string{"", "a{b}", "{a}", "a b", "-a", "a*", "ä", "a\xff", strings.Repeat("a", 64)}, controls(""))
}

func badTags(rnd *rand.Rand) []string {
	return concat([]string{"", "a,b", "a b", "\u200ba", "a\ufeff"}, tooLong(mostTag), controls(""), outerSpaces(), notUTF8(rnd))
}

func badHeaderNames() []string {
	wrong := []string{
		"", "a:b", "a b", "é", "a\xff", "delay-id", "Delay-Queue", "DELAY-X", "delay-tags", "delay-late", "delay-sealed",
		"nats-msg-id", "Nats-Expected-Stream", "NATS-", "CC", "BCC",
	}
	for _, separator := range `"(),/;<=>?@[\]{}` {
		wrong = append(wrong, "a"+string(separator))
	}
	return concat(wrong, tooLong(mostName), controls(""))
}

func badHeaderValues(rnd *rand.Rand) []string {
	return concat(controls("\t"), outerSpaces(), notUTF8(rnd))
}

func concat(lists ...[]string) (all []string) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// spoiledMessage is a message with one thing wrong.
type spoiledMessage struct {
	what    string
	names   []string
	message delay.Message
}

// spoil makes all messages that are like the good one but for one thing.
func spoil(good delay.Message, rnd *rand.Rand) (list []spoiledMessage) {
	add := func(field, value string, change func(m *delay.Message)) {
		m := good
		m.Headers = maps.Clone(good.Headers)
		change(&m)
		list = append(list, spoiledMessage{fmt.Sprintf("%s %.80q", field, value), fieldNames(field), m})
	}
	for _, text := range badNames(rnd) {
		add("id", text, func(m *delay.Message) { m.ID = text })
		add("key", text, func(m *delay.Message) { m.Key = text })
	}
	for _, text := range badTopics(rnd) {
		add("topic", text, func(m *delay.Message) { m.Topic = text })
	}
	for _, text := range badTags(rnd) {
		add("tag", text, func(m *delay.Message) { m.Tags = []string{"good", text} })
	}
	for _, text := range badHeaderNames() {
		add("header", text, func(m *delay.Message) { m.Headers = map[string]string{"good": "a", text: "a"} })
	}
	for _, text := range badHeaderValues(rnd) {
		add("header", text, func(m *delay.Message) { m.Headers = map[string]string{"good": text} })
	}
	spoilNumbers(add)
	return list
}

// fieldNames are how an error names a field.
func fieldNames(field string) []string {
	return []string{field}
}

// dueNames are how the SDK calls the due time.
var dueNames = []string{"due"}

// spoilNumbers has what is wrong by its size or its number.
func spoilNumbers(add func(field, value string, change func(m *delay.Message))) {
	add("header", "65 headers", func(m *delay.Message) {
		m.Headers = map[string]string{}
		for i := range mostHeaders + 1 {
			m.Headers[fmt.Sprint("name-", i)] = "a"
		}
	})
	add("tag", "9 tags", func(m *delay.Message) {
		m.Tags = nil
		for i := range mostTags + 1 {
			m.Tags = append(m.Tags, fmt.Sprint("tag-", i))
		}
	})
	for _, size := range []int{mostSize, 2 * mostSize} { // id and topic come on top
		add("body", fmt.Sprint(size, " bytes"), func(m *delay.Message) { m.Body = make([]byte, size) })
		add("body", fmt.Sprint(size, " bytes in a header"), func(m *delay.Message) {
			m.Headers = map[string]string{"good": strings.Repeat("a", size)}
		})
	}
	lates := []delay.Late{
		{After: time.Hour},
		{After: time.Hour, Then: "burn"},
		{Then: "Dead"},
		{Then: delay.LateDead},
		{Then: delay.LateDrop},
		{After: -time.Hour, Then: delay.LateDead},
		{After: math.MinInt64, Then: delay.LateDrop},
		{After: 999 * time.Microsecond, Then: delay.LateDead},
	}
	for _, late := range lates {
		add("late", fmt.Sprint(late), func(m *delay.Message) { m.Late = late })
	}
}

// badWhens are no due times, with what an error calls them; far away is beyond the
// limit, from now.
func badWhens(far time.Duration, last time.Time) map[string]delay.When {
	whens := map[string]delay.When{
		"none": {}, "none, spread": delay.When{}.Spread(time.Hour),
		"before 1970": delay.At(time.UnixMilli(-1)), "year 1": delay.At(time.Time{}), "first": delay.At(time.Unix(math.MinInt64, 0)),
		"at the limit + 1": delay.At(last), "far": delay.At(last.AddDate(100_000, 0, 0)), "last": delay.At(time.Unix(1<<62, 0)),
		"at the limit, spread": delay.At(last).Spread(time.Hour),
	}
	if far > 0 {
		whens["after the limit + 1"] = delay.After(far + 1)
		whens["after the limit, spread"] = delay.After(far).Spread(endlessDelay)
		whens["endless"] = delay.After(endlessDelay)
		whens["endless, spread"] = delay.After(endlessDelay).Spread(time.Hour)
		whens["endless, spread endlessly"] = delay.After(endlessDelay).Spread(endlessDelay)
	}
	return whens
}

// badDurations are no durations, or longer than anything may be.
func badDurations() []string {
	return []string{
		"soon", "NaN", "Inf", "-Inf", "1", "1.5", "h", "1 h", "1e3s", "1e400h", "0x10s", "1y", "1H", "１h", "1h1", "--1h", "1d-1h", ".d",
		"2562048h", "99999999999999999999h", "106752d", "99999999999999999999w", "1h\x00", "\x00", "1h ", " 1h", strings.Repeat("9", 1000) + "d",
	}
}

// badTimes are no times of RFC 3339.
func badTimes() []string {
	return []string{
		"yesterday", "NaN", "0", "1800000000", "2027-01-01", "2027-01-01T00:00:00", "2027-02-30T00:00:00Z", "2027-13-01T00:00:00Z",
		"2027-01-01T25:00:00Z", "2027-01-01T00:60:00Z", "10000-01-01T00:00:00Z", "-2027-01-01T00:00:00Z", "2027-01-01T00:00:00+99:00", "2027-01-01T00:00:00Z\x00",
	}
}
