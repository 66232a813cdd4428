package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// column is a metric as the tables show it.
type column struct {
	metric metric
	title  string
	format func(float64) string
	// ratio: the table of ratios has it.
	ratio bool
}

// pair is one contender beside another.
type pair struct {
	name, base string
	// goals are what the ratio should be at least or, negative, at most.
	goals map[metric]float64
}

// against are the pairs of one with each of the others.
func against(name string, others []rival) (list []pair) {
	for _, other := range others {
		if other.name != name {
			list = append(list, pair{name: name, base: other.name})
		}
	}
	return list
}

func perSecond(v float64) string {
	if v < 10_000 {
		return fmt.Sprintf("%.1f k", v/1000)
	}
	return fmt.Sprintf("%.0f k", v/1000)
}

func micros(v float64) string { return fmt.Sprintf("%.1f", v) }
func whole(v float64) string  { return fmt.Sprintf("%.0f", v) }

func millis(v float64) string {
	if math.Abs(v) < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func times(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// markdown is a part with its tables, ratios first.
func (p part) markdown(r *record) string {
	var text strings.Builder
	_, _ = fmt.Fprintf(&text, "## %s\n\n%s\n\n", p.title, p.about)
	flags := "-only " + r.Part
	if r.Touched {
		flags += " -touched"
	}
	_, _ = fmt.Fprintf(&text, "%s, revision %s, %s; `go run ./compare %s`", r.When.Format("2006-01-02"), r.Revision, r.Machine, flags)
	if busy := r.busy(); busy != "" {
		_, _ = fmt.Fprintf(&text, "; **%s**", busy)
	}
	if r.SlowPages >= 1 {
		_, _ = fmt.Fprintf(&text, "; of memory that was idle for %v, %.0f %% of the pages take longer than %v to touch", idleFor, r.SlowPages, slowTouch)
	}
	if p.text != nil {
		_, _ = fmt.Fprintf(&text, ".\n\n```text\n%s\n```\n\n", r.Text)
		return text.String()
	}
	_, _ = fmt.Fprintf(&text, "; %d messages, medians of %d", r.Count, r.Repeat)
	if len(r.Versions) > 0 {
		_, _ = fmt.Fprintf(&text, "; %s", strings.Join(r.Versions, ", "))
	}
	text.WriteString(".\n\n")
	if r.Quick {
		text.WriteString("**A quick run: to see that it runs, not for figures.**\n\n")
	}
	text.WriteString(p.ratios(r))
	text.WriteString(p.figures(r))
	for _, why := range r.Skipped {
		_, _ = fmt.Fprintf(&text, "%s.\n\n", why)
	}
	return text.String()
}

// busyLoad is more than what building this leaves behind.
const busyLoad = 4

// busy is a warning where others used the machine.
func (r *record) busy() string {
	if r.Load < busyLoad {
		return ""
	}
	return fmt.Sprintf("others kept the machine busy, load average %.0f: believe nothing but ratios, and these little", r.Load)
}

// ratios is the table of what the pairs' first ones do by what the second ones do.
func (p part) ratios(r *record) string {
	t := table{corner: "ratio [least, most]"}
	for _, c := range p.columns {
		if c.ratio {
			t.heads = append(t.heads, c.title)
		}
	}
	for _, pair := range p.pairs {
		row := []string{pair.name + " / " + pair.base}
		for _, c := range p.columns {
			if c.ratio {
				row = append(row, ratioText(r.ratios(pair.name, pair.base, c.metric), pair.goals[c.metric]))
			}
		}
		t.rows = append(t.rows, row)
	}
	return t.String()
}

// ratioText is a median with the least and the most, and what it should be.
func ratioText(sorted []float64, goal float64) string {
	if len(sorted) == 0 {
		return ""
	}
	text := times(median(sorted))
	if len(sorted) > 1 {
		text += fmt.Sprintf(" [%s, %s]", times(sorted[0]), times(sorted[len(sorted)-1]))
	}
	switch {
	case goal > 0:
		text += fmt.Sprintf(" (goal ≥ %s)", times(goal))
	case goal < 0:
		text += fmt.Sprintf(" (goal ≤ %s)", times(-goal))
	}
	return text
}

// figures is the table of the medians themselves.
func (p part) figures(r *record) string {
	t := table{}
	for _, c := range p.columns {
		t.heads = append(t.heads, c.title)
	}
	for _, name := range r.Names {
		row := []string{name}
		for _, c := range p.columns {
			text := ""
			if list := r.values(name, c.metric); len(list) > 0 {
				text = c.format(median(list))
			}
			row = append(row, text)
		}
		t.rows = append(t.rows, row)
	}
	return t.String()
}

// table is one in Markdown. Each row begins with its name, which has no head.
type table struct {
	corner string
	heads  []string
	rows   [][]string
}

// String leaves out rows and columns that have nothing.
func (t table) String() string {
	filled := make([]bool, len(t.heads))
	t.rows = slices.DeleteFunc(t.rows, func(row []string) bool {
		isEmpty := true
		for i, cell := range row[1:] {
			filled[i] = filled[i] || cell != ""
			isEmpty = isEmpty && cell == ""
		}
		return isEmpty
	})
	if len(t.rows) == 0 {
		return ""
	}
	var text strings.Builder
	write := func(first string, cells []string) {
		text.WriteString("| " + first)
		for i, cell := range cells {
			if filled[i] {
				text.WriteString(" | " + cmp.Or(cell, "–"))
			}
		}
		text.WriteString(" |\n")
	}
	write(t.corner, t.heads)
	write("---", slices.Repeat([]string{"---:"}, len(t.heads)))
	for _, row := range t.rows {
		write(row[0], row[1:])
	}
	return text.String() + "\n"
}
