package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/delaybridge/delaybridge/internal/config"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

func (completionCommand) Help() string {
	return `It completes queues of the file that --config or DELAYBRIDGE_CONFIG names, and declared ones of the bridge that --url or that file names.

Example:

    bridge completion bash > /etc/bash_completion.d/bridge
    bridge completion zsh > "${fpath[1]}/_bridge"
    bridge completion fish > ~/.config/fish/completions/bridge.fish`
}

// completions ask the program itself, so that they never grow old.
var completions = map[string]string{
	"bash": `_bridge() {
    local IFS=$'\n'
    COMPREPLY=($(bridge __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _bridge bridge
`,
	"zsh": `#compdef bridge
_bridge() {
    local -a found
    found=(${(f)"$(bridge __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -- $found; else _files; fi
}
if [ "$funcstack[1]" = _bridge ]; then _bridge; else compdef _bridge bridge; fi
`,
	"fish": `complete -c bridge -f -a '(bridge __complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
complete -c bridge -s c -l config -r -F
`,
}

func (c completionCommand) Run(p *program, parser *kong.Kong) error {
	_, err := fmt.Fprint(p.stdout, strings.ReplaceAll(completions[c.Shell], ownName, parser.Model.Name))
	return err
}

// completeCommand is what the shells ask.
type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words after bridge, of which the last is to be completed."`
}

func (c completeCommand) Run(p *program, parser *kong.Kong) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	l := &commandLine{program: p, node: parser.Model.Node}
	for _, word := range words[:len(words)-1] {
		l.take(word)
	}
	for _, word := range l.next(words[len(words)-1]) {
		if _, err := fmt.Fprintln(p.stdout, word); err != nil {
			return err
		}
	}
	return nil
}

// commandLine is how far a command line has got.
type commandLine struct {
	*program
	node    *kong.Node
	pending *kong.Flag // the value of it is next
	file    string     // of --config
	asked   apiFlags
	args    int // how many arguments the command has
}

// take continues after a word.
func (l *commandLine) take(word string) {
	if flag := l.pending; flag != nil {
		l.pending = nil
		l.set(flag, word)
		return
	}
	if strings.HasPrefix(word, "-") {
		name, value, hasValue := strings.Cut(word, "=")
		flag := l.flag(name)
		switch {
		case flag == nil || flag.IsBool():
		case !hasValue:
			l.pending = flag
		default:
			l.set(flag, value)
		}
		return
	}
	for _, child := range l.node.Children {
		if child.Name == word {
			l.node = child
			return
		}
	}
	l.args++
}

// set takes the value of a flag.
func (l *commandLine) set(flag *kong.Flag, value string) {
	switch flag.Name {
	case "config":
		l.file = value
	case "url":
		l.asked.URL = value
	case "token-file":
		l.asked.TokenFile = value
	}
}

// next are the words that may be here and begin so.
func (l *commandLine) next(begin string) (found []string) {
	switch {
	case l.pending != nil:
		found = l.values(l.pending.Value)
	case strings.HasPrefix(begin, "-"):
		for _, flag := range l.flags() {
			found = append(found, "--"+flag.Name)
		}
	default:
		for _, child := range l.node.Children {
			if !child.Hidden {
				found = append(found, child.Name)
			}
		}
		if l.args < len(l.node.Positional) {
			found = append(found, l.values(l.node.Positional[l.args])...)
		}
	}
	found = slices.DeleteFunc(found, func(word string) bool { return !strings.HasPrefix(word, begin) })
	slices.Sort(found)
	return found
}

// values are those that a flag or an argument may have, as far as that is known.
func (l *commandLine) values(v *kong.Value) []string {
	if v.Enum != "" {
		return v.EnumSlice()
	}
	switch {
	case v.Name == "queue":
		return l.queues()
	case l.node.Parent != nil && l.node.Parent.Name == "queues" && v.Name == "name":
		return l.declared()
	}
	return nil
}

// completionPatience is how long somebody who completes a word waits for a bridge.
const completionPatience = 2 * time.Second

// declared are the queues that were declared by the API; none if no bridge tells.
func (l *commandLine) declared() (names []string) {
	flags := bridgeFlags{Config: l.configFile(), apiFlags: l.asked, Timeout: completionPatience}
	call, err := flags.connect(l.program)
	if err != nil {
		return nil
	}
	all, err := declarationsOf(call)
	if err != nil {
		return nil
	}
	for _, d := range all {
		names = append(names, d.Name)
	}
	return names
}

// configFile is the one that the words or the environment name.
func (l *commandLine) configFile() string {
	if l.file != "" {
		return l.file
	}
	file := ""
	for _, variable := range l.environ {
		if value, ok := strings.CutPrefix(variable, configVariable+"="); ok {
			file = value
		}
	}
	return file
}

// queues are those of the configuration; none if it is not right.
func (l *commandLine) queues() []string {
	cfg, err := config.Load(l.configFile(), l.environ)
	if err != nil {
		return nil
	}
	return slices.Collect(maps.Keys(cfg.Queues))
}

// flags are those of the command, and of what it is part of.
func (l *commandLine) flags() (flags []*kong.Flag) {
	for node := l.node; node != nil; node = node.Parent {
		for _, flag := range node.Flags {
			if !flag.Hidden {
				flags = append(flags, flag)
			}
		}
	}
	return flags
}

func (l *commandLine) flag(name string) *kong.Flag {
	for _, flag := range l.flags() {
		if name == "--"+flag.Name || flag.Short != 0 && name == "-"+string(flag.Short) {
			return flag
		}
	}
	return nil
}
