#!/usr/bin/env bash
# Makes what archives and packages hold besides the programs, in bin/package: the
# manual page and completions under both names of the program, and the unit of
# packages, which have it elsewhere. The release's hook calls it.
#
# usage: package.sh VERSION
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?usage: package.sh VERSION}

out=bin/package
rm -rf "$out"
mkdir -p "$out/programs"
CGO_ENABLED=0 go build -trimpath -tags production -ldflags "-X main.release=$version" -o "$out/programs/bridge" ./cmd/bridge
ln "$out/programs/bridge" "$out/programs/delaybridge"
for name in bridge delaybridge; do
	program=$out/programs/$name
	"$program" man >"$out/$name.1"
	gzip -9 -n -k "$out/$name.1"
	for shell in bash zsh fish; do
		"$program" completion "$shell" >"$out/$name.$shell"
	done
done
sed 's,/usr/local/bin/bridge,/usr/bin/delaybridge,' deploy/systemd/delaybridge.service >"$out/delaybridge.service"
rm -r "$out/programs"
