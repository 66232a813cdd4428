package config

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
)

// changeable are the keys that may change while the bridge runs. Whoever uses them has them
// in memory, or looks at them at each turn: so a change cannot fail halfway.
var changeable = []string{
	"log.level",
	"admin.auth.issuers.*", "admin.auth.issuers.*.*", "admin.auth.certificates",
	"queues.*.owner", "queues.*.contacts",
	"queues.*.rate.messages", "queues.*.rate.topics",
	"queues.*.late.after", "queues.*.late.then",
	"queues.*.retry.initial", "queues.*.retry.max", "queues.*.retry.attempts",
	"queues.*.park_patience", "queues.*.headers",
	"queues.*.dead.keep", "queues.*.dead.max",
	"queues.*.budget.bytes", "queues.*.budget.policy",
	"queue_files.*", "queue_files.*.*",
}

// ErrRestart is returned if configurations differ in what cannot change.
var ErrRestart = errors.New("needs a restart")

// Changes are what differs between two configurations.
type Changes struct {
	// Keys are the paths of the keys, as [Diff] returns them.
	Keys []string
	// These are names of queues. Changed ones differ only in keys that change while they run;
	// restarted ones in others.
	Added, Removed, Restarted, Changed []string
}

// Changes returns in what the next configuration differs. Its error is [ErrRestart] and names the
// keys that cannot change while the bridge runs.
func (c *Config) Changes(next *Config) (changes Changes, err error) {
	changes.Keys = Diff(c, next)
	var fixedOnes []string
	for _, key := range changes.Keys {
		if isChangeable(key) {
			continue
		}
		if !strings.HasPrefix(key, "queues.") { // A queue can start again while the others run.
			fixedOnes = append(fixedOnes, key)
		}
	}
	if len(fixedOnes) > 0 {
		return Changes{}, fmt.Errorf("%w: %s", ErrRestart, strings.Join(fixedOnes, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		old := c.Queues[name]
		switch queue, stays := next.Queues[name]; {
		case !stays:
			changes.Removed = append(changes.Removed, name)
		case len(fixedKeys(old, queue)) > 0:
			changes.Restarted = append(changes.Restarted, name)
		case !reflect.DeepEqual(old, queue):
			changes.Changed = append(changes.Changed, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(next.Queues)) {
		if _, isThere := c.Queues[name]; !isThere {
			changes.Added = append(changes.Added, name)
		}
	}
	return changes, nil
}

// fixedKeys are the keys of a queue that differ and cannot change while it runs.
func fixedKeys(a, b Queue) (keys []string) {
	const queue = "queues.one"
	diff(queue, reflect.ValueOf(a), reflect.ValueOf(b), func(key string) {
		if !isChangeable(key) {
			keys = append(keys, strings.TrimPrefix(key, queue+"."))
		}
	})
	return keys
}

func isChangeable(key string) bool {
	slashed := strings.ReplaceAll(key, ".", "/") // So that a * is one name.
	return slices.ContainsFunc(changeable, func(pattern string) bool {
		matches, err := path.Match(strings.ReplaceAll(pattern, ".", "/"), slashed)
		return matches && err == nil
	})
}
