package kafka

import (
	"cmp"
	"strings"

	"github.com/delaybridge/delaybridge/internal/sinks/kind"
)

// Grants implements [kind.Settings]: to write, which implies to describe.
func (c Config) Grants(use kind.Use) []string {
	user := kind.AnyUser
	if c.SASL != nil {
		user = cmp.Or(c.SASL.Username, user)
	}
	add := "kafka-acls --bootstrap-server " + strings.Join(c.Brokers, ",") + " --add --allow-principal " + kind.Shell("User:"+user)
	var lines []string
	for _, pattern := range use.Topics {
		prefix, rest, isPattern := strings.Cut(pattern, "*")
		switch {
		case !isPattern:
			lines = append(lines, add+" --operation Write --topic "+kind.Shell(pattern))
		case prefix == "":
			lines = append(lines, add+" --operation Write --topic '*'")
		default:
			if rest != "" {
				lines = append(lines, "# Kafka has prefixes only, so this is more than "+pattern+":")
			}
			lines = append(lines, add+" --operation Write --resource-pattern-type prefixed --topic "+kind.Shell(prefix))
		}
	}
	for _, of := range use.Inlets {
		lines = append(lines, add+" --operation Read --topic "+kind.Shell(of.Topic), add+" --operation Read --group "+kind.Shell(of.Group))
	}
	for _, of := range use.Consumed {
		lines = append(lines,
			add+" --operation Read --topic "+kind.Shell(of.Topic),
			add+" --operation Read --group "+kind.Shell(of.Group),
			"# Only where the bridge is to make these topics:",
			add+" --operation Create --topic "+kind.Shell(of.Topic),
			add+" --operation Create --topic "+kind.Shell(of.Dead))
	}
	return lines
}
