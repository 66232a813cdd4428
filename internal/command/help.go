package command

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// printHelp is kong's help, but for the usage of a command: see usage.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	if command := ctx.Selected(); command != nil {
		options.NoAppSummary = true
		if _, err := fmt.Fprintf(ctx.Stdout, "Usage: %s %s\n", ctx.Model.Name, usage(command)); err != nil {
			return err
		}
	}
	return kong.DefaultHelpPrinter(options, ctx)
}

// usage shows flags of which one is needed as one: (--in=DURATION | --at=TIME). kong's own
// summary reads as if all were.
func usage(command *kong.Node) string {
	groups := map[string][]string{}
	for _, flags := range command.AllFlags(true) {
		for _, flag := range flags {
			for _, group := range flag.Xor {
				if flag.Required {
					groups[group] = append(groups[group], flag.Summary())
				}
			}
		}
	}
	line := command.Summary()
	for _, group := range groups {
		line = strings.Replace(line, strings.Join(group, " "), "("+strings.Join(group, " | ")+")", 1)
	}
	return line
}
