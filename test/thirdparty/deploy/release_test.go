package deploy

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// releaseConfig is what .goreleaser.yaml says about files of ours.
type releaseConfig struct {
	Builds []struct{ Main string }
	NFPMs  []struct {
		Scripts  map[string]string
		Contents []struct{ Src, Dst string }
	}
	Images []struct{ Dockerfile string } `json:"dockers_v2"`
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(root + file)
	require.NoError(t, err)
	return string(text)
}

func readReleaseConfig(t *testing.T) releaseConfig {
	t.Helper()
	var config releaseConfig
	require.NoError(t, yaml.Unmarshal([]byte(readText(t, ".goreleaser.yaml")), &config))
	return config
}

// TestReleaseNamesWhatThereIs: programs, and files of packages, which are in the repository or
// made by the script.
func TestReleaseNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	config := readReleaseConfig(t)
	require.NotEmpty(t, config.Builds)
	for _, build := range config.Builds {
		assert.DirExists(t, root+build.Main)
	}
	made := regexp.MustCompile(`^bin/package/delaybridge\.(1\.gz|bash|zsh|fish|service)$`)
	require.Len(t, config.NFPMs, 1)
	for _, script := range config.NFPMs[0].Scripts {
		assert.FileExists(t, root+script)
	}
	require.NotEmpty(t, config.NFPMs[0].Contents)
	for _, content := range config.NFPMs[0].Contents {
		switch {
		case content.Src == "": // a folder
		case strings.HasPrefix(content.Src, "bin/"):
			assert.Regexp(t, made, content.Src)
		default:
			assert.FileExists(t, root+content.Src)
		}
		assert.True(t, path.IsAbs(content.Dst), content.Dst)
	}
}

// TestReleaseImage is the one that deploy/Dockerfile makes of the source, on the same base, which
// a digest names.
func TestReleaseImage(t *testing.T) {
	t.Parallel()
	config := readReleaseConfig(t)
	require.Len(t, config.Images, 1)
	base := regexp.MustCompile(`(?m)^FROM (gcr\.io/distroless/static-debian12:nonroot@sha256:[0-9a-f]{64})\b`)
	settings := func(text string) (found []string) {
		return regexp.MustCompile(`(?m)^(?:EXPOSE|ENTRYPOINT|CMD|USER) .*$`).FindAllString(text, -1)
	}
	ofRelease, ofSource := readText(t, config.Images[0].Dockerfile), readText(t, "deploy/Dockerfile")
	_, last, isThere := strings.Cut(ofSource, " AS bridge\n")
	require.True(t, isThere)
	assert.Equal(t, settings(last), settings(ofRelease))
	want := base.FindStringSubmatch(ofRelease)
	require.NotNil(t, want, "a tag may change, a digest does not")
	for _, found := range regexp.MustCompile(`(?m)^FROM (gcr\.io/\S+)`).FindAllStringSubmatch(ofSource, -1) {
		assert.Equal(t, want[1], found[1])
	}
}

// TestUnitOfPackages: the script replaces the program of the unit, which packages have elsewhere.
func TestUnitOfPackages(t *testing.T) {
	t.Parallel()
	assert.Contains(t, readText(t, "scripts/package.sh"), "s,/usr/local/bin/bridge,/usr/bin/delaybridge,")
	assert.Equal(t, 2, strings.Count(readText(t, "deploy/systemd/delaybridge.service"), "/usr/local/bin/bridge "))
}
