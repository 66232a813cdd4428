package importer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

const (
	// remember is how long the queue knows what a broken off run has scheduled.
	remember = 7 * 24 * time.Hour
	// soon is how near a due time is whose message may be published before its item is removed.
	soon = time.Minute
	// mostIdle is how many passes in a row may find only items that change meanwhile.
	mostIdle = 3
)

// ErrUnfinished is returned for a run that broke off and left items held. Another run finishes them.
var ErrUnfinished = errors.New("some are held by this import: run it again to finish them")

// Origin is a system that messages come from. Its batches are bounded in number and bytes. Methods that take items
// answer by index.
type Origin interface {
	// Lock keeps other imports out until unlock is called, or until nothing was done for half a minute.
	Lock(ctx context.Context) (unlock func(), err error)
	Count(ctx context.Context) (Count, error)
	// Notes tell what it has besides, and keeps.
	Notes(ctx context.Context) ([]string, error)
	// Sets are the names of those that are gone through.
	Sets() []string
	// Scan reads a page of a set: all that is there throughout comes at least once. The last page's next is 0.
	Scan(ctx context.Context, set string, cursor uint64, yield func([]*Item) error) (next uint64, err error)
	// Held reads a page of the journal, as Scan does.
	Held(ctx context.Context, cursor uint64, yield func([]*Item) error) (next uint64, err error)
	// Hold takes items of one set out of reach of the system's handlers, unless they have changed.
	Hold(ctx context.Context, items []*Item, isBusy func(*Item) bool) (held []bool, err error)
	// Remove deletes items that are held. It returns false for those that the system has cancelled.
	Remove(ctx context.Context, items []*Item) (removed []bool, err error)
	// Release gives items that are held back to the system, and Forget takes cancelled ones out of the journal.
	Release(ctx context.Context, items []*Item) error
	Forget(ctx context.Context, items []*Item) error
}

// Options are what an import needs.
type Options struct {
	Queue  *operate.Queue
	Origin Origin
	Rules  Rules
	// DryRun only reads, and counts.
	DryRun bool
	// Limit is how many are moved at most; 0 for all.
	Limit int64
	// Progress is told how many items were looked at.
	Progress func(looked int64, r *Report)
	// Step is called between the steps of a batch: held, scheduled, removed, cancelled. Its error breaks the run off, as a
	// crash does; tests use it.
	Step func(name string) error
}

// Import moves what waits in one origin to one queue. It runs once.
type Import struct {
	Options
	report *Report
	looked int64
}

// New returns an import; it does no I/O.
func New(o Options) *Import {
	if o.Progress == nil {
		o.Progress = func(int64, *Report) {}
	}
	if o.Step == nil {
		o.Step = func(string) error { return nil }
	}
	return &Import{Options: o, report: newReport()}
}

// Run finishes what an earlier run has left, and moves what can be moved. The report is there also with an error.
func (im *Import) Run(ctx context.Context) (*Report, error) {
	err := im.run(ctx)
	return im.report, err
}

func (im *Import) run(ctx context.Context) (err error) {
	if !im.DryRun {
		unlock, err := im.Origin.Lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
	}
	if im.report.Before, err = im.Origin.Count(ctx); err != nil {
		return err
	}
	if im.report.Notes, err = im.Origin.Notes(ctx); err != nil {
		return err
	}
	if err := im.move(ctx); err != nil {
		return err
	}
	im.report.After, err = im.Origin.Count(ctx)
	return err
}

func (im *Import) move(ctx context.Context) error {
	if im.DryRun {
		return im.pass(ctx)
	}
	if err := im.finish(ctx); err != nil {
		return err
	}
	for idle := 0; idle < mostIdle; { // Producers may be at work, and what a pass met in motion the next one finds.
		before := im.report.Moved
		if err := im.pass(ctx); err != nil || im.isFull() {
			return err
		}
		switch {
		case im.report.Moved > before:
			idle = 0
		case im.report.Left[Changing] == nil:
			return nil
		default:
			idle++
		}
	}
	return nil
}

func (im *Import) isFull() bool {
	im.report.IsLimited = im.Limit > 0 && im.report.Moved >= im.Limit
	return im.report.IsLimited
}

// finish ends what is in the journal.
func (im *Import) finish(ctx context.Context) error {
	for cursor := uint64(0); ; {
		next, err := im.Origin.Held(ctx, cursor, func(items []*Item) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return im.settle(context.WithoutCancel(ctx), items)
		})
		if err != nil || next == 0 {
			return err
		}
		cursor = next
	}
}

// pass goes through all sets once. What it leaves replaces what the pass before has left.
func (im *Import) pass(ctx context.Context) error {
	im.report.Left, im.looked = map[Reason]*Left{}, 0
	for _, set := range im.Origin.Sets() {
		for cursor := uint64(0); ; {
			next, err := im.Origin.Scan(ctx, set, cursor, func(items []*Item) error { return im.batch(ctx, items) })
			if err != nil || im.isFull() {
				return err
			}
			if cursor = next; next == 0 {
				break
			}
		}
	}
	return nil
}

// batch moves what can be moved of some items of one set.
func (im *Import) batch(ctx context.Context, items []*Item) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	ctx = context.WithoutCancel(ctx) // What is begun is ended; each call has a deadline.
	now := time.Now()
	var fit []*Item
	for _, it := range items {
		if im.Limit > 0 && im.report.Moved+int64(len(fit)) >= im.Limit {
			break
		}
		planned, why := im.Rules.plan(it, now)
		if why != nil {
			im.report.leave(it.ID, why)
			continue
		}
		planned.Nonce, planned.Queue = rand.Text(), im.Queue.Name
		it.entry = planned
		fit = append(fit, it)
	}
	im.looked += int64(len(items))
	if im.DryRun {
		for _, it := range fit {
			im.report.move(it, now)
		}
		im.Progress(im.looked, im.report)
		return nil
	}
	if len(fit) == 0 {
		return nil
	}
	held, err := im.Origin.Hold(ctx, fit, func(it *Item) bool { return it.Due.Before(now.Add(soon)) })
	if err != nil {
		return err
	}
	var mine []*Item
	for i, it := range fit {
		if held[i] {
			mine = append(mine, it)
		} else {
			im.report.leave(it.ID, &refusal{reason: Changing})
		}
	}
	if err := im.Step("held"); err != nil {
		return err
	}
	err = im.settle(ctx, mine)
	im.Progress(im.looked, im.report)
	return err
}

// settle takes items that are in the journal to their end.
func (im *Import) settle(ctx context.Context, items []*Item) error {
	var here, gone []*Item
	for _, it := range items {
		switch {
		case it.entry.Queue != im.Queue.Name:
			return fmt.Errorf("an earlier import to queue %s was broken off: finish it first, with --queue %s", it.entry.Queue, it.entry.Queue)
		case it.isGone:
			gone = append(gone, it)
		default:
			here = append(here, it)
		}
	}
	scheduled, failed := im.schedule(ctx, here)
	if err := im.Step("scheduled"); err != nil {
		return err
	}
	removed, err := im.Origin.Remove(ctx, scheduled)
	if err != nil {
		return err
	}
	var moved []*Item
	now := time.Now()
	for i, it := range scheduled {
		if removed[i] {
			im.report.move(it, now)
			moved = append(moved, it)
		} else {
			gone = append(gone, it)
		}
	}
	if err := im.Step("removed"); err != nil {
		return err
	}
	if err := im.takeBack(ctx, gone); err != nil {
		return err
	}
	if err := im.look(ctx, moved); err != nil {
		return err
	}
	return failed
}

// call names the schedule of an item, so that it has one effect.
func (im *Import) call(it *Item) error {
	name := strings.Join([]string{"import", it.entry.Nonce, it.ID}, "\x00")
	return im.Queue.Store.Producer().Traced("schedule", it.entry.ID, it.entry.Key, name, remember, false)
}

// schedule makes the messages of items that are held. It releases those that the queue does not take, and leaves
// those held of which it does not know; then failed says why.
func (im *Import) schedule(ctx context.Context, items []*Item) (scheduled []*Item, failed error) {
	if len(items) == 0 {
		return nil, nil
	}
	messages := make([]operate.Schedule, len(items))
	for i, it := range items {
		messages[i] = it.schedule(im.call(it))
	}
	var refused []*Item
	for i, result := range im.Queue.ScheduleAll(ctx, messages, func(int) error { return nil }) {
		it := items[i]
		switch why, err := judge(&result); {
		case err != nil:
			failed = fmt.Errorf("%s: %w (%w)", it.ID, err, ErrUnfinished)
		case why != nil:
			im.report.leave(it.ID, why)
			refused = append(refused, it)
		default:
			scheduled = append(scheduled, it)
		}
	}
	if err := im.Origin.Release(ctx, refused); err != nil {
		failed = errors.Join(failed, err)
	}
	return scheduled, failed
}

var errNotConfirmed = errors.New("not confirmed as the queue's durability asks")

// judge says what an answer means: the item stays, or it is unknown what became of the message.
func judge(result *operate.ScheduleResult) (why *refusal, unknown error) {
	switch {
	case result.Error == nil && result.NotDurable:
		return nil, errNotConfirmed
	case result.Error == nil && result.Status == "created":
		return nil, nil
	case result.Error == nil:
		return &refusal{Taken, "another message of that id waits in the queue"}, nil
	}
	switch result.Error.Code {
	case operate.CodeInvalid:
		return &refusal{NotFit, result.Error.Detail}, nil
	case "duplicate", "forbidden":
		return &refusal{Taken, result.Error.Detail}, nil
	}
	return nil, result.Error
}

// takeBack cancels the messages of items that the other system has cancelled while they were held.
func (im *Import) takeBack(ctx context.Context, gone []*Item) error {
	if len(gone) == 0 {
		return nil
	}
	list, tokens := make([]store.BulkItem, len(gone)), store.NewTokens(len(gone))
	for i, it := range gone {
		life, err := store.TokenOf(im.call(it))
		if err != nil {
			return err
		}
		list[i] = store.BulkItem{Member: message.Member(it.entry.ID, it.entry.Key), Token: tokens[i], Life: life}
	}
	now := time.Now()
	answers := im.Queue.Store.ChangeMany(ctx, store.BulkChange{}, list)
	for i, answer := range answers {
		if answer.Err != nil {
			return fmt.Errorf("cancel %s, as it was cancelled: %w (%w)", gone[i].ID, answer.Err, ErrUnfinished)
		}
	}
	if err := im.Step("cancelled"); err != nil {
		return err
	}
	if err := im.Origin.Forget(ctx, gone); err != nil {
		return err
	}
	for i, answer := range answers {
		im.report.Cancelled++
		// A message that is not there and not due was never made, or cancelled here, too.
		if answer.Code == store.Done || answer.Code == store.NotFound && gone[i].Due.After(now) {
			continue
		}
		im.report.Late++
		im.report.LateIDs = note(im.report.LateIDs, gone[i].ID)
	}
	return nil
}

// look counts the moved messages in the queue, as it is there for everybody to see.
func (im *Import) look(ctx context.Context, moved []*Item) error {
	if len(moved) == 0 {
		return nil
	}
	members := make([]string, len(moved))
	for i, it := range moved {
		members[i] = message.Member(it.entry.ID, it.entry.Key)
	}
	found, inMotion, err := im.Queue.Admin().Named(ctx, &inspect.Filter{}, members)
	if err != nil {
		return fmt.Errorf("count the messages: %w", err)
	}
	here := map[string]bool{}
	for i := range found {
		here[found[i].Member()] = true
	}
	for _, member := range inMotion { // It was there when the look began.
		here[member] = true
	}
	now := time.Now()
	for i, it := range moved {
		if here[members[i]] || it.Due.Before(now) {
			im.report.Found++
		} else {
			im.report.Missing = note(im.report.Missing, it.entry.ID)
		}
	}
	return nil
}
