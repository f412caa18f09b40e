package main

import (
	"fmt"
	"io"
	"time"

	"sparrow"
	"sparrow/plan"
	"sparrow/plan/explain"
)

// printTrace prints the trace of a request: the cached part of the prompt, the times of stages, and the plans with
// their reasons.
func printTrace(w io.Writer, last sparrow.Event, seed int64) {
	t, u := last.TraceLog, last.Usage
	fmt.Fprintf(w, "\nprefix   %v\n", t.Match)
	fmt.Fprintf(w, "tokens   %d in (%d from the cache), %d out", u.PromptTokens, u.CachedTokens, u.CompletionTokens)
	if u.ReasoningTokens > 0 {
		fmt.Fprintf(w, ", %d of them reasoning", u.ReasoningTokens)
	}
	if u.DraftedTokens > 0 {
		fmt.Fprintf(w, ", %d drafted and %d accepted", u.DraftedTokens, u.AcceptedTokens)
	}
	fmt.Fprintf(w, "; finish %s; seed %d\n", last.Finish, seed)
	if len(t.Drafts) > 0 {
		fmt.Fprint(w, "drafts   accepted by position in the chain:")
		for _, n := range t.Drafts {
			fmt.Fprintf(w, " %d/%d", n.Right, n.Judged)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "times    queued %s, prefill %s, decode %s", short(t.Queued), short(t.Prefill), short(t.Decode))
	if n := u.CompletionTokens - 1; n > 0 && t.Decode > 0 {
		fmt.Fprintf(w, " (%.1f tokens/s)", float64(n)/t.Decode.Seconds())
	}
	fmt.Fprintf(w, "; %d steps, preempted %d times\n", t.Steps, t.Preempted)
	for _, d := range choices(t.Plans) {
		d.print(w)
	}
}

// choice describes kernels that plans of a request selected, with the number of their rows. Chunks of a prompt have
// different lengths and therefore different plans, but mostly the same kernels; each choice is printed once.
type choice struct {
	what  string // kernel, layout and conversions, as text
	why   string // reasons, one line each
	row   plan.RowKind
	rows  int // number of rows in all steps
	steps int
	keys  []plan.Key
}

// choices merges the segments of plans that have the same description, in order of first use.
func choices(plans []sparrow.PlanUse) []*choice {
	var out []*choice
	seen := map[string]*choice{}
	for _, use := range plans {
		for i := range use.Plan.Segments {
			s := &use.Plan.Segments[i]
			d := choose(s)
			known, ok := seen[d.what+d.why]
			if !ok {
				known = d
				seen[d.what+d.why] = d
				out = append(out, d)
			}
			known.rows += s.Rows * use.Steps
			known.steps += use.Steps
			known.keys = append(known.keys, use.Plan.Key)
		}
	}
	return out
}

func choose(s *plan.Segment) *choice {
	d := &choice{row: s.Row}
	d.what = fmt.Sprintf("%v by %v over %v, convert %v, transform %v, indexer %v", s.Form, s.Kernel, s.Layout,
		s.Convert, s.Transform, s.Indexer.Kind)
	if n := len(s.Launches); n > 1 {
		d.what += fmt.Sprintf(", %d launches", n)
	}
	for _, r := range s.Reasons {
		d.why += fmt.Sprintf("           why: %s\n", explain.Reason(r))
	}
	return d
}

func (d *choice) print(w io.Writer) {
	keys := d.keys[0].String()
	if n := len(d.keys); n > 1 {
		keys += fmt.Sprintf(" and %d more", n-1)
	}
	steps := "steps"
	if d.steps == 1 {
		steps = "step"
	}
	fmt.Fprintf(w, "plan     %d %v rows in %d %s: %s (%s)\n%s", d.rows, d.row, d.steps, steps, d.what, keys, d.why)
}

func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
