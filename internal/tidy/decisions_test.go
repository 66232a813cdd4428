package tidy_test

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

const (
	decisions = "docs/decisions"
	// architectureWords is what a newcomer reads in half an hour.
	architectureWords = 5000
)

// decision is the usual form of one.
var decision = regexp.MustCompile(`(?s)^# (\d{3})\. ([^\n]+)\n\n## Context\n\n.+\n\n## Decision\n\n.+\n\n## Consequences\n\n.+\n$`)

// TestDecisionsAreListed: decisions are numbered without a gap, have the usual form, and the index names each
// by its title.
func TestDecisionsAreListed(t *testing.T) {
	t.Parallel()
	index, count := string(read(t, decisions+"/README.md")), 0
	for _, file := range files(t, ".md") {
		name := path.Base(file)
		if path.Dir(file) != decisions || name == "README.md" {
			continue
		}
		count++
		found := decision.FindStringSubmatch(string(read(t, file)))
		if !assert.NotNil(t, found, "%s has a number, a title, context, decision and consequences", file) {
			continue
		}
		assert.Equal(t, fmt.Sprintf("%03d", count), found[1], file)
		assert.True(t, strings.HasPrefix(name, found[1]+"-"), file)
		assert.Contains(t, index, fmt.Sprintf("| [%s](%s) | %s |\n", found[1], name, found[2]))
	}
	assert.Positive(t, count)
}

func TestArchitectureIsShort(t *testing.T) {
	t.Parallel()
	assert.LessOrEqual(t, len(strings.Fields(string(read(t, architecture)))), architectureWords, "%s: words", architecture)
}
