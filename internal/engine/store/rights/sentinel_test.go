package rights_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store/rights"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// patience bounds how long a test waits for what must happen.
const patience = 2 * time.Minute

// sentinels is a group of them, as users of their own meet it.
type sentinels struct {
	t     *testing.T
	group *testenv.Sentinel
	roots []*redis.Client // of each, who may do everything
	users int
}

// TestSentinels finds the primary, and the one after it, with the rights for that; without
// any one of them the sentinels refuse something.
func TestSentinels(t *testing.T) {
	t.Parallel()
	s := &sentinels{t: t, group: testenv.StartSentinel(t)}
	off := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	for _, addr := range s.group.Addrs() {
		root := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true, MaintNotificationsConfig: off})
		t.Cleanup(func() { _ = root.Close() })
		s.roots = append(s.roots, root)
	}
	whole := rights.AtSentinels()
	user, rdb := s.join(whole)
	require.NoError(t, rdb.Ping(t.Context()).Err())
	s.group.KillPrimary()
	s.group.AwaitFailover()
	require.Eventually(t, func() bool { return rdb.Set(t.Context(), "k", "v", 0).Err() == nil }, patience, 50*time.Millisecond)
	assert.Empty(t, s.denied(user))

	for _, left := range slices.Concat(whole.Commands, whole.Channels) {
		user, rdb := s.join(rights.Rights{Commands: without(whole.Commands, left), Channels: without(whole.Channels, left)})
		require.Eventually(t, func() bool {
			_ = rdb.Ping(t.Context()) // The sentinels tell.
			return len(s.denied(user)) > 0
		}, patience, 50*time.Millisecond, "they need not allow %s", left)
		assert.Equal(t, []string{left}, s.denied(user))
		require.NoError(t, rdb.Close())
	}
}

// join makes a user at all sentinels, and a client that finds the primary as that user.
func (s *sentinels) join(allowed rights.Rights) (user string, rdb *redis.Client) {
	s.t.Helper()
	s.users++
	user = fmt.Sprint("finder", s.users)
	words := []any{}
	for word := range strings.FieldsSeq(allowed.SetUser(user, password)) {
		words = append(words, word)
	}
	for _, root := range s.roots {
		require.NoError(s.t, root.Do(s.t.Context(), words...).Err())
	}
	rdb = redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: s.group.Master(), SentinelAddrs: s.group.Addrs(), SentinelUsername: user, SentinelPassword: password,
		ClientName: "life", DisableIdentity: true,
	})
	s.t.Cleanup(func() { _ = rdb.Close() })
	return user, rdb
}

// denied is what the sentinels have denied the user, each once.
func (s *sentinels) denied(user string) (objects []string) {
	s.t.Helper()
	for _, root := range s.roots {
		entries, err := root.ACLLog(s.t.Context(), 100).Result()
		require.NoError(s.t, err)
		for _, entry := range entries {
			if entry.Username == user && !slices.Contains(objects, entry.Object) {
				objects = append(objects, entry.Object)
			}
		}
	}
	return objects
}
