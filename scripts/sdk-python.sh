#!/usr/bin/env bash
# Lints and tests sdk/python, in an environment of its own under .cache. Where Python 3.10 or the registry is missing, it
# says so and does nothing. The arguments are the command that starts PostgreSQL and MariaDB around another, and the bridge.
set -euo pipefail
cd "$(dirname "$0")/.."
services=$1 bridge=$2
cache=$PWD/.cache

skip() {
	echo "sdk-python: $1, so the SDK for Python is not tested here"
	exit 0
}
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || skip "this machine has no Python 3.10 or later"

wanted=sdk/python/tests/requirements.txt
environment=$cache/sdk-python-$( (python3 --version && cat "$wanted") | sha256sum | cut -c1-12)
if [ ! -d "$environment" ]; then
	new=$(mktemp -d "$cache/sdk-python-new-XXXXXX")
	trap 'rm -rf "$new"' EXIT
	python3 -m venv "$new" || skip "python3 -m venv does not work (on Debian: python3-venv)"
	"$new/bin/python" -m pip install --quiet --disable-pip-version-check -r "$wanted" || skip "pip cannot get its libraries"
	mv -T "$new" "$environment" # It is used by its python alone: the scripts beside it name the old folder.
	trap - EXIT
fi

run() { "$environment/bin/python" -m "$@"; }
export RUFF_CACHE_DIR=$cache/ruff MYPY_CACHE_DIR=$cache/mypy PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$PWD/sdk/python/src
export DELAYBRIDGE_TEST_BRIDGE=$PWD/$bridge
cd sdk/python
run ruff check .
run ruff format --check --quiet .
run mypy
exec "$services" -only postgres,mariadb "$environment/bin/python" -m pytest
