package main

import (
	"os"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/test/trial"
)

// meters tell what some have used since they were started, by metric.
type meters struct {
	used   map[metric]func() time.Duration
	before map[metric]time.Duration
}

func startMeters(used map[metric]func() time.Duration) meters {
	m := meters{used: used, before: map[metric]time.Duration{}}
	for name, of := range used {
		m.before[name] = of()
	}
	return m
}

// read puts the microseconds a message into s.
func (m meters) read(s sample, count int) {
	for name, of := range m.used {
		s[name] = float64((of() - m.before[name]).Microseconds()) / float64(count)
	}
}

func ofServer(s *service.Server) func() time.Duration {
	return func() time.Duration { return trial.CPUBelow(s.Dir()) }
}

// ofSelf is this process, with what clients and handlers in it use.
func ofSelf() time.Duration { return trial.CPU(os.Getpid()) }
