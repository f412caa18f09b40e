// Package plot draws line charts as SVG. The pictures need no script, font or style sheet.
package plot

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Point is one point of a series.
type Point struct{ X, Y float64 }

// Series is a named line of a chart.
type Series struct {
	Name   string
	Points []Point
}

// Chart is a chart of several series. Both axes are logarithmic, because contexts double and costs of phases differ by
// orders of magnitude. Values at or below zero are drawn at an extra position at the low end of an axis.
type Chart struct {
	Title, X, Y string
	Series      []Series
}

// Sizes of the picture and its margins, in pixels.
const (
	width, height            = 900, 520
	left, top, right, bottom = 80, 50, 330, 60
)

var colours = [...]string{"#1f6fb4", "#d1491f", "#2a8c46", "#8a4fb5", "#b08400", "#007d8a", "#b13b6e", "#5b5b5b"}

// Write writes the chart as SVG.
func (c *Chart) Write(w io.Writer) error {
	x, y := c.axis(func(p Point) float64 { return p.X }, 2), c.axis(func(p Point) float64 { return p.Y }, 10)
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	text(&b, left, 28, "start", 15, c.Title)
	text(&b, (left+width-right)/2, height-16, "middle", 12, c.X)
	fmt.Fprintf(&b, `<g transform="translate(20 %d) rotate(-90)">`, (top+height-bottom)/2)
	text(&b, 0, 0, "middle", 12, c.Y)
	b.WriteString("</g>\n")
	for _, t := range x.ticks() {
		at := x.place(t, left, width-right)
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="#ddd"/>`, at, top, height-bottom)
		text(&b, at, height-bottom+18, "middle", 12, x.label(t))
	}
	for _, t := range y.ticks() {
		at := y.place(t, height-bottom, top)
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/>`, left, at, width-right)
		text(&b, left-8, at+4, "end", 12, y.label(t))
	}
	fmt.Fprintf(&b, `<path d="M%d %dV%dH%d" fill="none" stroke="#333"/>`+"\n", left, top, height-bottom, width-right)
	for i, s := range c.Series {
		colour := colours[i%len(colours)]
		var path []string
		for _, p := range s.Points {
			px, py := x.place(p.X, left, width-right), y.place(p.Y, height-bottom, top)
			path = append(path, fmt.Sprintf("%.1f %.1f", px, py))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, px, py, colour)
		}
		if len(path) > 1 {
			fmt.Fprintf(&b, `<path d="M%s" fill="none" stroke="%s" stroke-width="1.8"/>`+"\n", strings.Join(path, "L"),
				colour)
		}
		row := top + 10 + 20*i
		fmt.Fprintf(&b, `<path d="M%d %dh18" stroke="%s" stroke-width="3"/>`, width-right+16, row, colour)
		text(&b, width-right+40, float64(row+4), "start", 12, s.Name)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// text writes a line of text as SVG, with XML's reserved characters escaped.
func text(b *strings.Builder, x float64, y float64, anchor string, size int, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d">`, x, y, anchor, size)
	xml.EscapeText(b, []byte(s)) // writing to a strings.Builder cannot fail
	b.WriteString("</text>\n")
}

// axis is a logarithmic axis from low to high, which are whole powers of base. With zero, the lowest position is for
// values at or below zero.
type axis struct {
	low, high, base float64
	zero            bool
}

// axis returns an axis that spans the positive values of all points.
func (c *Chart) axis(of func(Point) float64, base float64) axis {
	low, high, zero := math.Inf(1), math.Inf(-1), false
	for _, s := range c.Series {
		for _, p := range s.Points {
			if v := of(p); v > 0 && !math.IsInf(v, 1) {
				low, high = min(low, v), max(high, v)
			} else if v <= 0 {
				zero = true
			}
		}
	}
	if low > high {
		low, high = 1, base
	}
	power := func(v float64, round func(float64) float64) float64 {
		return math.Pow(base, round(math.Round(1e9*math.Log(v)/math.Log(base))/1e9))
	}
	a := axis{power(low, math.Floor), power(high, math.Ceil), base, zero}
	if a.low == a.high {
		a.high *= base
	}
	if zero {
		a.low /= base
	}
	return a
}

// place returns the position of a value between from and to, in pixels. NaN and values below the range are placed at
// from.
func (a axis) place(v, from, to float64) float64 {
	if !(v > a.low) {
		return from
	}
	return from + (to-from)*math.Log(min(v, a.high)/a.low)/math.Log(a.high/a.low)
}

// ticks returns at most ten powers of the base, evenly spaced.
func (a axis) ticks() []float64 {
	n := int(math.Round(math.Log(a.high/a.low) / math.Log(a.base)))
	every := (n + 8) / 9
	var out []float64
	for i := 0; i <= n; i += max(every, 1) {
		out = append(out, a.low*math.Pow(a.base, float64(i)))
	}
	return out
}

// label returns the text of a tick, such as 0, 512, 2k or 128k.
func (a axis) label(v float64) string {
	if a.zero && v <= a.low {
		return "0"
	}
	if n := int64(v); a.base == 2 && n >= 1024 && n%1024 == 0 {
		return strconv.FormatInt(n/1024, 10) + "k"
	}
	if v >= 1 && v < 1e7 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
