// Package rights lists the least rights that a user of Redis needs: the commands
// of the scripts that its role runs, and those that Go calls in addition. Tests
// compare uses.go with the code, and leave out one right at a time.
package rights

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
)

// Role is the role of a user of Redis.
type Role string

// The roles.
const (
	// Producer schedules with the SDK, with an outbox or without one.
	Producer Role = "producer"
	// Bridge is what `bridge run` logs in as. It may do all that the others may.
	Bridge Role = "bridge"
	// Operator uses the commands.
	Operator Role = "operator"
	// Viewer uses the commands that change nothing.
	Viewer Role = "viewer"
)

// Roles returns all roles.
func Roles() []Role { return []Role{Producer, Bridge, Operator, Viewer} }

// Setup is what the rights depend on, besides the role.
type Setup struct {
	// Prefix begins all keys.
	Prefix string
	// Queues are those of the user; none means all under the prefix.
	Queues []string
	// Old is set for a Redis before 7.0, which has no sharded channels.
	Old bool
	// Cluster is set for a Redis Cluster, OtherDatabase for one that is not number 0.
	Cluster, OtherDatabase bool
	// Fsync is set if the disk is asked to confirm, which Redis before 7.2 cannot.
	Fsync bool
}

// Rights are what a user may do: commands, and patterns of keys and channels.
type Rights struct {
	Commands, Keys, Channels []string
}

// For returns the rights of a role.
func For(role Role, s Setup) Rights {
	u := uses[role]
	commands := append(Data(role, s.Old), u.connection...)
	if s.Cluster {
		// While a slot moves, its node answers ASK. Without COMMAND go-redis asks again with each call.
		commands = append(commands, "cluster|slots", "asking", "command")
	}
	if s.OtherDatabase {
		commands = append(commands, "select")
	}
	if s.Fsync && slices.Contains(u.connection, "wait") {
		commands = append(commands, "waitaof")
	}
	if s.Old {
		for i, name := range commands {
			if plain, isSharded := strings.CutPrefix(name, "s"); isSharded && strings.HasSuffix(name, "subscribe") {
				commands[i] = plain
			}
		}
	}
	slices.Sort(commands)
	r := Rights{Commands: slices.Compact(commands)}
	if len(s.Queues) == 0 {
		r.Keys = []string{s.Prefix + ":*"}
		if u.channels != nil {
			r.Channels = r.Keys
		}
		return r
	}
	for _, name := range s.Queues {
		q := keys.Queue{Prefix: s.Prefix, Name: name}
		r.Keys = append(r.Keys, ofShards(q, "*"))
		for _, key := range u.keys {
			if name := key(q); !slices.Contains(r.Keys, name) { // One is of the prefix, and not of a queue.
				r.Keys = append(r.Keys, name)
			}
		}
		for _, channel := range u.channels {
			r.Channels = append(r.Channels, channel(q))
		}
	}
	return r
}

// AtSentinels are the rights of the user at each sentinel, whatever its role at Redis: to
// find the primary, and to hear that it is another one.
func AtSentinels() Rights {
	return Rights{
		Commands: []string{"client|setname", "ping", "sentinel|get-master-addr-by-name", "sentinel|sentinels", "subscribe"},
		Channels: []string{"+switch-master", "+replica-reconf-done"}, // go-redis subscribes to both at once.
	}
}

// Data are the commands on keys that a role needs, in their order.
func Data(role Role, old bool) []string {
	found := map[string]bool{}
	for _, script := range uses[role].scripts {
		for _, name := range script.Commands() {
			found[name] = true
		}
	}
	for _, name := range uses[role].data {
		found[name] = true
	}
	for _, name := range uses[role].without {
		delete(found, name)
	}
	if old {
		delete(found, "spublish")
	} else {
		delete(found, "publish")
	}
	return slices.Sorted(maps.Keys(found))
}

// ofShards is a pattern for keys or channels of all shards of a queue.
func ofShards(q keys.Queue, last string) string {
	return strings.Replace(q.Shard(0).Due, ":0}:due", ":*}:"+last, 1)
}

// wake are the channels of the shards of a queue.
func wake(q keys.Queue) string { return ofShards(q, "wake") }

// Rules are the rights as Redis takes them, without the login.
func (r Rights) Rules() string {
	words := make([]string, 0, len(r.Keys)+len(r.Channels)+len(r.Commands)+2)
	for _, pattern := range r.Keys {
		words = append(words, "~"+pattern)
	}
	words = append(words, "resetchannels") // Before Redis 7.0 a user has all.
	for _, pattern := range r.Channels {
		words = append(words, "&"+pattern)
	}
	words = append(words, "-@all")
	for _, name := range r.Commands {
		words = append(words, "+"+name)
	}
	return strings.Join(words, " ")
}

// SetUser is the command that gives a user these rights and no others.
func (r Rights) SetUser(name, password string) string {
	return fmt.Sprintf("ACL SETUSER %s reset on >%s %s", name, password, r.Rules())
}

// UserLine is the line of a file of users.
func (r Rights) UserLine(name, password string) string {
	return fmt.Sprintf("user %s on >%s %s", name, password, r.Rules())
}
