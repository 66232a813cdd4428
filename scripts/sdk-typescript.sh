#!/usr/bin/env bash
# Lints, builds and tests sdk/typescript. Where Node 20 or the registry is missing, it says so and does nothing. The
# arguments are the command that starts Redis, Kafka, PostgreSQL and MariaDB around another, and the bridge.
set -euo pipefail
cd "$(dirname "$0")/.."
services=$1
cache=$PWD/.cache
export DELAYBRIDGE_TEST_BRIDGE=$PWD/$2
cd sdk/typescript

skip() {
	echo "sdk-typescript: $1, so the SDK for TypeScript is not tested here"
	exit 0
}
for program in node npm; do
	command -v "$program" >/dev/null || skip "this machine has no $program"
done
[ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] || skip "this machine has no Node 20 or later"

# The tools are fetched once a version of the lock.
locked=$(sha256sum package.json package-lock.json)
if [ "$(cat node_modules/.locked 2>/dev/null)" != "$locked" ]; then
	npm ci --cache "$cache/npm" --ignore-scripts --no-audit --no-fund --loglevel=error || skip "npm cannot get its tools"
	echo "$locked" >node_modules/.locked
fi

npm run --silent lint
exec "$services" -only redis,kafka,postgres,mariadb npm run --silent test
