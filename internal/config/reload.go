package config

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// changeable are the keys that may change while the bridge runs. Whoever uses them has them
// in memory, or looks at them at each turn: so a change cannot fail halfway.
var changeable = []string{
	"log.level",
	"admin.auth.issuers.*", "admin.auth.issuers.*.*", "admin.auth.certificates",
	"queues.*.rate.messages", "queues.*.rate.topics",
	"queues.*.late.after", "queues.*.late.then",
	"queues.*.retry.initial", "queues.*.retry.max", "queues.*.retry.attempts",
	"queues.*.park_patience",
	"queues.*.dead.keep", "queues.*.dead.max",
	"queues.*.budget.bytes", "queues.*.budget.policy",
}

// ErrRestart is returned if configurations differ in what cannot change.
var ErrRestart = errors.New("needs a restart")

// Changes returns the keys in which the next configuration differs from the one in force, as
// [Diff] does. Its error is [ErrRestart] and names those that cannot change while the bridge runs.
func Changes(inForce, next *Config) ([]string, error) {
	changed := Diff(inForce, next)
	if fixed := slices.DeleteFunc(slices.Clone(changed), isChangeable); len(fixed) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrRestart, strings.Join(fixed, ", "))
	}
	return changed, nil
}

func isChangeable(key string) bool {
	slashed := strings.ReplaceAll(key, ".", "/") // So that a * is one name.
	return slices.ContainsFunc(changeable, func(pattern string) bool {
		matches, err := path.Match(strings.ReplaceAll(pattern, ".", "/"), slashed)
		return matches && err == nil
	})
}
