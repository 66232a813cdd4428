#!/usr/bin/env bash
# Starts Kafka, Redis, a bridge, and a consumer that has some messages delivered again, and shows what becomes of them; Ctrl-C
# ends all of it. It needs Go, Node 20 and Java (make provision).
set -euo pipefail
cd "$(dirname "$0")/../../../.."
make --no-print-directory services build
export DELAYBRIDGE_TEST_BRIDGE=$PWD/bin/bridge
services=$PWD/.cache/bin/services
cd sdk/typescript
[ -d node_modules ] || npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
npm run --silent compile
exec "$services" -only kafka,redis node build/examples/retries-kafka/try.js
