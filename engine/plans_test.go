package engine

import (
	"testing"

	"sparrow/internal/testkit/heap"
	"sparrow/plan"
)

// fat returns the plan of a batch with the maximum number of prompts and slices.
func fat() *plan.Plan {
	p := &plan.Plan{Segments: make([]plan.Segment, 4)}
	for i := range p.Segments {
		p.Segments[i].Spans, p.Segments[i].Launches = make([]plan.Span, 2048), make([]plan.Launch, 512)
		p.Segments[i].Reasons = []plan.Reason{{Text: string(make([]byte, 3000))}}
	}
	return p
}

// For any number and size of plans, the kept plans take at most maxPlanBytes.
func TestKeptPlansAreBoundedInBytes(t *testing.T) {
	var ring planRing
	const passes = 200
	grown := heap.Kept(func() any {
		ring = planRing{most: 1 << 20}
		for i := range passes {
			ring.add(PlanRecord{Step: int64(i), Plan: fat()})
		}
		return &ring
	})
	if grown > maxPlanBytes*9/8 || grown < maxPlanBytes/2 {
		t.Errorf("the kept plans take %d bytes of the heap, want about %d", grown, maxPlanBytes)
	}
	if each := heap.Kept(func() any { return fat() }); each > fat().Bytes()*9/8 || each < fat().Bytes()*7/8 {
		t.Errorf("a plan takes %d bytes of the heap, but Bytes returns %d", each, fat().Bytes())
	}
	plans := 0
	for _, r := range ring.list {
		if r != (PlanRecord{}) {
			plans++
		}
	}
	all := ring.all()
	if plans != len(all) {
		t.Errorf("%d plans are in memory, of which %d are kept", plans, len(all))
	}
	if len(all) < 10 || all[len(all)-1].Step != passes-1 || all[0].Step != int64(passes-len(all)) {
		t.Errorf("%d plans are kept", len(all))
	}
}

func TestThePlansKeptAreTheLatest(t *testing.T) {
	ring := planRing{most: 20}
	for i := range 55 {
		ring.add(PlanRecord{Step: int64(i), Plan: &plan.Plan{}})
	}
	all := ring.all()
	for i, r := range all {
		if r.Step != int64(35+i) {
			t.Fatalf("entry %d has step %d", i, r.Step)
		}
	}
	none := planRing{}
	none.add(PlanRecord{Plan: &plan.Plan{}})
	if len(all) != 20 || len(none.all()) != 0 {
		t.Errorf("the lists have %d and %d plans, want 20 and 0", len(all), len(none.all()))
	}
}
