package kernels

import (
	"slices"
	"testing"

	"sparrow/internal/testkit/table"
)

// Every number of a report is written at its place.
func TestTableOfReports(t *testing.T) {
	var full, plain Report
	table.Fill(&full)
	table.Fill(&plain)
	plain.Verdicts, plain.Results[1] = nil, Result{Name: "n", Shape: "s", Backend: "b", Threads: 1}
	table.Check(t, "reports.txt", slices.Concat(
		table.Written(t, "all numbers", &full, full.Print, full.Markdown),
		table.Written(t, "without targets; the second row has no numbers", &plain, plain.Print, plain.Markdown)))
}
