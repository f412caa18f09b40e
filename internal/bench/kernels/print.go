package kernels

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes the report as plain text.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%s, commit %s, best of %d rounds\n\n", r.Machine, r.Date.Format("2006-01-02 15:04 MST"),
		r.Commit, r.Rounds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range r.rows() {
		fmt.Fprintln(t, strings.Join(row, "\t")+"\t")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.Verdicts) > 0 {
		fmt.Fprintf(w, "\ntargets\n")
	}
	for _, v := range r.Verdicts {
		if _, err := fmt.Fprintf(w, "  %-12s %s: want %s; got %s\n", v.Met, v.What, v.Wanted, v.Got); err != nil {
			return err
		}
	}
	return nil
}

// Markdown writes the report as Markdown tables.
func (r *Report) Markdown(w io.Writer) error {
	fmt.Fprintf(w, "%s;\n%s; commit %s; best of %d rounds, spread is (90th - 10th percentile) / median.\n\n", r.Machine,
		r.Date.Format("2006-01-02 15:04 MST"), r.Commit, r.Rounds)
	if len(r.Verdicts) > 0 {
		fmt.Fprint(w, "| target | wanted | got | |\n|---|---|---|---|\n")
	}
	for _, v := range r.Verdicts {
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", v.What, v.Wanted, v.Got, v.Met)
	}
	for i, row := range r.rows() {
		if i == 0 && len(r.Verdicts) > 0 {
			fmt.Fprintln(w)
		}
		if _, err := fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | ")); err != nil {
			return err
		}
		if i == 0 {
			fmt.Fprintln(w, "|---|---|---|"+strings.Repeat("---:|", len(row)-3))
		}
	}
	return nil
}

// rows returns the table of results: the heading, then one row per result.
func (r *Report) rows() [][]string {
	out := [][]string{{"operation", "shape", "backend", "threads", "us", "median", "spread", "GFLOP/s", "of peak",
		"GB/s", "of stream"}}
	share := func(v float64) string {
		if v == 0 {
			return ""
		}
		return fmt.Sprintf("%.0f %%", 100*v)
	}
	number := func(v float64) string {
		if v == 0 {
			return ""
		}
		return fmt.Sprintf("%.1f", v)
	}
	for _, x := range r.Results {
		out = append(out, []string{x.Name, x.Shape, x.Backend, fmt.Sprint(x.Threads), number(x.Micros),
			number(x.Median), share(x.Spread), number(x.GFLOPs), share(x.PeakShare), number(x.GBs),
			share(x.StreamShare)})
	}
	return out
}
