package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const repository = "../.."

// notOurs are folders that are generated or fetched.
var notOurs = []string{".git", ".cache", "bin", "dist", "node_modules", "target"}

var (
	fence = regexp.MustCompile("^ *```(\\w*)$")
	// shells are the languages of blocks that are typed, shown those of blocks that are not.
	shells = []string{"", "sh", "bash", "shell", "console"}
	shown  = []string{"text", "go", "yaml", "js", "json", "sql", "python", "ts", "java", "xml", "properties"}
	// comment is what follows a command, or stands for one.
	comment = regexp.MustCompile(`(?:^|\s+)# .*$`)
)

// block is code of a page: indented, or fenced and of a language.
type block struct {
	line     int
	language string
	lines    []string
}

// command is what a reader types, all lines of it, and what the page shows for an answer, if
// it does.
type command struct {
	line     int
	text     string
	isShown  bool
	expected string
}

// name is the command's first line, as the list of what is not typed has it.
func (c command) name() string {
	first, _, _ := strings.Cut(c.text, "\n")
	return strings.TrimSpace(comment.ReplaceAllString(first, ""))
}

// page is a file of the documentation.
type page struct {
	name   string
	blocks []block
}

func readPages(t *testing.T) (pages []page) {
	t.Helper()
	err := filepath.WalkDir(repository, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(notOurs, entry.Name()) && entry.IsDir():
			return fs.SkipDir
		case filepath.Ext(file) != ".md" || entry.IsDir():
			return nil
		}
		name, err := filepath.Rel(repository, file)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		pages = append(pages, page{name: filepath.ToSlash(name), blocks: blocksOf(string(text))})
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	return pages
}

// blocksOf are the blocks of code of a page.
func blocksOf(text string) (blocks []block) {
	lines := strings.Split(text, "\n")
	isIndented := func(i int) bool { return i < len(lines) && strings.HasPrefix(lines[i], "    ") }
	isBlank := func(i int) bool { return i < len(lines) && strings.TrimSpace(lines[i]) == "" }
	for i := 0; i < len(lines); i++ {
		b := block{line: i + 1}
		if opening := fence.FindStringSubmatch(lines[i]); opening != nil {
			b.language = opening[1]
			if b.language == "" {
				b.language = "none"
			}
			for i++; i < len(lines) && fence.FindStringSubmatch(lines[i]) == nil; i++ {
				b.lines = append(b.lines, lines[i])
			}
			blocks = append(blocks, b)
			continue
		}
		if !isIndented(i) || i > 0 && !isBlank(i-1) {
			continue
		}
		for ; isIndented(i) || isBlank(i) && isIndented(i+1); i++ {
			b.lines = append(b.lines, lines[i])
		}
		blocks = append(blocks, b)
	}
	for _, b := range blocks {
		unindent(b.lines)
	}
	return blocks
}

// unindent takes away the blanks that all lines begin with.
func unindent(lines []string) {
	least := -1
	for _, line := range lines {
		if indent := len(line) - len(strings.TrimLeft(line, " ")); strings.TrimSpace(line) != "" && (least < 0 || indent < least) {
			least = indent
		}
	}
	for i, line := range lines {
		lines[i] = line[min(len(line), max(least, 0)):]
	}
}

// commands are what is typed of a page.
func (p page) commands(t *testing.T) (commands []command) {
	t.Helper()
	for _, b := range p.blocks {
		if !slices.Contains(shells, b.language) {
			assert.Contains(t, shown, b.language, "%s:%d: say which language the block is in; what is typed is indented", p.name, b.line)
			continue
		}
		commands = append(commands, b.commands(t)...)
	}
	return commands
}

func (b block) commands(t *testing.T) (commands []command) {
	t.Helper()
	const prompt = "$ "
	hasAnswers := slices.ContainsFunc(b.lines, func(line string) bool { return strings.HasPrefix(line, prompt) })
	for i := 0; i < len(b.lines); {
		c := command{line: b.line + i, text: b.lines[i], isShown: hasAnswers}
		i++
		if !hasAnswers && strings.TrimSpace(comment.ReplaceAllString(c.text, "")) == "" {
			continue
		}
		if hasAnswers {
			isPrompt := strings.HasPrefix(c.text, prompt)
			require.True(t, isPrompt, "line %d: an answer to nothing: %s", c.line, c.text)
			c.text = strings.TrimPrefix(c.text, prompt)
		}
		for ; i < len(b.lines) && !isComplete(t, c.text); i++ {
			c.text += "\n" + b.lines[i]
		}
		for ; hasAnswers && i < len(b.lines) && !strings.HasPrefix(b.lines[i], prompt); i++ {
			c.expected += b.lines[i] + "\n"
		}
		commands = append(commands, c)
	}
	return commands
}

// isComplete tells whether a shell would run the text now, or wait for more of it.
func isComplete(t *testing.T, text string) bool {
	t.Helper()
	if strings.HasSuffix(text, `\`) {
		return false
	}
	out, err := exec.CommandContext(t.Context(), "bash", "-n", "-c", text).CombinedOutput()
	return err == nil && len(out) == 0 // It only warns of a text that ends in a here-document.
}

func TestBlocksOf(t *testing.T) {
	t.Parallel()
	const text = "prose\n    of it\n\n    $ cat <<END > f\n    a\n    END\n    $ echo 'x\n      y' \\\n      z   # both\n    x\n      y z\n\n    next\n\n" +
		"1. a list\n\n       typed | sort  # so\n       # or not\n\n```yaml\na: b\n```\n"
	blocks := blocksOf(text)
	require.Len(t, blocks, 3)
	assert.Equal(t, []command{
		{line: 4, text: "cat <<END > f\na\nEND", isShown: true},
		{line: 7, text: "echo 'x\n  y' \\\n  z   # both", isShown: true, expected: "x\n  y z\n\nnext\n"},
	}, blocks[0].commands(t))
	typed := blocks[1].commands(t)
	require.Len(t, typed, 1)
	assert.Equal(t, "typed | sort", typed[0].name())
	assert.Equal(t, block{line: 20, language: "yaml", lines: []string{"a: b"}}, blocks[2])
}
