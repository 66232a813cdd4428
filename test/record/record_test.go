package main

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const page = "docs/track-record.md"

var (
	update = flag.Bool("update", false, "write the tables of docs/track-record.md")
	// commit is one as git shortens it, or what stands for one that nobody has found.
	commit    = regexp.MustCompile(`^([0-9a-f]{7,8}|unknown)$`)
	invariant = regexp.MustCompile(`^I([1-9]|1[0-5])$`)
)

// means are the ways in which defects are found; docs/reliability.md describes most of them.
var means = []string{
	"review", "reading", "simulation", "stories", "conformance", "fuzzing", "models", "power cuts", "trials", "bad input", "measuring", "a flaky test", "not recorded",
}

// defects are those of the list, read at the root of the repository.
func defects(t *testing.T) []defect {
	t.Helper()
	t.Chdir("../..")
	breaks, err := os.ReadFile("test/breaks/breaks.txt")
	require.NoError(t, err)
	all, err := read(list, string(breaks))
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return all
}

// TestRecord: each defect has all that the page tells, a test that is there, and a change that still finds its place,
// or the reason why there is none.
func TestRecord(t *testing.T) {
	for i, d := range defects(t) {
		assert.Equal(t, strconv.Itoa(i+1), d.Head, "numbers have no gap and no order of their own")
		assert.Contains(t, means, d.by(), d.Head)
		assert.Regexp(t, commit, d.Fields["since"], d.Head)
		assert.Regexp(t, commit, d.Fields["mended"], d.Head)
		for name := range strings.SplitSeq(d.Fields["touches"], ", ") {
			assert.True(t, name == "none" || invariant.MatchString(name), "%s touches %q", d.Head, name)
		}
		texts, err := d.Apply()
		require.NoError(t, err, d.Head)
		assert.NotEqual(t, len(texts) == 0, d.Fields["unshown"] == "", "%s is shown by a change, or says why not", d.Head)
		name, _, _ := strings.Cut(d.test, "/")
		assert.NotEmpty(t, d.file(t, name), "%s: %s has no %s", d.Head, d.pkg, name)
	}
}

// TestPageIsCurrent: the tables of the page are those of the list.
func TestPageIsCurrent(t *testing.T) {
	all := defects(t)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	want := string(text)
	for name, table := range map[string]string{"counts": counts(all), "defects": table(t, all)} {
		begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
		before, rest, isThere := strings.Cut(want, begin)
		_, after, isEnded := strings.Cut(rest, end)
		require.True(t, isThere && isEnded, "%s has no place for the %s", page, name)
		want = before + begin + table + end + after
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(text), "run go test ./test/record -update")
}

// by is the way in which it was found, without what stands behind it in parentheses.
func (d *defect) by() string {
	by, _, _ := strings.Cut(d.Fields["by"], " (")
	return by
}

// file is the file of a test, or "".
func (d *defect) file(t *testing.T, test string) string {
	t.Helper()
	files, err := filepath.Glob(d.pkg + "/*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(text), "\nfunc "+test+"(") {
			return file
		}
	}
	return ""
}

// shown is how the defect is shown again.
func (d *defect) shown() string {
	switch {
	case d.Fields["break"] != "":
		return "break “" + d.Fields["break"] + "”"
	case len(d.Changes) > 0:
		return "yes"
	}
	return "no: " + d.Fields["unshown"]
}

func table(t *testing.T, all []defect) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n| | what a user would have seen | found by | since | touches | mended in | held by | shown again |\n|---|---|---|---|---|---|---|---|\n")
	for _, d := range all {
		name, _, _ := strings.Cut(d.test, "/")
		held := fmt.Sprintf("[`%s.%s`](../%s)", filepath.Base(d.pkg), d.test, d.file(t, name))
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n",
			d.Head, d.Name, d.Fields["by"], d.Fields["since"], d.Fields["touches"], d.Fields["mended"], held, d.shown())
	}
	b.WriteString("\n")
	return b.String()
}

// counts are how many defects there are by the ways in which they were found, and by invariant.
func counts(all []defect) string {
	found, broken, shown := map[string]int{}, map[string]int{}, 0
	for _, d := range all {
		found[d.by()]++
		for name := range strings.SplitSeq(d.Fields["touches"], ", ") {
			broken[name]++
		}
		if len(d.Changes) > 0 {
			shown++
		}
	}
	listed := func(count map[string]int) string {
		names := slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), strings.Compare(a, b)) })
		for i, name := range names {
			names[i] = fmt.Sprintf("%s %d", name, count[name])
		}
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("\n%d defects, of which `make repro` shows %d again.\n\n- Found by: %s.\n- Invariants touched (a defect may touch several): %s.\n\n",
		len(all), shown, listed(found), listed(broken))
}
