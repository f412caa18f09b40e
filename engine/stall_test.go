package engine

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"sparrow/internal/sched"
	"sparrow/internal/testmodel"
)

// A bound that is too small for any chunk cuts prompts to the smallest chunk while a stream runs, the log states the
// bound that is kept, and answers are those of an engine without a bound.
func TestMaxStallCutsPrompts(t *testing.T) {
	prompt := Request{Prompt: tokens(7, 600), Sampling: greedy(), MaxTokens: 8, IgnoreEOS: true}
	whole, _ := collect(open(t, start(t, testmodel.V32(t), Config{}), prompt))

	var log bytes.Buffer
	e := start(t, testmodel.V32(t), Config{MaxStall: time.Nanosecond,
		Log: slog.New(slog.NewTextHandler(&log, nil)), PlanHistory: 1024})
	stream := open(t, e, Request{Prompt: tokens(1, 8), Sampling: greedy(), MaxTokens: 400, IgnoreEOS: true})
	stream.Next()
	got, last := collect(open(t, e, prompt))
	if last.Err != nil {
		t.Fatal(last.Err)
	}
	if !slices.Equal(got, whole) {
		t.Errorf("tokens %v, without a bound %v", got, whole)
	}
	chunks := 0
	for _, r := range e.Plans() {
		rows := 0
		for _, s := range r.Plan.Segments {
			if !s.Row.DecodeLike() {
				rows += s.Rows
			}
		}
		if rows > 0 {
			chunks++
		}
		if rows > sched.SmallestChunk {
			t.Errorf("step %d: %d rows of prompts while a stream runs, want at most %d", r.Step, rows,
				sched.SmallestChunk)
		}
	}
	if want := 600 / sched.SmallestChunk; chunks < want {
		t.Errorf("%d steps have prompts, want at least %d", chunks, want)
	}
	if e.Stats().LongestGap <= 0 {
		t.Error("no gap was measured")
	}
	stream.Cancel()
	collect(stream)
	e.Close(t.Context()) // the log belongs to the loop until then
	if !strings.Contains(log.String(), "max_stall=1ns") {
		t.Errorf("the log does not say what is kept: %s", log.String())
	}
}

// The longest gap is forgotten after one to two windows.
func TestGapsAreForgotten(t *testing.T) {
	var g gaps
	at := time.Unix(1000, 0)
	g.add(5*time.Second, at)
	g.add(time.Second, at.Add(gapWindow))
	if got := g.longest(at.Add(gapWindow)); got != 5*time.Second {
		t.Errorf("after a window %v, want 5s", got)
	}
	if got := g.longest(at.Add(2 * gapWindow)); got != time.Second {
		t.Errorf("after two windows %v, want 1s", got)
	}
	if got := g.longest(at.Add(9 * gapWindow)); got != 0 {
		t.Errorf("much later %v, want 0", got)
	}
}
