package overhttp

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is in use is never forgotten, and made once; the rest makes room for others.
func TestRoutesAreBounded(t *testing.T) {
	t.Parallel()
	made := map[string]int{}
	routes := NewRoutes(func(name string) *int {
		made[name]++
		return new(int)
	})
	held, done := routes.Use("held")
	for i := range 2 * routesMost {
		_, end := routes.Use(strconv.Itoa(i))
		end()
		require.LessOrEqual(t, len(routes.byName), routesMost+1)
	}
	again, end := routes.Use("held")
	end()
	require.Same(t, held, again)
	require.Equal(t, 1, made["held"])
	require.Equal(t, "held", routes.Find(func(r *int) bool { return r == held }))
	require.Empty(t, routes.Find(func(*int) bool { return false }))
	done()
	for i := range routesMost {
		_, end := routes.Use("new" + strconv.Itoa(i))
		end()
	}
	require.Empty(t, routes.Find(func(r *int) bool { return r == held }), "it is not in use any more")
}
