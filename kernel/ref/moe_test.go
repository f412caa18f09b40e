package ref_test

import (
	"errors"
	"math"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// route runs the router for one row of logits.
func (b *bench) route(logits, bias []float32, k, groups, keep int, normalize bool, scale float32) ([]int32, []float32) {
	b.Helper()
	ids, w := b.i32(1, k), b.f32(1, k)
	b.must(b.run(kernel.RouteArgs{IDs: ids, Weights: w, Logits: b.f32(1, len(logits), logits...),
		Bias: b.f32(1, len(bias), bias...), Groups: groups, KeepGroups: keep, Normalize: normalize, Scale: scale}))
	return host.I32(ids), host.F32(w)
}

// Scores of logits 0, 1, 2, 3 are 0.5, 0.7311, 0.8808, 0.9526. A bias of 1 on expert 0 makes it the best choice
// (1.5), but its weight is its own score 0.5, not 1.5.
func TestBiasChoosesButDoesNotWeigh(t *testing.T) {
	b := newBench(t)
	logits := []float32{0, 1, 2, 3}
	ids, w := b.route(logits, []float32{0, 0, 0, 0}, 2, 1, 1, false, 1)
	b.ints("without bias", ids, 3, 2)
	b.near("without bias", w, sigmoid(3), sigmoid(2))
	ids, w = b.route(logits, []float32{1, 0, 0, 0}, 2, 1, 1, false, 1)
	b.ints("with bias", ids, 0, 3)
	b.near("with bias", w, 0.5, sigmoid(3))
	sum := 0.5 + sigmoid(3)
	ids, w = b.route(logits, []float32{1, 0, 0, 0}, 2, 1, 1, true, 2.5)
	b.ints("normalised", ids, 0, 3)
	b.near("normalised to 2.5", w, 2.5*0.5/sum, 2.5*sigmoid(3)/sum)
}

// All logits are 0, so every score is 0.5. Groups have two experts; biases make the sums of two
//
//	group 0: -0.6 - 0.9 = -1.5   (biased scores, each 0.5 + bias)
//	group 1: -0.7 - 0.7 = -1.4
//	group 2: -0.5 - 3.5 = -4.0
//
// Groups 1 and 0 are kept although group 2 holds the single best expert (-0.5), and the choice is -0.6 (expert 0), then
// -0.7 (expert 2 before 3). Masking with zero instead of minus infinity would choose the dropped experts 4 and 5.
func TestGroupsWithNegativeScores(t *testing.T) {
	b := newBench(t)
	logits, bias := make([]float32, 6), []float32{-1.1, -1.4, -1.2, -1.2, -1, -4}
	ids, w := b.route(logits, bias, 3, 3, 2, true, 1)
	b.ints("two of three groups", ids, 0, 2, 3)
	b.near("weights", w, 1.0/3, 1.0/3, 1.0/3)
	ids, _ = b.route(logits, bias, 2, 3, 1, true, 1)
	b.ints("one group", ids, 2, 3)
	ids, _ = b.route(logits, bias, 1, 1, 1, true, 1)
	b.ints("no groups", ids, 4)
}

// Of equal scores the one with the lower index is chosen, for groups and for experts.
func TestRouterTies(t *testing.T) {
	b := newBench(t)
	ids, _ := b.route(make([]float32, 8), make([]float32, 8), 3, 4, 2, true, 1)
	b.ints("all equal", ids, 0, 1, 2)
}

func TestRouterRefusesImpossibleChoices(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ k, groups, keep int }{{3, 4, 1}, {1, 3, 1}, {1, 4, 5}, {1, 0, 0}} {
		err := kernel.Do(&b.Device, kernel.RouteArgs{IDs: b.i32(1, c.k), Weights: b.f32(1, c.k), Logits: b.f32(1, 8),
			Bias: b.f32(1, 8), Groups: c.groups, KeepGroups: c.keep})
		if !errors.Is(err, kernel.ErrArgument) {
			t.Errorf("%+v of 8 experts: got %v, want ErrArgument", c, err)
		}
	}
}

// Gate returns silu(2) * 3 = 2/(1+e^-2) * 3 = 5.2847825, silu(-2) * 3 = -0.7152175 and silu(0) * 9 = 0.
func TestGate(t *testing.T) {
	b := newBench(t)
	out := b.f32(1, 3)
	b.must(b.run(kernel.GateArgs{Out: out, Gate: b.f32(1, 3, 2, -2, 0), Up: b.f32(1, 3, 3, 3, 9)}))
	b.near("gate", host.F32(out), 5.2847825, -0.7152175, 0)
}

// Two experts have hidden size 1 and inner size 1: FFN_e(x) = down * silu(gate x) * (up x). For x = 2:
//
//	expert 0: gate 1, up 1, down 10:  10 * silu(2) * 2 = 35.2318832
//	expert 1: gate 0.5, up 2, down 1: silu(1) * 4      =  2.9242343
//
// Row 0 chooses expert 1 with weight 0.5 and expert 0 with weight 0.25, and its result is added to 100; row 1 chooses
// expert 1 twice.
func TestExperts(t *testing.T) {
	b := newBench(t)
	w := func(v float32) kernel.Weight { return b.weight(1, 1, v) }
	args := kernel.ExpertArgs{Out: b.f32(2, 1, 100, 0), X: b.f32(2, 1, 2, 2), IDs: b.i32(2, 2, 1, 0, 1, 1),
		Weights: b.f32(2, 2, 0.5, 0.25, 1, 2),
		Experts: b.experts([]kernel.Weight{w(1), w(0.5)}, []kernel.Weight{w(1), w(2)}, []kernel.Weight{w(10), w(1)})}
	b.must(b.run(args))
	e0, e1 := 10*2*sigmoid(2)*2, 1*sigmoid(1)*4
	b.near("rows", host.F32(args.Out), 100+0.5*e1+0.25*e0, 3*e1)
	args.IDs = b.i32(2, 2, 1, 2, 0, 0)
	if err := b.run(args); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("expert 2 of 2: got %v, want ErrArgument", err)
	}
}

// The sum over experts is computed in float64 in the order of the choices and rounded once: 2^25 + 1 - 2^25 is 1, which
// sums in float32 would lose.
func TestExpertSumIsRoundedOnce(t *testing.T) {
	b := newBench(t)
	big := float32(1 << 25)
	w := func(v float32) kernel.Weight { return b.weight(1, 1, v) }
	// For x = 64, silu(x) is 64 and up x is 1, so the results of the experts are 64 * down: 2^25 and 1.
	one := kernel.ExpertArgs{Out: b.f32(1, 1), X: b.f32(1, 1, 64), IDs: b.i32(1, 3, 0, 1, 0),
		Weights: b.f32(1, 3, 1, 1, -1),
		Experts: b.experts([]kernel.Weight{w(1), w(1)}, []kernel.Weight{w(1.0 / 64), w(1.0 / 64)},
			[]kernel.Weight{w(big / 64), w(1.0 / 64)})}
	b.must(b.run(one))
	b.near("sum", host.F32(one.Out), 1)
}

// W[o,i] = e4m3 * scale[o/128, i/128]: row 128 is in the second block of rows, column 128 in the second block of
// columns. x is 1 at columns 0 and 128, so y = 2*(s00 + s01) for rows below 128 and 2*(s10 + s11) from there.
func TestMultiplyAppliesBlockScales(t *testing.T) {
	b := newBench(t)
	data, err := kernel.New(&b.Device, kernel.E4M3, 130, 130)
	b.must(err)
	for i := range host.Bytes(data) {
		host.Bytes(data)[i] = 0x40 // code of 2 in e4m3
	}
	x, y := b.f32(1, 130), b.f32(1, 130)
	host.F32(x)[0], host.F32(x)[128] = 1, 1
	w := b.prepare(kernel.Weight{Data: data, Scale: b.f32(2, 2, 1, 10, 100, 1000), BlockRows: 128, BlockCols: 128},
		kernel.Projected)
	b.must(b.run(kernel.MultiplyArgs{Out: y, X: x, W: w}))
	v := host.F32(y)
	b.near("rows 0, 127, 128, 129", []float32{v[0], v[127], v[128], v[129]}, 22, 22, 2200, 2200)
	b.must(b.run(kernel.MultiplyArgs{Out: y, X: x, W: w, Accumulate: true}))
	b.near("twice", []float32{v[0], v[128]}, 44, 4400)
}
