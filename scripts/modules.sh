#!/usr/bin/env bash
# Sets the version by which the modules of the repository require each other, as a
# release needs it, and prints the tags that its commit gets: scripts/modules.sh v0.1.0
set -euo pipefail
version=${1:-}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || { echo "usage: $0 v0.1.0; got \"$version\"" >&2; exit 2; }
cd "$(dirname "$0")/.."
root=$(go list -m)
git ls-files -- go.mod '*/go.mod' | xargs sed -i -E "s#($root(/[^ ]+)?) v[^ ]+#\1 $version#"
echo "$version"
for module in internal/sharding internal/engine delay delay/outbox delay/delaytest; do
	echo "$module/$version"
done
