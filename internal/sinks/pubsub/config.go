package pubsub

import (
	"cmp"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

const (
	// requestsDefault and requestsMost bound the requests to a topic that are under way.
	requestsDefault = 8
	requestsMost    = 256

	// google is where Pub/Sub is: the region that is nearest to us answers.
	google = "https://pubsub.googleapis.com"
)

// Config says whose topics these are.
type Config struct {
	Project         string `yaml:"project" required:"true" doc:"Project of Google Cloud that the topics belong to, its ID."`
	URL             string `yaml:"url" url:"true" doc:"Where Pub/Sub is, if it is not https://pubsub.googleapis.com: https:// of a region, whose topics then keep the order of a Key, or http:// of an emulator, which gets no login."`
	CredentialsFile string `yaml:"credentials_file" file:"true" doc:"File of Google's credentials: a service account's key, or the configuration of a workload identity. Default: those of the environment, GOOGLE_APPLICATION_CREDENTIALS, gcloud's, or the machine's. It is read again when Pub/Sub refuses the login."`
	Requests        int    `yaml:"topic_requests" default:"8" min:"1" max:"256" doc:"Most requests to each topic that are under way at once."`

	// TLS verifies Pub/Sub, and not the service that gives logins; nil uses the system's roots.
	TLS *tlsclient.Files `yaml:"-"`
	// PublishTimeout is how long a request may go without progress, from its hand-over to a
	// connection to its answer; 0 means DefaultPublishTimeout.
	PublishTimeout time.Duration `yaml:"-"`
}

// With implements [kind.Settings].
func (c Config) With(common kind.Common) kind.Settings {
	c.TLS, c.PublishTimeout = common.TLS, common.PublishTimeout
	return c
}

// projectID is wide enough for those of old, with a domain, and for what emulators take.
var projectID = regexp.MustCompile(`^[a-z][a-z0-9.:-]{0,62}[a-z0-9]$`)

// Check implements [kind.Settings].
func (c Config) Check(problems kind.Problems) {
	if !problems.Has("project") && !projectID.MatchString(c.Project) {
		problems.Add("project", "%q is no ID of a project: give 2 to 64 of a-z 0-9 - . :, the first a letter", c.Project)
	}
	if c.Requests < 0 || c.Requests > requestsMost {
		problems.Add("topic_requests", "%d, allowed are 1 to %d", c.Requests, requestsMost)
	}
	if c.URL == "" {
		return
	}
	for _, u := range kind.CheckURLs(problems, []string{c.URL}, "https", "http") {
		switch {
		case u.User != nil:
			problems.Add("url", "holds a login, which is that of credentials_file or of the environment")
		case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
			problems.Add("url", "has more than a host and a port")
		case u.Scheme == "http" && c.CredentialsFile != "":
			problems.Add("credentials_file", "is of no use with an http:// url, over which no login is sent")
		}
	}
}

// Open implements [kind.Settings]. The sink logs nothing, because its outcomes say everything.
func (c Config) Open(*slog.Logger) (sinks.Sink, error) { return New(c) }

func (c Config) verify() error {
	return kind.Verify(message.PubSub, c, kind.Common{TLS: c.TLS, PublishTimeout: c.PublishTimeout})
}

// Grants implements [kind.Settings]: commands for gcloud.
func (c Config) Grants(use kind.Use) []string {
	binding := " --project=" + kind.Shell(c.Project) + " --member=serviceAccount:" + kind.AnyUser + "@" + kind.Shell(c.Project) +
		".iam.gserviceaccount.com --role=roles/pubsub.publisher"
	lines := []string{
		"# with the service account that the bridge runs as; a workload identity is another --member",
		"# for bridge check to see more than that, roles/pubsub.viewer on the same topics",
	}
	ofAll := "gcloud projects add-iam-policy-binding " + kind.Shell(c.Project) + " --member=serviceAccount:" + kind.AnyUser + "@" +
		kind.Shell(c.Project) + ".iam.gserviceaccount.com --role=roles/pubsub.publisher"
	hasAll := false
	for _, topic := range use.Topics {
		if !strings.Contains(topic, "*") {
			lines = append(lines, "gcloud pubsub topics add-iam-policy-binding "+kind.Shell(topic)+binding)
		} else if lines = append(lines, "# "+topic+" is no topic: name those it stands for, one command each, or allow all of the project"); !hasAll {
			lines, hasAll = append(lines, ofAll), true
		}
	}
	return lines
}

// isPlain reports whether everybody on the way can read what is sent.
func (c Config) isPlain() bool { return strings.HasPrefix(c.URL, "http://") }

// base is the URL that paths are added to.
func (c Config) base() string { return strings.TrimRight(cmp.Or(c.URL, google), "/") + "/v1/" }

// topicPath is the name of a topic as paths have it.
func (c Config) topicPath(topic string) string {
	return "projects/" + url.PathEscape(c.Project) + "/topics/" + url.PathEscape(topic)
}

func (c Config) timeout() time.Duration { return cmp.Or(c.PublishTimeout, DefaultPublishTimeout) }

func (c Config) requests() int { return cmp.Or(c.Requests, requestsDefault) }

func (c Config) files() tlsclient.Files {
	if c.TLS == nil {
		return tlsclient.Files{}
	}
	return *c.TLS
}
