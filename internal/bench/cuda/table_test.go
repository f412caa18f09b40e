package bench

import (
	"fmt"
	"regexp"
	"testing"

	"sparrow/internal/testkit/launches"
	"sparrow/internal/testkit/table"
	"sparrow/kernel/cuda"
)

// number matches the numbers of a shape, but not those of layouts and formats.
var number = regexp.MustCompile(`(^| )\d+k?\b`)

// mostKinds is the maximum number of kinds of cases with one name that are launched, because random inputs take time.
const mostKinds = 3

// The bytes and operations of all cases are those of the golden table. Cases with equal names whose shapes differ only
// in numbers are a kind. The smallest case of a kind is also launched on a device without a GPU: its launches and
// their arguments are in the table too. Equal numbers after m are equal addresses.
func TestTableOfCases(t *testing.T) {
	smallest, kinds := map[string]Case{}, map[string]int{}
	kind := func(c *Case) string { return c.Name + number.ReplaceAllString(c.Shape, "") }
	for _, c := range Cases() {
		least, known := smallest[kind(&c)]
		switch {
		case known && c.setBytes() < least.setBytes():
			smallest[kind(&c)] = c
		case !known && kinds[c.Name] < mostKinds:
			kinds[c.Name]++
			smallest[kind(&c)] = c
		}
	}
	d := cuda.OpenDetached(cuda.H200)
	k, err := d.LoadKernels()
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range Cases() {
		lines = append(lines, fmt.Sprintf("%s: %.6g FLOPs, rate %d, %.6g bytes, set %.6g", c.Title(), c.FLOPs, c.Rate,
			c.Bytes, c.setBytes()))
		if least := smallest[kind(&c)]; least.Title() != c.Title() {
			continue
		}
		h := newHolder(&Rig{Device: d, Kernels: k, Stream: s, Seed: 1})
		set := c.New(h)
		if err := h.ready(); err != nil {
			t.Fatal(err)
		}
		numbers := map[cuda.Ptr]int{}
		d.Watch(func(kernel string, l cuda.Launch, args any) {
			lines = append(lines, fmt.Sprint("  ", kernel, " ", l.Grid, launches.Fields(args, numbers)))
		})
		if err := set.Launch(s); err != nil {
			t.Errorf("%s: %v", c.Title(), err)
		}
		d.Watch(nil)
		outputs := 0
		for _, o := range h.outputs {
			outputs += o.bytes
		}
		lines = append(lines, fmt.Sprintf("  %d outputs of %d bytes", len(h.outputs), outputs),
			fmt.Sprint("  check of zeros: ", set.Check(&reader{stream: s})))
		if err := h.free(); err != nil {
			t.Error(err)
		}
	}
	table.Check(t, "cases.txt", lines)
}

// Every number of a report is written at its place.
func TestTableOfReports(t *testing.T) {
	var full, plain Report
	table.Fill(&full)
	plain.Results = []Result{{Name: "n", Shape: "s", Micros: 1.5}}
	table.Check(t, "reports.txt", append(table.Written(t, "all numbers", &full, full.Print),
		table.Written(t, "no numbers", &plain, plain.Print)...))
}
