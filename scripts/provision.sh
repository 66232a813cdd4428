#!/usr/bin/env bash
# Installs the system packages that the tests need and that are not there yet.
# No service of theirs is started, now or later by this script, and nothing is
# removed for them (MySQL cannot be beside MariaDB). Needs Debian or a relative
# of it, and root or a sudo that asks no password; otherwise it prints the one
# line to run and exits 2.
set -euo pipefail

# A package, and the file (a pattern) or command that shows that it is there.
# The race detector needs a C compiler.
needs=(
	redis-server=redis-server
	rabbitmq-server=/usr/lib/rabbitmq/bin/rabbitmq-server
	default-jdk-headless=javac
	maven=mvn
	postgresql=/usr/lib/postgresql/*/bin/initdb
	mariadb-server=/usr/bin/mariadbd-safe
	chromium=chromium
	systemd=systemd-analyze
	gcc=gcc
	openssh-client=ssh-keygen
	python3-venv=python3
	curl=curl
	jq=jq
	openssl=openssl
	groff-base=groff
	libc6-dev=/usr/include/stdlib.h
)

missing=()
for need in "${needs[@]}"; do
	shown=${need#*=}
	compgen -G "$shown" >/dev/null || command -v "$shown" >/dev/null || missing+=("${need%%=*}")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

by_hand() {
	echo "provision: $1; as root, run: apt-get update && apt-get install -y --no-install-recommends --no-remove ${missing[*]}" >&2
	exit 2
}
command -v apt-get >/dev/null || by_hand "no apt-get here"
root=()
if [ "$(id -u)" -ne 0 ]; then
	sudo -n true 2>/dev/null || by_hand "neither root nor a passwordless sudo"
	root=(sudo -n)
fi

# invoke-rc.d asks this script before it starts a service; 101 means no. Without
# the other file PostgreSQL's package makes a database cluster in /var/lib.
policy=/usr/sbin/policy-rc.d
no_cluster=/etc/postgresql-common/createcluster.d/delaybridge.conf
saved=$(mktemp -d)
restore() {
	"${root[@]}" rm -f "$policy" "$no_cluster"
	"${root[@]}" rmdir "${no_cluster%/*}" 2>/dev/null || true # it stays where it holds more
	if [ -e "$saved/policy" ]; then "${root[@]}" cp -p "$saved/policy" "$policy"; fi
	"${root[@]}" rm -rf "$saved"
}
if [ -e "$policy" ]; then "${root[@]}" cp -p "$policy" "$saved/policy"; fi
trap restore EXIT
printf '#!/bin/sh\nexit 101\n' >"$saved/refuse"
"${root[@]}" install -m 755 "$saved/refuse" "$policy"
echo 'create_main_cluster = false' >"$saved/no_cluster"
"${root[@]}" install -D -m 644 "$saved/no_cluster" "$no_cluster"

echo "provision: installing ${missing[*]}" >&2
"${root[@]}" apt-get update -q
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends --no-remove "${missing[@]}"
