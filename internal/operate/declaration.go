package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/declarations"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/declared"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// Declarations are the queues that are declared by the API, for all instances.
type Declarations struct {
	Register *declarations.Register
	// Config is the configuration in force.
	Config func() *config.Config
	// Admin is what the store has for operators of a queue, whether there is such a queue or not.
	Admin func(queue string) *inspect.Admin
}

// Declaration is a queue as it is declared.
type Declaration struct {
	Name     string         `json:"name"`
	Queue    map[string]any `json:"queue" doc:"The keys of the queue, as the configuration has them."`
	Revision string         `json:"revision" doc:"Another one after each change; the ETag is the same in quotes."`
	By       string         `json:"by" doc:"Who has declared it so: the name of the token, JWT or certificate."`
	At       string         `json:"at" format:"date-time" doc:"When that was, by Redis' clock."`
	InForce  bool           `json:"in_force" doc:"Whether the instance that was asked has it in force; it takes some seconds."`
	Problems []string       `json:"problems,omitempty" doc:"What is wrong with it on that instance. The queue counts there as it was before, or is missing since the start."`
}

// DeclarationChange is a queue as it is declared, and what the call has changed.
type DeclarationChange struct {
	Declaration

	Status string `json:"status" enum:"created,changed,unchanged"`
}

// DeclarationDeletion says that a queue is no longer declared.
type DeclarationDeletion struct {
	Name   string `json:"name"`
	Status string `json:"status" enum:"deleted"`
	Kept   int64  `json:"kept" doc:"How many messages stay in Redis; they are published when a queue of that name is declared again."`
}

// Condition is what a caller knows of a declaration that is to be changed; the zero value is of one who knows nothing.
type Condition struct {
	// IsNew: there is none.
	IsNew bool
	// Revision is the one that it has; "*" is any.
	Revision string
}

// codes of what only declarations have.
const (
	codeElsewhere     = "declared_elsewhere"
	codeNotEmpty      = "not_empty"
	codeManyQueues    = "many_queues"
	codePrecondition  = "precondition_failed"
	codeUnconditional = "precondition_required"
)

// apiSection is where the main file says what may be declared.
const apiSection = "queue_files." + config.APISection

// allowed is the section of the configuration, and the configuration.
func (d *Declarations) allowed() (*config.Config, config.QueueFiles, error) {
	cfg := d.Config()
	if !cfg.IsDeclaredByAPI() {
		return nil, config.QueueFiles{}, &Fault{Code: "not_found", Detail: "no queue can be declared by the API: the configuration has no section " + apiSection}
	}
	return cfg, cfg.QueueFiles[config.APISection], nil
}

// List returns what is declared, by name.
func (d *Declarations) List(ctx context.Context) ([]Declaration, error) {
	cfg, _, err := d.allowed()
	if err != nil {
		return nil, err
	}
	is, _, err := d.Register.Read(ctx)
	list := make([]Declaration, 0, len(is.Queues))
	for _, name := range slices.Sorted(maps.Keys(is.Queues)) {
		list = append(list, view(cfg, name, is.Queues[name]))
	}
	return list, err
}

// Get returns the declaration of a queue.
func (d *Declarations) Get(ctx context.Context, name string) (Declaration, error) {
	cfg, _, err := d.allowed()
	if err != nil {
		return Declaration{}, err
	}
	is, _, err := d.Register.Read(ctx)
	if err != nil {
		return Declaration{}, err
	}
	queue, isThere := is.Queues[name]
	if !isThere {
		return Declaration{}, notDeclared(cfg, name)
	}
	return view(cfg, name, queue), nil
}

// Put declares a queue in the name of by. An equal declaration is no change, whatever the caller knows of it: so a call whose answer was lost can be
// made again.
func (d *Declarations) Put(ctx context.Context, name string, queue map[string]any, known Condition, by string) (DeclarationChange, error) {
	cfg, rules, err := d.allowed()
	if err != nil {
		return DeclarationChange{}, err
	}
	text, err := json.Marshal(queue) // The names come in their order, so equal declarations are equal texts.
	if err != nil {
		return DeclarationChange{}, err
	}
	if err := check(cfg, name, string(text)); err != nil {
		return DeclarationChange{}, err
	}
	status := ""
	all, err := d.Register.Change(ctx, func(is declared.Set, now time.Time) (declared.Set, error) {
		old, isThere := is.Queues[name]
		switch {
		case isThere && string(old.Queue) == string(text):
			status = "unchanged"
			return is, nil
		case !isThere && len(is.Queues) >= rules.MaxQueues:
			return is, &Fault{Code: codeManyQueues, Detail: fmt.Sprintf("%d queues are declared, %s.max_queues allows %d", len(is.Queues), apiSection, rules.MaxQueues)}
		}
		status = map[bool]string{false: "created", true: "changed"}[isThere]
		return is.With(name, text, by, now), known.check(name, old, isThere, true)
	})
	if err != nil {
		return DeclarationChange{}, meant(err)
	}
	return DeclarationChange{view(cfg, name, all.Queues[name]), status}, nil
}

// Delete removes a declaration. Without keepsMessages it is refused while the queue has any.
func (d *Declarations) Delete(ctx context.Context, name string, known Condition, keepsMessages bool) (DeclarationDeletion, error) {
	deleted := DeclarationDeletion{Name: name, Status: "deleted"}
	cfg, _, err := d.allowed()
	if err != nil {
		return deleted, err
	}
	_, err = d.Register.Change(ctx, func(is declared.Set, now time.Time) (declared.Set, error) {
		old, isThere := is.Queues[name]
		if !isThere {
			return is, notDeclared(cfg, name)
		}
		if err := known.check(name, old, true, false); err != nil {
			return is, err
		}
		// What is scheduled after this waits until the queue is there again, as in any queue that is removed.
		if err := d.left(ctx, name, keepsMessages, &deleted); err != nil {
			return is, err
		}
		return is.Without(name, now), nil
	})
	return deleted, meant(err)
}

// left counts the messages of a queue that is to be deleted.
func (d *Declarations) left(ctx context.Context, name string, mayStay bool, deleted *DeclarationDeletion) error {
	stats, err := d.Admin(name).StatsOfAll(ctx)
	if errors.Is(err, store.ErrNoLayout) {
		return nil // No bridge has made it.
	}
	if err != nil {
		return err
	}
	sum := stats.Sum()
	deleted.Kept = sum.Waiting + sum.InFlight + sum.Dead
	if deleted.Kept > 0 && !mayStay {
		return &Fault{Code: codeNotEmpty, Detail: fmt.Sprintf(
			"the queue has messages: %d wait, %d are in flight, %d are dead; cancel or purge them, or say that they stay", sum.Waiting, sum.InFlight, sum.Dead)}
	}
	return nil
}

// check is whether the configuration allows the queue.
func check(cfg *config.Config, name, text string) error {
	if !message.QueueName.MatchString(name) {
		return Invalid("name", fmt.Sprintf("name %.64q: give %s", name, message.QueueNameRule))
	}
	if file := cfg.FileOf(name); file != "" {
		return &Fault{Code: codeElsewhere, Detail: fmt.Sprintf("%s declares the queue %s", file, name)}
	}
	var texts []string
	field := ""
	for _, p := range cfg.CheckDeclared(name, text) {
		key := strings.TrimPrefix(strings.TrimPrefix(p.Key, "queues."+name), ".")
		if field == "" {
			field = cmp.Or(key, "name")
		}
		texts = append(texts, strings.TrimPrefix(key+": "+strings.ReplaceAll(p.Text, "\n", " "), ": "))
	}
	if len(texts) > 0 {
		return Invalid(field, strings.Join(texts, "; "))
	}
	return nil
}

// check is whether what the caller knows is so.
func (c Condition) check(name string, is declared.Declaration, isThere, mayBeNew bool) error {
	revision := strconv.FormatInt(is.Revision, 10)
	switch {
	case c.IsNew && isThere:
		return &Fault{Code: codePrecondition, Detail: fmt.Sprintf("%s is declared already, by %s, with the revision %s", name, is.By, revision)}
	case c.Revision != "" && !isThere:
		return &Fault{Code: codePrecondition, Detail: name + " is not declared"}
	case c.Revision != "" && c.Revision != "*" && c.Revision != revision:
		return &Fault{Code: codePrecondition, Detail: fmt.Sprintf("%s was changed meanwhile, by %s: its revision is %s", name, is.By, revision)}
	case c == Condition{} && (isThere || !mayBeNew):
		return &Fault{Code: codeUnconditional, Detail: fmt.Sprintf("say which revision you have seen: If-Match: %q", revision)}
	}
	return nil
}

// meant gives an error of the store the words of a caller.
func meant(err error) error {
	if errors.Is(err, declared.ErrTooLarge) {
		return &Fault{Code: codeManyQueues, Detail: err.Error()}
	}
	return err
}

func notDeclared(cfg *config.Config, name string) error {
	detail := "the queue " + name + " is not declared by the API"
	if file := cfg.FileOf(name); file != "" {
		detail += ", but in " + file
	}
	return &Fault{Code: "not_found", Detail: detail}
}

// view is a declaration as programs see it.
func view(cfg *config.Config, name string, d declared.Declaration) Declaration {
	v := Declaration{
		Name: name, Queue: map[string]any{}, Revision: strconv.FormatInt(d.Revision, 10), By: d.By, At: Stamp(time.UnixMilli(d.AtMs)),
		InForce: cfg.HasDeclared(name, string(d.Queue)),
	}
	_ = json.Unmarshal(d.Queue, &v.Queue) // It was an object when it was declared.
	for _, p := range cfg.FileErrors() {
		if p.File == config.DeclaredAs(name) {
			v.Problems = append(v.Problems, strings.TrimPrefix(p.Error(), p.File+": "))
		}
	}
	return v
}
