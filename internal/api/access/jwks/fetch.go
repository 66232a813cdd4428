package jwks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// fetchTimeout bounds a fetch, with discovery.
const fetchTimeout = 5 * time.Second

// wellKnown is where an issuer describes itself (OpenID Connect Discovery 1.0).
const wellKnown = "/.well-known/openid-configuration"

// Config says where the keys of an issuer are: in File, else at URL, else where the issuer says.
type Config struct {
	// Issuer is its URL, as its tokens have it.
	Issuer    string
	URL, File string
	// CAFile has the roots of the issuer's certificate; empty: those of the system.
	CAFile string
	// TokenFile has a token that the issuer asks for. Only the hosts of Issuer and URL get it.
	TokenFile string
}

func (c Config) every() time.Duration {
	if c.File != "" {
		return readEvery
	}
	return fetchEvery
}

// CheckURL returns why a URL of an issuer, or of its keys, cannot be used: whoever reads or changes what
// it answers could sign tokens. The host itself may be asked in the clear.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is no URL")
	case u.Host == "" || u.Opaque != "":
		return errors.New("is no URL of a server: give https://HOST/…")
	case u.User != nil || u.Fragment != "":
		return errors.New("must have no user and no fragment")
	case u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
		return errors.New("must be https (http only to the host itself)")
	}
	return nil
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// Endpoints are where people sign in and out, as discovery says; "" where it does not.
type Endpoints struct {
	Authorization string `json:"authorization_endpoint"`
	Token         string `json:"token_endpoint"`
	EndSession    string `json:"end_session_endpoint"`
}

// Found is what an issuer says of itself. Endpoints is empty unless the keys were found by discovery.
type Found struct {
	Keys      []jose.JSONWebKey
	Endpoints Endpoints
}

// Fetch returns the keys as they are now. Its errors hold no secret.
func Fetch(ctx context.Context, c Config) (found Found, err error) {
	var content []byte
	if c.File != "" {
		if content, err = readFile(c.File); err != nil {
			return Found{}, err
		}
		found.Keys, err = parse(content)
		return found, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	client, err := c.Client()
	if err != nil {
		return Found{}, err
	}
	defer client.CloseIdleConnections()
	from := c.URL
	if from == "" {
		if from, found.Endpoints, err = c.discover(ctx, client); err != nil {
			return Found{}, fmt.Errorf("discovery: %w", err)
		}
	}
	if content, err = c.get(ctx, client, from); err != nil {
		return Found{}, fmt.Errorf("keys: %w", err)
	}
	found.Keys, err = parse(content)
	return found, err
}

// Client is one for a few requests to the issuer, with the CA file as it is now; close its idle connections after
// them. It follows no redirect: what an issuer says it says itself.
func (c Config) Client() (*http.Client, error) {
	tls, err := tlsclient.Files{CAFile: c.CAFile}.Config()
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: tls, Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			DialContext: (&net.Dialer{Timeout: fetchTimeout}).DialContext, TLSHandshakeTimeout: fetchTimeout, MaxResponseHeaderBytes: mostBytes,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// discover returns where the issuer says that its keys are. It may be another host, as with Google and
// Kubernetes: the issuer's word, which came by TLS, is what the keys rest on anyway.
func (c Config) discover(ctx context.Context, client *http.Client) (keys string, endpoints Endpoints, err error) {
	content, err := c.get(ctx, client, strings.TrimSuffix(c.Issuer, "/")+wellKnown)
	if err != nil {
		return "", Endpoints{}, err
	}
	var said struct {
		Endpoints

		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(content, &said); err != nil {
		return "", Endpoints{}, fmt.Errorf("the answer is no JSON: %w", err)
	}
	if said.Issuer != c.Issuer {
		return "", Endpoints{}, fmt.Errorf("the server there is the issuer %q", said.Issuer)
	}
	if err := c.checkSaid("jwks_uri", said.Keys); err != nil {
		return "", Endpoints{}, err
	}
	// Nobody may be sent elsewhere to sign in; tokens are checked all the same.
	for name, at := range map[string]*string{
		"authorization_endpoint": &said.Authorization, "token_endpoint": &said.Token, "end_session_endpoint": &said.EndSession,
	} {
		if c.checkSaid(name, *at) != nil {
			*at = ""
		}
	}
	return said.Keys, said.Endpoints, nil
}

// checkSaid returns why a URL that the issuer says cannot be used.
func (c Config) checkSaid(name, said string) error {
	if err := CheckURL(said); err != nil {
		return fmt.Errorf("its %s %q %w", name, said, err)
	}
	if strings.HasPrefix(c.Issuer, "https:") && !strings.HasPrefix(said, "https:") {
		return fmt.Errorf("its %s %q must be https, as the issuer is", name, said)
	}
	return nil
}

func (c Config) get(ctx context.Context, client *http.Client, from string) (content []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json, application/jwk-set+json")
	if c.TokenFile != "" && c.mayHaveToken(request.URL) {
		token, err := readFile(c.TokenFile)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: answered %s (redirects are not followed)", from, response.Status)
	}
	return readAll(response.Body, from)
}

// mayHaveToken reports whether the configuration names the host.
func (c Config) mayHaveToken(to *url.URL) bool {
	for _, named := range []string{c.Issuer, c.URL} {
		if u, err := url.Parse(named); named != "" && err == nil && u.Scheme == to.Scheme && u.Host == to.Host {
			return true
		}
	}
	return false
}

func readFile(path string) (content []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return readAll(file, path)
}

func readAll(from io.Reader, name string) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(from, mostBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(content) > mostBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", name, mostBytes)
	}
	return content, nil
}
