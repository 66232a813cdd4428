#!/usr/bin/env bash
# Builds the programs of the commit twice, as a release does, from two clones in two
# places with nothing cached, and fails unless all bytes agree. Takes minutes.
#
# usage: reproducible.sh [SYSTEM/ARCHITECTURE...], all without any
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

scratch=$(mktemp -d)
trap 'chmod -R u+w "$scratch" && rm -rf "$scratch"' EXIT
for place in one/here two/somewhere/else; do
	mkdir -p "$scratch/$place"
	git clone -q . "$scratch/$place/source"
	git -C "$scratch/$place/source" checkout -q "$(git rev-parse HEAD)"
	for system in "$@"; do
		echo "reproducible: $system" >&2
		for tags in production ""; do
			GOCACHE=$scratch/$place/cache CGO_ENABLED=0 GOOS=${system%/*} GOARCH=${system#*/} go build -C "$scratch/$place/source" \
				-trimpath -tags "$tags" -ldflags "-s -w" -o "$scratch/$place/bridge-${system/\//-}-${tags:-dev}" ./cmd/bridge
		done
	done
	(cd "$scratch/$place" && sha256sum bridge*) >"$scratch/${place%%/*}.sums"
done
diff "$scratch/one.sums" "$scratch/two.sums"
cat "$scratch/one.sums"
