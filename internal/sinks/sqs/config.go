package sqs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

const (
	// requestsDefault and requestsMost bound the requests to a queue that are under way.
	requestsDefault = 8
	requestsMost    = 256
)

// Config says whose queues these are. The login is that of the environment: see
// [awsconfig.LoadDefaultConfig].
type Config struct {
	Region   string `yaml:"region" doc:"Region of the queues, for example eu-central-1. Default: that of the environment, AWS_REGION or the profile's."`
	Account  string `yaml:"account" doc:"Account that the queues belong to, 12 digits. Default: our own."`
	Profile  string `yaml:"profile" doc:"Profile of ~/.aws/config with the login, or the role to assume. Default: AWS_PROFILE, and else whatever login the environment has."`
	URL      string `yaml:"url" url:"true" doc:"Where SQS is, if it is not where the region says: https:// of an endpoint in our network, or http:// of an emulator."`
	Requests int    `yaml:"queue_requests" default:"8" min:"1" max:"256" doc:"Most requests to each queue that are under way at once."`

	// Credentials replace those of the environment; nil takes these.
	Credentials aws.CredentialsProvider `yaml:"-"`
	// TLS verifies SQS; nil uses the system's roots.
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

var accountID = regexp.MustCompile(`^[0-9]{12}$`)

// Check implements [kind.Settings].
func (c Config) Check(problems kind.Problems) {
	if c.Account != "" && !accountID.MatchString(c.Account) {
		problems.Add("account", "%q is no account, give its 12 digits in quotes", c.Account)
	}
	if c.Requests < 0 || c.Requests > requestsMost {
		problems.Add("queue_requests", "%d, allowed are 1 to %d", c.Requests, requestsMost)
	}
	if c.URL == "" {
		return
	}
	for _, u := range kind.CheckURLs(problems, []string{c.URL}, "https", "http") {
		if u.User != nil {
			problems.Add("url", "holds a login, which is that of the environment or of profile")
		}
	}
}

// Open implements [kind.Settings]. The sink logs nothing, because its outcomes say everything.
func (c Config) Open(*slog.Logger) (sinks.Sink, error) { return New(c) }

// load reads the environment and the files of profiles. It asks nobody yet.
func (c Config) load() (aws.Config, error) {
	if err := kind.Verify(message.SQS, c, kind.Common{TLS: c.TLS, PublishTimeout: c.PublishTimeout}); err != nil {
		return aws.Config{}, err
	}
	options := []func(*awsconfig.LoadOptions) error{awsconfig.WithRegion(c.Region), awsconfig.WithSharedConfigProfile(c.Profile)}
	if c.Credentials != nil {
		options = append(options, awsconfig.WithCredentialsProvider(c.Credentials))
	}
	loaded, err := awsconfig.LoadDefaultConfig(context.Background(), options...) //nolint:forbidigo // It only reads files.
	switch {
	case err != nil:
		return aws.Config{}, fmt.Errorf("sqs sink: %w", err)
	case loaded.Region == "":
		return aws.Config{}, errors.New("sqs sink: region: is missing, give it, or set AWS_REGION")
	}
	return loaded, nil
}

// policy is one of IAM.
type policy struct {
	Version   string
	Statement []statement
}

type statement struct {
	Effect           string
	Action, Resource []string
}

// Grants implements [kind.Settings]: a policy of IAM.
func (c Config) Grants(use kind.Use) []string {
	may := statement{Effect: "Allow", Action: []string{"sqs:GetQueueUrl", "sqs:SendMessage", "sqs:GetQueueAttributes"}}
	for _, topic := range use.Topics {
		may.Resource = append(may.Resource, fmt.Sprintf("arn:aws:sqs:%s:%s:%s", cmp.Or(c.Region, "*"), cmp.Or(c.Account, "*"), topic))
	}
	text, err := json.Marshal(policy{Version: "2012-10-17", Statement: []statement{may}})
	if err != nil {
		return []string{"# " + err.Error()}
	}
	return []string{
		"# a policy for the bridge's role; a queue of another account needs it in its own policy, too",
		"# a queue that is encrypted with a key of KMS also needs kms:GenerateDataKey and kms:Decrypt for that key",
		string(text),
	}
}

func (c Config) timeout() time.Duration { return cmp.Or(c.PublishTimeout, DefaultPublishTimeout) }

func (c Config) requests() int { return cmp.Or(c.Requests, requestsDefault) }

func (c Config) files() tlsclient.Files {
	if c.TLS == nil {
		return tlsclient.Files{}
	}
	return *c.TLS
}
