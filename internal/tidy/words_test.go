package tidy_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// architecture has the invariants.
	architecture = "docs/ARCHITECTURE.md"
	// words is the glossary.
	words = "docs/words.md"
)

// quoted is something in backticks.
var quoted = regexp.MustCompile("`([^`]+)`")

// linkTarget is where a link leads: an address is not our wording.
var linkTarget = regexp.MustCompile(`\]\([^)\s]*\)`)

// section is what is below a heading of the architecture, up to the next one.
func section(t *testing.T, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(string(read(t, architecture)), "\n## "+heading+"\n")
	require.True(t, found, "%s must have a section %q", architecture, heading)
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// table are the cells of a table, below its header.
func table(t *testing.T, text, header string) [][]string {
	t.Helper()
	_, text, found := strings.Cut(text, header+"\n")
	require.True(t, found, "a table with the header %q", header)
	var rows [][]string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			break
		}
		if cells := strings.Split(strings.Trim(line, "| "), " | "); !strings.HasPrefix(cells[0], "---") {
			rows = append(rows, cells)
		}
	}
	require.NotEmpty(t, rows)
	return rows
}

func glossary(t *testing.T) [][]string {
	t.Helper()
	return table(t, string(read(t, words)), "| word | meaning | in code |")
}

func TestGlossaryNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	folders := declared(t)
	for _, row := range glossary(t) {
		require.Len(t, row, 3, "%q", row)
		names, _, _ := strings.Cut(row[2], "only in")
		for _, found := range quoted.FindAllStringSubmatch(names, -1) {
			pkg, name, _ := strings.Cut(found[1], ".")
			isDeclared := false
			for folder, declared := range folders {
				isDeclared = isDeclared || path.Base(folder) == pkg && declared[name]
			}
			assert.True(t, isDeclared, "%q: the code declares no %s", row[0], found[1])
		}
	}
}

func TestGlossaryHasEachWordOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, row := range glossary(t) {
		for word := range strings.SplitSeq(row[0], ", ") {
			assert.False(t, seen[word], "%q has two meanings", word)
			seen[word] = true
		}
	}
}

// TestWordsKeepToTheirPlace: a word that had several meanings is used in one
// part of the code only.
func TestWordsKeepToTheirPlace(t *testing.T) {
	t.Parallel()
	folders := declared(t)
	kept := 0
	for _, row := range glossary(t) {
		_, places, isKept := strings.Cut(row[2], "only in")
		if !isKept {
			continue
		}
		kept++
		for folder, names := range folders {
			isPlace := slices.ContainsFunc(quoted.FindAllStringSubmatch(places, -1), func(place []string) bool {
				return strings.HasPrefix(folder+"/", place[1]+"/")
			})
			for name := range names {
				if !isPlace && hasWord(name, row[0]) {
					t.Errorf("%s: %s, but %q is used only in%s", folder, name, row[0], places)
				}
			}
		}
	}
	assert.Positive(t, kept)
}

func TestWordsThatAreNotUsed(t *testing.T) {
	t.Parallel()
	names := map[string][]string{} // by the words in them
	for folder, declared := range declared(t) {
		for name := range declared {
			for _, part := range hump.FindAllString(name, -1) {
				word := strings.ToLower(part)
				names[word] = append(names[word], folder+": "+name)
			}
		}
	}
	docs := map[string]string{}
	for _, file := range files(t, ".md") {
		if dir := path.Dir(file); file == "README.md" || file != words && (dir == "docs" || dir == decisions) {
			docs[file] = linkTarget.ReplaceAllString(string(read(t, file)), "]")
		}
	}
	for _, row := range table(t, string(read(t, words)), "| say | not |") {
		require.Len(t, row, 2, "%q", row)
		for word := range strings.SplitSeq(row[1], ", ") {
			for _, name := range slices.Concat(names[word], names[word+"s"]) {
				t.Errorf("%s, say %s", name, row[0])
			}
			inText := regexp.MustCompile(`(?i)\b` + word + `s?\b`)
			for file, text := range docs {
				assert.Empty(t, inText.FindString(text), "%s: say %s", file, row[0])
			}
		}
	}
}
