package model

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"sparrow/internal/bench/plot"
	"sparrow/internal/unit"
)

// The depths, in tokens, whose decode steps are compared, and the maximum ratio of their times without the indexer's
// scan.
const (
	flatDeep, flatShallow = 128 << 10, 2 << 10
	flatMost              = 1.15
)

// judge adds the verdicts on targets that do not depend on another engine.
func (r *Report) judge() {
	if f := r.Flat; f != nil {
		x := f.DeepMs / f.ShallowMs
		r.Targets = append(r.Targets,
			Verdict{What: "decode at 128k against 2k, without the indexer's scan",
				Wanted: fmt.Sprintf("at most %.2f x", flatMost),
				Got:    fmt.Sprintf("%.2f x (%.1f against %.1f ms)", x, f.DeepMs, f.ShallowMs), Met: x <= flatMost})
	}
	if r.Pause != nil {
		r.Targets = append(r.Targets, Verdict{What: "worst GC pause while steps run", Wanted: "under 20 ms",
			Got: fmt.Sprintf("%.2f ms in %d collections", r.Pause.Worst, r.Pause.Collections), Met: r.Pause.Worst < 20})
	}
}

// head returns a description of the measured model and its settings.
func (r *Report) head() string {
	settings := ""
	for _, s := range []struct {
		given bool
		text  string
	}{{r.Packed, ", weights packed"}, {r.Precise, ", precise"}, {r.DenseOff, ", dense off"},
		{r.Deterministic, ", deterministic"}} {
		if s.given {
			settings += s.text
		}
	}
	return fmt.Sprintf(
		"%s\n%s, commit %s\n%s on %s, %d threads%s, rows %s, keys %s, prefill in chunks of %d\n"+
			"weights: %s\ncontext: %s\n",
		r.Machine, r.Date.Format("2006-01-02 15:04 MST"), r.Commit, r.Model, r.Kernels, r.Threads, settings, r.Layout,
		r.Index, r.Chunk, r.Load, r.Fill)
}

// Print writes the report as plain text.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintln(w, r.head())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range r.rows() {
		fmt.Fprintln(t, strings.Join(row, "\t")+"\t")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range r.Cells {
		if c.Skipped != "" {
			fmt.Fprintf(w, "context %d, batch %d was not measured: %s\n", c.Context, c.Batch, c.Skipped)
		}
	}
	for _, line := range append(r.reads(), r.hosted()...) {
		fmt.Fprintln(w, line)
	}
	if r.Plain != "" {
		fmt.Fprintf(w, "passes ran without a graph: %s\n", r.Plain)
	}
	for i, line := range r.Experts {
		if i == 0 {
			fmt.Fprintln(w, "\nexperts")
		}
		fmt.Fprintf(w, "  %s\n", line)
	}
	for i := range r.Accept {
		fmt.Fprintf(w, "\n%s\n", &r.Accept[i])
	}
	if r.Drafts != nil {
		fmt.Fprintf(w, "\n%s\n", r.Drafts)
	}
	for i, v := range r.Targets {
		if i == 0 {
			fmt.Fprintln(w, "\ntargets")
		}
		if _, err := fmt.Fprintf(w, "  %-8s %s: want %s; got %s\n", v.word(), v.What, v.Wanted, v.Got); err != nil {
			return err
		}
	}
	return nil
}

// Markdown writes the report as Markdown tables.
func (r *Report) Markdown(w io.Writer) error {
	fmt.Fprintln(w, strings.ReplaceAll(strings.TrimSpace(r.head()), "\n", "; ")+".")
	for i, row := range r.rows() {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintln(w, "|---|"+strings.Repeat("---:|", len(row)-1))
		}
	}
	for _, c := range r.Cells {
		if c.Skipped != "" {
			fmt.Fprintf(w, "\nContext %d at batch %d was not measured: %s.\n", c.Context, c.Batch, c.Skipped)
		}
	}
	for _, line := range r.reads() {
		fmt.Fprintf(w, "\n%s.\n", line)
	}
	for i := range r.Accept {
		fmt.Fprintf(w, "\n%s.\n", &r.Accept[i])
	}
	if r.Drafts != nil {
		fmt.Fprintf(w, "\n%s.\n", r.Drafts)
	}
	for i, v := range r.Targets {
		if i == 0 {
			fmt.Fprint(w, "\n| target | wanted | got | |\n|---|---|---|---|\n")
		}
		if _, err := fmt.Fprintf(w, "| %s | %s | %s | %s |\n", v.What, v.Wanted, v.Got, v.word()); err != nil {
			return err
		}
	}
	return nil
}

// reads returns report lines with the rates at which decode steps read weights.
func (r *Report) reads() (lines []string) {
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Decode != nil && c.Decode.Reads != nil {
			lines = append(lines, c.Decode.Reads.line(c))
		}
	}
	return lines
}

// rows returns the table of results: the heading, then one row per phase with the time of every stage.
func (r *Report) rows() [][]string {
	head, traced := []string{"phase", "context", "batch", "step ms", "median", "spread", "tokens/s"}, r.traced()
	if traced {
		head = append(head, "gap ms", "overlapped", "busy", "launches", "kernels ms")
	}
	for s := range stageCount {
		head = append(head, s.String())
	}
	out := [][]string{head}
	add := func(name string, context, batch int, p *Phase) {
		if p == nil {
			return
		}
		row := []string{name, fmt.Sprint(context), fmt.Sprint(batch), fmt.Sprintf("%.2f", p.StepMs),
			fmt.Sprintf("%.2f", p.MedianMs), fmt.Sprintf("%.0f %%", 100*p.Spread),
			fmt.Sprintf("%.1f", p.TokensPerSecond)}
		all := p.StepMs
		if traced {
			overlapped, busy := "", ""
			if p.OverlapMs > 0 {
				overlapped, busy = fmt.Sprintf("%.2f", p.OverlapMs), fmt.Sprintf("%.1f %%", 100*p.Busy)
			}
			row = append(row, fmt.Sprintf("%.2f", p.GapMs), overlapped, busy, fmt.Sprint(p.Launches),
				fmt.Sprintf("%.2f", p.DeviceMs))
			all = p.DeviceMs
		}
		for s := range stageCount {
			row = append(row, fmt.Sprintf("%.0f %%", 100*p.Stages[s]/all))
		}
		out = append(out, row)
	}
	for _, c := range r.Cells {
		add("decode", c.Context, c.Batch, c.Decode)
	}
	for _, c := range r.Cells {
		add("prefill", c.Context, c.Batch, c.Prefill)
	}
	for _, c := range r.Cells {
		add("draft", c.Context, c.Batch, c.Draft)
		add("verify", c.Context, c.Batch, c.Verify)
	}
	for _, p := range r.Prompts {
		add("prompt", p.Length, 1, p.Time)
	}
	return out
}

// traced reports whether the launches of a GPU were timed.
func (r *Report) traced() bool {
	for _, c := range r.Cells {
		if c.Decode != nil && c.Decode.Launches > 0 {
			return true
		}
	}
	return slices.ContainsFunc(r.Prompts, func(p Prompt) bool { return p.Time != nil && p.Time.Launches > 0 })
}

// PrintKernels prints, for every phase, the time of each GPU kernel or CPU operation, the longest first.
func (r *Report) PrintKernels(w io.Writer) error {
	one := func(name string, p *Phase) error {
		if p == nil || len(p.Kernels) == 0 {
			return nil
		}
		fmt.Fprintf(w, "\n%s: %.3f ms, ", name, p.StepMs)
		if p.Launches > 0 {
			fmt.Fprintf(w, "%d launches of %.3f ms\n", p.Launches, p.DeviceMs)
		} else {
			fmt.Fprintf(w, "median %.3f ms; mean times of operations\n", p.MedianMs)
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, k := range p.Kernels {
			fmt.Fprintf(t, "%.1f us\t%d x\t%.2f us\t%s\t%s\t%s\t\n", k.Us, k.Launches, k.Us/float64(k.Launches),
				k.Stage, k.Name, k.rate())
		}
		return t.Flush()
	}
	var errs []error
	for _, c := range r.Cells {
		errs = append(errs, one(fmt.Sprintf("decode, context %d, batch %d", c.Context, c.Batch), c.Decode),
			one(fmt.Sprintf("prefill, context %d, batch %d", c.Context, c.Batch), c.Prefill),
			one(fmt.Sprintf("draft, context %d, batch %d", c.Context, c.Batch), c.Draft),
			one(fmt.Sprintf("verify, context %d, batch %d", c.Context, c.Batch), c.Verify))
	}
	for _, p := range r.Prompts {
		errs = append(errs, one(fmt.Sprintf("a prompt of %d tokens", p.Length), p.Time))
	}
	return errors.Join(errs...)
}

// rate returns the shape of a GEMM and the rate at which its fastest run read weights.
func (k *Kernel) rate() string {
	if k.Bytes == 0 {
		return k.Shape
	}
	return fmt.Sprintf("%s %s in %.1f us at best, %.1f GB/s", k.Shape, unit.Bytes(k.Bytes), k.BestUs,
		float64(k.Bytes)/k.BestUs/1e3)
}

// Plot returns a chart of milliseconds against context: a decode step, with and without the indexer's scan, and a token
// of prefill.
func (r *Report) Plot() *plot.Chart {
	c := &plot.Chart{Title: fmt.Sprintf("%s on %s, %d threads: cost against context", r.Model, r.Kernels, r.Threads),
		X: "tokens in the cache", Y: "milliseconds"}
	series := map[string]int{}
	add := func(name string, context int, ms float64) {
		i, ok := series[name]
		if !ok {
			i = len(c.Series)
			series[name] = i
			c.Series = append(c.Series, plot.Series{Name: name})
		}
		c.Series[i].Points = append(c.Series[i].Points, plot.Point{X: float64(context), Y: ms})
	}
	for _, cell := range r.Cells {
		if cell.Decode != nil {
			add(fmt.Sprintf("decode step, batch %d", cell.Batch), cell.Context, cell.Decode.StepMs)
			add(fmt.Sprintf("decode step without the scan, batch %d", cell.Batch), cell.Context,
				cell.Decode.WithoutScan())
		}
		if cell.Prefill != nil {
			add(fmt.Sprintf("prefill, one token, batch %d", cell.Batch), cell.Context, cell.Prefill.MsPerToken())
		}
	}
	return c
}
