package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// forecasts has the calls that count messages by due time.
type forecasts struct{ *core }

func (f *forecasts) register() {
	register(f.core, operation{
		id: "forecast", method: http.MethodGet, path: "/queues/{queue}/forecast", roles: viewers,
		summary: "Count how many messages fall due in each step, exactly, and estimate their bytes",
	}, f.showForecast)
	register(f.core, operation{
		id: "demand", method: http.MethodGet, path: "/queues/{queue}/demand", roles: viewers,
		summary: "Count how many messages consumers will get within a time; it is cheap enough for autoscalers to ask every few seconds",
	}, f.showDemand)
}

type forecastInput struct {
	QueueParam

	From string `query:"from" format:"date-time" doc:"Where the first step begins; by default, or if it is past, now."`
	To   string `query:"to" format:"date-time" doc:"Where the last step ends; by default, a day after from."`
	Step string `query:"step" default:"15m" doc:"How long a step is: 1m, 1h, 1d. At most 1,440 steps."`
}

type forecastOutput struct{ Body operate.Forecast }

func (f *forecasts) showForecast(ctx context.Context, in *forecastInput) (*forecastOutput, error) {
	from, err := operate.ParseTime("from", in.From)
	if err != nil {
		return nil, err
	}
	to, err := operate.ParseTime("to", in.To)
	if err != nil {
		return nil, err
	}
	step, err := config.ParseDuration(in.Step)
	if err != nil {
		return nil, invalid("step", "step "+err.Error())
	}
	counted, err := queuesOf(ctx)[in.Queue].Forecast(ctx, from, to, step)
	if err != nil {
		return nil, err
	}
	return &forecastOutput{operate.ViewForecast(&counted)}, nil
}

type demandInput struct {
	QueueParam

	Within string `query:"within" default:"1m" doc:"How far to look ahead: 90s, 5m. At most 10 years."`
}

type demandOutput struct{ Body operate.Demand }

func (f *forecasts) showDemand(ctx context.Context, in *demandInput) (*demandOutput, error) {
	within, err := config.ParseDuration(in.Within)
	if err != nil {
		return nil, invalid("within", fmt.Sprintf("within %.64q %v", in.Within, err))
	}
	demand, err := queuesOf(ctx)[in.Queue].Demand(ctx, within)
	if err != nil {
		return nil, err
	}
	return &demandOutput{demand}, nil
}
