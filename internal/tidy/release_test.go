package tidy_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// checkout is a copy of the repository with a history of its own, and a key that signs.
type checkout struct {
	t   *testing.T
	dir string
	env []string
}

func newCheckout(t *testing.T) *checkout {
	t.Helper()
	c := &checkout{t: t, dir: t.TempDir(), env: os.Environ()}
	for _, file := range files(t, "") {
		target := filepath.Join(c.dir, filepath.FromSlash(file))
		require.NoError(t, os.MkdirAll(filepath.Dir(target), 0o755))
		info, err := os.Stat(filepath.Join(repository, filepath.FromSlash(file)))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(target, read(t, file), info.Mode()))
	}
	key := filepath.Join(t.TempDir(), "key")
	c.must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	for _, words := range [][]string{
		{"init", "--initial-branch=main"},
		{"config", "user.name", "a maintainer"},
		{"config", "user.email", "maintainer@example.com"},
		{"config", "gpg.format", "ssh"},
		{"config", "user.signingkey", key},
		{"add", "--all"},
		{"commit", "--quiet", "--message=all"},
	} {
		c.must("git", words...)
	}
	return c
}

// run runs a program in the checkout and returns what it prints.
func (c *checkout) run(program string, args ...string) (string, error) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), program, args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// must is run for what has to end well.
func (c *checkout) must(program string, args ...string) string {
	c.t.Helper()
	out, err := c.run(program, args...)
	require.NoError(c.t, err, "%s %v: %s", program, args, out)
	return out
}

// edit replaces the first text in a file that the pattern matches, and commits.
func (c *checkout) edit(file, pattern, with string) {
	c.t.Helper()
	name := filepath.Join(c.dir, filepath.FromSlash(file))
	before, err := os.ReadFile(name)
	require.NoError(c.t, err)
	found := regexp.MustCompile(pattern).Find(before)
	require.NotNil(c.t, found, "%s: %s", file, pattern)
	require.NoError(c.t, os.WriteFile(name, []byte(strings.Replace(string(before), string(found), with, 1)), 0o644))
	c.must("git", "commit", "--quiet", "--all", "--message="+file)
}

// stranger is a folder elsewhere, of somebody who gets our modules from the checkout's
// tags, and all others from what is in the module cache or the proxy. Its own cache begins with links to all
// modules but ours, since to unpack them takes longer than all else.
func (c *checkout) stranger() *checkout {
	c.t.Helper()
	cache := c.must("go", "env", "GOMODCACHE")
	proxy := c.must("go", "env", "GOPROXY")
	own := c.t.TempDir()
	for _, dir := range []string{"", "github.com", "cache/download", "cache/download/github.com"} {
		linkAll(c.t, filepath.Join(cache, dir), filepath.Join(own, dir), "cache", "github.com", path.Base(path.Dir(ourModule)), "lock", "vcs")
	}
	return &checkout{t: c.t, dir: c.t.TempDir(), env: append(os.Environ(),
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+c.dir+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+ourModule,
		"GOPRIVATE="+ourModule, "GOPROXY=file://"+cache+"/cache/download,"+proxy,
		"GOMODCACHE="+own, "GOFLAGS=-modcacherw")}
}

// linkAll makes links to all files of a folder in another one, but to those of these names.
func linkAll(t *testing.T, from, to string, but ...string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(to, 0o755))
	entries, err := os.ReadDir(from)
	require.NoError(t, err)
	for _, entry := range entries {
		if !slices.Contains(but, entry.Name()) {
			require.NoError(t, os.Symlink(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())))
		}
	}
}

// TestReleaseIsInstalled: the tags that scripts/release.sh makes are what `go install` and
// `go get` take, and a release that fails leaves nothing behind.
func TestReleaseIsInstalled(t *testing.T) {
	t.Parallel()
	c := newCheckout(t)
	const version, release = "v1.987.6", "scripts/release.sh"
	refused := func(why string, args ...string) {
		t.Helper()
		before := c.must("git", "rev-parse", "HEAD")
		tags := c.must("git", "tag")
		out, err := c.run(release, args...)
		require.Error(t, err)
		assert.Contains(t, out, why)
		assert.Equal(t, before, c.must("git", "rev-parse", "HEAD"))
		assert.Equal(t, tags, c.must("git", "tag"))
		assert.Empty(t, c.must("git", "status", "--porcelain"))
	}
	refused(`a version is like v0.1.0 or v0.1.0-rc.1, not ""`)
	refused(`not "1.0"`, "1.0")
	refused("CHANGELOG.md has no heading", version)
	c.edit("CHANGELOG.md", `(?m)^## Unreleased$`, "## Unreleased\n\n## 1.987.6 (2026-12-01)")
	refused("appVersion in deploy/helm/delaybridge/Chart.yaml is not 1.987.6", version)
	c.edit("deploy/helm/delaybridge/Chart.yaml", `(?m)^appVersion: .*$`, `appVersion: "1.987.6"`)
	c.must("git", "tag", "delay/"+version)
	refused("the tag delay/v1.987.6 is there", version)
	c.must("git", "tag", "--delete", "delay/"+version)
	key := c.must("git", "config", "user.signingkey")
	c.must("git", "config", "user.signingkey", key+"-lost")
	refused("is not signed", version)
	c.must("git", "config", "user.signingkey", key)

	out := c.must(release, version)
	assert.Contains(t, out, "git push origin "+version)
	assert.Empty(t, c.must("git", "status", "--porcelain"))
	assert.Empty(t, c.must("git", "diff", "HEAD^^", "HEAD", "--", "go.sum"), "the commit after it is as the one before")
	assert.NotContains(t, c.must("git", "show", version+":go.mod"), "replace")
	assert.Contains(t, c.must("git", "show", "HEAD:go.mod"), "replace")
	tagged := c.must("git", "rev-parse", version+"^{}")
	assert.Equal(t, c.must("git", "rev-parse", "HEAD^"), tagged)
	for dir := range sdk {
		assert.Equal(t, tagged, c.must("git", "rev-parse", dir+"/"+version+"^{}"), dir)
	}
	refused("is there, and a tag is never moved", version)

	s := c.stranger()
	s.must("go", "install", "-n", ourModule+"/cmd/bridge@latest") // It plans all, and builds nothing.
	s.must("go", "mod", "init", "example.com/producer")
	for module, packages := range map[string][]string{"delay": {"", "/delaytest"}, "delay/outbox": {"", "/pgxtx"}} {
		for _, name := range packages {
			s.must("go", "get", ourModule+"/"+module+name+"@latest")
			assert.Contains(t, s.must("go", "list", "-m", ourModule+"/"+module), version)
			s.must("go", "list", "-deps", ourModule+"/"+module+name)
		}
	}
}
