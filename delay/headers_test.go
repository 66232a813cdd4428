package delay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
)

// TestReadHeaders refuses what is none of ours, and names what an older bridge published.
func TestReadHeaders(t *testing.T) {
	t.Parallel()
	good := map[string]string{
		delay.HeaderUID: "uid", delay.HeaderID: "id", delay.HeaderQueue: "q", delay.HeaderAttempt: "2",
		delay.HeaderDueAt: "2026-01-02T03:04:05.678Z", delay.HeaderScheduledAt: "2026-01-02T03:04:05.000Z",
	}
	read := func(without string) (delay.Delivery, error) {
		return delay.ReadHeaders(func(name string) string {
			if name == without {
				return ""
			}
			return good[name]
		})
	}
	d, err := read("")
	require.NoError(t, err)
	require.Equal(t, "uid", d.UID)
	d, err = read(delay.HeaderUID)
	require.NoError(t, err)
	require.Equal(t, "2026-01-02T03:04:05.000Z id", d.UID)
	for _, name := range []string{delay.HeaderDueAt, delay.HeaderScheduledAt, delay.HeaderAttempt} {
		_, err = read(name)
		require.ErrorIs(t, err, delay.ErrInvalid)
		require.ErrorContains(t, err, name)
	}
	_, err = delay.ReadHeaders(func(string) string { return "" })
	require.ErrorContains(t, err, delay.HeaderUID)
}

// TestReadMinimalHeaders reads those of a queue with few: no attempt is the first.
func TestReadMinimalHeaders(t *testing.T) {
	t.Parallel()
	for attempt, want := range map[string]int{"": 1, "3": 3} {
		headers := map[string]string{delay.HeaderUID: "uid", delay.HeaderDueAt: "2026-01-02T03:04:05.678Z", delay.HeaderAttempt: attempt}
		d, err := delay.ReadHeaders(func(name string) string { return headers[name] })
		require.NoError(t, err)
		require.Equal(t, delay.Delivery{UID: "uid", DueAt: time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC), Attempt: want}, d)
	}
}

func ExampleReadHeaders() {
	headers := map[string]string{ // As the broker's library gives them.
		delay.HeaderUID: "~0QZ4ZVsa3k1jWm8", delay.HeaderID: "order-42/timeout", delay.HeaderQueue: "orders", delay.HeaderAttempt: "1",
		delay.HeaderDueAt: "2026-01-02T03:04:05.678Z", delay.HeaderScheduledAt: "2026-01-01T03:04:05.678Z",
	}
	delivery, err := delay.ReadHeaders(func(name string) string { return headers[name] })
	if err != nil {
		panic(err) // Somebody else has published it.
	}
	done := map[string]bool{} // Yours: a table with the UID as its key, in the transaction of the work.
	if !done[delivery.UID] {
		fmt.Println("work on", delivery.ID)
		done[delivery.UID] = true
	}
	// Output: work on order-42/timeout
}
