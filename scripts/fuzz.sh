#!/usr/bin/env bash
# Runs every fuzz target of all modules for the time given, one after another,
# since go test takes one target at a time.
set -euo pipefail
time=${1:-5s}
grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | while IFS=: read -r file _ target; do
	name=${target#func }
	echo "fuzz: $name in $(dirname "$file")"
	go test -C "$(dirname "$file")" -run '^$' -fuzz "^$name\$" -fuzztime "$time" . </dev/null
done
