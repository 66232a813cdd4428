package importer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"
)

// Headers that say what asynq knew of a task.
const (
	HeaderAsynqType     = "asynq-type"
	HeaderAsynqRetried  = "asynq-retried"
	HeaderAsynqMaxRetry = "asynq-max-retry"
	HeaderAsynqDeadline = "asynq-deadline"
)

// Asynq is a queue of asynq, as of 0.26.0: the tasks of its set scheduled, and those of its set retry if they may
// move. maxSize is the queue's limit on a message.
func Asynq(rdb redis.UniversalClient, queue string, withRetries bool, maxSize int) *Redis {
	s := system{
		name: "asynq", prefix: "asynq:{" + queue + "}:", item: "asynq:{" + queue + "}:t:",
		sets: []string{"scheduled"}, content: "msg", fields: []string{"state", "group"},
		due:    func(score float64) time.Time { return time.Unix(int64(score), 0) },
		decode: decodeAsynq,
		exists: func(ctx context.Context, rdb redis.UniversalClient) error { return asynqHas(ctx, rdb, queue) },
		notes: func(ctx context.Context, rdb redis.UniversalClient) ([]string, error) {
			return asynqNotes(ctx, rdb, queue, withRetries)
		},
	}
	if withRetries {
		s.sets = append(s.sets, "retry")
	}
	return newRedis(rdb, maxSize, s)
}

func asynqHas(ctx context.Context, rdb redis.UniversalClient, queue string) error {
	isThere, err := rdb.SIsMember(ctx, "asynq:queues", queue).Result()
	if err != nil || isThere {
		return err
	}
	names, err := rdb.SMembers(ctx, "asynq:queues").Result()
	if err != nil {
		return err
	}
	has := "none in this Redis"
	if len(names) > 0 {
		slices.Sort(names)
		has = strings.Join(names, ", ")
	}
	return fmt.Errorf("%w: %q; asynq has %s", ErrNoQueue, queue, has)
}

func asynqNotes(ctx context.Context, rdb redis.UniversalClient, queue string, withRetries bool) (notes []string, err error) {
	schedulers, err := rdb.ZCard(ctx, "asynq:schedulers").Result()
	if err != nil {
		return nil, err
	}
	if schedulers > 0 {
		notes = append(notes, fmt.Sprintf("asynq's schedulers run (%d): their periodic tasks stay there", schedulers))
	}
	retries, err := rdb.ZCard(ctx, "asynq:{"+queue+"}:retry").Result()
	if retries > 0 && !withRetries {
		notes = append(notes, fmt.Sprintf("asynq will try %d again: they stay there, unless you give up their retries", retries))
	}
	return notes, err
}

// decodeAsynq reads the fields of a task's hash.
func decodeAsynq(it *Item, fields []string) {
	record, err := parseAsynq([]byte(fields[0]))
	if err == nil && fields[1] != it.Set && it.entry == nil {
		err = fmt.Errorf("it is in the set %s, and its state is %q", it.Set, fields[1])
	}
	if err == nil && record.id != it.ID {
		err = fmt.Errorf("its id is %q in its own record", record.id)
	}
	if err != nil {
		it.Err = err
		return
	}
	it.Kind, it.Body, it.Headers = record.kind, record.payload, record.headers
	it.setHeader(HeaderAsynqType, record.kind)
	if record.retried > 0 || it.Set == "retry" {
		it.setCount(HeaderAsynqRetried, record.retried)
		it.setCount(HeaderAsynqMaxRetry, record.retry)
	}
	if record.deadline > 0 {
		it.setHeader(HeaderAsynqDeadline, time.Unix(record.deadline, 0).UTC().Format(time.RFC3339))
	}
	for need, has := range map[Reason]bool{
		NeedsGroup: fields[2] != "" || record.group != "", NeedsUnique: record.unique != "", NeedsRetention: record.retention > 0,
	} {
		if has {
			it.Needs = append(it.Needs, need)
		}
	}
	slices.Sort(it.Needs)
}

// asynqRecord is what the hash of a task has as msg: a TaskMessage of asynq.
type asynqRecord struct {
	kind, id, unique, group             string
	payload                             []byte
	headers                             map[string]string
	retry, retried, deadline, retention int64
}

var errAsynq = errors.New("no task of asynq")

// parseAsynq reads the fields of a TaskMessage that matter, by their numbers in asynq's asynq.proto.
func parseAsynq(b []byte) (*asynqRecord, error) {
	t := &asynqRecord{headers: map[string]string{}}
	texts := map[protowire.Number]*string{1: &t.kind, 3: &t.id, 10: &t.unique, 14: &t.group}
	numbers := map[protowire.Number]*int64{5: &t.retry, 6: &t.retried, 9: &t.deadline, 12: &t.retention}
	err := eachField(b, func(number protowire.Number, value []byte, n uint64) error {
		switch {
		case texts[number] != nil:
			*texts[number] = string(value)
		case numbers[number] != nil:
			*numbers[number] = int64(n)
		case number == 2:
			t.payload = value
		case number == 15:
			var pair [2]string
			err := eachField(value, func(number protowire.Number, value []byte, _ uint64) error {
				if number == 1 || number == 2 {
					pair[number-1] = string(value)
				}
				return nil
			})
			t.headers[pair[0]] = pair[1]
			return err
		}
		return nil
	})
	if err == nil && (t.kind == "" || t.id == "") {
		err = fmt.Errorf("%w: type or id is missing", errAsynq)
	}
	return t, err
}

// eachField goes through the fields of a message in the wire form of Protocol Buffers: bytes or a number, by type.
func eachField(b []byte, do func(number protowire.Number, value []byte, n uint64) error) error {
	for len(b) > 0 {
		number, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return fmt.Errorf("%w: %w", errAsynq, protowire.ParseError(size))
		}
		b = b[size:]
		var value []byte
		var n uint64
		switch kind {
		case protowire.BytesType:
			value, size = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(b)
		default:
			size = protowire.ConsumeFieldValue(number, kind, b)
		}
		if size < 0 {
			return fmt.Errorf("%w: %w", errAsynq, protowire.ParseError(size))
		}
		b = b[size:]
		if err := do(number, value, n); err != nil {
			return err
		}
	}
	return nil
}
