#!/usr/bin/env bash
# Runs every fuzz target of all modules for the time or the number of inputs given, one after
# another, since go test takes one target at a time. One of them needs a Redis.
set -euo pipefail
time=${1:-5s}
git grep -noE '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | while IFS=: read -r file _ target; do
	name=${target#func }
	echo "fuzz: $name in $(dirname "$file")"
	go test -C "$(dirname "$file")" -run '^$' -fuzz "^$name\$" -fuzztime "$time" . </dev/null
done
