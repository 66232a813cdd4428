#!/usr/bin/env bash
# Starts PostgreSQL, a bridge with NATS, and the shop, to try it out; Ctrl-C ends all of it. It needs Go, Java 17, Maven
# and PostgreSQL's programs (make provision).
set -euo pipefail
cd "$(dirname "$0")/../../../.."
make --no-print-directory services build
export DELAYBRIDGE_BRIDGE=$PWD/bin/bridge
exec .cache/bin/services -only postgres mvn -q -f sdk/java -pl examples/order-timeout-spring -am \
	org.springframework.boot:spring-boot-maven-plugin:3.5.7:test-run
