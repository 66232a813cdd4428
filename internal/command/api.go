package command

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/delaybridge/delaybridge/internal/config"
)

// mostAnswer is how long an answer of the API may be, in bytes.
const mostAnswer = 16 << 20

// apiFlags name a running bridge to ask, and who asks it.
type apiFlags struct {
	URL       string `placeholder:"URL" help:"The bridge to ask, as http://10.0.0.7:8080. Default: the one on this machine, at admin.listen."`
	TokenFile string `placeholder:"FILE" help:"A file with a token that the bridge knows; needed with admin.auth."`
}

// address is where to ask: without the flag, at the bridge on this machine.
func (f apiFlags) address(admin config.Admin) (string, error) {
	if f.URL != "" {
		return strings.TrimSuffix(f.URL, "/"), nil
	}
	address, err := apiURL(admin)
	if err != nil {
		return "", &failure{code: "config", exit: exitUsage, cause: err}
	}
	return address, nil
}

// apiURL is where this machine asks.
func apiURL(admin config.Admin) (string, error) {
	if admin.Listen == "" {
		return "", errors.New("admin.listen: the bridge has no listener, so it cannot be asked")
	}
	scheme := "http"
	if admin.TLS != nil {
		scheme = "https"
	}
	host, err := fromHere(admin.Listen)
	return scheme + "://" + host, err
}

// ask makes a call, and returns the answer. The file of the token is read each time, since tokens change. The bridge's log calls
// the request bridge/ and a random name. headers are names and values.
func (f apiFlags) ask(ctx context.Context, method, url string, body []byte, headers ...string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, usagef("--url: %v", err)
	}
	request.Header.Set("X-Request-Id", ownName+"/"+rand.Text())
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	if f.TokenFile != "" {
		token, err := os.ReadFile(f.TokenFile)
		if err != nil {
			return nil, usagef("--token-file: %v", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("no bridge answers: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", url, err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return nil, refusal(url, response.Status, text)
	}
	return text, nil
}

// refusal is what the bridge says in place of an answer.
func refusal(url, status string, text []byte) error {
	var problem struct{ Code, Detail string }
	if json.Unmarshal(text, &problem) != nil || problem.Code == "" {
		return fmt.Errorf("%s answers %s", url, status)
	}
	f := &failure{code: problem.Code, exit: exitOf(problem.Code), text: fmt.Sprintf("%s answers %s: %s", url, status, problem.Detail)}
	if problem.Code == "unauthorized" {
		f.hint = "--token-file names a file with a token"
	}
	return f
}
