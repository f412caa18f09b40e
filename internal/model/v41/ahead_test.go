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
