package main

import (
	"math"
	"time"
)

// How KEDA 2.20 and Kubernetes' HorizontalPodAutoscaler scale where a ScaledObject does not say how
// (its behavior); only pollEvery is what docs/autoscaling.md sets.
const (
	// pollEvery is KEDA's pollingInterval, at which it looks whether there is anything to do.
	pollEvery = 5 * time.Second
	// syncEvery is how often the autoscaler decides, once there is a replica.
	syncEvery = 15 * time.Second
	// At once it goes to so many replicas at most, or to twice as many as there are.
	mostAtFirst, mostTimes = 4, 2
	// tolerance is by how much a metric may be off its target before anything is changed.
	tolerance = 0.1
	// holdFor is for how long the highest recommendation counts.
	holdFor = 5 * time.Minute
)

// scaler decides how many replicas there are to be, from metrics that all have one target: the
// messages of a replica. There is none at first. It does not scale back to none, for which
// KEDA takes five minutes.
type scaler struct {
	target   float64
	most     int
	replicas int

	recommended []recommendation
}

type recommendation struct {
	at       time.Time
	replicas int
}

// poll is KEDA's turn: where anything is to be done, there is a replica.
func (s *scaler) poll(metrics []int64) {
	for _, metric := range metrics {
		if metric > 0 {
			s.replicas = max(s.replicas, 1)
		}
	}
}

// sync is the autoscaler's turn: the greatest of the metrics decides.
func (s *scaler) sync(now time.Time, metrics []int64) {
	if s.replicas == 0 {
		return
	}
	wanted := 1
	for _, metric := range metrics {
		wanted = max(wanted, s.wanted(float64(metric)))
	}
	s.recommended = append(s.recommended, recommendation{now, wanted})
	for _, r := range s.recommended {
		if now.Sub(r.at) < holdFor {
			wanted = max(wanted, r.replicas)
		}
	}
	s.replicas = min(wanted, s.most, max(mostAtFirst, s.replicas*mostTimes))
}

// wanted is how many replicas a metric asks for.
func (s *scaler) wanted(metric float64) int {
	if use := metric / (s.target * float64(s.replicas)); math.Abs(use-1) <= tolerance {
		return s.replicas
	}
	return int(math.Ceil(metric / s.target))
}
