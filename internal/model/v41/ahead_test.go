package v41_test

import (
	"slices"
	"sync"
	"testing"

	"sparrow/internal/testkit/steps"
	"sparrow/plan"
)

// The table rows that a pass prefetches before it runs are the rows that it looks up, in the order of the layers.
func TestRowsAreAskedForAhead(t *testing.T) {
	m := open(t)
	b := steps.New(t, m, plan.Policy{KV: "f32"})
	s := b.Sequence(1, 7)
	want := m.TableRows(s.Tokens)
	var mu sync.Mutex
	var asked []uintptr
	arrived := make(chan bool, 1)
	m.OnAsk(func(at uintptr) {
		mu.Lock()
		defer mu.Unlock()
		if asked = append(asked, at); len(asked) == len(want) {
			arrived <- true
		}
	})
	b.Step(s.Work(plan.ModeExtend, 7))
	<-arrived
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(asked, want) {
		t.Errorf("%d rows were requested and %d are used, or their order differs", len(asked), len(want))
	}
}

// A device that reads tables itself is told, while a pass is prepared, the rows that the pass looks up.
func TestRowsAreAnnounced(t *testing.T) {
	m := open(t)
	b := steps.New(t, m, plan.Policy{KV: "f32"})
	s := b.Sequence(1, 7)
	want := m.TableRows(s.Tokens)
	var told []uintptr
	m.OnAnnounce(func(at uintptr) { told = append(told, at) })
	b.Step(s.Work(plan.ModeExtend, 7))
	if !slices.Equal(told, want) {
		t.Errorf("%d rows were announced and %d are used, or their order differs", len(told), len(want))
	}
}

// The use of the n-gram tables is their size, and the rows and bytes that the tokens of all passes have read: in each
// of two layers, six rows of 32 values for each token.
func TestUseOfTheTables(t *testing.T) {
	m := open(t)
	b := steps.New(t, m, plan.Policy{KV: "f32"})
	before := m.Tables()
	const values = (1916 + 2148) * 32 // of both tables
	each := before.Bytes / values     // bytes of a value
	if before.Bytes != each*values || each < 1 || before.RowsRead != 0 || before.BytesRead != 0 {
		t.Errorf("before the first pass: %+v, want tables of %d values", before, values)
	}
	s := b.Sequence(1, 8)
	for _, n := range []int{5, 3} {
		b.Step(s.Work(plan.ModeExtend, n))
	}
	if got := m.Tables(); got.Bytes != before.Bytes || got.RowsRead != 8*2*6 || got.BytesRead != 8*2*6*32*each {
		t.Errorf("after 8 tokens: %+v, want %d rows of %d bytes", got, 8*2*6, 32*each)
	}
}
