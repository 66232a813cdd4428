package rabbitmq

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/delaybridge/delaybridge/internal/sinks/kind"
)

// Grants implements [kind.Settings]: to write to the exchange; topics can be limited further
// if that is a topic exchange.
func (c Config) Grants(use kind.Use) []string {
	of := " -p " + kind.Shell(c.vhost()) + " " + kind.Shell(cmp.Or(kind.UserOf(kind.SplitURLs(c.URL)), c.User, kind.AnyUser)) + " "
	r := c.resources(use)
	lines := []string{"rabbitmqctl set_permissions" + of + "'" + r.configure + "' '" + r.write + "' '" + r.read + "'"}
	if c.Exchange == "" || slices.Contains(use.Topics, "*") {
		return lines
	}
	topics := make([]string, len(use.Topics))
	for i, pattern := range use.Topics {
		topics[i] = strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*")
	}
	bound := []string{}
	for _, of := range use.Consumed {
		bound = append(bound, of.Topic, of.Dead)
	}
	return append(lines, "# Only where "+c.Exchange+" is a topic exchange:",
		"rabbitmqctl set_topic_permissions"+of+kind.Shell(c.Exchange)+" '^("+strings.Join(topics, "|")+")$' '"+names(bound)+"'")
}

// resources are expressions for the names of exchanges and queues.
type resources struct{ configure, write, read string }

func (c Config) resources(use kind.Use) resources {
	exchange := cmp.Or(c.Exchange, "amq.default")
	var configure, read []string
	write := []string{exchange}
	for _, of := range use.Consumed {
		configure = append(configure, of.Topic, of.Dead)
		read = append(read, of.Topic)
		if c.Exchange != "" { // The queues are bound to it.
			write, read = append(write, of.Topic, of.Dead), append(read, exchange)
		}
	}
	for _, of := range use.Inlets {
		read = append(read, of.Topic)
	}
	return resources{names(configure), names(write), names(read)}
}

// vhost is the virtual host of the sink's first URL.
func (c Config) vhost() string {
	for _, text := range kind.SplitURLs(c.URL) {
		if u, err := url.Parse(text); err == nil && len(u.Path) > 1 {
			return u.Path[1:]
		}
	}
	return "/"
}

// names is an expression for these names and no others: empty for none.
func names(list []string) string {
	if len(list) == 0 {
		return ""
	}
	list = slices.Clone(list)
	slices.Sort(list)
	list = slices.Compact(list)
	for i, name := range list {
		list[i] = regexp.QuoteMeta(name)
	}
	return "^(" + strings.Join(list, "|") + ")$"
}
