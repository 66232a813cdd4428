package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

// goodMessage is what bad ones differ from in one thing. Each would take the place of
// the first message that is kept.
func (f *inputs) goodMessage() delay.Message {
	return delay.Message{ID: keptID, Topic: f.world.Topic, Body: []byte("bad")}
}

// called is what a call of a Go package has answered: a panic is a crash.
func called(call func() error) (a answer) {
	defer func() {
		if cause := recover(); cause != nil {
			a = answer{broken: true, text: fmt.Sprint("panic: ", cause)}
		}
	}()
	err := call()
	if err == nil {
		return answer{text: "no error"}
	}
	return answer{
		refused: errors.Is(err, delay.ErrInvalid), text: err.Error(),
		broken: errors.Is(err, delay.ErrUnavailable) || errors.Is(err, delay.ErrUnknown),
	}
}

// goTrial is a call of a Go package.
func goTrial(what string, names []string, call func(context.Context) error) trial {
	return trial{what, names, func(ctx context.Context) answer { return called(func() error { return call(ctx) }) }}
}

// dueNames are how the SDK calls the due time.
var dueNames = []string{"due"}

// sdk calls the SDK's client.
func (f *inputs) sdk(context.Context) (list []trial, err error) {
	prefix := delay.WithPrefix(f.world.Prefix())
	client, err := delay.NewClient(f.world.RDB, f.world.Queue(), prefix, delay.WithConflict(delay.Replace))
	if err != nil {
		return nil, err
	}
	rnd := f.random("sdk")
	for _, bad := range spoil(f.goodMessage(), rnd) {
		list = append(list, goTrial("schedule: "+bad.what, bad.names, func(ctx context.Context) error {
			_, err := client.Schedule(ctx, bad.message, delay.After(time.Hour))
			return err
		}))
	}
	for what, when := range badWhens(mostDelay, time.Now().Add(mostDelay+time.Hour)) {
		list = append(list,
			goTrial("schedule: due "+what, dueNames, func(ctx context.Context) error {
				_, err := client.Schedule(ctx, f.goodMessage(), when)
				return err
			}),
			goTrial("reschedule: due "+what, dueNames, func(ctx context.Context) error {
				return client.Reschedule(ctx, delay.Ref{ID: keptID}, when)
			}))
	}
	for _, text := range append(badNames(rnd), "") {
		list = append(list, sdkRefs(client, "id", delay.Ref{ID: text})...)
		if text != "" {
			list = append(list, sdkRefs(client, "key", delay.Ref{ID: keptID, Key: text})...)
		}
	}
	return append(list, f.sdkOptions()...), nil
}

// sdkRefs are the calls that name a message.
func sdkRefs(client *delay.Client, field string, ref delay.Ref) []trial {
	what := fmt.Sprintf("%s %.80q", field, ref)
	return []trial{
		goTrial("cancel: "+what, fieldNames(field), func(ctx context.Context) error { return client.Cancel(ctx, ref) }),
		goTrial("get: "+what, fieldNames(field), func(ctx context.Context) error {
			_, err := client.Get(ctx, ref)
			return err
		}),
		goTrial("reschedule: "+what, fieldNames(field), func(ctx context.Context) error {
			return client.Reschedule(ctx, ref, delay.After(time.Hour))
		}),
		goTrial("publish now: "+what, fieldNames(field), func(ctx context.Context) error { return client.PublishNow(ctx, ref) }),
	}
}

// badQueues are no names of queues.
func badQueues() []string {
	return concat([]string{"", "Orders", "-a", "_a", "a b", "a.b", "a/b", "ä", "a\xff", strings.Repeat("a", 64)}, controls(""))
}

// sdkOptions are the options of a client, and what a queue is made of.
func (f *inputs) sdkOptions() (list []trial) {
	prefix := delay.WithPrefix(f.world.Prefix())
	option := func(field, what string, o delay.Option) {
		list = append(list, goTrial(field+" "+what, []string{field}, func(context.Context) error {
			_, err := delay.NewClient(f.world.RDB, f.world.Queue(), prefix, o)
			return err
		}))
	}
	for _, text := range badQueues() {
		list = append(list, goTrial(fmt.Sprintf("queue %q", text), []string{"queue"}, func(context.Context) error {
			_, err := delay.NewClient(f.world.RDB, text, prefix)
			return err
		}), goTrial(fmt.Sprintf("ensure queue %q", text), []string{"queue"}, func(ctx context.Context) error {
			return delay.EnsureQueue(ctx, f.world.RDB, text, 1, prefix)
		}))
	}
	for _, text := range badPrefixes() {
		option("prefix", fmt.Sprintf("%q", text), delay.WithPrefix(text))
		list = append(list, goTrial(fmt.Sprintf("ensure queue in prefix %q", text), []string{"prefix"}, func(ctx context.Context) error {
			return delay.EnsureQueue(ctx, f.world.RDB, "new", 1, delay.WithPrefix(text))
		}))
	}
	for _, shards := range []int{0, -1, 4097, 1 << 40, -1 << 62} {
		list = append(list, goTrial(fmt.Sprint("shards ", shards), []string{"shards"}, func(ctx context.Context) error {
			return delay.EnsureQueue(ctx, f.world.RDB, "new", shards, prefix)
		}))
	}
	for _, d := range []time.Duration{0, -1, 30*time.Second + 1, endlessDelay, -endlessDelay} {
		option("timeout", d.String(), delay.WithTimeout(d))
	}
	option("conflict", "-1", delay.WithConflict(-1))
	option("conflict", "3", delay.WithConflict(3)) //nolint:mnd // there is none
	option("durability", "-1", delay.WithDurability(delay.Replicas(-1)))
	option("max size", "-1", delay.WithMaxSize(-1))
	option("encryption", "no keys", delay.WithEncryption(nil))
	return list
}

// badPrefixes are no prefixes of keys: a brace would tear the keys of a shard apart in
// a Redis Cluster.
func badPrefixes() []string {
	return concat([]string{"", "a{b}", "{a}", "a b", "-a", "a*", "ä", "a\xff", strings.Repeat("a", 64)}, controls(""))
}
