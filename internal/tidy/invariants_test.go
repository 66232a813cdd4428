package tidy_test

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	// invariantEntry begins an entry of the list, as "- **I1 Nothing".
	invariantEntry = regexp.MustCompile(`(?m)^- \*\*(I\d+) `)
	invariantCited = regexp.MustCompile(`\bI\d{1,2}\b`)
	goComment      = regexp.MustCompile(`//[^\n]*`)
)

// invariants are the numbers in the architecture's list.
func invariants(t *testing.T) map[string]bool {
	t.Helper()
	numbers := map[string]bool{}
	for _, found := range invariantEntry.FindAllStringSubmatch(section(t, "Invariants"), -1) {
		assert.False(t, numbers[found[1]], "%s is there twice", found[1])
		numbers[found[1]] = true
	}
	require.NotEmpty(t, numbers)
	return numbers
}

func TestCitedInvariantsExist(t *testing.T) {
	t.Parallel()
	numbers := invariants(t)
	for _, file := range files(t, ".go", ".lua", ".md", ".tla", ".cfg") {
		for _, number := range invariantCited.FindAllString(string(read(t, file)), -1) {
			assert.True(t, numbers[number], "%s cites %s, which %s has not", file, number, architecture)
		}
	}
}

func TestInvariantsAreTested(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, file := range files(t, "_test.go") {
		if path.Dir(file) == "internal/tidy" {
			continue // Citing is not testing.
		}
		comments := strings.Join(goComment.FindAllString(string(read(t, file)), -1), "\n")
		for _, number := range invariantCited.FindAllString(comments, -1) {
			tested[number] = true
		}
	}
	for number := range invariants(t) {
		assert.True(t, tested[number], "no test cites %s", number)
	}
}
