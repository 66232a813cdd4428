package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
)

// outboxPath is the path of an outbox in the file: that of the section itself
// if it is one object.
func (c checker) outboxPath(name string) string {
	if c.single["outbox"] {
		return "outbox"
	}
	return join("outbox", name)
}

func (c checker) outboxes() {
	type table struct {
		driver    schema.Dialect
		dsn, name string
	}
	taken := map[table]string{}
	for _, name := range slices.Sorted(maps.Keys(c.config.Outbox)) {
		outbox := c.config.Outbox[name]
		path := c.outboxPath(name)
		dsn := c.dsn(path, outbox)
		if err := schema.CheckTable(outbox.Table); err != nil && !c.reported(path+".table") {
			c.add(path+".table", "%q: give %s", outbox.Table, schema.TableRule)
		}
		const polls = 10
		if !c.reported(path+".poll") && !c.reported(path+".horizon") && outbox.Horizon < polls*outbox.Poll {
			c.add(path+".horizon", "%s is too short, at least %d times poll (%s) is needed",
				formatDuration(outbox.Horizon), polls, formatDuration(outbox.Poll))
		}
		this := table{outbox.Driver, dsn, outbox.Table}
		if other, ok := taken[this]; ok && dsn != "" {
			c.add(path, "is the same table as outbox %s", other)
		}
		taken[this] = name
	}
}

// dsn checks where the database is, and returns it; empty if that is not known.
func (c checker) dsn(path string, outbox Outbox) string {
	c.file(path+".dsn_file", outbox.DSNFile)
	c.tls(path+".tls", outbox.TLS)
	if c.reported(path+".dsn") || c.reported(path+".dsn_file") || c.reported(path+".driver") {
		return ""
	}
	key := path + ".dsn"
	dsn, err := c.revealDSN(outbox)
	switch {
	case err != nil:
		c.add(key, "%v", err)
		return ""
	case dsn == "":
		c.add(key, "missing, give it or dsn_file")
		return ""
	case dsn == secret.Masked: // What Print writes can be loaded.
		return ""
	}
	if outbox.DSNFile != "" {
		key = path + ".dsn_file"
	}
	if err := c.checkDSN(outbox.Driver, dsn); err != nil {
		c.add(key, "%v", err)
		return ""
	}
	return dsn
}

func (c checker) revealDSN(outbox Outbox) (string, error) {
	if outbox.DSNFile == "" {
		return outbox.DSN.Reveal()
	}
	content, err := c.readFile(outbox.DSNFile)
	return strings.TrimRight(string(content), "\r\n"), err
}

// compensation checks the topics that have a queue of their own.
func (c checker) compensation() {
	type topic struct{ sink, name string }
	taken := map[topic]string{}
	for _, name := range slices.Sorted(maps.Keys(c.config.Queues)) {
		queue := c.config.Queues[name]
		this := topic{queue.Sink, c.config.CompensationTopic(name)}
		key := "queues." + name + ".compensation"
		if this.name == "" || c.reported(key) {
			continue
		}
		sink := c.config.Sinks[queue.Sink]
		if err := message.CheckTopic(sink.Type, this.name); err != nil {
			c.add(key, "%v", err)
		} else if sink.Settings("") != nil && !sink.IsConsumed() {
			c.add(key, "%q: sink %s is of type %s, from which nothing is consumed: give off", this.name, queue.Sink, sink.Type)
		}
		if other, ok := taken[this]; ok {
			c.add(key, "%q is the compensation topic of queue %s too", this.name, other)
		}
		taken[this] = name
	}
}
