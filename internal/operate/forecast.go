package operate

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// ForecastStep is what falls due in a step.
type ForecastStep struct {
	At       string `json:"at" format:"date-time" doc:"Where the step begins."`
	Messages int64  `json:"messages"`
	Bytes    int64  `json:"bytes" doc:"Estimate: the number of messages times the mean of the sample."`
}

// Forecast is what falls due when.
type Forecast struct {
	Now    string         `json:"now" format:"date-time" doc:"Redis' clock."`
	From   string         `json:"from" format:"date-time"`
	To     string         `json:"to" format:"date-time"`
	StepS  float64        `json:"step_s" doc:"How long a step is, in seconds; the last one may be shorter."`
	Due    int64          `json:"due" doc:"Messages that are due now, parked ones among them."`
	Parked int64          `json:"parked" doc:"Messages whose route is unavailable; they count as due now."`
	Before int64          `json:"before" doc:"Messages that fall due between now and from."`
	Later  int64          `json:"later" doc:"Messages that fall due at to or later."`
	Steps  []ForecastStep `json:"steps" nullable:"false"`
	Size   ForecastSize   `json:"message_bytes"`
}

// ForecastSize is how large messages are, as they are stored.
type ForecastSize struct {
	Mean    float64 `json:"mean"`
	Error   float64 `json:"error" doc:"With 95 % certainty, the mean of all is no further away."`
	Sampled int     `json:"sampled" doc:"How many messages were measured, chosen at random."`
}

// Forecast counts what falls due when: from now on where from is zero, and for a day where to
// is.
func (q *Queue) Forecast(ctx context.Context, from, to time.Time, step time.Duration) (inspect.Forecast, error) {
	if to.IsZero() {
		const oneDay = 24 * time.Hour
		begin := from
		if begin.IsZero() {
			var err error
			if begin, err = q.Store.Clock(ctx); err != nil {
				return inspect.Forecast{}, err
			}
		}
		to = begin.Add(oneDay)
	}
	return q.Admin().Forecast(ctx, from, to, step)
}

// ViewForecast is a forecast as programs see it.
func ViewForecast(f *inspect.Forecast) Forecast {
	view := Forecast{
		Now: Stamp(f.Now), From: Stamp(f.From), To: Stamp(f.To), StepS: f.Step.Seconds(),
		Due: f.Due, Parked: f.Parked, Before: f.Before, Later: f.Later, Steps: make([]ForecastStep, len(f.Steps)),
		Size: ForecastSize{Mean: f.Size.Mean, Error: f.Size.Error, Sampled: f.Size.Sampled},
	}
	for i, n := range f.Steps {
		view.Steps[i] = ForecastStep{
			At: Stamp(f.From.Add(time.Duration(i) * f.Step)), Messages: n, Bytes: int64(float64(n) * f.Size.Mean),
		}
	}
	return view
}

// Demand is what consumers will get within a time.
type Demand struct {
	Now      string  `json:"now" format:"date-time" doc:"Redis' clock."`
	Within   float64 `json:"within_s" doc:"How far it looks ahead, in seconds."`
	Messages int64   `json:"messages" doc:"The messages to expect, for an autoscaler: those that are due and those that fall due within the time; 0 while the whole queue is paused."`
	Due      int64   `json:"due" doc:"Messages that wait, are due and not parked."`
	Upcoming int64   `json:"upcoming" doc:"Messages that fall due within the time."`
	Parked   int64   `json:"parked" doc:"Messages whose route is unavailable, or whose topic is paused or above its rate. They are not among messages."`
	Paused   bool    `json:"paused" doc:"Whether the whole queue is paused."`
}

// Demand counts what consumers will get within a time from now.
func (q *Queue) Demand(ctx context.Context, within time.Duration) (Demand, error) {
	d, err := q.Admin().Demand(ctx, within)
	return Demand{
		Now: Stamp(d.Now), Within: within.Seconds(), Messages: d.Messages(), Due: d.Due, Upcoming: d.Upcoming, Parked: d.Parked, Paused: d.IsPaused,
	}, err
}
