package main

import "strings"

const aboutMachines = `Computed, not measured: the CPU of a message from the tables above, times so many messages a second. Redis runs on one processor for each primary, so its number is also
that of primaries, if each is busy all of the time; bridges share a queue's shards. Scheduling comes on top, as in *Beside the least that Redis could do*, and replicas
of Redis and the broker.`

// machines is how many processors each server needs for so many messages a second.
func machines(records map[string]*record) string {
	t := table{corner: "processors"}
	rates := []struct {
		name      string
		perSecond float64
	}{{"100,000/s", 100_000}, {"1,000,000/s", 1_000_000}}
	for _, rate := range rates {
		t.heads = append(t.heads, "Redis, "+rate.name, "bridge", "broker")
	}
	for _, of := range []struct{ part, name string }{{"nats", toNATS}, {"rabbitmq", toQuorum}, {"kafka", toKafka}} {
		r, found := records[of.part]
		if !found {
			continue
		}
		row := []string{of.name}
		for _, rate := range rates {
			for _, m := range []metric{cpuRedis, cpuClient, cpuBroker} {
				text := ""
				if list := r.values(of.name, m); len(list) > 0 {
					text = micros(median(list) * rate.perSecond / 1e6)
				}
				row = append(row, text)
			}
		}
		t.rows = append(t.rows, row)
	}
	if len(t.rows) == 0 {
		return ""
	}
	return strings.Join([]string{"## How many processors it takes", aboutMachines, t.String()}, "\n\n")
}
