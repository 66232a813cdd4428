#!/usr/bin/env bash
# Lints and tests sdk/python, in an environment of its own under .cache. Where Python 3.10 or the registry is missing, it
# says so and does nothing. The arguments are the command that starts PostgreSQL and MariaDB around another, and the bridge.
set -euo pipefail
cd "$(dirname "$0")/.."
services=$1 bridge=$2
cache=$PWD/.cache

environment=$(scripts/sdk-python-environment.sh) || {
	echo "sdk-python: the SDK for Python is not tested here"
	exit 0
}
run() { "$environment/bin/python" -m "$@"; }
export RUFF_CACHE_DIR=$cache/ruff MYPY_CACHE_DIR=$cache/mypy PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$PWD/sdk/python/src
export DELAYBRIDGE_TEST_BRIDGE=$PWD/$bridge
cd sdk/python
run ruff check .
run ruff format --check --quiet .
run mypy
exec "$services" -only postgres,mariadb "$environment/bin/python" -m pytest
