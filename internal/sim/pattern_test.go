package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/pm"
)

// matcher matches a pattern of Lua as Lua's own does: gopher-lua's compiles the pattern each time,
// which was a tenth of a story's time. What the scripts do not use, it refuses.
type matcher struct {
	text, pattern string
	captures      [8]struct{ from, to int } // to is -1 while it is open
	n             int
}

// find is where the first match from there on begins and ends; from is negative: there is none.
func (m *matcher) find(text, pattern string, init int) (from, to int) {
	m.text, m.pattern = text, pattern
	start, isAnchored := 0, strings.HasPrefix(pattern, "^")
	if isAnchored {
		start = 1
	}
	for from = init; from <= len(text); from++ {
		m.n = 0
		if to = m.match(from, start); to >= 0 {
			return from, to
		}
		if isAnchored {
			break
		}
	}
	return -1, -1
}

// match is where what matches the rest of the pattern at s ends, or -1.
func (m *matcher) match(s, p int) int {
	for p < len(m.pattern) {
		switch m.pattern[p] {
		case '(':
			m.captures[m.n].from, m.captures[m.n].to = s, -1
			m.n++
			end := m.match(s, p+1)
			if end < 0 {
				m.n--
			}
			return end
		case ')':
			open := m.n - 1
			for m.captures[open].to >= 0 {
				open--
			}
			m.captures[open].to = s
			end := m.match(s, p+1)
			if end < 0 {
				m.captures[open].to = -1
			}
			return end
		case '$':
			if p+1 == len(m.pattern) {
				if s == len(m.text) {
					return s
				}
				return -1
			}
		}
		next := m.itemEnd(p)
		how := byte(0)
		if next < len(m.pattern) {
			how = m.pattern[next]
		}
		switch how {
		case '*', '+', '-', '?':
			return m.several(s, p, next, how)
		}
		if !m.isOne(s, p, next) {
			return -1
		}
		s, p = s+1, next
	}
	return s
}

// several matches the item of p, as often as how says, and the rest: as many as match, or, after a "-", as few.
func (m *matcher) several(s, p, next int, how byte) int {
	least, most := 0, len(m.text)
	switch how {
	case '+':
		least = 1
	case '?':
		most = 1
	}
	n := 0
	for n < most && (how != '-' || n < least) && m.isOne(s+n, p, next) {
		n++
	}
	for n >= least {
		if end := m.match(s+n, next+1); end >= 0 {
			return end
		}
		if how != '-' {
			n--
		} else if !m.isOne(s+n, p, next) {
			return -1
		} else {
			n++
		}
	}
	return -1
}

// itemEnd is where the item at p ends: a byte, a class, or a set of them.
func (m *matcher) itemEnd(p int) int {
	switch m.pattern[p] {
	case '%':
		return p + 2
	case '[':
		for p += 2; m.pattern[p] != ']'; p++ { // What comes first is a part of it.
			if m.pattern[p] == '%' {
				p++
			}
		}
	}
	return p + 1
}

// isOne reports whether the byte at s is one of the item from p to end.
func (m *matcher) isOne(s, p, end int) bool {
	if s >= len(m.text) {
		return false
	}
	switch c := m.text[s]; m.pattern[p] {
	case '.':
		return true
	case '%':
		return isOf(c, m.pattern[p+1])
	case '[':
		return isIn(c, m.pattern[p+1:end-1])
	default:
		return c == m.pattern[p]
	}
}

func isIn(c byte, set string) bool {
	isNot := strings.HasPrefix(set, "^")
	if isNot {
		set = set[1:]
	}
	for len(set) > 0 {
		n, is := 1, c == set[0]
		switch {
		case set[0] == '%':
			n, is = 2, isOf(c, set[1])
		case len(set) > 2 && set[1] == '-':
			n, is = 3, set[0] <= c && c <= set[2]
		}
		if is {
			return !isNot
		}
		set = set[n:]
	}
	return isNot
}

func isOf(c, class byte) (is bool) {
	letter := class | ' '
	switch letter {
	case 'a':
		is = 'a' <= c|' ' && c|' ' <= 'z'
	case 'd':
		is = '0' <= c && c <= '9'
	case 's':
		is = c == ' ' || '\t' <= c && c <= '\r'
	default:
		if 'a' <= letter && letter <= 'z' || '0' <= class && class <= '9' {
			panic(fmt.Sprintf("pattern_test.go lacks %%%c", class))
		}
		return c == class
	}
	return is == (class == letter)
}

// stringMatch is string.match of Lua.
func (m *matcher) stringMatch(l *lua.LState) int {
	text, from, to := m.given(l)
	if from < 0 {
		l.Push(lua.LNil)
		return 1
	}
	if m.n == 0 {
		l.Push(lua.LString(text[from:to]))
		return 1
	}
	return m.push(l)
}

// stringFind is string.find of Lua.
func (m *matcher) stringFind(l *lua.LState) int {
	_, from, to := m.given(l)
	if from < 0 {
		l.Push(lua.LNil)
		return 1
	}
	l.Push(lua.LNumber(from + 1))
	l.Push(lua.LNumber(to))
	return 2 + m.push(l)
}

// given finds what the script asks for.
func (m *matcher) given(l *lua.LState) (text string, from, to int) {
	text, pattern, init := l.CheckString(1), l.CheckString(2), l.OptInt(3, 1)
	if init < 0 {
		init += len(text) + 1
	}
	init = min(max(0, init-1), len(text))
	if !lua.LVAsBool(l.Get(4)) {
		from, to = m.find(text, pattern, init)
		return text, from, to
	}
	m.n = 0
	at := strings.Index(text[init:], pattern)
	if at < 0 {
		return text, -1, -1
	}
	return text, init + at, init + at + len(pattern)
}

func (m *matcher) push(l *lua.LState) int {
	for _, c := range m.captures[:m.n] {
		l.Push(lua.LString(m.text[c.from:c.to]))
	}
	return m.n
}

// TestPatterns matches texts that nearly match, and compares with gopher-lua.
func TestPatterns(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	items := []string{"%d", "%-", "%a", "%S", "%s", "[1-9]", "[^-]", "[^~]", "[%d ]", "[^!-~]", ".", " ", ":", "~", "1", "s"}
	piece := func(from []string) string { return from[random.IntN(len(from))] }
	matches := 0
	for range 50_000 {
		var pattern, text strings.Builder
		pattern.WriteString(piece([]string{"^", "^", ""}))
		isOpen := false
		for range 1 + random.IntN(6) {
			if !isOpen && random.IntN(3) == 0 {
				isOpen = true
				pattern.WriteByte('(')
				pattern.WriteString(piece(items))
			}
			pattern.WriteString(piece(items))
			pattern.WriteString(piece([]string{"", "", "+", "*", "?", "-"}))
			if isOpen && random.IntN(2) == 0 {
				isOpen = false
				pattern.WriteByte(')')
			}
		}
		if isOpen {
			pattern.WriteByte(')')
		}
		pattern.WriteString(piece([]string{"$", "", ""}))
		for range random.IntN(8) {
			text.WriteString(piece([]string{"1", "20", "-3", " ", "4 5", ":", "s", "~", "\x00", "\xff", "é"}))
		}
		var m matcher
		from, to := m.find(text.String(), pattern.String(), 0)
		want, err := pm.Find(pattern.String(), []byte(text.String()), 0, 1)
		require.NoError(t, err, pattern.String())
		if len(want) == 0 {
			require.Negative(t, from, "%q in %q", pattern.String(), text.String())
			continue
		}
		matches++
		got := []int{from, to}
		for _, c := range m.captures[:m.n] {
			got = append(got, c.from, c.to)
		}
		expected := make([]int, want[0].CaptureLength())
		for i := range expected {
			expected[i] = want[0].Capture(i)
		}
		require.Equal(t, expected, got, "%q in %q", pattern.String(), text.String())
	}
	t.Logf("%d of 50,000 match", matches)
}
