#!/usr/bin/env bash
# Builds what would be published of one SDK into a folder: a wheel, a tarball of npm, or a repository of Maven. Go has its
# modules in this tree.
#
# usage: sdk-package.sh go|python|typescript|java FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
language=${1:?usage: sdk-package.sh LANGUAGE FOLDER} folder=$(realpath "${2:?usage: sdk-package.sh LANGUAGE FOLDER}")

case $language in
go) ;;
python)
	environment=$(scripts/sdk-python-environment.sh)
	"$environment/bin/python" -m build --no-isolation --wheel --outdir "$folder" sdk/python >/dev/null
	;;
typescript)
	scripts/sdk-typescript-tools.sh
	(cd sdk/typescript && npm pack --silent --pack-destination "$folder" >/dev/null)
	;;
java)
	mvn -B -q -ntp -Dstyle.color=never -f sdk/java -pl delaybridge -am deploy -DskipTests -Dmaven.javadoc.skip -Dmaven.source.skip \
		-DaltDeploymentRepository="packages::file://$folder" </dev/null
	;;
*)
	echo "sdk-package: there is no SDK for $language" >&2
	exit 2
	;;
esac
