package pubsub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"

	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
)

const (
	// scope is the least that allows publishing.
	scope = "https://www.googleapis.com/auth/pubsub"
	// tokenTimeout bounds a question to the service that gives tokens, beside the caller's own time.
	tokenTimeout = 10 * time.Second
)

// login has the token that requests carry. One caller at a time asks for one, so that others can
// give up waiting.
type login struct {
	file   string
	client *http.Client
	turn   chan struct{} // of 1
	known  *auth.Credentials
	stale  atomic.Bool
}

func newLogin(file string) *login {
	return &login{file: file, turn: make(chan struct{}, 1), client: &http.Client{
		Transport: overhttp.Dialer{Protocols: []string{"http/1.1"}}.Transport(1, overhttp.IdleFor), Timeout: tokenTimeout,
	}}
}

// token is one that has not ended.
func (l *login) token(ctx context.Context) (string, error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-l.turn }()
	if l.stale.Swap(false) || l.known == nil {
		found, err := l.find()
		if err != nil {
			l.known = nil
			return "", &overhttp.LoginError{Cause: err}
		}
		l.known = found
	}
	token, err := l.known.Token(ctx)
	switch {
	case err == nil:
		return token.Value, nil
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	default:
		l.stale.Store(true)
		return "", &overhttp.LoginError{Cause: withoutAnswer(err)}
	}
}

// refused has the credentials read again for the next request.
func (l *login) refused() { l.stale.Store(true) }

// find reads the credentials. Without a file the library may ask whether this machine is Google's,
// which takes some seconds at the most.
func (l *login) find() (*auth.Credentials, error) {
	options := &credentials.DetectOptions{Scopes: []string{scope}, Client: l.client, DisableAsyncRefresh: true}
	if l.file == "" {
		return credentials.DetectDefault(options)
	}
	text, err := os.ReadFile(l.file)
	if err != nil {
		return nil, err
	}
	var of struct {
		Type credentials.CredType `json:"type"`
	}
	if err := json.Unmarshal(text, &of); err != nil {
		return nil, fmt.Errorf("%s: it is no JSON", l.file)
	}
	found, err := credentials.NewCredentialsFromJSON(of.Type, text, options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.file, err)
	}
	return found, nil
}

// withoutAnswer leaves out what the service has answered but for the status: it may repeat what was sent.
func withoutAnswer(err error) error {
	if answer, ok := errors.AsType[*auth.Error](err); ok && answer.Response != nil {
		return fmt.Errorf("the token service answered %s", answer.Response.Status)
	}
	return err
}

// close ends idle connections.
func (l *login) close() { l.client.CloseIdleConnections() }
