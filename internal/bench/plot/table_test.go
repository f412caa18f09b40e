package plot

import (
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"sparrow/internal/testkit/table"
)

// Whole pictures: of more series than there are colours, of one point, of values of any size, and of none.
func TestTableOfPictures(t *testing.T) {
	many := &Chart{Title: "many <series>", X: "tokens", Y: "ms"}
	for i := range len(colours) + 1 {
		many.Series = append(many.Series, Series{fmt.Sprint("series ", i), []Point{{float64(int(1) << i), float64(i)}}})
	}
	charts := []*Chart{many,
		{Title: "lines", X: "a", Y: "b", Series: []Series{{"one", []Point{{0, 5e-7}, {1000, 20}, {1536, 1e9}}}}},
		{Title: "a point", Series: []Series{{"", []Point{{1024, 1}}}}},
		{Title: "no numbers", Series: []Series{{"", []Point{{math.NaN(), math.Inf(1)}, {math.Inf(1), math.NaN()}}}}},
		{Title: "zeros", Series: []Series{{"", []Point{{0, 0}, {-1, -1}, {3 << 20, 12345678}}}}}}
	var lines []string
	for _, c := range charts {
		lines = slices.Concat(lines, table.Written(t, c.Title, c.Title, func(w io.Writer) error { return c.Write(w) }))
	}
	table.Check(t, "pictures.txt", lines)
}
