#!/usr/bin/env bash
# Measures the time from an empty folder to a message that was scheduled and received: for each language it makes a project with
# the package of this tree, and runs the first program of docs/sdk beside bridge dev. Each runs twice: with
# empty caches of packages and compilers ("cold"), and in another empty folder with the same caches ("warm").
#
# Registries are those that the tools' own settings name: GOPROXY, GOSUMDB and GOPRIVATE; PIP_INDEX_URL, PIP_EXTRA_INDEX_URL
# and pip.conf; npm_config_registry and .npmrc; settings.xml and MAVEN_ARGS. The caches are its own.
#
# usage: from-nothing.sh go|python|typescript|java|all [BRIDGE]
set -euo pipefail
tree=$(realpath "$(dirname "$0")/..")
languages=("${1:?usage: from-nothing.sh LANGUAGE|all [BRIDGE]}")
[ "${languages[0]}" != all ] || languages=(go python typescript java)

work=$(mktemp -d)
dev=
clean() {
	[ -z "$dev" ] || { kill "$dev" && wait "$dev"; } 2>/dev/null || true
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM
bridge=$(realpath "${2:-$work/bridge}")
[ -n "${2:-}" ] || go build -C "$tree" -o "$bridge" ./cmd/bridge

declare -A programs=(
	[go]=$tree/sdk/go/examples/first/main.go
	[python]=$tree/sdk/python/examples/first.py
	[typescript]=$tree/sdk/typescript/examples/first.mjs
	[java]=$tree/sdk/java/examples/first/src/main/java/First.java
)
now() { echo "${EPOCHREALTIME/[^0-9]/}"; }
since() { awk -v from="$1" -v to="$(now)" 'BEGIN { printf "%.1f", (to - from) / 1e6 }'; }

# With the machine's own caches it would not be from nothing.
export GOMODCACHE=$work/cache/go/mod GOCACHE=$work/cache/go/build GOFLAGS=-modcacherw GOTOOLCHAIN=local GOWORK=off
export PIP_CACHE_DIR=$work/cache/pip npm_config_cache=$work/cache/npm MAVEN_LOCAL=$work/cache/maven

begin=$(now)
# With --memory nothing else need be installed.
(cd "$work" && exec "$bridge" dev --memory) >"$work/dev.log" 2>&1 &
dev=$!
until grep -q 'Ctrl-C ends it' "$work/dev.log"; do
	kill -0 "$dev" 2>/dev/null || { cat "$work/dev.log" >&2 && exit 1; }
	read -rt 0.05 <> <(:) || true
done
printf 'bridge dev is up after %s s; load average %s\n\n' "$(since "$begin")" "$(cut -d' ' -f1 /proc/loadavg)"
address() { sed -n "s/^ *$1 *\\([a-z]*:\\/\\/[^ ]*\\).*/\\1/p" "$work/dev.log" | head -1; }
redis=$(address Redis) nats=$(address NATS) console=$(address Console)

echo '| language | caches | installed, s | scheduled after, s | received after, s | in all, s | lines |'
echo '| --- | --- | ---: | ---: | ---: | ---: | ---: |'
for language in "${languages[@]}"; do
	program=${programs[$language]:?there is no SDK for $language}
	lines=$(grep -cvE '^[[:space:]]*($|//|/\*|\*|"""|#)' "$program")
	mkdir "$work/package-$language"
	# The packages are built beforehand, with the machine's own caches.
	env -u GOMODCACHE -u GOCACHE -u PIP_CACHE_DIR -u npm_config_cache "$tree/scripts/sdk-package.sh" "$language" "$work/package-$language" >&2
	for caches in cold warm; do
		mkdir "$work/$language-$caches"
		cd "$work/$language-$caches"
		begin=$(now)
		"$tree/scripts/sdk-project.sh" "$language" "$work/package-$language" "$program" >&2
		installed=$(since "$begin") server=$console scheduled='' received=''
		[ "$language" != go ] || server=$redis # The SDK for Go needs no bridge to schedule.
		running=$(now)
		while read -r what _; do
			case $what in
			scheduled) scheduled=$(since "$running") ;;
			received) received=$(since "$running") ;;
			esac
		done < <(./run "$server" "$nats")
		[ -n "$received" ] || { echo "from-nothing: no message was received in $language" >&2 && exit 1; }
		echo "| $language | $caches | $installed | $scheduled | $received | $(since "$begin") | $lines |"
	done
done
