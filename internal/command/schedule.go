package command

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

type scheduleCommand struct {
	queueFlags
	dueFlags
	Batch    string    `xor:"due" required:"" placeholder:"FILE" help:"Schedule one message per line of this file, - is standard input: JSON as the API takes it, with id, key, topic, headers, body or body_base64, in or at, spread, tags, late, conflict, max_wait."`
	Spread   *span     `placeholder:"DURATION" help:"Due up to this much later; how much follows from id and key, so it is the same every time."`
	MaxWait  *span     `placeholder:"DURATION" help:"With --in and --conflict replace: due at most this much later than the first of the messages that replace one another."`
	Late     lateFlags `embed:""`
	Topic    string    `placeholder:"TOPIC" help:"Where to publish: a Kafka topic, a RabbitMQ routing key, a NATS subject. Required without --batch."`
	ID       string    `name:"id" placeholder:"ID" help:"The message's id. Default: a new ULID."`
	Key      string    `placeholder:"KEY" help:"Messages of one key are published in due order; on Kafka the record's key."`
	Header   []string  `sep:"none" placeholder:"NAME=VALUE" help:"A header of the message; may be repeated."`
	Tag      []string  `sep:"none" placeholder:"TAG" help:"A label by which to find and change messages together; may be repeated."`
	Conflict string    `enum:"reject,keep,replace" default:"reject" placeholder:"reject|keep|replace" help:"What to do if a message of that id and key exists. With --batch: for lines that do not say."`
	Body     *string   `arg:"" optional:"" help:"The message's body; - reads it from standard input."`
}

// lateFlags say how late a message may be.
type lateFlags struct {
	Late     *span  `placeholder:"DURATION" help:"How late it may be published. Default: the queue's setting."`
	LateThen string `enum:"publish,dead,drop" default:"dead" placeholder:"publish|dead|drop" help:"What happens if it is later than --late: it is published all the same, goes to the dead letters, or is dropped, counted and logged."`
}

// late is what the flags say; without them nothing.
func (f lateFlags) late() delay.Late {
	if f.Late == nil {
		return delay.Late{}
	}
	return delay.Late{After: time.Duration(*f.Late), Then: delay.LateAction(f.LateThen)}
}

func (scheduleCommand) Help() string {
	return `Prints the message's id and due time. Exit code 3: a message of that id exists already.

With --batch each line has its own answer, with -o json an object with its number; a bad line does not
stop the others. Lines are scheduled as they come, so it may be the end of a pipe. Give ids and
--conflict keep if you may schedule a file twice. The exit code is 1 if Redis failed, else 2 if a
line is invalid, else 3 if one was refused.

Example:

    bridge schedule --config bridge.yaml --queue orders --topic order.timeout \
        --id order-42/timeout --in 30m '{"order": 42}'
    echo '{"id": "a", "topic": "order.timeout", "in": "30m", "body": "x"}' |
        bridge schedule --config bridge.yaml --queue orders --batch -`
}

// check requires either one message or a file of them.
func (c scheduleCommand) check() error {
	isOne := c.Topic != "" || c.Body != nil || c.ID != "" || c.Key != "" || len(c.Header)+len(c.Tag) > 0 || c.Spread != nil || c.MaxWait != nil || c.Late.Late != nil
	switch {
	case c.Batch != "" && isOne:
		return usagef("with --batch, the lines give everything except --conflict")
	case c.Batch != "":
		return nil
	case c.Topic == "":
		return usagef("missing flags: --topic=TOPIC")
	case c.Body == nil:
		return usagef("the message's body is missing: give it last, or - for standard input")
	}
	return nil
}

func (c scheduleCommand) Run(p *program) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Batch != "" {
		return c.runBatch(p)
	}
	headers, err := parseHeaders(c.Header)
	if err != nil {
		return err
	}
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	body, err := c.body(s)
	if err != nil {
		return err
	}
	s.resetTimer() // Reading standard input was not Redis' fault.
	m := delay.Message{ID: c.ID, Key: c.Key, Topic: c.Topic, Headers: headers, Body: body, Tags: c.Tag, Late: c.Late.late()}
	made := inspect.Change{Action: "schedule", Key: c.Key, Topic: c.Topic}
	return s.audited(&made, func() error {
		result, err := s.schedule(s.Clients[operate.Conflicts[c.Conflict]], m, c.adjust(c.when()))
		made.What = result.Ref.ID
		if !delay.Done(err) {
			return s.fail("schedule", result.Ref.ID, err)
		}
		if err != nil {
			s.warnNotDurable("schedule", result.Ref.ID)
		}
		made.Answer = string(result.Status)
		return c.print(s, result)
	})
}

// adjust adds spread and bound, if any.
func (c scheduleCommand) adjust(when delay.When) delay.When {
	if c.Spread != nil {
		when = when.Spread(time.Duration(*c.Spread))
	}
	if c.MaxWait != nil {
		when = when.MaxWait(time.Duration(*c.MaxWait))
	}
	return when
}

// schedule makes the queue's layout, if it is the first to use it.
func (s *session) schedule(client *delay.Client, m delay.Message, when delay.When) (delay.Result, error) {
	result, err := client.Schedule(s.ctx, m, when)
	if !errors.Is(err, delay.ErrNoLayout) {
		return result, err
	}
	if err := s.ensureLayout(); err != nil {
		return result, err
	}
	return client.Schedule(s.ctx, m, when)
}

func (s *session) ensureLayout() error {
	_, err := s.Store.Layouts().Ensure(s.ctx, s.config.Layout(s.sink))
	return err
}

// body is the argument, or standard input.
func (c scheduleCommand) body(s *session) ([]byte, error) {
	if *c.Body != "-" {
		return []byte(*c.Body), nil
	}
	s.silent.Stop()
	limit := int(s.config.MaxMessage)
	type input struct {
		bytes []byte
		err   error
	}
	read := make(chan input, 1)
	go func() { // A read cannot be interrupted; it ends with the program.
		bytes, err := io.ReadAll(io.LimitReader(s.program.stdin, int64(limit)+1))
		read <- input{bytes, err}
	}()
	select {
	case in := <-read:
		if in.err != nil {
			return nil, fmt.Errorf("read standard input: %w", in.err)
		}
		if len(in.bytes) > limit {
			return nil, &failure{
				code: "invalid", exit: exitUsage, id: c.ID,
				text: fmt.Sprintf("standard input has more than %d bytes, the limit of queue %s", limit, s.Name),
			}
		}
		return in.bytes, nil
	case <-s.program.ctx.Done():
		return nil, s.program.ctx.Err()
	}
}

// scheduleJSON is what was scheduled, or kept, as programs see it.
type scheduleJSON struct {
	operate.ScheduleResult

	Queue   string `json:"queue"`
	Topic   string `json:"topic"`
	State   string `json:"state"`
	Attempt int    `json:"attempt"`
}

// print tells what was scheduled, or kept: as it is now or, where it has ended meanwhile, as the
// answer said.
func (c scheduleCommand) print(s *session, result delay.Result) error {
	now := scheduleJSON{operate.ViewScheduled(result), s.Name, c.Topic, string(inspect.StateScheduled), 1}
	if result.Status == delay.Existing {
		found, err := s.Get(s.ctx, result.Ref)
		if err != nil && !errors.Is(err, delay.ErrNotFound) {
			return s.fail("get", result.Ref.ID, err)
		}
		if err == nil && !found.HasEnded {
			now.Topic, now.State, now.Attempt, result.DueAt = found.Snapshot.Topic, string(found.State), found.Snapshot.Attempt, found.Snapshot.DueAt
		}
	}
	if now.DueAt = operate.Stamp(result.DueAt); s.asJSON {
		return writeJSON(s.program.stdout, now)
	}
	what := "scheduled " + now.ID + ":"
	switch result.Status {
	case delay.Replaced:
		what = "replaced " + now.ID + ":"
	case delay.Existing:
		what = fmt.Sprintf("kept %s, which was there already: %s,", now.ID, now.State)
	case delay.Created, delay.Compensated:
	}
	_, err := fmt.Fprintf(s.program.stdout, "%s due %s%s\n", what, now.DueAt, relative(result.DueAt, time.Now()))
	return err
}

func parseHeaders(list []string) (map[string]string, error) {
	headers := make(map[string]string, len(list))
	for _, text := range list {
		name, value, found := strings.Cut(text, "=")
		if !found {
			return nil, usagef("--header %q: give NAME=VALUE", text)
		}
		if _, taken := headers[name]; taken {
			return nil, usagef("--header %q: %s is given twice", text, name)
		}
		headers[name] = value
	}
	return headers, nil
}
