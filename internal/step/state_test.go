package step

import (
	"testing"

	"sparrow/kernel"
	"sparrow/plan"
)

// Padding rows are removed from the whole rows of logits in a result. Padding has no best tokens.
func TestPaddedLogitsAreWholeRows(t *testing.T) {
	b := &plan.Batch{Requests: []plan.Request{{Logits: 1}, {Logits: 2, Best: true}, {Logits: 1, Padding: true},
		{Logits: 3, Padding: true}, {Logits: 5, Best: true, Padding: true}}}
	if n := paddedLogits(b); n != 4 {
		t.Errorf("%d rows of logits are padding, want 4", n)
	}
}

// After a failed pass of the target or of the drafting layer, the rows of the tokens on the device are unknown. After
// passes that succeed, these rows are known.
func TestPlacesAfterAFailedPass(t *testing.T) {
	for _, done := range []bool{true, false} {
		var f feed
		for i := range f.sent {
			f.sent[i].held = []int32{2, 0, 1}
		}
		f.discardUnless(&done)
		for i := range f.sent {
			if known := len(f.sent[i].held) > 0; known != done {
				t.Errorf("pass %d: places are known: %v, want %v", i, known, done)
			}
		}
	}
}

// graph is a captured graph that computes nothing.
type graph struct{ closed bool }

func (g *graph) Launch() error { return nil }
func (g *graph) Stale() bool   { return false }
func (g *graph) Bytes() int64  { return 10 }
func (g *graph) Launches() int { return 1 }
func (g *graph) Close() error  { g.closed = true; return nil }

// capturer captures graphs of type graph.
type capturer struct{ kernel.Capturer }

func (capturer) Capture(func() error) (kernel.Graph, error) { return &graph{}, nil }

// The least recently used graph is evicted, and its memory is freed.
func TestTheLeastUsedGraphIsEvicted(t *testing.T) {
	g := graphs{dev: capturer{}, passes: map[*pass]bool{}, count: Graphs{Budget: 30}}
	decode := func() *pass {
		p := &pass{plan: &plan.Plan{Mode: plan.ModeDecode}}
		p.captured.ran = true
		if err := g.enqueue(p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	a, b, c := decode(), decode(), decode()
	if err := g.enqueue(a); err != nil { // after this pass, b is the least recently used graph
		t.Fatal(err)
	}
	made := b.captured.graph.(*graph)
	d := decode()
	if a.captured.graph == nil || b.captured.graph != nil || c.captured.graph == nil || d.captured.graph == nil {
		t.Error("the evicted graph is not the least recently used graph")
	}
	if !made.closed || g.count.Held != 3 || g.count.Bytes != 30 || g.count.Evicted != 1 || g.count.Captured != 4 ||
		g.count.Replayed != 5 {
		t.Errorf("the graphs are closed: %v; counters %+v", made.closed, g.count)
	}
	if err := g.close(); err != nil || g.count.Held != 0 || g.count.Bytes != 0 || len(g.passes) != 0 {
		t.Errorf("after closing: counters %+v, error %v", g.count, err)
	}
}
