// Package kind is the contract between the bridge and the kinds of brokers: the
// settings of one, the sink that they open, the source of what the bridge consumes, and
// the rights that the bridge needs at the broker.
//
// Each package below internal/sinks that publishes to a kind of broker implements
// [Settings]; internal/config lists them, one line each.
package kind

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// Settings is the configuration of one broker: a struct of the kind's own whose fields are
// tagged as those of internal/config.
type Settings interface {
	// With returns the settings with those that all kinds share.
	With(common Common) Settings
	// Check reports problems that the fields' tags cannot express. It does no I/O.
	Check(problems Problems)
	// Open makes the sink. It connects to nothing yet.
	Open(logger *slog.Logger) (sinks.Sink, error)
	// Grants returns what an administrator of the broker must do, as commands or settings
	// for the broker's own tools; lines that begin with a # are remarks.
	Grants(use Use) []string
}

// Consumed is the [Settings] of a kind of broker that the bridge can consume from.
type Consumed interface {
	// Source makes the source of a topic's messages. It connects to nothing yet.
	Source(options source.Options) (source.Source, error)
}

// Common has the settings that all kinds share.
type Common struct {
	// Name is our name at the broker.
	Name string
	// TLS is nil if there is none, or if the URL alone says so.
	TLS *tlsclient.Files
	// PublishTimeout is how long the broker may take to answer for a message, from its
	// hand-over to the connection; 0 means 10 s.
	PublishTimeout time.Duration
}

// Problems collects the problems of settings. A key is named as the configuration
// names it, with dots where it is in a section; "" is the whole of the settings.
type Problems interface {
	// Add reports one. The text completes a sentence that begins with the key, and shows
	// no URL, since that may hold a password.
	Add(key, format string, args ...any)
	// Has reports whether the key, or one below it, has a problem.
	Has(key string) bool
}

// Verify checks a sink's settings that no configuration has checked.
func Verify(sink message.SinkType, settings Settings, common Common) error {
	p := errorsByKey{}
	settings.Check(p)
	if common.PublishTimeout < 0 {
		p.Add("publish_timeout", "%s is negative", common.PublishTimeout)
	}
	if tls := common.TLS; tls != nil && (tls.CertFile == "") != (tls.KeyFile == "") {
		p.Add("tls", "give both cert_file and key_file or neither")
	}
	if len(p) == 0 {
		return nil
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(p)) {
		errs = append(errs, p[key]...)
	}
	return fmt.Errorf("%s sink: %w", sink, errors.Join(errs...))
}

// errorsByKey are the errors by key.
type errorsByKey map[string][]error

func (f errorsByKey) Add(key, format string, args ...any) {
	f[key] = append(f[key], fmt.Errorf(strings.TrimPrefix(key+": ", ": ")+format, args...))
}

// Has includes the keys below a key, as a configuration does.
func (f errorsByKey) Has(key string) bool {
	for of := range f {
		if key == "" || of == key || strings.HasPrefix(of, key+".") {
			return true
		}
	}
	return false
}

// SplitURLs returns the URLs of a comma list.
func SplitURLs(list string) (urls []string) {
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text != "" {
			urls = append(urls, text)
		}
	}
	return urls
}

// CheckURLs checks the URLs of the key url and returns those that are right.
func CheckURLs(problems Problems, urls []string, schemes ...string) (valid []*url.URL) {
	const key = "url"
	if problems.Has(key) {
		return nil
	}
	if len(urls) == 0 {
		problems.Add(key, "has no URL")
	}
	for _, text := range urls {
		u, err := url.Parse(text)
		switch {
		case err != nil:
			problems.Add(key, "is no valid URL: percent-encode special characters in user and password")
		case !slices.Contains(schemes, u.Scheme):
			problems.Add(key, "has the scheme %q, allowed are %s", u.Scheme, strings.Join(schemes, ", "))
		case u.Hostname() == "":
			problems.Add(key, "has no host")
		default:
			valid = append(valid, u)
		}
	}
	return valid
}

// CheckAddresses checks that each of the key's values is host:port.
func CheckAddresses(problems Problems, key string, addresses []string) {
	for _, address := range addresses {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || !IsPort(port) || port == "0" {
			problems.Add(key, "%q is no address, give host:port", address)
		}
	}
}

// IsPort reports whether a text is the number of a port, as it is written; 0 is any.
func IsPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && strconv.FormatUint(n, 10) == text
}

// UserOf returns the user in the first URL that names one; "" if none does.
func UserOf(urls []string) string {
	for _, text := range urls {
		if u, err := url.Parse(text); err == nil && u.User.Username() != "" {
			return u.User.Username()
		}
	}
	return ""
}
