package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/declared"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// How long a command waits for Redis: for its first answer, and later between
// two of them. Together they stay below 15 s.
const (
	connectPatience = 4 * time.Second
	answerPatience  = 9 * time.Second
	connectPause    = 100 * time.Millisecond
)

// session is a command's connection to a queue.
type session struct {
	program *program
	asJSON  bool
	// ctx ends with the program's, and when Redis is silent for too long.
	ctx    context.Context
	silent *time.Timer
	cancel context.CancelFunc

	*operate.Queue
	config config.Queue
	sink   message.SinkType
	keys   *seal.Keyring // of encrypted bodies; may be nil
	server string
	rdb    redis.UniversalClient
}

// open connects to the queue that the flags name.
func (f queueFlags) open(p *program) (*session, error) {
	cfg, err := loadConfig(p, f.Config)
	if err != nil {
		return nil, err
	}
	if !cfg.IsDeclaredByAPI() { // Else Redis may have it.
		err = isKnown("queue", f.Queue, f.Config, cfg.Queues)
	}
	if err != nil {
		return nil, err
	}
	s, err := openRedis(p, cfg, f.json())
	if err != nil {
		return nil, err
	}
	cfg = s.withDeclared(cfg)
	if err = isKnown("queue", f.Queue, f.Config, cfg.Queues); err == nil {
		err = s.choose(cfg, f.Queue)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// open connects, and returns a session a queue: of those that the flags mean, in the
// order of their names. They share a connection, which close ends.
func (f queuesFlags) open(p *program) (all []*session, err error) {
	cfg, err := loadConfig(p, f.Config)
	if err != nil {
		return nil, err
	}
	if !cfg.IsDeclaredByAPI() { // Else Redis may have it.
		_, err = f.names(cfg)
	}
	if err != nil {
		return nil, err
	}
	first, err := openRedis(p, cfg, f.json())
	if err != nil {
		return nil, err
	}
	cfg = first.withDeclared(cfg)
	names, err := f.names(cfg)
	if err != nil {
		first.close()
		return nil, err
	}
	for _, name := range names {
		s := *first
		if err := s.choose(cfg, name); err != nil {
			first.close()
			return nil, err
		}
		all = append(all, &s)
	}
	return all, nil
}

// names are those of the queues that the flags mean.
func (f queuesFlags) names(cfg *config.Config) ([]string, error) {
	switch {
	case f.Queue != "":
		return []string{f.Queue}, isKnown("queue", f.Queue, f.Config, cfg.Queues)
	case len(cfg.Queues) == 0:
		return nil, usagef("%s has no queue yet", f.Config)
	}
	return slices.Sorted(maps.Keys(cfg.Queues)), nil
}

// withDeclared adds the queues that were declared by the API, where the configuration allows it.
func (s *session) withDeclared(cfg *config.Config) *config.Config {
	if !cfg.IsDeclaredByAPI() {
		return cfg
	}
	all, err := declared.New(s.rdb, cfg.Prefix, cfg.Redis.Timeout).Look(s.ctx)
	if err != nil {
		warn(s.program, s.asJSON, "not_read", "", fmt.Sprintf("queues that were declared by the API are not known: %v", err))
		return cfg
	}
	queues := map[string]string{}
	for name, d := range all.Queues {
		queues[name] = string(d.Queue)
	}
	return cfg.With(cfg.Declare(queues))
}

// openRedis connects, and waits for the first answer.
func openRedis(p *program, cfg *config.Config, asJSON bool) (*session, error) {
	rdb, err := cfg.Redis.Open(cfg.Instance)
	if err != nil {
		return nil, err
	}
	s := &session{program: p, asJSON: asJSON, rdb: rdb, server: serverName(cfg.Redis)}
	s.ctx, s.cancel = context.WithCancel(p.ctx)
	if err := connect(s.ctx, rdb, s.server); err != nil {
		s.close()
		return nil, err
	}
	s.silent = time.AfterFunc(answerPatience, s.cancel)
	return s, nil
}

// choose makes it a session of that queue.
func (s *session) choose(cfg *config.Config, name string) (err error) {
	s.config = cfg.Queues[name]
	s.sink = cfg.Sinks[s.config.Sink].Type
	if s.keys, err = cfg.Encryption.Open(nil); err != nil {
		return err
	}
	s.Queue = &operate.Queue{
		Name: name, Sink: s.config.Sink, Owner: s.config.Owner, Contacts: s.config.Contacts, File: cfg.QueueFile(name), Store: store.New(s.rdb, cfg.Prefix, name).WithDurability(s.config.Confirmation()),
	}
	s.Clients, err = cfg.Clients(s.rdb, name, s.keys, delay.WithTimeout(answerPatience))
	return err
}

// withBody adds the body of a message of a list, unless it is encrypted and does not open.
func (s *session) withBody(view operate.Message, m *message.Message) operate.Message {
	if seal.Open(s.keys, m) == nil {
		view.Body = inBase64(m.Body)
	}
	return view
}

// isKnown looks for a name in a section of the configuration.
func isKnown[V any](what, name, file string, section map[string]V) error {
	if _, ok := section[name]; ok {
		return nil
	}
	known := slices.Sorted(maps.Keys(section))
	return usagef("unknown %s %q: %s has %s%s", what, name, file, strings.Join(known, ", "), config.DidYouMean(name, known))
}

func (s *session) close() {
	if s.silent != nil {
		s.silent.Stop()
	}
	s.cancel()
	_ = s.rdb.Close() // Nothing is pending.
}

// resetTimer gives Redis the full time again.
func (s *session) resetTimer() { s.silent.Reset(answerPatience) }

// walk is for calls that read everything there is, bit by bit, and so may take
// long. Each bit has the client's own limit.
func (s *session) walk(do func() error) error {
	s.silent.Stop()
	defer s.resetTimer()
	return do()
}

// connect waits for Redis' first answer.
func connect(all context.Context, rdb redis.UniversalClient, server string) error {
	ctx, cancel := context.WithTimeout(all, connectPatience)
	defer cancel()
	cause := fmt.Errorf("no answer for %v", connectPatience)
	for {
		err := rdb.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		if all.Err() != nil {
			return all.Err()
		}
		if !errors.Is(err, context.DeadlineExceeded) { // That says nothing new.
			cause = err
		}
		if ctx.Err() != nil || isRefusal(err) {
			text := fmt.Sprintf("redis at %s: %v", server, cause)
			return &failure{code: "unavailable", exit: exitFailed, text: text, cause: err}
		}
		timer := time.NewTimer(connectPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// isRefusal reports whether Redis has answered, and will not answer otherwise
// soon: a login that is denied, a protocol that is not its own.
func isRefusal(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) &&
		!redis.IsLoadingError(err) && !redis.IsClusterDownError(err) && !redis.IsTryAgainError(err) && !redis.IsMasterDownError(err)
}

// fail explains an error of one message.
func (s *session) fail(verb, id string, err error) error {
	switch {
	case err == nil:
		return nil
	case s.program.ctx.Err() != nil && !errors.Is(err, delay.ErrUnknown):
		err = s.program.ctx.Err()
	case errors.Is(err, delay.ErrUnavailable):
		err = fmt.Errorf("redis at %s: %w", s.server, err)
	}
	return of(verb, s.Name, id, err)
}

// serverName is where Redis is, without a login.
func serverName(cfg config.Redis) string {
	switch cfg.Mode {
	case config.Sentinel:
		return fmt.Sprintf("%s (sentinels %s)", cfg.Master, strings.Join(cfg.Sentinels, ", "))
	case config.Cluster:
		return strings.Join(cfg.Addrs, ", ")
	case config.Standalone:
	}
	options, err := redis.ParseURL(cfg.URL)
	if err != nil {
		return config.MaskURLs(cfg.URL)
	}
	return options.Addr
}
