package config

import (
	"fmt"
	"regexp"
	"strings"
)

// maxFile bounds what one ${file:…} may bring in, in bytes.
const maxFile = 1 << 20

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expander replaces ${VAR} and ${file:PATH} in values. What it puts in is not
// expanded again, so that a secret may contain any characters.
type expander struct {
	// isClosed refuses references, in files of people who may not see the bridge's secrets.
	isClosed bool
	env      map[string]string
	readFile func(path string) ([]byte, error)
}

// expand returns the text with its references replaced; $$ is a dollar, and so
// is a $ before anything but { and $.
func (e expander) expand(text string) (string, error) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		out.WriteString(before)
		switch {
		case !found:
			return out.String(), nil
		case strings.HasPrefix(after, "$"):
			out.WriteByte('$')
			text = after[1:]
		case strings.HasPrefix(after, "{"):
			name, rest, closed := strings.Cut(after[1:], "}")
			if !closed {
				return "", fmt.Errorf("${%s has no closing brace; a literal dollar is $$", name)
			}
			value, err := e.reference(name)
			if err != nil {
				return "", err
			}
			out.WriteString(value)
			text = rest
		default:
			out.WriteByte('$')
			text = after
		}
	}
}

func (e expander) reference(name string) (string, error) {
	if e.isClosed {
		return "", fmt.Errorf("${%s}: only the main file may refer to variables and files; a literal dollar is $$", name)
	}
	if path, isFile := strings.CutPrefix(name, "file:"); isFile {
		content, err := e.readFile(path)
		if err != nil {
			return "", fmt.Errorf("${%s}: %w", name, err)
		}
		return strings.TrimRight(string(content), "\r\n"), nil
	}
	if !variableName.MatchString(name) {
		return "", fmt.Errorf("${%s} names no variable: give ${NAME} or ${file:PATH}; a literal dollar is $$", name)
	}
	value, ok := e.env[name]
	if !ok {
		return "", fmt.Errorf("environment variable %s is not set", name)
	}
	return value, nil
}
