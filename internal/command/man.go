package command

import (
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

type manCommand struct{}

func (manCommand) Help() string {
	return `It is made of what --help knows, and has every command with all of its flags.

Example:

    bridge man | man -l -
    bridge man > /usr/local/share/man/man1/bridge.1`
}

func (manCommand) Run(p *program, parser *kong.Kong) error {
	m := &manual{name: parser.Model.Name, version: p.version()}
	m.page(parser.Model)
	_, err := io.WriteString(p.stdout, m.roff.String())
	return err
}

// manual writes a page in the macros of man(7).
type manual struct {
	name, version string
	roff          strings.Builder
}

func (m *manual) page(app *kong.Application) {
	m.macro("TH", strings.ToUpper(m.name), "1", "", "delaybridge "+m.version, "User Commands")
	m.macro("SH", "NAME")
	m.line(m.name + " - " + strings.ToLower(app.Help[:1]) + strings.TrimSuffix(app.Help[1:], "."))
	m.macro("SH", "SYNOPSIS")
	m.macro("B", m.name)
	m.line("<command> [flags]")
	m.macro("SH", "COMMANDS")
	for _, command := range app.Leaves(true) {
		m.command(command)
	}
	m.macro("SH", "ENVIRONMENT")
	m.entry(configVariable, "The configuration file, where no --config names one.")
	m.macro("SH", "EXIT STATUS")
	m.entry("0", "Done.")
	m.entry("1", "Redis, a broker or something else failed.")
	m.entry("2", "The command line or the configuration is wrong.")
	m.entry("3", "The message's state does not allow it.")
	m.macro("SH", "SEE ALSO")
	m.line("https://github.com/delaybridge/delaybridge")
}

func (m *manual) command(command *kong.Node) {
	m.macro("SS", m.name+" "+usage(command))
	m.text(command.Help)
	if command.Detail != "" {
		m.macro("PP")
		m.text(command.Detail)
	}
	for _, argument := range command.Positional {
		m.entry(argument.Summary(), argument.Help)
	}
	for _, flags := range command.AllFlags(true) {
		for _, flag := range flags {
			if flag.Name != "help" {
				m.entry(flag.String(), flag.Help)
			}
		}
	}
}

// entry is an indented paragraph below a term.
func (m *manual) entry(term, text string) {
	m.macro("TP")
	m.macro("B", term)
	m.line(text)
}

// text writes paragraphs. Lines that are indented are examples, and stay as they are.
func (m *manual) text(text string) {
	isExample := false
	for line := range strings.SplitSeq(text, "\n") {
		example, isIndented := strings.CutPrefix(line, "    ")
		switch {
		case isIndented && !isExample:
			m.macro("EX")
		case !isIndented && isExample:
			m.macro("EE")
		}
		isExample = isIndented
		if line == "" {
			m.macro("PP")
		} else {
			m.line(example)
		}
	}
	if isExample {
		m.macro("EE")
	}
}

// escape keeps a text literal, since nobody could copy a command whose hyphens became dashes or curly quotes.
var escape = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

func (m *manual) macro(name string, args ...string) {
	m.roff.WriteString("." + name)
	for _, arg := range args {
		m.roff.WriteString(` "` + strings.ReplaceAll(escape.Replace(arg), `"`, `\(dq`) + `"`)
	}
	m.roff.WriteString("\n")
}

// line writes one line of text, which is no macro however it begins.
func (m *manual) line(text string) {
	m.roff.WriteString(`\&` + escape.Replace(text) + "\n")
}
