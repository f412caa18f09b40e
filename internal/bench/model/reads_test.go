package model

import (
	"math"
	"strings"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
)

// GEMMs count the bytes of their weights and scales. Experts count only the weights that tokens chose, each expert
// once.
func TestCountsWhatProductsRead(t *testing.T) {
	dev := cpu.Open(vec.Best(), kernel.Options{Workers: 1})
	defer dev.Close()
	d := &stopwatch{Device: dev, vocab: 48, reads: newCounter()}
	tensor := func(dtype kernel.DType, rows, cols int) kernel.Tensor {
		x, err := kernel.New(dev, dtype, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	four := func(out, in int) kernel.Weight {
		return kernel.Weight{Data: tensor(kernel.E2M1x2, out, in/2), Scale: tensor(kernel.E8M0, out, in/32),
			BlockRows: 1, BlockCols: 32}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	head, err := d.Prepare(kernel.Weight{Data: tensor(kernel.BF16, 48, 64)}, kernel.Projected)
	must(err)
	var w kernel.ExpertWeights
	for range 8 {
		w.Gate, w.Up, w.Down = append(w.Gate, four(32, 64)), append(w.Up, four(32, 64)), append(w.Down, four(64, 32))
	}
	experts, err := d.PrepareExperts(w)
	must(err)
	x, ids := tensor(kernel.F32, 3, 64), tensor(kernel.I32, 3, 2)
	copy(host.I32(ids), []int32{1, 5, 5, 2, 1, 2})
	must(kernel.Do(d, kernel.MultiplyArgs{Out: tensor(kernel.F32, 3, 48), X: x, W: head}))
	must(kernel.Do(d, kernel.ExpertArgs{Out: tensor(kernel.F32, 3, 64), X: x, IDs: ids,
		Weights: tensor(kernel.F32, 3, 2), Experts: experts}))
	expert := int64(3 * (32*64/2 + 64)) // three matrices and their scales
	if want := (Reads{Bytes: 48*64*2 + 3*expert, HeadBytes: 48 * 64 * 2}); d.reads.now != want {
		t.Errorf("counted %+v, want %+v", d.reads.now, want)
	}
	if len(d.reads.largest) != 48*64*2 {
		t.Errorf("the largest weight has %d bytes", len(d.reads.largest))
	}
}

// The read rate without the output head excludes the bytes and the time of the head.
func TestRatesOfReads(t *testing.T) {
	r := &Reads{Bytes: 1000e6, HeadBytes: 600e6, LayersMs: 20, StreamGBs: 40}
	p := &Phase{StepMs: 40}
	if whole, layers := r.GBs(p), r.LayersGBs(); math.Abs(whole-25) > 1e-9 || math.Abs(layers-20) > 1e-9 {
		t.Errorf("%v and %v GB/s", whole, layers)
	}
	line := r.line(&Cell{Context: 8, Batch: 2, Decode: p})
	if !strings.Contains(line, "62 % of the stream read (25.0 of 40.0 GB/s)") || !strings.Contains(line, "50 % (20.0") {
		t.Error(line)
	}
}
