package layout

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzLayout: a layout that can be read has no more shards than there may be, and its plans can be written and
// read again.
func FuzzLayout(f *testing.F) {
	f.Add("1-abc-def", "8", "4,2", "2-abc-fed|16|8,4", "{\"history\":{\"count\":10}}", "1=5 2=7", "3")
	f.Add("", "0", ",", "|", "null", "=", "-1")
	f.Add("x", "4097", "99999999999999999999", "a|b|c", "{", "a=b=c", "4096")
	f.Fuzz(func(t *testing.T, epoch, shards, earlier, next, rules, retired, dropping string) {
		l, ok := parseLayout(map[string]string{
			"epoch": epoch, "shards": shards, "earlier": earlier, "next": next, "rules": rules, "retired": retired, "dropping": dropping, "max_message": "1",
		})
		if !ok {
			return
		}
		require.LessOrEqual(t, l.Polled(), MaxShards)
		for _, home := range l.Homes("", epoch) {
			require.Less(t, home, MaxShards)
		}
		now := plan{epoch: l.Epoch, shards: l.Shards, earlier: l.Earlier}
		again, ok := parsePlan(l.Epoch, now.content())
		require.True(t, ok)
		require.Equal(t, now, again)
		if life := l.Life(); life != "" {
			require.Equal(t, life, LifeOf(NextEpoch(l.Epoch)))
		}
	})
}
