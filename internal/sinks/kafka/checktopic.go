package kafka

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// leastTimestampSlack is how far the clocks of the bridge and of a broker may
// differ before a topic that looks at timestamps refuses our records.
const leastTimestampSlack = time.Minute

// topicState is a topic in numbers.
type topicState struct {
	partitions int
	// replicas and inSync are those of the partition that has the fewest.
	replicas, inSync int
	leaderless       int
	// leastInSync is min.insync.replicas; 0 if it is not known.
	leastInSync int
}

// judgeTopic returns the problems of one topic.
func judgeTopic(topic *metadata.ResponseTopic, about settings, brokers int, plan sinks.Plan) []check.Finding {
	if topic.ErrorCode != 0 {
		return []check.Finding{noTopic(topic.Name, kafka.Error(topic.ErrorCode), about.creates, brokers)}
	}
	values := about.topics[topic.Name]
	state := stateOf(topic, values)
	findings := append(state.judge(topic.Name), judgeSettings(topic.Name, values, plan)...)
	if may, known := mayWrite(topic); known && !may {
		findings = append(findings, check.Finding{
			Level: check.Error, Code: "kafka_denied",
			What:   "we may not write to it",
			Why:    "its messages wait, and after park_patience they go to the dead letters",
			Remedy: "kafka-acls --add --allow-principal User:NAME --operation Write --operation Describe --topic " + topic.Name,
		})
	}
	for i := range findings {
		findings[i].Subject = "topic " + topic.Name
	}
	return findings
}

func noTopic(name string, err error, creates bool, brokers int) check.Finding {
	f := check.Finding{
		Level: check.Error, Code: "kafka_topic", Subject: "topic " + name,
		What:   err.Error(),
		Why:    "its messages wait, and after park_patience they go to the dead letters",
		Remedy: fmt.Sprintf("kafka-topics --create --topic %s --replication-factor %d", name, min(3, max(1, brokers))),
	}
	if brokers > 2 {
		f.Remedy += " --config min.insync.replicas=2"
	}
	switch {
	case errors.Is(err, kafka.UnknownTopicOrPartition):
		f.What = "it does not exist"
		if creates {
			f.What += "; auto.create.topics.enable is on, but the bridge asks for no topic to be made"
		}
	case errors.Is(err, kafka.TopicAuthorizationFailed):
		f.Code, f.What = "kafka_denied", "we may not even see it"
		f.Remedy = "kafka-acls --add --allow-principal User:NAME --operation Write --operation Describe --topic " + name
	}
	return f
}

func stateOf(topic *metadata.ResponseTopic, values map[string]string) topicState {
	state := topicState{partitions: len(topic.Partitions)}
	for i, p := range topic.Partitions {
		if i == 0 || len(p.ReplicaNodes) < state.replicas {
			state.replicas = len(p.ReplicaNodes)
		}
		if i == 0 || len(p.IsrNodes) < state.inSync {
			state.inSync = len(p.IsrNodes)
		}
		if p.LeaderID < 0 {
			state.leaderless++
		}
	}
	state.leastInSync, _ = strconv.Atoi(values["min.insync.replicas"])
	return state
}

// judge returns the worst problem of a topic's replicas.
func (s topicState) judge(topic string) []check.Finding {
	f := check.Finding{Level: check.Warning, Code: "kafka_replicas"}
	configure := "kafka-configs --alter --entity-type topics --entity-name " + topic + " --add-config min.insync.replicas=%d"
	const reassign = "give it 3 replicas: kafka-reassign-partitions"
	switch {
	case s.partitions == 0 || s.leaderless > 0:
		f.Level, f.Code = check.Error, "kafka_leader"
		f.What = fmt.Sprintf("%d of %d partitions have no leader", s.leaderless, s.partitions)
		f.Why, f.Remedy = "their messages wait", "start the brokers that have their replicas"
	case s.leastInSync > s.replicas:
		f.Level, f.Code = check.Error, "kafka_min_insync"
		f.What = fmt.Sprintf("min.insync.replicas is %d of %s", s.leastInSync, replicas(s.replicas))
		f.Why, f.Remedy = "no message can ever be acknowledged", fmt.Sprintf(configure, max(1, s.replicas-1))
	case s.leastInSync > s.inSync:
		f.Level, f.Code = check.Error, "kafka_in_sync"
		f.What = fmt.Sprintf("%d in sync, and min.insync.replicas is %d", s.inSync, s.leastInSync)
		f.Why, f.Remedy = "no message is acknowledged until the replicas follow", "start the brokers that are down"
	case s.replicas < 2:
		f.What = "replication factor is 1"
		f.Why, f.Remedy = "a message that was published is lost with one disk, and the topic stands still with one broker", reassign
	case s.leastInSync == 1:
		f.Code, f.What = "kafka_min_insync", fmt.Sprintf("min.insync.replicas is 1 of %s", replicas(s.replicas))
		f.Why, f.Remedy = "with one replica left a message counts as published, and is lost with that one", fmt.Sprintf(configure, s.replicas-1)
		if s.replicas == 2 {
			f.Remedy = reassign + ", and " + fmt.Sprintf(configure, 2)
		}
	case s.leastInSync == s.replicas:
		f.Code, f.What = "kafka_min_insync", fmt.Sprintf("min.insync.replicas is %d of %s", s.leastInSync, replicas(s.replicas))
		f.Why, f.Remedy = "a restart of any broker stops the topic", reassign
		if s.replicas > 2 {
			f.Remedy = fmt.Sprintf(configure, s.replicas-1)
		}
	case s.inSync < s.replicas:
		f.Code, f.What = "kafka_in_sync", fmt.Sprintf("only %d of %s are in sync", s.inSync, replicas(s.replicas))
		f.Why, f.Remedy = "one more failure may stop the topic", "start the brokers that are down"
	default:
		return nil
	}
	return []check.Finding{f}
}

func replicas(n int) string {
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}

// judgeSettings is what a topic's settings would do to our records.
func judgeSettings(topic string, values map[string]string, plan sinks.Plan) []check.Finding {
	var findings []check.Finding
	warn := func(code, what, why, setting string) {
		findings = append(findings, check.Finding{
			Level: check.Warning, Code: code, What: what, Why: why,
			Remedy: "kafka-configs --alter --entity-type topics --entity-name " + topic + " --add-config " + setting,
		})
	}
	need := plan.MaxMessage + recordOverhead + ownHeaders
	if most, err := strconv.Atoi(values["max.message.bytes"]); err == nil && most < need {
		warn("kafka_message_size", fmt.Sprintf("max.message.bytes is %d, and a message may have %d", most, need),
			"larger ones go to the dead letters when they are due; the producer does not learn it earlier",
			fmt.Sprintf("max.message.bytes=%d (or lower queues.*.max_message)", need))
	}
	if strings.Contains(values["cleanup.policy"], "compact") {
		warn("kafka_compact", "cleanup.policy is "+values["cleanup.policy"],
			"a message without a Key is refused for good, and of messages of one Key only the last is kept", "cleanup.policy=delete")
	}
	if values["unclean.leader.election.enable"] == "true" {
		warn("kafka_unclean", "unclean.leader.election.enable is true",
			"a replica that lags may become the leader: acknowledged messages that it lacks are lost", "unclean.leader.election.enable=false")
	}
	if values["message.timestamp.type"] == "LogAppendTime" {
		return findings
	}
	for _, name := range []string{"message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "message.timestamp.difference.max.ms"} {
		if slack, ok := milliseconds(values, name); ok && slack < leastTimestampSlack {
			warn("kafka_timestamps", fmt.Sprintf("%s is %v, and message.timestamp.type is CreateTime", name, slack),
				"records are refused if the clocks of bridge and broker differ by more, or a slow network takes longer",
				name+"=3600000 (or message.timestamp.type=LogAppendTime)")
		}
	}
	return findings
}
