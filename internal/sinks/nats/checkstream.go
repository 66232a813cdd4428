package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// nearlyFull is from how many percent on a stream is reported as nearly full.
const nearlyFull = 90

// subject looks at the stream that binds a subject; at each stream once.
func (x *examination) subject(ctx context.Context, subject string) []check.Finding {
	ctx, cancel := context.WithTimeout(ctx, 2*apiTimeout)
	defer cancel()
	of := "subject " + subject
	name, err := x.js.StreamNameBySubject(ctx, subject)
	if err == nil && x.streams[name] {
		return nil
	}
	var stream jetstream.Stream
	if err == nil {
		x.streams[name] = true
		stream, err = x.js.Stream(ctx, name)
	}
	switch {
	case err == nil:
		return judgeStream(stream.CachedInfo(), x.plan)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return []check.Finding{{
			Level: check.Error, Code: "nats_stream", Subject: of,
			What:   "no stream binds it",
			Why:    "its messages wait, and after park_patience they go to the dead letters",
			Remedy: fmt.Sprintf("nats stream add NAME --subjects %q --storage file --replicas 3 --dupe-window %s --defaults", subject, again(max(x.plan.Again, leastWindow))),
		}}
	case x.wasDenied(err):
		f := hidden("$JS.API.STREAM", "the stream was not looked at")
		f.Subject = of
		return []check.Finding{f}
	default:
		return []check.Finding{unanswered(of, fmt.Errorf("ask for its stream: %w", err))}
	}
}

// leastWindow is the duplicate window that is proposed at least: NATS' default.
const leastWindow = 2 * time.Minute

// judgeStream returns the problems of a stream.
func judgeStream(info *jetstream.StreamInfo, plan sinks.Plan) []check.Finding {
	c := &info.Config
	edit := "nats stream edit " + c.Name + " "
	findings := append(refuses(info), loses(info)...)
	if c.MaxMsgSize > 0 && int(c.MaxMsgSize) < plan.MaxMessage+headersMost {
		findings = append(findings, check.Finding{
			Level: check.Warning, Code: "nats_message_size",
			What:   fmt.Sprintf("its messages may have at most %d bytes, and ours may have %d", c.MaxMsgSize, plan.MaxMessage+headersMost),
			Why:    "larger ones go to the dead letters when they are due; the producer does not learn it earlier",
			Remedy: edit + fmt.Sprintf("--max-msg-size %d, or lower queues.*.max_message", plan.MaxMessage+headersMost),
		})
	}
	if c.Duplicates < plan.Again {
		findings = append(findings, check.Finding{
			Level: check.Warning, Code: "nats_duplicates",
			What:   fmt.Sprintf("its duplicate window is %v", c.Duplicates),
			Why:    fmt.Sprintf("if its bridge dies, a message may be published again %v later, when poller.claim_timeout is over. NATS would keep both", plan.Again),
			Remedy: edit + "--dupe-window " + again(max(plan.Again, leastWindow)),
		})
	}
	if c.Replicas < 2 {
		findings = append(findings, check.Finding{
			Level: check.Warning, Code: "nats_replicas",
			What:   "it has 1 replica",
			Why:    "a message that was published is lost with one disk, and the stream stands still with one server",
			Remedy: edit + "--replicas 3, in a cluster of three servers",
		})
	} else if behind := behind(info.Cluster); behind > 0 {
		findings = append(findings, check.Finding{
			Level: check.Warning, Code: "nats_replicas",
			What:   fmt.Sprintf("%d of %d replicas do not follow", behind, c.Replicas),
			Why:    "one more failure may stop the stream",
			Remedy: "start the servers that are down; `nats stream cluster peer-remove` replaces one",
		})
	}
	for i := range findings {
		findings[i].Subject = "stream " + c.Name
	}
	return findings
}

// refuses is why a stream takes no message, or soon will not.
func refuses(info *jetstream.StreamInfo) []check.Finding {
	c := &info.Config
	f := check.Finding{Level: check.Error, Why: "its messages wait", Remedy: "nats stream edit " + c.Name + " --max-msgs N --max-bytes N, or purge what nobody needs"}
	share := max(percent(info.State.Msgs, c.MaxMsgs), percent(info.State.Bytes, c.MaxBytes))
	switch {
	case c.NoAck:
		f.Code, f.What, f.Why = "nats_no_ack", "it acknowledges nothing (no_ack)", "nothing ever counts as published: every message is sent again and again"
		f.Remedy = "nats stream edit " + c.Name + " --ack"
	case c.Sealed:
		f.Code, f.What, f.Remedy = "nats_sealed", "it is sealed", "make another stream for the subject: a seal cannot be removed"
	case info.Cluster != nil && info.Cluster.Leader == "":
		f.Code, f.What, f.Remedy = "nats_leader", "it has no leader", "start the servers that have its replicas"
	case c.Discard == jetstream.DiscardNew && share >= 100:
		f.Code, f.What = "nats_full", "it is full, and refuses new messages"
	case c.Discard == jetstream.DiscardNew && share >= nearlyFull:
		f.Level, f.Code, f.What = check.Warning, "nats_full", fmt.Sprintf("it is at %d %% of its limit, at which it refuses new messages", share)
	default:
		return nil
	}
	return []check.Finding{f}
}

// loses is how a stream would lose what it has acknowledged, or never keep it.
func loses(info *jetstream.StreamInfo) []check.Finding {
	c := &info.Config
	edit := "nats stream edit " + c.Name + " "
	var findings []check.Finding
	warn := func(code, what, why, remedy string) {
		findings = append(findings, check.Finding{Level: check.Warning, Code: code, What: what, Why: why, Remedy: remedy})
	}
	if c.Storage == jetstream.MemoryStorage {
		warn("nats_storage", "its storage is memory", "what was published and not consumed is lost with a restart",
			"make it anew with --storage file: a stream's storage cannot be changed")
	}
	isLog := c.Retention == jetstream.LimitsPolicy
	limited := c.MaxMsgs > 0 || c.MaxBytes > 0 || c.MaxMsgsPerSubject > 0
	if !isLog && limited && c.Discard == jetstream.DiscardOld {
		warn("nats_discard", "it has a limit and discards what is old",
			"at its limit it deletes messages that nobody has consumed, without a word", edit+"--discard new")
	}
	if c.Retention == jetstream.InterestPolicy && info.State.Consumers == 0 {
		warn("nats_interest", "its retention is interest, and it has no consumer",
			"what is published is acknowledged and thrown away", "make the consumer before: nats consumer add "+c.Name)
	}
	return findings
}

// behind counts the replicas that do not follow.
func behind(cluster *jetstream.ClusterInfo) (n int) {
	if cluster == nil {
		return 0
	}
	for _, peer := range cluster.Replicas {
		if peer.Offline || !peer.Current {
			n++
		}
	}
	return n
}

func percent(n uint64, limit int64) int {
	if limit <= 0 {
		return 0
	}
	return int(min(n*100/uint64(limit), 100))
}
