package scripts

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	// called is the first argument of a call: its command, or one for Redis 7.0 and another
	// for what came before, or a variable.
	called = regexp.MustCompile(`redis\.p?call\(([^,)]*)`)
	// listed are the commands of a call by a variable.
	listed  = regexp.MustCompile(`(?m)^ *-- CALLS ([A-Z]+(?: or [A-Z]+)*)\.$`)
	command = regexp.MustCompile(`[A-Z]{3,}`)
	literal = regexp.MustCompile(`'[A-Z]+'`)
)

// Commands are what the script may call, in lower case and in their order: by its
// calls, and, where a variable has the command, by the line of its comment that
// begins with CALLS.
func (s *Script) Commands() []string {
	found := map[string]bool{}
	add := func(text string) {
		for _, name := range command.FindAllString(text, -1) {
			found[strings.ToLower(name)] = true
		}
	}
	for _, call := range called.FindAllStringSubmatch(s.source, -1) {
		for _, name := range literal.FindAllString(call[1], -1) {
			add(name)
		}
	}
	for _, line := range listed.FindAllStringSubmatch(s.source, -1) {
		add(strings.ReplaceAll(line[1], " or ", " "))
	}
	return slices.Sorted(maps.Keys(found))
}
