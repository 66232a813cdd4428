package inputs

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay"
)

// sdkEntrance is the SDK's client.
type sdkEntrance struct {
	aim
	rdb    redis.UniversalClient
	prefix string
}

func (e sdkEntrance) name() string { return "sdk" }

func (e sdkEntrance) inputs(context.Context) (list []input, err error) {
	client, err := delay.NewClient(e.rdb, e.queue, delay.WithPrefix(e.prefix), delay.WithConflict(delay.Replace))
	if err != nil {
		return nil, err
	}
	rnd := e.random("sdk")
	for _, bad := range spoil(e.message(), rnd) {
		list = append(list, sdkInput("schedule: "+bad.what, bad.names, func(ctx context.Context) error {
			_, err := client.Schedule(ctx, bad.message, delay.After(time.Hour))
			return err
		}))
	}
	for what, when := range badWhens(mostDelay, time.Now().Add(mostDelay+time.Hour)) {
		list = append(list,
			sdkInput("schedule: due "+what, dueNames, func(ctx context.Context) error {
				_, err := client.Schedule(ctx, e.message(), when)
				return err
			}),
			sdkInput("reschedule: due "+what, dueNames, func(ctx context.Context) error {
				return client.Reschedule(ctx, delay.Ref{ID: keptID}, when)
			}))
	}
	for _, text := range append(badNames(rnd), "") {
		list = append(list, sdkRefs(client, "id", delay.Ref{ID: text})...)
		if text != "" {
			list = append(list, sdkRefs(client, "key", delay.Ref{ID: keptID, Key: text})...)
		}
	}
	return append(list, e.options()...), nil
}

// sdkRefs are the calls that name a message.
func sdkRefs(client *delay.Client, field string, ref delay.Ref) []input {
	what := fmt.Sprintf("%s %.80q", field, ref)
	return []input{
		sdkInput("cancel: "+what, fieldNames(field), func(ctx context.Context) error { return client.Cancel(ctx, ref) }),
		sdkInput("get: "+what, fieldNames(field), func(ctx context.Context) error {
			_, err := client.Get(ctx, ref)
			return err
		}),
		sdkInput("reschedule: "+what, fieldNames(field), func(ctx context.Context) error {
			return client.Reschedule(ctx, ref, delay.After(time.Hour))
		}),
		sdkInput("publish now: "+what, fieldNames(field), func(ctx context.Context) error { return client.PublishNow(ctx, ref) }),
	}
}

// options are those of a client, and what a queue is made of.
func (e sdkEntrance) options() (list []input) {
	prefix := delay.WithPrefix(e.prefix)
	option := func(field, what string, o delay.Option) {
		list = append(list, sdkInput(field+" "+what, []string{field}, func(context.Context) error {
			_, err := delay.NewClient(e.rdb, e.queue, prefix, o)
			return err
		}))
	}
	for _, text := range badQueues() {
		list = append(list, sdkInput(fmt.Sprintf("queue %q", text), []string{"queue"}, func(context.Context) error {
			_, err := delay.NewClient(e.rdb, text, prefix)
			return err
		}), sdkInput(fmt.Sprintf("ensure queue %q", text), []string{"queue"}, func(ctx context.Context) error {
			return delay.EnsureQueue(ctx, e.rdb, text, 1, prefix)
		}))
	}
	for _, text := range badPrefixes() {
		option("prefix", fmt.Sprintf("%q", text), delay.WithPrefix(text))
		list = append(list, sdkInput(fmt.Sprintf("ensure queue in prefix %q", text), []string{"prefix"}, func(ctx context.Context) error {
			return delay.EnsureQueue(ctx, e.rdb, "new", 1, delay.WithPrefix(text))
		}))
	}
	for _, shards := range []int{0, -1, 4097, 1 << 40, -1 << 62} {
		list = append(list, sdkInput(fmt.Sprint("shards ", shards), []string{"shards"}, func(ctx context.Context) error {
			return delay.EnsureQueue(ctx, e.rdb, "new", shards, prefix)
		}))
	}
	for _, d := range []time.Duration{0, -1, 30*time.Second + 1, endlessDelay, -endlessDelay} {
		option("timeout", d.String(), delay.WithTimeout(d))
	}
	option("conflict", "-1", delay.WithConflict(-1))
	option("conflict", "4", delay.WithConflict(4)) //nolint:mnd // there is none
	option("durability", "-1", delay.WithDurability(delay.Replicas(-1)))
	option("max size", "-1", delay.WithMaxSize(-1))
	option("encryption", "no keys", delay.WithEncryption(nil))
	return list
}
