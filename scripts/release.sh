#!/usr/bin/env bash
# Makes the commit of a release with its tags, which are signed, and the commit after it.
# It pushes nothing, but prints how. docs/releases.md says what comes before and after.
#
# In a release all modules of the repository require each other at its version, and the
# root does not replace them by its folders: `go install` refuses a module that does. The
# commit after it replaces them again, since changes go through several at once.
#
# usage: release.sh v0.1.0
set -euo pipefail
fail() { echo "release.sh: $1" >&2; exit 2; }
version=${1:-}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || fail "a version is like v0.1.0 or v0.1.0-rc.1, not \"$version\""
cd "$(dirname "$0")/.."
[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
grep -q "^## ${version#v} " CHANGELOG.md || fail "CHANGELOG.md has no heading \"## ${version#v} (date)\""
grep -q "^appVersion: \"\?${version#v}\"\?$" deploy/helm/delaybridge/Chart.yaml || fail "appVersion in deploy/helm/delaybridge/Chart.yaml is not ${version#v}"

root=$(go list -m)
modules=(internal/engine delay delay/outbox)
tags=("${modules[@]/%//$version}" "$version")
for tag in "${tags[@]}"; do
	! git rev-parse -q --verify "refs/tags/$tag" >/dev/null || fail "the tag $tag is there, and a tag is never moved"
done
scratch=$(mktemp -d)
before=$(git rev-parse HEAD)
finished=
finish() {
	rm -rf "$scratch"
	[ -z "$finished" ] || return 0
	echo "release.sh: failed; everything is as before" >&2
	git reset -q --hard "$before"
	git tag --delete "${tags[@]}" >/dev/null 2>&1 || true
}
trap finish EXIT

# sign makes a signed tag. Git 2.39 says that it cannot sign, and makes the tag all the same.
sign() {
	git tag --force --sign -m "$1" "$1" >/dev/null
	git cat-file tag "$1" | grep -q "^-----BEGIN .*SIGNATURE-----" || fail "the tag $1 is not signed"
}
sign "$version" # Whether it can, before all else.

git ls-files -- go.mod '*/go.mod' | xargs sed -i -E "s#($root(/[^ ]+)?) v[^ ]+#\1 $version#"
cp go.mod go.sum "$scratch"
git commit -q -a -m "release $version"

# go.sum of the root needs the hashes of the others as their tags have them. These do not
# depend on the root, so the commit may change after that.
for module in "${modules[@]}"; do
	git tag --no-sign "$module/$version"
	go mod edit -dropreplace "$root/$module"
done
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$PWD.insteadOf" GIT_CONFIG_VALUE_0="https://$root" GOPRIVATE=$root \
	GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)" GOMODCACHE=$scratch/modules GOFLAGS=-modcacherw \
	go mod tidy
git commit -q -a --amend --no-edit
for tag in "${tags[@]}"; do
	sign "$tag"
done

cp "$scratch/go.mod" "$scratch/go.sum" .
git commit -q -a -m "go.mod: the folders stand for the modules again"
finished=1
echo "Look at them, then push. The release is made of the last tag, which needs the others:"
echo "    git push origin HEAD ${tags[*]:0:${#modules[@]}}"
echo "    git push origin $version"
