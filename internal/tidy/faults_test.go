package tidy_test

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const faults = "docs/faults.md"

var (
	// faultRow is a row of its tables: a number and four cells more.
	faultRow = regexp.MustCompile(`(?m)^\| [FO]\d+ \|.*\|$`)
	// heldBy is a test that a row names, with a case of it, and its file.
	heldBy = regexp.MustCompile("\\[`([a-z]+)\\.((?:Test|Fuzz)\\w+)(?:/([^`]+))?`\\]\\(\\.\\./([^)]+)\\)")
)

// TestFaultsAreHeld: each fault has a test, which is in the file that it links to, or says why it has none. A case
// is there to the letter: in that file, or in the suite that all sinks pass.
func TestFaultsAreHeld(t *testing.T) {
	t.Parallel()
	suiteCases := map[string]bool{}
	for _, c := range conformanceCases(t) {
		suiteCases[c.name] = true
	}
	numbers := map[string]bool{}
	for _, row := range faultRow.FindAllString(string(read(t, faults)), -1) {
		row := cells(row)
		require.Len(t, row, 5, "%s: number, fault, what holds, what the bridge does, held by: %q", faults, row)
		assert.False(t, numbers[row[0]], "%s: %s is there twice", faults, row[0])
		numbers[row[0]] = true
		if reason, isOut := strings.CutPrefix(row[4], "Not automated: "); isOut {
			assert.NotEmpty(t, reason, row[0])
			continue
		}
		named := heldBy.FindAllStringSubmatch(row[4], -1)
		assert.NotEmpty(t, named, "%s: %s has neither a test nor a reason", faults, row[0])
		assert.Empty(t, strings.Trim(heldBy.ReplaceAllString(row[4], ""), ", "), "%s: %s: what is no test of a file", faults, row[0])
		for _, test := range named {
			folder, name, inner, file := test[1], test[2], test[3], test[4]
			text := string(read(t, file))
			assert.Equal(t, path.Base(path.Dir(file)), folder, "%s: the package of %s", row[0], file)
			assert.Contains(t, text, "\nfunc "+name+"(", "%s: %s: %s has no such test", faults, row[0], file)
			isCase := inner == "" || strings.Contains(text, `"`+inner+`"`) || strings.Contains(text, "sinktest.Run(") && suiteCases[inner]
			assert.True(t, isCase, "%s: %s: %s of %s has no case %q", faults, row[0], name, file, inner)
		}
	}
	require.NotEmpty(t, numbers)
}
