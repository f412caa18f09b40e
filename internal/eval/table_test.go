package eval

import (
	"errors"
	"slices"
	"testing"

	"sparrow/internal/testkit/table"
)

// Every number of a result is written at its place.
func TestTableOfResults(t *testing.T) {
	var a, b, empty Report
	table.Fill(&a)
	table.Fill(&b)
	a.Failures[1].Error = ""
	b.Plan, b.By.URL, b.Drafts, b.Rows, b.Total.Exact, b.Total.Final, b.Tasks[0].Exact = "b", "", nil, nil, 1, 2, 3
	b.Failures = nil
	items := []Item{{Task: "x", Line: 1, Answer: "A"}, {Task: "x", Line: 2, Answer: "B"},
		{Task: "y", Line: 3, Answer: "C"}, {Task: "y", Line: 4, Answer: "D"}}
	for i, texts := range [][2]string{{"A", "A"}, {"B", "wrong"}, {"same", "same"}, {"late", ""}} {
		a.outputs = append(a.outputs, output{item: &items[i], text: texts[0]})
		b.outputs = append(b.outputs, output{item: &items[i], text: texts[1]})
	}
	b.outputs[3].err = errors.New("timeout")
	a.outputs[2].reply.Ended, b.outputs[2].reply.Ended = true, false
	lines := slices.Concat(table.Written(t, "a report", &a, a.Print), table.Written(t, "another report", &b, b.Print),
		table.Written(t, "an empty report", &empty, empty.Print))
	for _, most := range []int{9, 2} {
		c, err := Compare([]*Report{&a, &b}, most)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, table.Written(t, "a comparison", c.Differences, c.Print)...)
	}
	r, err := Repeated([]*Report{&a, &b})
	if err != nil {
		t.Fatal(err)
	}
	lines = append(lines, table.Written(t, "repeats", r.Tasks, r.Print)...)
	var p Perplexity
	table.Fill(&p)
	lines = append(lines, table.Written(t, "a perplexity", &p, p.Print)...)
	table.Check(t, "results.txt", lines)
}
