package api

import (
	"context"
	"net/http"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// forecasts has the call that tells what falls due when.
type forecasts struct{ *core }

func (f *forecasts) register() {
	register(f.core, operation{
		id: "forecast", method: http.MethodGet, path: "/queues/{queue}/forecast", roles: viewers,
		summary: "Count how many messages fall due in each step, exactly, and estimate their bytes",
	}, f.showForecast)
}

type forecastInput struct {
	QueueParam

	From string `query:"from" format:"date-time" doc:"Where the first step begins; now, by default and where it is past."`
	To   string `query:"to" format:"date-time" doc:"Where the last step ends; a day after from, by default."`
	Step string `query:"step" default:"15m" doc:"How long a step is: 1m, 1h, 1d. At most 1,440 steps."`
}

// ForecastStep is what falls due in a step.
type ForecastStep struct {
	At       string `json:"at" format:"date-time" doc:"Where the step begins."`
	Messages int64  `json:"messages"`
	Bytes    int64  `json:"bytes" doc:"Estimated: messages by the mean of the sample."`
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
	Later  int64          `json:"later" doc:"Messages that fall due from to on."`
	Steps  []ForecastStep `json:"steps" nullable:"false"`
	Size   ForecastSize   `json:"message_bytes"`
}

// ForecastSize is how large messages are, as they are stored.
type ForecastSize struct {
	Mean    float64 `json:"mean"`
	Error   float64 `json:"error" doc:"With 95 % certainty, the mean of all is no further away."`
	Sampled int     `json:"sampled" doc:"How many messages were measured, chosen at random."`
}

type forecastOutput struct{ Body Forecast }

const oneDay = 24 * time.Hour

func (f *forecasts) showForecast(ctx context.Context, in *forecastInput) (*forecastOutput, error) {
	from, err := parseTime("from", in.From)
	if err != nil {
		return nil, err
	}
	to, err := parseTime("to", in.To)
	if err != nil {
		return nil, err
	}
	step, err := config.ParseDuration(in.Step)
	if err != nil {
		return nil, invalid("step", "step "+err.Error())
	}
	queue := f.config.Queues[in.Queue].Store
	if to.IsZero() {
		if to = from; from.IsZero() {
			if to, err = queue.Clock(ctx); err != nil {
				return nil, err
			}
		}
		to = to.Add(oneDay)
	}
	counted, err := inspect.NewAdmin(queue).Forecast(ctx, from, to, step)
	if err != nil {
		return nil, err
	}
	return &forecastOutput{NewForecast(&counted)}, nil
}

// NewForecast is a forecast as programs see it.
func NewForecast(f *inspect.Forecast) Forecast {
	view := Forecast{
		Now: stamp(f.Now), From: stamp(f.From), To: stamp(f.To), StepS: f.Step.Seconds(),
		Due: f.Due, Parked: f.Parked, Before: f.Before, Later: f.Later, Steps: make([]ForecastStep, len(f.Steps)),
		Size: ForecastSize{Mean: f.Size.Mean, Error: f.Size.Error, Sampled: f.Size.Sampled},
	}
	for i, n := range f.Steps {
		view.Steps[i] = ForecastStep{
			At: stamp(f.From.Add(time.Duration(i) * f.Step)), Messages: n, Bytes: int64(float64(n) * f.Size.Mean),
		}
	}
	return view
}
