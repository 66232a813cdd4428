package decision

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCompare: each way in which a table and its decision may differ is found.
func TestCompare(t *testing.T) {
	t.Parallel()
	const table = "// A comment.\n//\n//\tcolour | big → what   | where\n//\tred    | no  → cherry | tree\n//\tred, green | * → melon | field\n// More.\n"
	inputs := []Input{Or("colour", "red", "green"), Bool("big")}
	decide := func(c Case) string {
		if c["colour"] == "red" && !c.Is("big") {
			return "cherry | tree"
		}
		return "melon | field"
	}
	differences := func(text string, inputs ...Input) []string { return compare(text, inputs, decide) }
	require.Empty(t, differences(table, inputs...))
	require.Equal(t, []string{"it has no table of big"}, differences(table, Bool("big")))
	require.Equal(t, []string{`no row fits ["blue" "yes"], which is decided as "melon | field"`, `no row fits ["blue" "no"], which is decided as "melon | field"`},
		differences(table, Or("colour", "red", "green", "blue"), Bool("big")))
	require.Equal(t, []string{`colour is never "green"`}, differences(table, Or("colour", "red"), Bool("big")))
	require.Equal(t, []string{`big is never "no"`, `nothing meets the row of ["red" "no"]`}, differences(table, inputs[0], Or("big", "yes")))
	decide = func(Case) string { return "melon | field" }
	require.Equal(t, []string{`["red" "no"] is decided as "melon | field", and its row says "cherry | tree"`}, differences(table, inputs...))
	decide = func(c Case) string {
		if !c.Is("big") {
			return "" // It cannot be.
		}
		return "melon | field"
	}
	require.Equal(t, []string{`nothing meets the row of ["red" "no"]`}, differences(table, inputs...))
}
