package inputs

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

// keptID is that of the messages that must stay as they are; bad inputs are aimed
// at the first of them.
const keptID = "kept-0"

// keptMessages must not change while bad input comes.
type keptMessages struct {
	client   *delay.Client
	mu       sync.Mutex
	messages []delay.Info
	held     string
	holds    func(context.Context) (string, error)
}

// keep schedules messages, and notes what is there.
func keep(ctx context.Context, client *delay.Client, topic string, holds func(context.Context) (string, error)) (*keptMessages, error) {
	const count = 40
	k := &keptMessages{client: client, holds: holds}
	for i := range count {
		m := delay.Message{
			ID: fmt.Sprint("kept-", i), Topic: topic, Body: []byte{byte(i), 0, 0xff},
			Headers: map[string]string{"content-type": "application/octet-stream"}, Tags: []string{"kept"},
		}
		if i%2 > 0 {
			m.Key = "key"
		}
		result, err := client.Schedule(ctx, m, delay.After(48*time.Hour+time.Duration(i)*time.Minute))
		if err != nil {
			return nil, err
		}
		info, err := client.Get(ctx, result.Ref)
		if err != nil {
			return nil, err
		}
		k.messages = append(k.messages, info)
	}
	var err error
	k.held, err = holds(ctx)
	return k, err
}

// changes lists what is not as it was, and takes it as it is from then on.
func (k *keptMessages) changes(ctx context.Context) (changes []string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, before := range k.messages {
		now, err := k.client.Get(ctx, delay.Ref{ID: before.ID, Key: before.Key})
		now.ID, now.Key = before.ID, before.Key
		if err != nil || !reflect.DeepEqual(now, before) {
			changes = append(changes, fmt.Sprintf("changed: message %s was %v, is %v (%v)", before.ID, before, now, err))
			k.messages[i] = now
		}
	}
	held, err := k.holds(ctx)
	if err == nil && held != k.held {
		changes = append(changes, fmt.Sprintf("changed: the queue had %s, has %s", k.held, held))
		k.held = held
	}
	return changes, err
}
