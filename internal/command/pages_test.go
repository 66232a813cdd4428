package command

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	// commandInPage is a command of ours in a line of code: what follows the program's name.
	commandInPage = regexp.MustCompile("(?:^|[\\s`(=])(?:\\./|/usr/bin/|/usr/local/bin/|go run \\./cmd/)?(?:delay)?bridge ([a-z-][^`]*)")
	quotedInPage  = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	endOfCommand  = regexp.MustCompile(`[|;&>#)]|\s—|\.\s|$`)
)

// commandsOfPage are the commands that a page shows, in code: in backquotes, or indented.
func commandsOfPage(text string) (commands []string) {
	isFenced, isPython := false, false
	for line := range strings.Lines(text) {
		if fence := strings.TrimSpace(line); strings.HasPrefix(fence, "```") {
			isFenced, isPython = !isFenced, fence == "```python"
			continue
		}
		if isPython { // It imports from a package of our name.
			continue
		}
		spans := []string{line}
		if isCode := isFenced || strings.HasPrefix(line, "    "); !isCode {
			spans = nil
			for i, span := range strings.Split(line, "`") {
				if i%2 == 1 {
					spans = append(spans, span)
				}
			}
		}
		for _, span := range spans {
			for _, found := range commandInPage.FindAllStringSubmatch(quotedInPage.ReplaceAllString(span, "X"), -1) {
				commands = append(commands, found[1][:endOfCommand.FindStringIndex(found[1])[0]])
			}
		}
	}
	return commands
}

// unknownWord is the first of a command's words that the program does not know: a
// subcommand, or a flag.
func unknownWord(node *kong.Node, command string) string {
	words := strings.Fields(command)
	for len(words) > 0 {
		i := slices.IndexFunc(node.Children, func(child *kong.Node) bool { return child.Name == words[0] || slices.Contains(child.Aliases, words[0]) })
		if i < 0 {
			break
		}
		node, words = node.Children[i], words[1:]
	}
	isPlaceholder := func(word string) bool { return strings.ToUpper(word) == word }
	switch {
	case node.Type == kong.ApplicationNode:
		return "" // The name of a profile, a chart or a user, or prose.
	case len(node.Children) > 0 && len(words) > 0 && !strings.HasPrefix(words[0], "-") && !isPlaceholder(words[0]):
		return words[0]
	}
	for _, word := range words {
		name, _, _ := strings.Cut(strings.TrimRight(word, ",.:]"), "=")
		if !strings.HasPrefix(name, "-") || name == "-" || name == "--" {
			continue
		}
		isKnown := func(flag *kong.Flag) bool {
			return name == "--"+flag.Name || name == "--no-"+flag.Name || flag.Short != 0 && name == "-"+string(flag.Short)
		}
		if !slices.ContainsFunc(slices.Concat(node.AllFlags(false)...), isKnown) {
			return word
		}
	}
	return ""
}

// TestCommandsOfPages: the flags and subcommands that the documentation names are there.
func TestCommandsOfPages(t *testing.T) {
	t.Parallel()
	parser, err := newParser(&program{stdout: t.Output(), stderr: t.Output()}, ownName)
	require.NoError(t, err)
	count := 0
	err = filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", ".cache", "node_modules", "dist", "bin"}, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(name)
		for _, command := range commandsOfPage(string(text)) {
			count++
			assert.Empty(t, unknownWord(parser.Model.Node, command), "%s: bridge %s", name, command)
		}
		return err
	})
	require.NoError(t, err)
	assert.Greater(t, count, 100)
	t.Log(count, "commands")
}
