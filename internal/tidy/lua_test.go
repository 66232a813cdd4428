package tidy_test

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A script that needs more has logic that belongs elsewhere.
const luaLinesMax = 100

// scriptsDir is where the store's scripts are.
const scriptsDir = "internal/engine/store/scripts"

var (
	// A number in the header's list of keys: behind the word KEYS, or behind
	// two spaces.
	headerKey = regexp.MustCompile(`(?:KEYS|  ) *(\d+) `)
	usedKey   = regexp.MustCompile(`KEYS\[(\d+)\]`)
	// A line that is neither empty nor a comment.
	codeLine = regexp.MustCompile(`(?m)^[ \t]*(-?[^-\s].*)$`)
)

// luaScripts are the store's scripts, by path.
func luaScripts(t *testing.T) []string {
	t.Helper()
	var scripts []string
	for _, file := range files(t, ".lua") {
		if path.Dir(file) == scriptsDir {
			scripts = append(scripts, file)
		}
	}
	require.NotEmpty(t, scripts)
	return scripts
}

func TestLuaHeaders(t *testing.T) {
	t.Parallel()
	for _, file := range luaScripts(t) {
		name := strings.TrimSuffix(path.Base(file), ".lua")
		header, body := splitHeader(string(read(t, file)))
		assert.True(t, strings.HasPrefix(header, "-- "+name+": "), "%s must begin with its name and purpose", file)
		for _, part := range []string{"\n-- KEYS ", "\n-- ARGV ", "\n-- RETURNS "} {
			assert.Contains(t, header, part, "header of %s", file)
		}
		_, keys, _ := strings.Cut(header, "\n-- KEYS")
		keys, _, _ = strings.Cut(keys, "\n-- ARGV")
		assert.Equal(t, highest(headerKey, "KEYS"+keys), highest(usedKey, body), "highest key of %s, header and code", file)
		assert.LessOrEqual(t, len(codeLine.FindAllString(body, -1)), luaLinesMax, "lines of code of %s", file)
	}
}

// splitHeader parts the comment at the top from the code.
func splitHeader(text string) (header, body string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			return text[:len(header)], text[len(header):]
		}
		header += line
	}
	return text, ""
}

func highest(number *regexp.Regexp, text string) int {
	top := 0
	for _, found := range number.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(found[1]) // the expression matches digits only
		top = max(top, n)
	}
	return top
}

func TestLuaScriptsAreEmbeddedAndUsed(t *testing.T) {
	t.Parallel()
	const home = "internal/engine/store"
	var loader, users strings.Builder
	for _, file := range files(t, ".go") {
		switch dir := path.Dir(file); {
		case strings.HasSuffix(file, "_test.go"):
		case dir == scriptsDir:
			loader.Write(read(t, file))
		case dir == home || path.Dir(dir) == home:
			users.Write(read(t, file))
		}
	}
	require.Contains(t, loader.String(), "//go:embed *.lua ")
	for _, file := range luaScripts(t) {
		name := strings.TrimSuffix(path.Base(file), ".lua")
		loaded := regexp.MustCompile(`(\w+) += load\("` + name + `"[,)]`).FindStringSubmatch(loader.String())
		if assert.NotNil(t, loaded, "%s must be loaded", file) {
			assert.Regexp(t, `\bscripts\.`+loaded[1]+`\b`, users.String(), "%s must be used", file)
		}
	}
}
