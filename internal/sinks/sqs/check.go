package sqs

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
)

var _ sinks.Checker = (*Sink)(nil)

const (
	// retentionLeast is how long a queue should keep messages while nobody consumes: a weekend.
	retentionLeast = 72 * time.Hour
	// dedupWindow is how long a FIFO queue knows the messages that it has.
	dedupWindow = 5 * time.Minute
)

// Check implements [sinks.Checker]. It reads the attributes of each queue, and changes nothing.
// Whether messages may be sent only a message can tell.
func (s *Sink) Check(ctx context.Context, plan sinks.Plan) (findings []check.Finding) {
	ctx, end, err := s.calls.Begin(ctx)
	if err != nil {
		return []check.Finding{{Level: check.Error, Code: "sink_unreachable", What: err.Error()}}
	}
	defer end()
	if strings.HasPrefix(s.config.URL, "http://") {
		findings = append(findings, check.Finding{
			Level: check.Warning, Code: "sqs_plain", Subject: "url",
			What:   "it is http://",
			Why:    "everybody on the way can read the messages",
			Remedy: "give an https:// URL, or none",
		})
	}
	if err := s.Ping(ctx); err != nil {
		return append(findings, unanswered("", err))
	}
	for _, topic := range plan.Topics {
		findings = append(findings, s.checkQueue(ctx, topic, plan)...)
	}
	return findings
}

// unanswered is the finding of an SQS that does not answer, or refuses us.
func unanswered(subject string, err error) check.Finding {
	f := check.Finding{
		Level: check.Error, Code: "sqs_unreachable", Subject: subject, What: err.Error(),
		Why:    "nothing is published until it answers; messages wait",
		Remedy: "correct sinks.*.region or sinks.*.url; a firewall must let the bridge through",
	}
	if overhttp.ReasonOf(err) == sinks.ReasonAuth || classify(err, overhttp.Used).Reason == sinks.ReasonAuth {
		f.Code, f.Remedy = "sqs_login", "give the bridge a role or credentials, or name them in sinks.*.profile; correct sinks.*.tls if it is about trust"
	}
	return f
}

// checkQueue looks at one queue.
func (s *Sink) checkQueue(ctx context.Context, name string, plan sinks.Plan) []check.Finding {
	f := check.Finding{
		Level: check.Error, Code: "sqs_queue", Subject: "queue " + name,
		Why:    "its messages wait, and after park_patience they go to the dead letters",
		Remedy: "aws sqs create-queue --queue-name " + name + ": the bridge makes no queue",
	}
	if err := message.CheckTopic(message.SQS, name); err != nil {
		f.What, f.Why, f.Remedy = err.Error(), "its messages go to the dead letters", "correct the producer's topic"
		return []check.Finding{f}
	}
	address, how, err := s.ask(ctx, name)
	switch {
	case err != nil && isOfQueue(err, how) && refuseAsked(err, how).Reason == sinks.ReasonAuth:
		f.Code, f.What, f.Remedy = "sqs_denied", "GetQueueUrl is denied: "+err.Error(), "allow sqs:GetQueueUrl and sqs:SendMessage: bridge config acl --broker prints the policy"
		return []check.Finding{f}
	case err != nil && isOfQueue(err, how):
		f.What = "there is no such queue in this region and account"
		return []check.Finding{f}
	case err != nil:
		return []check.Finding{unanswered(f.Subject, err)}
	}
	attributes, err := s.attributes(ctx, address)
	if err != nil {
		f.Level, f.Code, f.What = check.Note, "sqs_hidden", "GetQueueAttributes is denied: "+err.Error()
		f.Why, f.Remedy = "the check could not see how the queue keeps messages", "allow sqs:GetQueueAttributes"
		return []check.Finding{f}
	}
	findings := examine(attributes, strings.HasSuffix(name, fifoSuffix), plan)
	for i := range findings {
		findings[i].Subject = f.Subject
		findings[i].Remedy = strings.ReplaceAll(findings[i].Remedy, "QUEUE", address)
	}
	return findings
}

func (s *Sink) attributes(ctx context.Context, address string) (map[string]string, error) {
	ctx, attempt := overhttp.Begin(ctx, s.config.timeout())
	defer attempt.End()
	answer, err := s.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &address, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		return nil, overhttp.Explain(ctx, s.config.files(), err)
	}
	return answer.Attributes, nil
}

// examine looks at a queue's attributes. What is not told is not judged.
func examine(attributes map[string]string, isFIFO bool, plan sinks.Plan) (findings []check.Finding) {
	add := func(applies bool, f check.Finding) {
		if applies {
			findings = append(findings, f)
		}
	}
	number := func(name types.QueueAttributeName) (n int, isTold bool) {
		n, err := strconv.Atoi(attributes[string(name)])
		return n, err == nil
	}
	set := "aws sqs set-queue-attributes --queue-url QUEUE --attributes "
	size, isTold := number(types.QueueAttributeNameMaximumMessageSize)
	add(isTold && size < plan.MaxMessage, check.Finding{
		Level: check.Warning, Code: "sqs_message_size",
		What:   fmt.Sprintf("MaximumMessageSize is %d bytes, and a message may have %d", size, plan.MaxMessage),
		Why:    "larger ones go to the dead letters when they are due; attributes count, and a body that is no text is a third larger",
		Remedy: fmt.Sprintf("%sMaximumMessageSize=%d, or queues.*.max_message: %d", set, sizeMost, size),
	})
	retention, isTold := number(types.QueueAttributeNameMessageRetentionPeriod)
	add(isTold && time.Duration(retention)*time.Second < retentionLeast, check.Finding{
		Level: check.Warning, Code: "sqs_retention",
		What:   fmt.Sprintf("MessageRetentionPeriod is %s", time.Duration(retention)*time.Second),
		Why:    "if nobody consumes for so long, SQS throws acknowledged messages away",
		Remedy: set + "MessageRetentionPeriod=1209600",
	})
	delay, isTold := number(types.QueueAttributeNameDelaySeconds)
	add(isTold && delay > 0, check.Finding{
		Level: check.Warning, Code: "sqs_delay",
		What:   fmt.Sprintf("DelaySeconds is %d", delay),
		Why:    "consumers get each message so much later than it is due",
		Remedy: set + "DelaySeconds=0",
	})
	add(isFIFO && plan.Again > dedupWindow, check.Finding{
		Level: check.Warning, Code: "sqs_duplicates",
		What:   fmt.Sprintf("after a crash a message may be published again %s later, and a FIFO queue knows it for %s", plan.Again, dedupWindow),
		Why:    "then the queue has it twice; consumers must drop copies by delay-uid",
		Remedy: "lower poller.claim_timeout, poller.lease or sinks.*.publish_timeout",
	})
	add(attributes[string(types.QueueAttributeNameRedrivePolicy)] == "", check.Finding{
		Level: check.Note, Code: "sqs_redrive",
		What:   "it has no RedrivePolicy",
		Why:    "a message that consumers cannot process comes again and again, and in a FIFO queue holds up its Key, until its retention ends",
		Remedy: set + `'{"RedrivePolicy":"{\"deadLetterTargetArn\":\"ARN\",\"maxReceiveCount\":\"5\"}"}'`,
	})
	key := attributes[string(types.QueueAttributeNameKmsMasterKeyId)]
	add(key != "", check.Finding{
		Level: check.Note, Code: "sqs_kms",
		What:   "it is encrypted with the KMS key " + key,
		Why:    "without kms:GenerateDataKey and kms:Decrypt for that key every message is refused; the check cannot try it",
		Remedy: "allow both to the bridge's role",
	})
	slices.SortStableFunc(findings, func(a, b check.Finding) int { return int(b.Level) - int(a.Level) })
	return findings
}
