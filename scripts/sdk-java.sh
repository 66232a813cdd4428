#!/usr/bin/env bash
# Compiles and tests sdk/java, publishes its packages into a folder, and tests a project that takes them from there.
# Where a JDK 17, Maven or the registry is missing, it says so and does nothing. The arguments are the command that starts
# PostgreSQL and MariaDB around another, and the bridge.
set -euo pipefail
cd "$(dirname "$0")/.."
services=$1
# None of these JVMs lives long enough for the second compiler to pay: it takes half of the time.
export JDK_JAVA_OPTIONS="${JDK_JAVA_OPTIONS:-} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
export DELAYBRIDGE_TEST_BRIDGE=$PWD/$2 DELAYBRIDGE_BRIDGE=$PWD/$2

skip() {
	echo "sdk-java: $1, so the SDK for Java is not tested here"
	[ "${CI:-}" != true ] || exit 1 # There it must be.
	exit 0
}
for program in javac mvn; do
	command -v "$program" >/dev/null || skip "this machine has no $program"
done
version=$(javac -version 2>&1 | sed -E 's/^javac ([0-9]+).*/\1/')
[ "$version" -ge 17 ] || skip "this machine has no JDK 17 or later"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
maven=(mvn -B -q -ntp -Dstyle.color=never)

if ! "${maven[@]}" -f sdk/java test-compile >"$work/log"; then
	! grep -qE 'Could not transfer artifact|was not found in .* during a previous attempt|in offline mode' "$work/log" || skip "Maven cannot get its libraries"
	cat "$work/log"
	exit 1
fi
"$services" -only postgres,mariadb "${maven[@]}" -f sdk/java deploy -DaltDeploymentRepository="published::file://$work/published"

# An empty local repository, which takes from the folder, and all others' packages from the machine's own.
local=$("${maven[@]}" -f sdk/java -N help:evaluate -Dexpression=settings.localRepository -DforceStdout | sed 's/\x1b\[[0-9;]*m//g')
repository() { echo "<$1><id>$2</id><url>file://$3</url></$1>"; }
cat >"$work/settings.xml" <<XML
<settings><profiles><profile><id>own</id>
<repositories>$(repository repository published "$work/published")$(repository repository central "$local")</repositories>
<pluginRepositories>$(repository pluginRepository central "$local")</pluginRepositories>
</profile></profiles><activeProfiles><activeProfile>own</activeProfile></activeProfiles></settings>
XML
cp -r sdk/java/examples/reminder "$work/project"
"${maven[@]}" -s "$work/settings.xml" -Dmaven.repo.local="$work/local" -f "$work/project" test
