#!/usr/bin/env bash
# Lints, builds and tests sdk/typescript. Where Node 20 or the registry is missing, it says so and does nothing. The
# arguments are the command that starts Redis, Kafka, PostgreSQL and MariaDB around another, and the bridge.
set -euo pipefail
cd "$(dirname "$0")/.."
services=$1
export DELAYBRIDGE_TEST_BRIDGE=$PWD/$2

scripts/sdk-typescript-tools.sh || {
	echo "sdk-typescript: the SDK for TypeScript is not tested here"
	exit 0
}
cd sdk/typescript
npm run --silent lint
exec "$services" -only redis,kafka,postgres,mariadb npm run --silent test
