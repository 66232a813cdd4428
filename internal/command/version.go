package command

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCommand struct{}

func (versionCommand) Run(p *program) error {
	_, err := fmt.Fprintf(p.stdout, "bridge %s (%s, %s, %s/%s)\n", p.version(), commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// version is a tag, or what Go makes of the commit: v0.0.0-<time>-<commit>.
func (p *program) version() string {
	if p.release != "" {
		return p.release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown)"
	}
	return info.Main.Version
}

// commit is the one that was built, and whether files differ from it.
func commit() string {
	settings := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			settings[setting.Key] = setting.Value
		}
	}
	text := "commit " + cmp.Or(settings["vcs.revision"], "unknown")
	if settings["vcs.modified"] == "true" {
		text += " and changes"
	}
	return text
}
