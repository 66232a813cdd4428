package pubsub

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
)

var _ sinks.Checker = (*Sink)(nil)

// publishing is the permission that the bridge needs of a topic.
const publishing = "pubsub.topics.publish"

// Check implements [sinks.Checker]. It looks at each topic, and changes nothing.
func (s *Sink) Check(ctx context.Context, plan sinks.Plan) (findings []check.Finding) {
	ctx, end, err := s.calls.Begin(ctx)
	if err != nil {
		return []check.Finding{{Level: check.Error, Code: "sink_unreachable", What: err.Error()}}
	}
	defer end()
	if s.config.isPlain() {
		findings = append(findings, check.Finding{
			Level: check.Warning, Code: "pubsub_plain", Subject: "url",
			What:   "it is http://",
			Why:    "everybody on the way can read the messages, and no login is sent: only an emulator takes them",
			Remedy: "give an https:// URL, or none",
		})
	}
	if plan.MaxMessage > sizeMost {
		findings = append(findings, check.Finding{
			Level: check.Warning, Code: "pubsub_message_size",
			What:   fmt.Sprintf("Pub/Sub takes %d bytes, and a message may have %d", sizeMost, plan.MaxMessage),
			Why:    "larger ones go to the dead letters when they are due; attributes count",
			Remedy: fmt.Sprintf("queues.*.max_message: %d", sizeMost),
		})
	}
	if err := s.Ping(ctx); err != nil {
		return append(findings, unanswered("", err))
	}
	for _, topic := range plan.Topics {
		findings = append(findings, s.checkTopic(ctx, topic)...)
	}
	return findings
}

// unanswered is the finding of a Pub/Sub that does not answer, or refuses us.
func unanswered(subject string, err error) check.Finding {
	f := check.Finding{
		Level: check.Error, Code: "pubsub_unreachable", Subject: subject, What: err.Error(),
		Why:    "nothing is published until it answers; messages wait",
		Remedy: "correct sinks.*.url; a firewall must let the bridge through",
	}
	if classify(err, overhttp.Used).Reason == sinks.ReasonAuth {
		f.Code, f.Remedy = "pubsub_login", "give the bridge a service account, or name its credentials in sinks.*.credentials_file; correct sinks.*.tls if it is about trust"
	}
	return f
}

// checkTopic looks at one topic.
func (s *Sink) checkTopic(ctx context.Context, topic string) []check.Finding {
	f := check.Finding{
		Level: check.Error, Code: "pubsub_topic", Subject: "topic " + topic,
		Why:    "its messages wait, and after park_patience they go to the dead letters",
		Remedy: "gcloud pubsub topics create " + topic + " --project=" + s.config.Project + ": the bridge makes no topic",
	}
	if err := message.CheckTopic(message.PubSub, topic); err != nil {
		f.What, f.Why, f.Remedy = err.Error(), "its messages go to the dead letters", "correct the producer's topic"
		return []check.Finding{f}
	}
	settings, err := s.settings(ctx, topic)
	isDenied := isCode(err, "PERMISSION_DENIED")
	switch {
	case isCode(err, "NOT_FOUND"):
		f.What = "there is no such topic in the project " + s.config.Project
		return []check.Finding{f}
	case err != nil && !isDenied:
		return []check.Finding{unanswered(f.Subject, err)}
	}
	may, err := s.mayPublish(ctx, topic)
	switch {
	case err == nil && !may: // Of a topic that is missing, or hidden, Pub/Sub says the same.
		f.Code, f.What, f.Remedy = "pubsub_denied", publishing+" is denied, or there is no such topic", "allow roles/pubsub.publisher: bridge config acl --broker prints the command"
		return []check.Finding{f}
	case isDenied || err != nil:
		f.Level, f.Code, f.Why, f.Remedy = check.Note, "pubsub_hidden", "the check could not see how the topic keeps messages, or whether we may publish", "allow roles/pubsub.viewer on the topic"
		if f.What = "pubsub.topics.get is denied"; err != nil {
			f.What = "testIamPermissions fails: " + err.Error()
		}
		return append([]check.Finding{f}, examine(settings, f.Subject, isDenied)...)
	}
	return examine(settings, f.Subject, false)
}

func isCode(err error, code string) bool {
	answer, ok := err.(*answerError) //nolint:errorlint // call wraps none.
	return ok && answer.code == code
}

// topicSettings is what Pub/Sub tells of a topic.
type topicSettings struct {
	KMSKey    string `json:"kmsKeyName"`
	Retention string `json:"messageRetentionDuration"`
	Schema    *struct {
		Name string `json:"schema"`
	} `json:"schemaSettings"`

	subscriptions []string
}

func (s *Sink) settings(ctx context.Context, topic string) (of topicSettings, err error) {
	path := s.config.topicPath(topic)
	if _, err := s.call(ctx, http.MethodGet, path, nil, &of); err != nil {
		return of, err
	}
	var list struct {
		Subscriptions []string `json:"subscriptions"`
	}
	_, err = s.call(ctx, http.MethodGet, path+"/subscriptions", nil, &list)
	of.subscriptions = list.Subscriptions
	return of, err
}

func (s *Sink) mayPublish(ctx context.Context, topic string) (bool, error) {
	var answer struct {
		Permissions []string `json:"permissions"`
	}
	_, err := s.call(ctx, http.MethodPost, s.config.topicPath(topic)+":testIamPermissions", []byte(`{"permissions":["`+publishing+`"]}`), &answer)
	return slices.Contains(answer.Permissions, publishing), err
}

// examine looks at a topic's settings. What is not told is not judged.
func examine(of topicSettings, subject string, isHidden bool) (findings []check.Finding) {
	add := func(applies bool, f check.Finding) {
		if applies {
			f.Subject = subject
			findings = append(findings, f)
		}
	}
	add(!isHidden && len(of.subscriptions) == 0 && of.Retention == "", check.Finding{
		Level: check.Warning, Code: "pubsub_subscription",
		What:   "it has no subscription, and keeps no messages by itself",
		Why:    "Pub/Sub acknowledges messages, and throws them away",
		Remedy: "gcloud pubsub subscriptions create NAME --topic=TOPIC --enable-message-ordering, before the first message is due",
	})
	add(of.Schema != nil, check.Finding{
		Level: check.Note, Code: "pubsub_schema",
		What:   "its messages must match a schema",
		Why:    "one that does not goes to the dead letters when it is due; the check cannot try it",
		Remedy: "have producers send what the schema allows",
	})
	add(of.KMSKey != "", check.Finding{
		Level: check.Note, Code: "pubsub_kms",
		What:   "it is encrypted with the key " + of.KMSKey,
		Why:    "while Pub/Sub cannot use that key every message is refused, and waits",
		Remedy: "keep the key enabled, and Pub/Sub's service agent allowed to use it",
	})
	return findings
}
