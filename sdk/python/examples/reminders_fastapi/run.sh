#!/usr/bin/env bash
# Starts PostgreSQL, a bridge with NATS, and the reminders, to try them out; Ctrl-C ends all of it. It needs Go, Python 3.10
# and PostgreSQL's programs (make provision).
set -euo pipefail
cd "$(dirname "$0")/../../../.."
make --no-print-directory services build
environment=$(scripts/sdk-python-environment.sh)
export DELAYBRIDGE_TEST_BRIDGE=$PWD/bin/bridge PYTHONPATH=$PWD/sdk/python/src:$PWD/sdk/python/examples PYTHONDONTWRITEBYTECODE=1
exec .cache/bin/services -only postgres "$environment/bin/python" -m reminders_fastapi
