package importer

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Headers that say what BullMQ knew of a job.
const (
	HeaderBullMQName     = "bullmq-name"
	HeaderBullMQAttempts = "bullmq-attempts-made"
	headerContentType    = "content-type"
)

// bullMQScale is how much of a score is one millisecond: the rest counts jobs of the same one.
const bullMQScale = 4096

// BullMQ is a queue of BullMQ, as of 6.7.0: the jobs of its set delayed. prefix is that of its keys, usually bull.
func BullMQ(rdb redis.UniversalClient, prefix, queue string, maxSize int) *Redis {
	base := prefix + ":" + queue + ":"
	return newRedis(rdb, maxSize, system{
		name: "bullmq", prefix: base, item: base, sets: []string{"delayed"}, content: "data",
		fields: []string{"name", "parentKey", "rjk", "deid", "atm", "ats"}, children: []string{":dependencies", ":processed"},
		due:    func(score float64) time.Time { return time.UnixMilli(int64(score / bullMQScale)) },
		decode: decodeBullMQ,
		exists: func(ctx context.Context, rdb redis.UniversalClient) error {
			n, err := rdb.Exists(ctx, base+"meta").Result()
			if err == nil && n == 0 {
				err = fmt.Errorf("%w: redis has no key %smeta", ErrNoQueue, base)
			}
			return err
		},
		notes: func(ctx context.Context, rdb redis.UniversalClient) ([]string, error) {
			n, err := rdb.ZCard(ctx, base+"repeat").Result()
			if err != nil || n == 0 {
				return nil, err
			}
			return []string{fmt.Sprintf("BullMQ has job schedulers (%d): what they make stays there", n)}, nil
		},
	})
}

// decodeBullMQ reads the fields of a job's hash.
func decodeBullMQ(it *Item, fields []string) {
	data, name, parent, repeat, deduplication := fields[0], fields[1], fields[2], fields[3], fields[4]
	if name == "" || data == "" {
		it.Err = fmt.Errorf("job %q has no name or no data", it.ID)
		return
	}
	made, _ := strconv.ParseInt(fields[5], 10, 64) // Empty before the first attempt.
	it.Kind, it.Body = name, []byte(data)
	it.setHeader(headerContentType, "application/json")
	it.setHeader(HeaderBullMQName, name)
	if made > 0 {
		it.setCount(HeaderBullMQAttempts, made)
	}
	for need, has := range map[Reason]bool{
		NeedsFlow: parent != "", NeedsRecurring: repeat != "" || strings.HasPrefix(it.ID, "repeat:"), NeedsDeduplication: deduplication != "",
		NeedsRetries: made > 0 || fields[6] != "" && fields[6] != "0",
	} {
		if has {
			it.Needs = append(it.Needs, need)
		}
	}
	slices.Sort(it.Needs)
}
