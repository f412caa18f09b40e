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
	"sparrow/kernel"
)

// If MaxStall is too small for any chunk, prompts are divided into chunks of the smallest size while a stream runs. The
// log states the limit that can be met, and answers equal those of an engine without a limit.
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
		t.Errorf("tokens %v with MaxStall, %v without", got, whole)
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
	e.Close(t.Context()) // the loop writes the log until it ends
	if !strings.Contains(log.String(), "max_stall=1ns") {
		t.Errorf("the log does not state the limit that can be met: %s", log.String())
	}
}

// The time that streams have already waited for the batch of a new request reduces the time for prompts: the next batch
// has fewer prompt tokens than it would have if the streams had not waited.
func TestPromptsGetWhatWaitingLeaves(t *testing.T) {
	alone(t, "a single device advances the clock of the test")
	promptRows := func(waited bool) int {
		p := &paced{}
		e, err := buildOver(t, testmodel.V32(t), Config{Clock: p, MaxStall: 600 * time.Millisecond, NoOverlap: true,
			PlanHistory: 1024}, kernel.Options{Workers: 1}, func(d kernel.Device) kernel.Device {
			p.Device = d
			return beside{p} // batches on this device are not divided
		})
		if err != nil {
			t.Fatal(err)
		}
		running(t, e)
		for i := range 2 { // after two long prompts the time of prompts is known
			open(t, e, Request{Prompt: tokens(60+i, 300), Sampling: greedy(), MaxTokens: 1, Tenant: "a"})
			e.iterations(4)
		}
		for i := range 24 {
			open(t, e, Request{Prompt: tokens(1+i, 4), Sampling: greedy(), MaxTokens: 24, IgnoreEOS: true, Tenant: "a"})
		}
		e.iterations(10)
		for i := 0; e.loop.waiting.IsZero(); i++ {
			if i == 8 {
				t.Fatal("no new request ran in a separate batch")
			}
			open(t, e, Request{Prompt: tokens(70+i, 8), Sampling: greedy(), MaxTokens: 1,
				Tenant: string(rune('b' + i))})
			e.iterations(1)
		}
		if !waited {
			e.loop.waiting = time.Time{}
		}
		open(t, e, Request{Prompt: tokens(90, 300), Sampling: greedy(), MaxTokens: 1, Tenant: "a"})
		e.iterations(1)
		list := e.Plans()
		prompts, decodes := rowsOf(list[len(list)-1].Plan)
		if prompts <= sched.SmallestChunk || decodes == 0 {
			t.Errorf("the batch has %d prompt rows and %d stream rows", prompts, decodes)
		}
		return prompts
	}
	if waited, not := promptRows(true), promptRows(false); waited >= not {
		t.Errorf("%d prompt rows after streams have waited, %d prompt rows if they have not waited", waited, not)
	}
}

// The longest gap is forgotten after one to two windows.
func TestGapsAreForgotten(t *testing.T) {
	var g gaps
	at := time.Unix(1000, 0)
	g.add(5*time.Second, at)
	g.add(time.Second, at.Add(gapWindow))
	if got := g.longest(at.Add(gapWindow)); got != 5*time.Second {
		t.Errorf("after one window the longest gap is %v, want 5s", got)
	}
	if got := g.longest(at.Add(2 * gapWindow)); got != time.Second {
		t.Errorf("after two windows the longest gap is %v, want 1s", got)
	}
	g = gaps{}
	g.add(5*time.Second, at)
	if got := g.longest(at.Add(5 * gapWindow / 2)); got != 0 {
		t.Errorf("after more than two windows without gaps the longest gap is %v, want 0", got)
	}
	if got := g.longest(at.Add(9 * gapWindow)); got != 0 {
		t.Errorf("much later the longest gap is %v, want 0", got)
	}
}
