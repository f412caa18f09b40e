package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// draw writes a chart and checks that it is well-formed XML.
func draw(t *testing.T, c *Chart) string {
	t.Helper()
	var b strings.Builder
	if err := c.Write(&b); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("error %v in picture %s", err, b.String())
		}
	}
	return b.String()
}

func TestChart(t *testing.T) {
	c := &Chart{Title: "a < b & c", X: "tokens", Y: "ms", Series: []Series{
		{"first", []Point{{512, 1.5}, {2048, 3}, {131072, 90}}},
		{"at zero", []Point{{0, 2}, {512, 0}}},
		{"alone", []Point{{1024, 10}}},
		{"nothing", nil},
	}}
	s := draw(t, c)
	for _, part := range []string{"a &lt; b &amp; c", ">tokens<", ">ms<", ">0<", ">512<", ">128k<", ">100<", ">first<",
		">nothing<"} {
		if !strings.Contains(s, part) {
			t.Errorf("the picture lacks %q:\n%s", part, s)
		}
	}
	if n := strings.Count(s, "<circle"); n != 6 {
		t.Errorf("%d points are drawn, want 6", n)
	}
	if strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
		t.Errorf("the picture has a position that is not a number:\n%s", s)
	}
}

// Larger values are drawn further to the right and higher.
func TestLargerValuesAreHigher(t *testing.T) {
	s := draw(t, &Chart{Series: []Series{{"", []Point{{512, 1}, {1024, 10}, {4096, 100}}}}})
	var x, y []float64
	for _, m := range regexp.MustCompile(`<circle cx="([0-9.]+)" cy="([0-9.]+)"`).FindAllStringSubmatch(s, -1) {
		for i, to := range []*[]float64{&x, &y} {
			v, err := strconv.ParseFloat(m[1+i], 64)
			if err != nil {
				t.Fatal(err)
			}
			*to = append(*to, v)
		}
	}
	slices.Reverse(y)
	if len(x) != 3 || !slices.IsSorted(x) || !slices.IsSorted(y) || x[0] != left || y[0] != top ||
		y[2] != height-bottom || x[2] != width-right {
		t.Errorf("columns %v, rows %v", x, y)
	}
}

func TestChartsWithoutNumbers(t *testing.T) {
	for _, c := range []*Chart{{}, {Series: []Series{{"zeros", []Point{{0, 0}}}}},
		{Series: []Series{{"odd", []Point{{math.NaN(), math.Inf(1)}, {1, 1}}}}}} {
		if s := draw(t, c); strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
			t.Errorf("the picture has a position that is not a number:\n%s", s)
		}
	}
}

// On an axis, equal ratios have equal distances, and the axis begins and ends at whole powers.
func TestAxis(t *testing.T) {
	c := &Chart{Series: []Series{{"", []Point{{512, 3}, {32768, 40}}}}}
	x := c.axis(func(p Point) float64 { return p.X }, 2)
	if x.low != 512 || x.high != 32768 {
		t.Errorf("axis from %v to %v", x.low, x.high)
	}
	if a := x.place(4096, 0, 100); math.Abs(a-50) > 1e-9 {
		t.Errorf("4096 is at %v, want the middle", a)
	}
	y := c.axis(func(p Point) float64 { return p.Y }, 10)
	if y.low != 1 || y.high != 100 || len(y.ticks()) != 3 {
		t.Errorf("axis from %v to %v, ticks %v", y.low, y.high, y.ticks())
	}
	if z := (&Chart{Series: []Series{{"", []Point{{0, 3}, {512, 40}, {1024, 5}}}}}).axis(func(p Point) float64 {
		return p.X
	}, 2); z.low != 256 || z.label(256) != "0" || z.place(0, 0, 100) != 0 || z.place(512, 0, 100) != 50 {
		t.Errorf("an axis with zero: %+v", z)
	}
	if wide := (axis{low: 1, high: math.Pow(2, 40), base: 2}).ticks(); len(wide) > 10 {
		t.Errorf("%d ticks", len(wide))
	}
}
