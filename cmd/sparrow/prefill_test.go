package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"sparrow"
	"sparrow/engine"
	"sparrow/plan"
)

// The progress of prefill counts prompt rows and cached tokens, but not the rows of answers.
func TestPrefillCountsPromptRows(t *testing.T) {
	var out bytes.Buffer
	now := time.Now()
	s := sparrow.Stats{CachedTokens: 7, Plans: []engine.PlanCount{{Row: plan.RowDensePrefill, Rows: 1000},
		{Row: plan.RowDecode, Rows: 500}}}
	p := &prefill{stats: func() sparrow.Stats { return s }, total: 2000, begun: promptRows(s),
		bar: &progress{w: &out, label: "reading the prompt", columns: 200, started: now.Add(-time.Second),
			now: func() time.Time { now = now.Add(time.Second); return now }}}
	for _, step := range []struct {
		cached, dense, sparse, decode int64
		want                          string
	}{
		{64, 0, 0, 0, "  3 %  64 of 2000 tokens"},
		{0, 512, 0, 3, " 28 %  576 of 2000 tokens"},
		{0, 0, 512, 0, " 54 %  1088 of 2000 tokens"},
		{0, 5000, 0, 0, "100 %  2000 of 2000 tokens"},
	} {
		s.CachedTokens += step.cached
		s.Plans = append(s.Plans, engine.PlanCount{Row: plan.RowDensePrefill, Rows: step.dense},
			engine.PlanCount{Row: plan.RowSparsePrefill, Rows: step.sparse},
			engine.PlanCount{Row: plan.RowDecode, Rows: step.decode})
		out.Reset()
		if p.draw(); !strings.Contains(out.String(), step.want) {
			t.Errorf("%q, want %q", &out, step.want)
		}
	}
}

// Prefill progress prints nothing if standard error is not a terminal, and stop may be called without start.
func TestPrefillIsSilentInAPipe(t *testing.T) {
	var out bytes.Buffer
	k, _ := startTalk(t, strings.NewReader(""), &out)
	p := k.watchPrefill(k.conversation(nil))
	p.start()
	p.stop()
	p.stop()
	if out.Len() > 0 || p.total != 0 {
		t.Errorf("%q, total %d", &out, p.total)
	}
}
