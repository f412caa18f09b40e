package cost

import (
	"math"
	"testing"
)

// A fit finds the costs that produced the times, adapts when they change, and keeps the costs that no new measurement
// covers.
func TestFitFollowsTheMachine(t *testing.T) {
	f := NewFit(0.9, Features{1e-3, 1e-3, 7})
	observe := func(fixed, each float64) {
		for i := range 100 {
			rows := float64(1 + i%8)
			seconds := fixed + each*rows
			f.Observe(Features{1, rows}, seconds, seconds)
		}
	}
	for _, c := range [][2]float64{{2e-3, 5e-4}, {2e-2, 1e-4}, {0, 3e-3}} {
		observe(c[0], c[1])
		if a, b := f.Each(0), f.Each(1); math.Abs(a-c[0]) > 1e-4 || math.Abs(b-c[1]) > 1e-5 || f.Each(2) != 7 {
			t.Errorf("fitted %v and %v per row, and %v for the feature that was never measured; want %v and 7", a, b,
				f.Each(2), c)
		}
	}
	// A negative cost of a row is replaced by zero.
	for i := range 100 {
		rows := float64(1 + i%8)
		f.Observe(Features{1, rows}, 1e-2-5e-4*rows, 1e-2)
	}
	if each := f.Each(1); each != 0 {
		t.Errorf("the fitted time of a row is %v, want 0", each)
	}
}

// Batches without prompts, however many, do not change the estimated time of prompts.
func TestDecodesDoNotForgetPrompts(t *testing.T) {
	m := NewModel()
	var decode, mixed Work
	decode.Decode.Add(8, 100)
	mixed.Decode = decode.Decode
	mixed.AddPrompt(256, 0, 128)
	for range 50 {
		m.Observe(&decode, 0.01)
		m.Observe(&mixed, 0.2)
	}
	before := m.Predict(&mixed)
	for range 1000 {
		m.Observe(&decode, 0.01)
	}
	if after := m.Predict(&mixed); math.Abs(before-0.2) > 0.01 || math.Abs(after-before) > 0.01 {
		t.Errorf("a batch of 0.2 s is predicted to take %v, after many decodes %v", before, after)
	}
	if m.Prompts() != 50 || !m.Trusts(&mixed, 0) || mixed.Near.N != 128 || mixed.Far.N != 128 {
		t.Errorf("%d batches with prompts, work %+v", m.Prompts(), mixed)
	}
}
