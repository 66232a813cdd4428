package operate

import "github.com/delaybridge/delaybridge/internal/config"

// RulesView are the queue's settings that decide when and whether its messages are
// published: whoever asks why one has not arrived needs it.
type RulesView struct {
	History *HistoryRule   `json:"history,omitempty" doc:"Which ends of messages are remembered; absent if none are."`
	Late    *LateRule      `json:"late,omitempty" doc:"What happens to a late message, unless it says so itself; absent if it is published nevertheless."`
	Rate    int            `json:"rate,omitempty" doc:"Limit of messages published per second; absent without a limit."`
	Rates   map[string]int `json:"topic_rates,omitempty" doc:"The same, by topic."`
}

// HistoryRule says which ends are remembered.
type HistoryRule struct {
	Count int     `json:"count" doc:"The most to return."`
	Age   float64 `json:"age_s" doc:"For how many seconds."`
}

// LateRule says what becomes of a late message.
type LateRule struct {
	After float64 `json:"after_s" doc:"How many seconds after its due time."`
	Then  string  `json:"then" enum:"dead,drop,publish"`
}

// ViewRules are what a queue's section of the configuration says.
func ViewRules(cfg *config.Queue) RulesView {
	v := RulesView{Rate: cfg.Rate.Messages, Rates: cfg.Rate.ByTopic()}
	if cfg.History.Count > 0 {
		v.History = &HistoryRule{Count: cfg.History.Count, Age: cfg.History.Age.Seconds()}
	}
	if cfg.Late.After > 0 {
		v.Late = &LateRule{After: cfg.Late.After.Seconds(), Then: string(cfg.Late.Then)}
	}
	return v
}
