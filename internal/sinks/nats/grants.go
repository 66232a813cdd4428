package nats

import (
	"cmp"
	"strings"

	"github.com/delaybridge/delaybridge/internal/sinks/kind"
)

// Grants implements [kind.Settings]: to publish, and to hear the answers.
func (c Config) Grants(use kind.Use) []string {
	user := cmp.Or(kind.UserOf(c.servers()), c.User, kind.AnyUser)
	publish := []string{"$JS.API.INFO", "$JS.API.STREAM.NAMES"} // Is there a JetStream, and why was there no answer?
	var lines []string
	for _, pattern := range use.Topics {
		subject := subjectOf(pattern)
		if subject != pattern && strings.TrimSuffix(subject, ">") != strings.TrimSuffix(pattern, "*") {
			lines = append(lines, "# NATS has whole tokens only, so "+subject+" is more than "+pattern+".")
		}
		publish = append(publish, subject)
	}
	for _, of := range use.Consumed {
		stream, dead := strings.ReplaceAll(of.Topic, ".", "-"), strings.ReplaceAll(of.Dead, ".", "-")
		lines = append(lines, "# Where other streams than "+stream+" and "+dead+" bind these subjects, put their names; the bridge makes none then.")
		publish = append(publish,
			"$JS.API.STREAM.CREATE."+stream, "$JS.API.STREAM.CREATE."+dead,
			"$JS.API.CONSUMER.CREATE."+stream+"."+of.Group+"."+of.Topic, "$JS.API.CONSUMER.MSG.NEXT."+stream+"."+of.Group,
			"$JS.ACK."+stream+"."+of.Group+".>")
	}
	for _, of := range use.Inlets {
		publish = append(publish,
			"$JS.API.CONSUMER.CREATE."+of.Stream+"."+of.Group+"."+of.Topic, "$JS.API.CONSUMER.INFO."+of.Stream+"."+of.Group,
			"$JS.API.CONSUMER.MSG.NEXT."+of.Stream+"."+of.Group, "$JS.ACK."+of.Stream+"."+of.Group+".>")
	}
	return append(lines,
		"{user: "+user+", password: PASSWORD, permissions: {",
		"  publish: {allow: ["+quoted(publish)+"]},",
		`  subscribe: {allow: ["_INBOX.>"]}}}`)
}

// subjectOf is the narrowest subject of NATS that covers the pattern.
func subjectOf(pattern string) string {
	before, _, isPattern := strings.Cut(pattern, "*")
	if !isPattern {
		return pattern
	}
	return before[:strings.LastIndexByte(before, '.')+1] + ">"
}

func quoted(list []string) string { return `"` + strings.Join(list, `", "`) + `"` }
