package tidy_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	// notInAnchors are the characters of a heading that its anchor has not.
	notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

	// excerpt is a block of code and the file that it is from; codeBlock any block of Go, Python or Java.
	excerpt   = regexp.MustCompile("(?m)^<!-- excerpt of (\\S+) -->\n```\\w+\n((?s:.*?))^```$")
	codeBlock = regexp.MustCompile("(?m)^```(go|python|java)$")

	citedTest  = regexp.MustCompile("`(?:([a-z]+)\\.)?((?:Test|Fuzz)[A-Z]\\w*)`")
	testIsMade = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// anchors are those that a page's headings have, as GitHub makes them.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(string(read(t, page)), ""), -1) {
		text := linkTarget.ReplaceAllString(strings.ReplaceAll(h[1], "[", ""), "")
		text = notInAnchors.ReplaceAllString(strings.ToLower(text), "")
		found[strings.ReplaceAll(strings.TrimSpace(text), " ", "-")] = true
	}
	return found
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, page := range files(t, ".md") {
		text := code.ReplaceAllString(fence.ReplaceAllString(string(read(t, page)), ""), "")
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(found[1], "#")
			target := page
			if file != "" {
				target = path.Join(path.Dir(page), file)
			}
			_, err := os.Stat(filepath.Join(repository, filepath.FromSlash(target)))
			if !assert.NoError(t, err, "%s links to %s", page, found[1]) || anchor == "" {
				continue
			}
			assert.True(t, anchors(t, target)[anchor], "%s links to %s: no such heading", page, found[1])
		}
	}
}

// unindented is a text without the tabs at the beginnings of its lines.
func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimLeft(line, "\t ")
	}
	return strings.Join(lines, "\n")
}

// isExcerpt tells whether a page's code is a file's, line by line; a line "…" is what it leaves out.
func isExcerpt(shown, file string) bool {
	for part := range strings.SplitSeq("\n"+unindented(shown), "\n…\n") {
		_, rest, isThere := strings.Cut(file, part)
		if !isThere {
			return false
		}
		file = rest
	}
	return true
}

// TestCodeOfPagesIsThatOfFiles: what a page shows of a file is in it, line by line, so
// the Go and Java of all pages compile, and mypy has read the Python.
func TestCodeOfPagesIsThatOfFiles(t *testing.T) {
	t.Parallel()
	excerpts := 0
	for _, page := range files(t, ".md") {
		text := string(read(t, page))
		ofFiles := excerpt.FindAllStringSubmatch(text, -1)
		for _, found := range ofFiles {
			excerpts++
			assert.True(t, isExcerpt(found[2], "\n"+unindented(string(read(t, found[1])))), "%s: %s has not\n%s", page, found[1], found[2])
		}
		ofCode := 0
		for _, found := range ofFiles {
			if strings.HasSuffix(found[1], ".go") || strings.HasSuffix(found[1], ".py") || strings.HasSuffix(found[1], ".java") {
				ofCode++
			}
		}
		assert.Len(t, codeBlock.FindAllString(text, -1), ofCode, "%s: say which file each block of Go, Python and Java is from", page)
	}
	require.Positive(t, excerpts)
}

// TestCitedTestsExist: a page that names a test as proof names one that there is.
func TestCitedTestsExist(t *testing.T) {
	t.Parallel()
	made := map[string]map[string]bool{"": {}}
	for _, file := range files(t, "_test.go") {
		folder := path.Base(path.Dir(file))
		if made[folder] == nil {
			made[folder] = map[string]bool{}
		}
		for _, found := range testIsMade.FindAllStringSubmatch(string(read(t, file)), -1) {
			made[folder][found[1]], made[""][found[1]] = true, true
		}
	}
	cited := 0
	for _, page := range files(t, ".md") {
		for _, found := range citedTest.FindAllStringSubmatch(string(read(t, page)), -1) {
			cited++
			assert.True(t, made[found[1]][found[2]], "%s cites %s: no such test", page, found[0])
		}
	}
	require.Positive(t, cited)
}
