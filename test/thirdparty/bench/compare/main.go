// Command compare measures the whole path of a message beside the least that each
// of its stages takes with the same client library, and beside other ways to have
// a message delivered later.
//
// It starts all servers itself. What is compared takes its turn in each
// repetition; a figure is the median of those, and a ratio the median of the
// ratios within a repetition. What each part has measured is kept, so that parts
// can be measured one at a time (-only), and -write makes a document of all.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// settings are what the flags say.
type settings struct {
	count, repeat int
	// waiting is how many messages wait beside those of the part of that name,
	// burst how many are due in one millisecond in the part of that name.
	waiting, burst int
	// window is how long messages are due at 1,000 a second; at 10,000 a second half
	// as long.
	window time.Duration
	only   string
	quick  bool
	render bool
	write  string
	kept   string
	// touched: Redis' memory is read again and again.
	touched bool
}

func main() {
	var s settings
	flag.IntVar(&s.count, "count", 200_000, "messages of a drain")
	flag.IntVar(&s.repeat, "repeat", 5, "repetitions")
	flag.IntVar(&s.waiting, "waiting", 10_000_000, "messages that wait meanwhile, in the part of that name; they take 5 GB of memory and of disk")
	flag.IntVar(&s.burst, "burst", 1_000_000, "messages due in one millisecond, in the part of that name")
	flag.DurationVar(&s.window, "window", 10*time.Second, "how long messages are due at 1,000 a second; at 10,000 a second half as long")
	flag.StringVar(&s.only, "only", "", "parts to measure, a comma list of "+strings.Join(partNames(), ", ")+"; empty for all")
	flag.BoolVar(&s.quick, "quick", false, "few messages and one repetition: to see that all of it runs, not for figures")
	flag.BoolVar(&s.render, "render", false, "measure nothing, print what was kept")
	flag.StringVar(&s.write, "write", "", "Markdown file to make of all that was kept, with a plot beside it; not with -quick")
	flag.StringVar(&s.kept, "kept", "", "folder that keeps what was measured, one file a part (default .cache/compare of the repository, .cache/compare-quick with -quick)")
	flag.BoolVar(&s.touched, "touched", false, "read Redis' memory four times a second, where the machine's host takes idle memory away; needs root")
	flag.Parse()
	chosen, err := s.parts()
	if err != nil || flag.NArg() > 0 || min(s.count, s.waiting, s.burst) < 2*batchSize || s.repeat < 1 || s.window < time.Second {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		flag.Usage()
		os.Exit(2)
	}
	if s.quick {
		s.count, s.repeat, s.waiting, s.burst, s.window = min(s.count, 10_000), 1, min(s.waiting, 100_000), min(s.burst, 50_000), 2*time.Second
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx, chosen); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

// parts are those that were asked for.
func (s settings) parts() ([]part, error) {
	if s.only == "" {
		return parts, nil
	}
	var chosen []part
	for name := range strings.SplitSeq(s.only, ",") {
		at := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if at < 0 {
			return nil, fmt.Errorf("there is no part %q", name)
		}
		chosen = append(chosen, parts[at])
	}
	return chosen, nil
}

// run measures, keeps and prints. A part that fails does not keep the others from
// being measured.
func (s settings) run(ctx context.Context, chosen []part) error {
	root, err := service.Root()
	if err != nil {
		return err
	}
	if s.kept == "" {
		s.kept = filepath.Join(root, ".cache", "compare")
		if s.quick {
			s.kept += "-quick"
		}
	}
	if err := os.MkdirAll(s.kept, 0o755); err != nil {
		return err
	}
	var problems []error
	if !s.render {
		problems = append(problems, s.measure(ctx, root, chosen))
	}
	records, err := readRecords(s.kept)
	if err != nil {
		return errors.Join(append(problems, err)...)
	}
	if s.write != "" && !s.quick {
		problems = append(problems, writeDocument(s.write, records))
	}
	for _, p := range chosen {
		if r, found := records[p.name]; found {
			fmt.Print(p.markdown(r))
		}
	}
	return errors.Join(problems...)
}

func (s settings) measure(ctx context.Context, root string, chosen []part) error {
	b, err := newBench(ctx, s, root)
	if err != nil {
		return err
	}
	defer b.close()
	var problems []error
	for _, p := range chosen {
		if err := b.measure(ctx, p); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", p.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(problems...)
}
