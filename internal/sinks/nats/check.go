package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

var _ sinks.Checker = (*Sink)(nil)

// Check implements [sinks.Checker].
func (s *Sink) Check(ctx context.Context, plan sinks.Plan) []check.Finding {
	nc, ok, findings := sinks.FirstThatAnswers(s.config.servers(),
		func(server string) (*natsgo.Conn, error) { return s.dialOne(ctx, server) }, (*natsgo.Conn).Close,
		func(server string, err error) check.Finding { return unanswered(host(server), err) })
	if !ok {
		return findings
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return append(findings, unanswered(nc.ConnectedAddr(), err))
	}
	x := examination{nc: nc, js: js, plan: plan, streams: map[string]bool{}}
	account, stop := x.account(ctx)
	findings = append(findings, account...)
	if stop {
		return findings
	}
	findings = append(findings, x.payload()...)
	may, known := askPermissions(ctx, nc)
	for _, subject := range plan.Topics {
		if known && !may.allow(subject) {
			findings = append(findings, check.Finding{
				Level: check.Error, Code: "nats_denied", Subject: "subject " + subject,
				What:   "we may not publish to it",
				Why:    "its messages wait, and after park_patience they go to the dead letters",
				Remedy: "add it to the user's permissions.publish.allow, or remove it from deny",
			})
		}
		findings = append(findings, x.subject(ctx, subject)...)
	}
	return findings
}

// dialOne connects to one of the configured servers.
func (s *Sink) dialOne(ctx context.Context, server string) (*natsgo.Conn, error) {
	one := s.config
	one.URL = server
	return one.Connect(ctx, func() {})
}

// unanswered is the finding of a server that does not answer, or refuses us.
func unanswered(server string, err error) check.Finding {
	f := check.Finding{
		Level: check.Error, Code: "nats_unreachable", Subject: server,
		What:   err.Error(),
		Why:    "nothing is published until a server answers; messages wait",
		Remedy: "correct sinks.*.url, or start the server",
	}
	if why(err) == sinks.ReasonAuth {
		f.Code, f.Remedy = "nats_login", "correct the login of the sink (user and password, token, creds_file or nkey_file) and its tls"
	}
	return f
}

// examination is one look at a server.
type examination struct {
	nc   *natsgo.Conn
	js   jetstream.JetStream
	plan sinks.Plan
	// streams are those that were looked at.
	streams map[string]bool
}

// account is whether the account has JetStream, and room; stop says that nothing
// else can be asked.
func (x *examination) account(ctx context.Context) (findings []check.Finding, stop bool) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	info, err := x.js.AccountInfo(ctx)
	switch {
	case err == nil:
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, natsgo.ErrNoResponders):
		return []check.Finding{{
			Level: check.Error, Code: "nats_jetstream",
			What:   "JetStream is not enabled for this account: " + err.Error(),
			Why:    "without it no message is ever acknowledged, and nothing counts as published",
			Remedy: "jetstream {store_dir: …} in the server's configuration, and `jetstream: enabled` in the account",
		}}, true
	case x.wasDenied(err):
		return []check.Finding{hidden("$JS.API.INFO", "the limits of the account were not looked at")}, false
	default:
		return []check.Finding{unanswered(x.nc.ConnectedAddr(), fmt.Errorf("ask for the account: %w", err))}, true
	}
	if limit := info.Limits.MaxStore; limit > 0 && info.Store*10 >= uint64(limit)*9 {
		return []check.Finding{{
			Level: check.Warning, Code: "nats_account",
			What:   fmt.Sprintf("the account has used %d of %d bytes of storage", info.Store, limit),
			Why:    "at its limit every stream refuses messages, which wait",
			Remedy: "raise the account's max_file, or delete what nobody needs: `nats stream purge`",
		}}, false
	}
	return nil, false
}

// wasDenied reports whether a question got no answer because we may not ask it: the
// server says that apart from any call.
func (x *examination) wasDenied(err error) bool {
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, natsgo.ErrTimeout)
	return late && errors.Is(x.nc.LastError(), natsgo.ErrPermissionViolation)
}

func hidden(subject, what string) check.Finding {
	return check.Finding{
		Level: check.Note, Code: "nats_hidden",
		What:   subject + " is denied: " + what,
		Why:    "the check could not see whether a stream takes the messages",
		Remedy: `allow the user to publish to "$JS.API.INFO", "$JS.API.STREAM.NAMES" and "$JS.API.STREAM.INFO.*"`,
	}
}

// headersMost is what our own headers and NATS' framing add to a message at most.
const headersMost = 1 << 10

func (x *examination) payload() []check.Finding {
	most, need := x.nc.MaxPayload(), int64(x.plan.MaxMessage+headersMost)
	if most >= need {
		return nil
	}
	return []check.Finding{{
		Level: check.Warning, Code: "nats_max_payload",
		What:   fmt.Sprintf("max_payload is %d bytes, and a message may have %d with its headers", most, need),
		Why:    "larger ones go to the dead letters when they are due; the producer does not learn it earlier",
		Remedy: fmt.Sprintf("max_payload: %d in the server's configuration, or queues.*.max_message: %d", need, most-headersMost),
	}}
}

// permissions are the subjects that a user may publish to.
type permissions struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// askPermissions asks the server what we may; known is false if it does not tell.
func askPermissions(ctx context.Context, nc *natsgo.Conn) (may permissions, known bool) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	answer, err := nc.RequestWithContext(ctx, "$SYS.REQ.USER.INFO", nil)
	if err != nil {
		return permissions{}, false
	}
	var info struct {
		Data struct {
			Permissions struct {
				Publish permissions `json:"publish"`
			} `json:"permissions"`
		} `json:"data"`
	}
	err = json.Unmarshal(answer.Data, &info)
	return info.Data.Permissions.Publish, err == nil
}

func (p permissions) allow(subject string) bool {
	matches := func(pattern string) bool { return covers(pattern, subject) }
	return (len(p.Allow) == 0 || slices.ContainsFunc(p.Allow, matches)) && !slices.ContainsFunc(p.Deny, matches)
}

// covers reports whether a pattern with * and > covers a subject.
func covers(pattern, subject string) bool {
	tokens := strings.Split(subject, ".")
	for i, wanted := range strings.Split(pattern, ".") {
		switch {
		case wanted == ">":
			return i < len(tokens)
		case i >= len(tokens), wanted != "*" && wanted != tokens[i]:
			return false
		}
	}
	return strings.Count(pattern, ".") == len(tokens)-1
}

// again is a duration as a stream's configuration takes it.
func again(d time.Duration) string { return d.Round(time.Second).String() }
