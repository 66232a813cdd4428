package tidy_test

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var matrix = regexp.MustCompile(`(?s)<!-- matrix -->\n(.*)<!-- end of the matrix -->`)

// TestSecurityMatrixIsWhole: each cell names a test, or says why there is none; and each
// test that runs the cases of a link is named. That the tests exist is for
// TestCitedTestsExist.
func TestSecurityMatrixIsWhole(t *testing.T) {
	t.Parallel()
	const page = "docs/security-matrix.md"
	found := matrix.FindStringSubmatch(string(read(t, page)))
	require.NotNil(t, found)
	rows := strings.Split(strings.TrimSpace(found[1]), "\n")
	require.Greater(t, len(rows), 2)
	columns := cells(rows[0])
	for _, row := range rows[2:] {
		row := cells(row)
		require.Len(t, row, len(columns), row[0])
		for i, cell := range row[1:] {
			isSaid := citedTest.MatchString(cell) || strings.HasPrefix(cell, "left out: ") || strings.HasPrefix(cell, "as ")
			assert.True(t, isSaid, "%s: %s, %s: %q", page, row[0], columns[i+1], cell)
		}
	}
	links := 0
	for _, file := range files(t, "_test.go") {
		text := string(read(t, file))
		if !strings.Contains(text, `/internal/linktest"`) {
			continue
		}
		for _, made := range testIsMade.FindAllStringSubmatch(text, -1) {
			if strings.HasSuffix(made[1], "Link") {
				links++
				assert.Contains(t, found[1], "`"+path.Base(path.Dir(file))+"."+made[1]+"`", page)
			}
		}
	}
	require.Positive(t, links)
}

// cells are those of a table's row.
func cells(row string) []string {
	list := strings.Split(strings.Trim(row, "| "), "|")
	for i, cell := range list {
		list[i] = strings.TrimSpace(cell)
	}
	return list
}
