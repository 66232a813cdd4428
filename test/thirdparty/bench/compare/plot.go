package main

import (
	"fmt"
	"html"
	"strings"
)

// Sizes of the plot, in pixels.
const (
	plotWidth  = 760
	barsFrom   = 320
	barsWidth  = 350
	rowHeight  = 20
	headHeight = 34
)

const plotStyle = `<style>
text{font:13px sans-serif;fill:#1f2328}.head{font-weight:bold}.ours{fill:#2f6fde}.other{fill:#b3bac5}.span{stroke:#1f2328}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.span{stroke:#e6edf3}.other{fill:#59636e}}
</style>
`

// plot draws what each part has drained a second: a bar is the median, the line
// over its end goes from the least to the most.
func plot(records map[string]*record) string {
	var shapes strings.Builder
	y := 0
	for _, p := range parts {
		if r, found := records[p.name]; found {
			y = plotPart(&shapes, p, r, y)
		}
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" role="img">`+"\n%s%s</svg>\n",
		plotWidth, y+rowHeight/2, plotStyle, shapes.String())
}

// plotPart draws one part below y, and returns where it ends.
func plotPart(shapes *strings.Builder, p part, r *record, y int) int {
	most := 0.0
	for _, name := range r.Names {
		if list := r.values(name, drainRate); len(list) > 0 {
			most = max(most, list[len(list)-1])
		}
	}
	if most == 0 {
		return y
	}
	_, _ = fmt.Fprintf(shapes, `<text class="head" x="8" y="%d">%s, messages drained a second</text>`+"\n", y+22, html.EscapeString(p.title))
	y += headHeight
	at := func(v float64) float64 { return barsFrom + v/most*barsWidth }
	for _, name := range r.Names {
		list := r.values(name, drainRate)
		if len(list) == 0 {
			continue
		}
		class := "other"
		if strings.HasPrefix(name, oursName) {
			class = "ours"
		}
		middle := median(list)
		_, _ = fmt.Fprintf(shapes, `<text x="%d" y="%d" text-anchor="end">%s</text>`, barsFrom-8, y+14, html.EscapeString(name))
		_, _ = fmt.Fprintf(shapes, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`, class, barsFrom, y+3, at(middle)-barsFrom, rowHeight-6)
		_, _ = fmt.Fprintf(shapes, `<line class="span" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, at(list[0]), at(list[len(list)-1]), y+rowHeight/2, y+rowHeight/2)
		_, _ = fmt.Fprintf(shapes, `<text x="%.1f" y="%d">%s</text>`+"\n", at(list[len(list)-1])+6, y+14, perSecond(middle))
		y += rowHeight
	}
	return y
}
