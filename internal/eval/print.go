package eval

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"sparrow/plan"
)

// Print writes the report as plain text.
func (r *Report) Print(w io.Writer) error {
	p := &printer{w: w}
	p.line("%s", r.By.String())
	rows := [][]string{{"task", "items", "exact %", "final %", "errors", "prompt tokens", "cached", "output tokens",
		"seconds", "output tokens/s"}}
	for i := range r.Tasks {
		rows = append(rows, r.Tasks[i].cells(r.Tasks[i].Task))
	}
	p.table(append(rows, r.Total.cells("all")))
	r.printRows(p)
	r.printDrafts(p)
	r.printFailures(p)
	return p.err
}

// Print writes the comparison as plain text.
func (c *Comparison) Print(w io.Writer) error {
	p := &printer{w: w}
	for _, r := range c.Reports {
		p.line("%s: %s (%s)", r.Plan, r.About, r.By.String())
	}
	p.line("\nexact answers, percent")
	p.table(c.accuracy())
	p.line("\nagreement: items with the same output, percent")
	p.table(c.agreement())
	c.printDifferences(p)
	for _, r := range c.Reports {
		p.line("\n%s", r.Plan)
		r.printRows(p)
		r.printDrafts(p)
	}
	return p.err
}

// printDifferences lists the items whose outputs differ between plans. Wrong outputs that are equal are not listed.
func (c *Comparison) printDifferences(p *printer) {
	if c.Different == 0 {
		return
	}
	p.line("\noutputs differ: %s", listed(c.Different, c.Reports[0].Total.Items, len(c.Differences)))
	for _, d := range c.Differences {
		p.line("  %s:%d", d.Task, d.Line)
		rows := [][]string{{"  want", fmt.Sprintf("%q", d.Want)}}
		for i, got := range d.Got {
			rows = append(rows, []string{"  " + c.Reports[i].Plan, fmt.Sprintf("%q", got)})
		}
		p.list(rows)
	}
}

// accuracy returns a table with a row for each task, one for all tasks, and one for the time.
func (c *Comparison) accuracy() [][]string {
	if len(c.Reports) == 0 {
		return nil
	}
	line := func(name string, of func(*Report) *Score) []string {
		cells := []string{name, fmt.Sprint(of(c.Reports[0]).Items)}
		for _, r := range c.Reports {
			cells = append(cells, percent(of(r).Accuracy()))
		}
		return cells
	}
	rows := [][]string{append([]string{"task", "items"}, c.names()...)}
	for i := range c.Reports[0].Tasks {
		rows = append(rows, line(c.Reports[0].Tasks[i].Task, func(r *Report) *Score { return &r.Tasks[i] }))
	}
	rows = append(rows, line("all", func(r *Report) *Score { return &r.Total }))
	seconds := []string{"seconds", ""}
	for _, r := range c.Reports {
		seconds = append(seconds, fmt.Sprintf("%.1f", r.Total.Seconds))
	}
	return append(rows, seconds)
}

func (c *Comparison) agreement() [][]string {
	rows := [][]string{append([]string{""}, c.names()...)}
	for i, r := range c.Reports {
		cells := []string{r.Plan}
		for _, v := range c.Agreement[i] {
			cells = append(cells, percent(v))
		}
		rows = append(rows, cells)
	}
	return rows
}

func (c *Comparison) names() []string {
	var names []string
	for _, r := range c.Reports {
		names = append(names, r.Plan)
	}
	return names
}

// String describes the runner in one line.
func (a About) String() string {
	if a.URL != "" {
		return fmt.Sprintf("%s at %s", a.Model, a.URL)
	}
	return strings.Join(append([]string{a.Model, a.Kernels + " kernels", a.Layout + " cache"}, a.Settings...), ", ")
}

func (s *Score) cells(name string) []string {
	return []string{name, fmt.Sprint(s.Items), percent(s.Accuracy()), percent(share(s.Final, s.Items)),
		fmt.Sprint(s.Errors), fmt.Sprint(s.PromptTokens), fmt.Sprint(s.CachedTokens), fmt.Sprint(s.CompletionTokens),
		fmt.Sprintf("%.1f", s.Seconds), fmt.Sprintf("%.1f", s.TokensPerSecond)}
}

func percent(share float64) string { return fmt.Sprintf("%.1f", 100*share) }

// printRows prints the number of attention rows by form.
func (r *Report) printRows(p *printer) {
	if len(r.Rows) == 0 {
		return
	}
	var all int64
	for _, k := range r.Rows {
		all += k.Rows
	}
	p.line("attention rows computed: %d", all)
	for _, k := range r.Rows {
		convert := ""
		if k.Convert != plan.ConvertNone {
			convert = " after " + k.Convert.String()
		}
		p.line("  %5s %%  %s: %s by %s%s", percent(float64(k.Rows)/float64(max(all, 1))), k.Row, k.Form, k.Kernel,
			convert)
	}
}

// listed returns the heading of a list that contains the first shown of items items, out of all items.
func listed(items, all, shown int) string {
	s := fmt.Sprintf("%d of %d items", items, all)
	if shown < items {
		s += fmt.Sprintf("; the first %d", shown)
	}
	return s + ":"
}

func (r *Report) printFailures(p *printer) {
	if len(r.Failures) == 0 {
		return
	}
	p.line("wrong: %s", listed(r.Total.Items-r.Total.Exact, r.Total.Items, len(r.Failures)))
	for _, f := range r.Failures {
		if f.Error != "" {
			p.line("  %s:%d failed: %s", f.Task, f.Line, f.Error)
			continue
		}
		p.line("  %s:%d\n    want %q\n    got  %q", f.Task, f.Line, f.Want, f.Got)
	}
}

// printer writes text and stores the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// table writes rows of cells: the first column is aligned to the left, the others to the right.
func (p *printer) table(rows [][]string) { p.align(rows, "  %*s") }

// list writes rows of cells, all aligned to the left.
func (p *printer) list(rows [][]string) { p.align(rows, "  %-*s") }

// align writes rows of cells; format is for the cells after the first column.
func (p *printer) align(rows [][]string, format string) {
	var widths []int
	for _, cells := range rows {
		for i, c := range cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, cells := range rows {
		var b strings.Builder
		for i, c := range cells {
			if i == 0 {
				fmt.Fprintf(&b, "  %-*s", widths[i], c)
			} else {
				fmt.Fprintf(&b, format, widths[i], c)
			}
		}
		p.line("%s", strings.TrimRight(b.String(), " "))
	}
}
