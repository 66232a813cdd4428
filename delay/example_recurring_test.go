package delay_test

import (
	"context"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

func ExampleClient_SetRecurring() {
	ctx := context.Background()
	rdb, done := exampleRedis()
	defer done()
	client, err := delay.NewClient(rdb, "orders")
	if err != nil {
		panic(err)
	}
	report := delay.Recurring{
		Name: "daily-report", Cron: "0 20 * * MON-FRI", Zone: "Europe/Berlin",
		Message: delay.Message{Topic: "report.make", Body: []byte(`{"kind": "daily"}`)},
		Missed:  delay.OnceMissed, Jitter: time.Minute,
	}
	state, err := client.SetRecurring(ctx, report) // At each start of the program: an equal one stays as it is.
	if err != nil {
		panic(err)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	fmt.Println(state.Next.In(berlin).Format(time.TimeOnly))

	if _, err = client.PauseRecurring(ctx, "daily-report", "ann"); err != nil {
		panic(err)
	}
	all, err := client.Recurrings(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(all[0].Name, "is paused by", all[0].PausedBy)
	if err := client.DeleteRecurring(ctx, "daily-report"); err != nil {
		panic(err)
	}
	// Output:
	// 20:00:00
	// daily-report is paused by ann
}
