package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/test/flow"
	"github.com/delaybridge/delaybridge/test/inputs"
)

// inputsFigure tries bad input at each entrance of one bridge, and then looks
// whether all that waited before is still there, unchanged.
func inputsFigure(ctx context.Context, r run) error {
	if r.broker != "nats" {
		return errors.New("the topics of this figure are wrong for NATS only")
	}
	w, err := flow.NewWorld(ctx, inputs.World(r.binary, r.shards))
	if w != nil {
		defer w.Close()
	}
	if err != nil {
		return err
	}
	fmt.Printf("inputs  seed %d\n", r.seed)
	fmt.Printf("inputs  %-13s | %6s %7s %11s | %14s %10s %8s\n",
		"entrance", "tried", "refused", "field named", "accepted wrong", "broken", "changed")
	_, err = inputs.Run(ctx, inputs.Options{World: w, Binary: r.binary, Seed: r.seed, Finished: printInputs})
	return err
}

// printInputs prints an entrance's line, and its faults below.
func printInputs(r inputs.Report) {
	const shown = 20
	fmt.Printf("inputs  %-13s | %6d %7d %11d | %14d %10d %8d\n",
		r.Entrance, r.Tried, r.Refused, r.FieldNamed, r.AcceptedWrong, r.Broken, r.Changed)
	for _, fault := range r.Faults[:min(len(r.Faults), shown)] {
		fmt.Printf("inputs  %-13s | %s\n", r.Entrance, fault)
	}
}
