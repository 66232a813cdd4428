package config

import (
	"maps"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

const nameRule = "give " + message.QueueNameRule

var validInstance = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$`)

// checker makes the checks between keys and of values that have a grammar of
// their own. It looks only at values that were decoded without a problem.
type checker struct {
	*problems
	parser
	config *Config
}

func (c checker) check() {
	c.top()
	c.redis()
	c.poller()
	c.outboxes()
	c.compensation()
	c.inlets()
	c.queueFiles()
	for _, name := range slices.Sorted(maps.Keys(c.config.Queues)) {
		c.queue("queues."+name, c.config.Queues[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.config.Sinks)) {
		c.sink("sinks."+name, c.config.Sinks[name])
	}
}

func (c checker) top() {
	const rule = "%q: give letters, digits and _ . : -, the first a letter or a digit, %d at the most"
	if !c.reported("prefix") && !message.KeyPrefix.MatchString(c.config.Prefix) {
		c.add("prefix", rule, c.config.Prefix, 63)
	}
	if !c.reported("instance") && !validInstance.MatchString(c.config.Instance) {
		c.add("instance", rule, c.config.Instance, 128)
	}
	c.admin(c.config.Admin)
	c.lines("encryption.keys", c.config.Encryption.Keys, func(content []byte) error {
		_, err := seal.Parse(content)
		return err
	})
}

func (c checker) admin(admin Admin) {
	c.listener("admin.listen", admin.Listen)
	c.listener("admin.probes", admin.Probes)
	if admin.Probes != "" && admin.Probes == admin.Listen && !strings.HasSuffix(admin.Listen, ":0") {
		c.add("admin.probes", "%q is the address of admin.listen too", admin.Probes)
	}
	c.lines("admin.auth.tokens_file", admin.Auth.TokensFile, func(content []byte) error {
		_, err := access.Parse(content)
		return err
	})
	if admin.TLS != nil && !c.reported("admin.tls") {
		if err := c.checkListenerTLS(*admin.TLS); err != nil {
			c.add("admin.tls", "%v", err)
		}
	}
	c.auth("admin.auth", admin)
}

// auth checks by what callers are known, besides the file of tokens.
func (c checker) auth(path string, admin Admin) {
	for _, p := range admin.Auth.Settings().Check() {
		if key := path + "." + p.Key; !c.reported(key) {
			c.add(key, "%s", strings.ReplaceAll(p.Err.Error(), "\n", "; "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(admin.Auth.Issuers)) {
		c.files(path+".issuers."+name, reflect.ValueOf(admin.Auth.Issuers[name]))
	}
	if hasRoots := admin.TLS != nil && admin.TLS.ClientCAFile != ""; len(admin.Auth.Certificates) > 0 && !hasRoots {
		c.add(path+".certificates", "needs admin.tls.client_ca_file: without it no certificate is asked for")
	}
}

// lines checks each line of a file. The errors of parse show no secret.
func (c checker) lines(path, name string, parse func(content []byte) error) {
	if name == "" || c.reported(path) {
		return
	}
	content, err := c.readFile(name)
	if err == nil {
		err = parse(content)
	}
	if err != nil {
		c.add(path, "%s: %s", name, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// poller checks that a lease is renewed at least twice before it ends.
func (c checker) poller() {
	poller := c.config.Poller
	if c.reported("poller") {
		return
	}
	if poller.MaxSleep > poller.Lease/2 {
		c.add("poller.max_sleep", "%s is too long, at most half of poller.lease (%s) is allowed",
			formatDuration(poller.MaxSleep), formatDuration(poller.Lease))
	}
}

func (c checker) queue(path string, queue Queue) {
	_, ok := c.config.Sinks[queue.Sink]
	// Without any sink, only that is reported.
	if !ok && len(c.config.Sinks) > 0 && !c.reported(path+".sink") && !c.reported("sinks."+queue.Sink) {
		known := strings.Join(slices.Sorted(maps.Keys(c.config.Sinks)), ", ")
		c.add(path+".sink", "%q is no sink, there are: %s", queue.Sink, known)
	}
	if queue.Retry.Initial > queue.Retry.Max && !c.reported(path+".retry") {
		c.add(path+".retry.initial", "%s is longer than retry.max (%s)",
			formatDuration(queue.Retry.Initial), formatDuration(queue.Retry.Max))
	}
	c.ownership(path, queue.Owner, queue.Contacts)
	c.rate(path+".rate.topics", queue)
	c.topics(path+".topics", queue)
	c.canary(path, queue)
	if late := queue.Late; late.Then != message.LatePublish && late.After == 0 && !c.reported(path+".late") {
		c.add(path+".late.after", "is needed where late.then is %s: how long after its due time a message may be published", late.Then)
	}
}

// canary checks that the queue takes its own canaries.
func (c checker) canary(path string, queue Queue) {
	topic := queue.Canary.Topic
	if topic == "" || c.reported(path+".canary") {
		return
	}
	if err := message.CheckTopic(c.config.Sinks[queue.Sink].Type, topic); err != nil {
		c.add(path+".canary.topic", "%q: %v", topic, err)
		return
	}
	if taken := message.Topics(queue.Topics); !c.reported(path+".topics") && taken.Check(topic) != nil {
		c.add(path+".canary.topic", "%q is not among %s.topics, which has only %s", topic, path, taken)
	}
}

// maxRated is how many topics of a queue may have a rate: each may take a slot of every shard.
const maxRated = 256

// rate checks the rates of topics.
func (c checker) rate(path string, queue Queue) {
	if c.reported(path) {
		return
	}
	if n := len(queue.Rate.Topics); n > maxRated {
		c.add(path, "%d topics have a rate, allowed are %d", n, maxRated)
	}
	seen := map[string]bool{}
	for _, text := range queue.Rate.Topics {
		topic, _, err := parseTopicRate(text)
		if err == nil {
			err = message.CheckTopic(c.config.Sinks[queue.Sink].Type, topic)
		}
		switch {
		case err != nil:
			c.add(path, "%q: %v", text, err)
		case seen[topic]:
			c.add(path, "%q: the topic has a rate already", text)
		}
		seen[topic] = true
	}
}

// maxTopics is how many topics a queue may name: each producer reads them every ten seconds.
const maxTopics = 256

// topics checks those that the queue takes.
func (c checker) topics(path string, queue Queue) {
	if c.reported(path) {
		return
	}
	if n := len(queue.Topics); n > maxTopics {
		c.add(path, "%d topics are named, allowed are %d", n, maxTopics)
	}
	for _, pattern := range queue.Topics {
		if err := message.CheckTopic(c.config.Sinks[queue.Sink].Type, strings.ReplaceAll(pattern, "*", "x")); err != nil {
			c.add(path, "%q: %v", pattern, err)
		}
	}
}

// listener checks an address to listen on: host and port, the host may be empty.
func (c checker) listener(path, address string) {
	if address == "" || c.reported(path) {
		return
	}
	if _, port, err := net.SplitHostPort(address); err != nil || !kind.IsPort(port) {
		c.add(path, "%q is no address, give host:port", address)
	}
}

// file checks that a file that a key names can be read.
func (c checker) file(path, name string) {
	if name == "" || c.reported(path) {
		return
	}
	if _, err := c.readFile(name); err != nil {
		c.add(path, "%v", err)
	}
}

// tls checks that the files of a TLS section hold what they should.
func (c checker) tls(path string, files *tlsclient.Files) {
	if files == nil || c.reported(path) {
		return
	}
	if err := c.checkTLS(*files); err != nil {
		c.add(path, "%v", err)
	}
}
