#!/usr/bin/env bash
# Prints a folder under .cache with an environment for sdk/python, of the packages that its tests and examples need; makes
# it if it is not there. Where that cannot be, it says why and exits with 1.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$PWD/.cache

fail() {
	echo "sdk-python: $1" >&2
	exit 1
}
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || fail "this machine has no Python 3.10 or later"

wanted=sdk/python/tests/requirements.txt
environment=$cache/sdk-python-$( (python3 --version && cat "$wanted") | sha256sum | cut -c1-12)
if [ ! -d "$environment" ]; then
	new=$(mktemp -d "$cache/sdk-python-new-XXXXXX")
	trap 'rm -rf "$new"' EXIT
	python3 -m venv "$new" || fail "python3 -m venv does not work (on Debian: python3-venv)"
	"$new/bin/python" -m pip install --quiet --disable-pip-version-check -r "$wanted" || fail "pip cannot get its libraries"
	mv -T "$new" "$environment" # It is used by its python alone: the scripts beside it name the old folder.
	trap - EXIT
fi
echo "$environment"
