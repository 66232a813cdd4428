package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

var _ sinks.Checker = (*Sink)(nil)

// Check implements [sinks.Checker]. AMQP shows whether exchanges and queues exist;
// all else is known to the management API only.
func (s *Sink) Check(ctx context.Context, plan sinks.Plan) []check.Finding {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	endpoints, err := s.config.check()
	if err != nil {
		return []check.Finding{unanswered("", err)}
	}
	conn, ok, findings := sinks.FirstThatAnswers(endpoints, func(e endpoint) (nodeConnection, error) { return s.look(ctx, e) }, nodeConnection.end,
		func(e endpoint, err error) check.Finding { return unanswered(e.host, err) })
	if !ok {
		return findings
	}
	defer conn.end()
	cut := context.AfterFunc(ctx, func() { _ = conn.socket.Close() }) // The driver waits without end.
	defer cut()
	findings = append(findings, s.declared(conn.Connection, plan.Topics)...)
	if s.config.Management == "" {
		return append(findings, check.Finding{
			Level: check.Note, Code: "rabbitmq_hidden",
			What:   "bindings, queue types, limits and alarms were not checked: AMQP does not show them",
			Why:    "messages of an unbound routing key wait; a classic queue is lost with its node",
			Remedy: "sinks.*.management: http://HOST:15672, with a user that has the tag monitoring",
		})
	}
	m, err := newManagement(s.config)
	if err != nil {
		return append(findings, unmanaged(err))
	}
	return append(findings, m.check(ctx, s.config.Exchange, plan)...)
}

// nodeConnection is a connection to one node, with its socket.
type nodeConnection struct {
	*amqp.Connection

	socket net.Conn
}

// end closes the connection; nothing is pending.
func (l nodeConnection) end() { _ = l.CloseDeadline(time.Now().Add(closeTimeout)) }

// look connects to one node.
func (s *Sink) look(ctx context.Context, e endpoint) (l nodeConnection, err error) {
	l.Connection, err = s.config.dialNode(ctx, e, func(c net.Conn) net.Conn { l.socket = c; return &boundedWrites{c} }, nil)
	return l, err
}

// declared asks, passively, whether the exchange is there, and without one the
// queues that the topics name.
func (s *Sink) declared(conn *amqp.Connection, topics []string) []check.Finding {
	if exchange := s.config.Exchange; exchange != "" {
		return s.passive(conn, "exchange "+exchange, fmt.Sprintf("rabbitmqadmin declare exchange name=%s type=topic durable=true", exchange),
			func(channel *amqp.Channel) error {
				return channel.ExchangeDeclarePassive(exchange, amqp.ExchangeTopic, true, false, false, false, nil)
			})
	}
	var findings []check.Finding
	for _, topic := range topics {
		findings = append(findings, s.passive(conn, "queue "+topic, fmt.Sprintf("rabbitmqadmin declare queue name=%s queue_type=quorum durable=true", topic),
			func(channel *amqp.Channel) error {
				_, err := channel.QueueDeclarePassive(topic, true, false, false, false, nil)
				return err
			})...)
	}
	return findings
}

// passive asks for one thing on a channel of its own, which a "no" closes.
func (s *Sink) passive(conn *amqp.Connection, what, declare string, ask func(*amqp.Channel) error) []check.Finding {
	channel, err := conn.Channel()
	if err != nil {
		return []check.Finding{unanswered(what, err)}
	}
	defer func() { _ = channel.Close() }() // A "no" has closed it.
	err = ask(channel)
	f := check.Finding{Level: check.Error, Subject: what, Why: "its messages wait, and after park_patience they go to the dead letters"}
	var exception *amqp.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exception):
		return []check.Finding{unanswered(what, err)}
	case exception.Code == amqp.NotFound:
		f.Code, f.What, f.Remedy = "rabbitmq_missing", "it does not exist", declare
	case exception.Code == amqp.AccessRefused:
		f.Code, f.What = "rabbitmq_denied", exception.Reason
		f.Remedy = `rabbitmqctl set_permissions -p VHOST USER "" ".*" ""`
	case exception.Code == amqp.ResourceLocked:
		f.Code, f.What = "rabbitmq_exclusive", "it is exclusive to another connection"
		f.Why, f.Remedy = "it vanishes with that connection, and its messages with it", "declare it again, durable and not exclusive"
	default:
		f.Code, f.What = "rabbitmq_refused", exception.Reason
		f.Remedy = "correct what the broker names"
	}
	return []check.Finding{f}
}

// unanswered is the finding of a node that does not answer, or refuses us.
func unanswered(subject string, err error) check.Finding {
	f := check.Finding{
		Level: check.Error, Code: "rabbitmq_unreachable", Subject: subject,
		What:   err.Error(),
		Why:    "nothing is published until a node answers; messages wait",
		Remedy: "correct sinks.*.url, or start the node",
	}
	if reasonOf(err) == sinks.ReasonAuth {
		f.Code, f.Remedy = "rabbitmq_login", "correct user, password and virtual host in sinks.*.url; `rabbitmqctl authenticate_user USER PASSWORD` tries a login"
	}
	return f
}
