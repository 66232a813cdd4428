package inputs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// batchEntrance are the lines of a file that one command schedules.
type batchEntrance struct {
	aim
	line commandLine
	dir  string
}

func (e batchEntrance) name() string { return "batch" }

func (e batchEntrance) inputs(ctx context.Context) (list []input, err error) {
	lines := append(badSchedules(e.aim), documents(e.members(), e.random("batch"))...)
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(line.text + "\n")
	}
	file := filepath.Join(e.dir, "lines.ndjson")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return nil, err
	}
	whole, out := e.line.run(ctx, e.line.args("schedule", "-o", "json", "--batch", file))
	answers := map[int]answer{}
	for line := range strings.Lines(out) {
		var got struct {
			Line   int
			Status string
			Error  *struct{ Code, Field, Detail string }
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			return nil, fmt.Errorf("%w: %s", err, line)
		}
		a := answer{text: got.Status}
		if got.Error != nil {
			a = answer{refused: got.Error.Code == "invalid", text: got.Error.Detail}
			if got.Error.Field != "" {
				a.text = got.Error.Field + ": " + got.Error.Detail
			}
		}
		answers[got.Line] = a
	}
	for i, line := range lines {
		list = append(list, input{line.what, line.names, func(context.Context) answer {
			a, found := answers[i+1]
			if !found || whole.broken {
				return answer{broken: true, text: "no answer: " + whole.text}
			}
			return a
		}})
	}
	return list, nil
}
