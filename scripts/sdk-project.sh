#!/usr/bin/env bash
# Makes a project of the working folder, which is empty, as a user of the language does: installs an SDK's package and a client of
# NATS, takes the program, and compiles it. Afterwards ./run runs it. FOLDER is what sdk-package.sh has filled.
#
# usage: sdk-project.sh go|python|typescript|java FOLDER PROGRAM
set -euo pipefail
tree=$(realpath "$(dirname "$0")/..")
language=${1:?usage: sdk-project.sh LANGUAGE FOLDER PROGRAM} folder=${2:?} program=${3:?}
name=$(basename "$program")

case $language in
go)
	module=github.com/delaybridge/delaybridge
	version() { go list -C "$tree" -m -f '{{.Path}}@{{.Version}}' "$1"; }
	go mod init example.com/first 2>/dev/null
	# No registry has the modules yet, so this tree takes their place.
	go mod edit -require "$module/delay@v0.0.0" -replace "$module/delay=$tree/delay" -replace "$module/internal/engine=$tree/internal/engine"
	go get "$(version github.com/redis/go-redis/v9)" "$(version github.com/nats-io/nats.go)" 2>get.log || {
		cat get.log >&2
		exit 1
	}
	cp "$program" .
	go mod tidy 2>>get.log || {
		cat get.log >&2
		exit 1
	}
	go build -o first .
	run=(./first)
	;;
python)
	python3 -m venv venv
	venv/bin/python -m pip install --quiet --disable-pip-version-check "$folder"/*.whl nats-py==2.16.0
	cp "$program" .
	run=(venv/bin/python "$name")
	;;
typescript)
	npm init --yes >/dev/null
	npm install --silent --no-audit --no-fund "$folder"/*.tgz @nats-io/transport-node@3.4.0
	cp "$program" .
	run=(node "$name")
	;;
java)
	cp "$tree/sdk/java/examples/first/pom.xml" .
	mkdir -p src/main/java
	cp "$program" src/main/java/
	mvn -B -q -ntp -Dstyle.color=never "-Dpackages=file://$folder" ${MAVEN_LOCAL:+"-Dmaven.repo.local=$MAVEN_LOCAL"} compile dependency:copy-dependencies </dev/null
	run=(java -cp 'target/classes:target/dependency/*' "${name%.java}")
	;;
*)
	echo "sdk-project: there is no SDK for $language" >&2
	exit 2
	;;
esac
printf '#!/bin/sh\nexec%s "$@"\n' "$(printf " '%s'" "${run[@]}")" >run
chmod +x run
