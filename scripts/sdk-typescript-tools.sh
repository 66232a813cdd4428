#!/usr/bin/env bash
# Fetches the tools of sdk/typescript into its node_modules, once a version of the lock. Where that cannot be, it says why
# and exits with 1.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$PWD/.cache
cd sdk/typescript

fail() {
	echo "sdk-typescript: $1" >&2
	exit 1
}
for program in node npm; do
	command -v "$program" >/dev/null || fail "this machine has no $program"
done
[ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] || fail "this machine has no Node 20 or later"

locked=$(sha256sum package.json package-lock.json)
if [ "$(cat node_modules/.locked 2>/dev/null)" != "$locked" ]; then
	npm ci --cache "$cache/npm" --ignore-scripts --no-audit --no-fund --loglevel=error || fail "npm cannot get its tools"
	echo "$locked" >node_modules/.locked
fi
