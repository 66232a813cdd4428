#!/usr/bin/env bash
# Compares the Go API of the SDK with that of an earlier commit, by default the newest
# release, and fails where a program that compiles with that one may not compile with
# this one. A change that has to be is told in CHANGELOG.md: a line "- Go API: …" under
# Unreleased, Upgrading. Usage: scripts/api.sh APIDIFF [COMMIT]
set -euo pipefail
apidiff=$1
earlier=${2:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null || true)}
cd "$(dirname "$0")/.."
if [ -z "$earlier" ]; then
	echo "api: there is no release yet to compare with"
	exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/earlier"
git archive "$earlier" | tar -x -C "$scratch/earlier"

broken=
for package in delay delay/delaytest delay/outbox delay/outbox/schema delay/outbox/pgxtx; do
	[ -d "$scratch/earlier/$package" ] || continue
	export=$scratch/${package//\//-}
	(cd "$scratch/earlier/$package" && "$apidiff" -w "$export" .)
	changes=$(cd "$package" && "$apidiff" -incompatible "$export" .)
	[ -z "$changes" ] || { broken=1; printf '%s, since %s:\n%s\n' "$package" "$earlier" "$changes"; }
done
[ -n "$broken" ] || { echo "api: what compiled with $earlier compiles with this"; exit 0; }
if sed -n '/^## Unreleased/,/^## [0-9]/p' CHANGELOG.md | grep -q '^- Go API: '; then
	echo "api: the changelog tells how to upgrade"
	exit 0
fi
echo "api: these break programs: undo them, or tell in CHANGELOG.md how to upgrade, as \"- Go API: …\"" >&2
exit 1
