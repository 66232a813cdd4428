package inputs

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// How faults begin that come behind the worst: those of a refusal that names no field,
// and of what waits and is not as it was.
const (
	noField    = "no field named"
	changeMade = "changed"
)

// Report is what became of the inputs of one entrance.
type Report struct {
	Entrance string
	// Tried is how many inputs there were. Each is refused, accepted wrong, or broken.
	Tried, Refused int
	// FieldNamed counts the refusals that name the field, or the text that holds it where
	// that is no JSON, no YAML or no UTF-8.
	FieldNamed int
	// AcceptedWrong is how many were taken.
	AcceptedWrong int
	// Broken is how many had a crash, a server's error or no answer; a bridge that is dead
	// afterwards is one more.
	Broken int
	// Changed is how much of what waits is not as it was.
	Changed int
	// Faults say what is wrong, the worst first. A refusal that names no field is one, too.
	Faults []string
}

// add counts an input.
func (r *Report) add(one trial, a answer) {
	r.Tried++
	fault := ""
	switch {
	case a.broken:
		r.Broken++
		fault = "broken"
	case !a.refused:
		r.AcceptedWrong++
		fault = "accepted"
	default:
		r.Refused++
		if !slices.ContainsFunc(one.names, func(name string) bool { return isNamed(a.text, name) }) {
			fault = noField
			break
		}
		r.FieldNamed++
	}
	if fault != "" {
		const shown = 200
		r.Faults = append(r.Faults, fmt.Sprintf("%s: %.*q: %.*q", fault, shown, one.what, shown, a.text))
	}
}

// notAlive counts a process that does not live any more.
func (r *Report) notAlive(why string) {
	r.Broken++
	r.Faults = append(r.Faults, "the bridge is not alive: "+why)
}

// changed counts what the inputs have changed, and puts the faults in order.
func (r *Report) changed(changes []string) {
	r.Changed = len(changes)
	r.Faults = append(changes, r.Faults...)
	slices.SortStableFunc(r.Faults, func(a, b string) int { return cmp.Compare(severity(a), severity(b)) })
}

// severity puts what is merely not said well behind all else.
func severity(fault string) int {
	switch {
	case strings.HasPrefix(fault, noField):
		return 2 //nolint:mnd // the last
	case strings.HasPrefix(fault, changeMade):
		return 1
	default:
		return 0
	}
}

// isNamed reports whether an error's text names a field. A short name is an English
// word, too, so it counts only where a field stands.
func isNamed(text, name string) bool {
	const word = 2
	if len(name) <= word {
		return regexp.MustCompile(`(^|: |field )` + name + `( |:|$)`).MatchString(text)
	}
	return strings.Contains(strings.ToLower(text), strings.ToLower(name))
}
