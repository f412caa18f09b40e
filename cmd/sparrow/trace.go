package main

import (
	"fmt"
	"io"
	"time"

	"sparrow"
)

// printTrace writes what happened to a request: how much of the prompt was known, where the time went, which plans ran and why.
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
	fmt.Fprintf(w, "times    queued %s, prefill %s, decode %s", short(t.Queued), short(t.Prefill), short(t.Decode))
	if n := u.CompletionTokens - 1; n > 0 && t.Decode > 0 {
		fmt.Fprintf(w, " (%.1f tokens/s)", float64(n)/t.Decode.Seconds())
	}
	fmt.Fprintf(w, "; %d steps, preempted %d times\n", t.Steps, t.Preempted)
	for _, use := range t.Plans {
		printPlan(w, use)
	}
}

// printPlan writes one plan with its reasons.
func printPlan(w io.Writer, use sparrow.PlanUse) {
	p := use.Plan
	fmt.Fprintf(w, "plan     %v: %v, %d rows, %d step(s)\n", p.Key, p.Mode, p.Rows, use.Steps)
	for i := range p.Segments {
		s := &p.Segments[i]
		fmt.Fprintf(w, "         %d %v rows: %v by %v over %v, convert %v, transform %v, indexer %v, %d launch(es)\n",
			s.Rows, s.Row, s.Form, s.Kernel, s.Layout, s.Convert, s.Transform, s.Indexer.Kind, len(s.Launches))
		for _, r := range s.Reasons {
			fmt.Fprintf(w, "           why: %s (%s)\n", r.Text, r.Rule)
		}
		for _, r := range s.Rejected {
			fmt.Fprintf(w, "           not %v: %s\n", r.Kernel, r.Reason)
		}
	}
}

func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
