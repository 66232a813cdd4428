package rabbitmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/kind"
)

const (
	// managementTimeout is how long the management API may take for one answer.
	managementTimeout = 5 * time.Second
	// managementMost bounds an answer: the bindings of an exchange are the longest.
	managementMost = 16 << 20
)

var (
	errAbsent    = errors.New("not there")
	errForbidden = errors.New("the management API refuses the user, who needs the tag monitoring")
)

// management asks the management API. It only reads.
type management struct {
	base     *url.URL
	user     string
	password string
	vhost    string
	client   *http.Client
}

// newManagement logs in as the URL of the API says, or else as that of the sink.
func newManagement(c Config) (*management, error) {
	base, err := url.Parse(c.Management)
	if err != nil || base.Host == "" {
		return nil, errors.New("management: is no URL")
	}
	broker, err := amqp.ParseURI(kind.SplitURLs(c.URL)[0])
	if err != nil {
		return nil, errors.New("url: is no URL")
	}
	login, err := c.passwordOf(broker.Username, broker.Password)
	if err != nil {
		return nil, err
	}
	m := &management{base: base, user: login.Username, password: login.Password, vhost: broker.Vhost}
	if base.User != nil {
		m.user = base.User.Username()
		m.password, _ = base.User.Password()
		base.User = nil
	}
	tls, err := c.tlsConfig()
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	m.client = &http.Client{Timeout: managementTimeout, Transport: &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true}}
	return m, nil
}

// get reads one resource, whose path has parts that need not be fit for a URL.
func (m *management) get(ctx context.Context, into any, path ...string) error {
	for i, part := range path {
		path[i] = url.PathEscape(part)
	}
	address := strings.TrimSuffix(m.base.String(), "/") + "/api/" + strings.Join(path, "/")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	request.SetBasicAuth(m.user, m.password)
	answer, err := m.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // It was read, or is of no use.
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return errAbsent
	case http.StatusUnauthorized, http.StatusForbidden:
		return errForbidden
	default:
		return fmt.Errorf("%s: %s", address, answer.Status)
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, managementMost)).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	return nil
}

// check looks at the nodes and at where each topic leads.
func (m *management) check(ctx context.Context, exchange string, plan sinks.Plan) []check.Finding {
	findings, err := m.nodes(ctx)
	if err != nil {
		return []check.Finding{unmanaged(err)}
	}
	var rules *exchangeRules
	if exchange != "" {
		if rules, err = m.exchange(ctx, exchange); err != nil {
			if !errors.Is(err, errAbsent) { // AMQP has told that it is missing.
				findings = append(findings, unmanaged(err))
			}
			return findings
		}
		findings = append(findings, rules.judge()...)
	}
	looked := map[string]bool{}
	for _, topic := range plan.Topics {
		queues := []string{topic}
		if rules != nil {
			var unbound []check.Finding
			queues, unbound = rules.route(topic)
			findings = append(findings, unbound...)
		}
		for _, name := range queues {
			if looked[name] {
				continue
			}
			looked[name] = true
			var q queue
			err := m.get(ctx, &q, "queues", m.vhost, name)
			switch {
			case err == nil:
				findings = append(findings, q.judge()...)
			case !errors.Is(err, errAbsent): // Else AMQP has told.
				return append(findings, unmanaged(err))
			}
		}
	}
	return findings
}

// nodes are the alarms.
func (m *management) nodes(ctx context.Context) ([]check.Finding, error) {
	var nodes []struct {
		Name       string   `json:"name"`
		Running    bool     `json:"running"`
		Memory     bool     `json:"mem_alarm"`
		Disk       bool     `json:"disk_free_alarm"`
		Partitions []string `json:"partitions"`
	}
	if err := m.get(ctx, &nodes, "nodes"); err != nil {
		return nil, err
	}
	var findings []check.Finding
	for _, node := range nodes {
		add := func(level check.Level, code, what, why, remedy string) {
			findings = append(findings, check.Finding{Level: level, Code: code, Subject: "node " + node.Name, What: what, Why: why, Remedy: remedy})
		}
		const blocked = "the whole broker takes no message from anybody until it is over"
		if node.Memory {
			add(check.Error, "rabbitmq_memory", "memory alarm", blocked, "have the queues consumed, or raise vm_memory_high_watermark")
		}
		if node.Disk {
			add(check.Error, "rabbitmq_disk", "disk alarm", blocked, "make room on its disk, or lower disk_free_limit")
		}
		if !node.Running {
			add(check.Warning, "rabbitmq_node", "it is down", "queues have one copy less", "start it, or rabbitmqctl forget_cluster_node "+node.Name)
		}
		if len(node.Partitions) > 0 {
			add(check.Error, "rabbitmq_partition", "it sees a network partition: "+strings.Join(node.Partitions, ", "),
				"classic queues lose what was confirmed when it is healed", "restart the nodes of the smaller part; set cluster_partition_handling")
		}
	}
	return findings, nil
}

// unmanaged is the finding of a management API that does not answer.
func unmanaged(err error) check.Finding {
	return check.Finding{
		Level: check.Warning, Code: "rabbitmq_management", Subject: "management API",
		What:   err.Error(),
		Why:    "bindings, queue types, limits and alarms were not checked",
		Remedy: "correct sinks.*.management; rabbitmq-plugins enable rabbitmq_management; rabbitmqctl set_user_tags USER monitoring",
	}
}
