package calibrate_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/calibrate"
	"sparrow/internal/device/host"
	"sparrow/kernel"
	"sparrow/kernel/ref"
)

// ofOne returns weights of n experts of one column in and out. Gate, up and down are 1, 2 and 10.
func ofOne(t *testing.T, n int) (w kernel.ExpertWeights) {
	t.Helper()
	one := func(v float32) kernel.Weight { return kernel.Weight{Data: tensor(t, 1, v)} }
	for range n {
		w.Gate, w.Up, w.Down = append(w.Gate, one(1)), append(w.Up, one(2)), append(w.Down, one(10))
	}
	return w
}

// A rank with experts 2 and 3 of 5 computes only these. The limit clamps gate and up before they are multiplied.
func TestExpertsOfAPartWithALimit(t *testing.T) {
	d := calibrate.On(&ref.Device{})
	w := ofOne(t, 2)
	x, err := d.PrepareExperts(w)
	if err != nil {
		t.Fatal(err)
	}
	a := kernel.ExpertArgs{Out: tensor(t, 2, 100, 200), X: tensor(t, 2, 3, 5), IDs: ids(t, 2, 1, 3, 4, 0),
		Weights: tensor(t, 2, 1, 0.5, 1, 1), Experts: x, Limit: 2, Part: kernel.Part{First: 2, Of: 5}}
	if err := kernel.Do(d, a); err != nil {
		t.Fatal(err)
	}
	inner := silu(2) * 2
	for i, want := range []float64{100 + 0.5*10*inner, 200} {
		if got := float64(host.RowF32(a.Out, i)[0]); math.Abs(got-want) > 1e-4 {
			t.Errorf("row %d is %v, want %v", i, got, want)
		}
	}
	of := d.MeanSquares()
	if got := of(host.Bytes(w.Gate[0].Data)); got != nil {
		t.Errorf("expert 2, which no row chose, has mean squares %v", got)
	}
	if got := of(host.Bytes(w.Gate[1].Data)); !slices.Equal(got, []float32{9}) {
		t.Errorf("gate of expert 3: %v, want 9", got)
	}
	got := of(host.Bytes(w.Down[1].Data))
	if len(got) != 1 || math.Abs(float64(got[0])-inner*inner) > 1e-4 {
		t.Errorf("down of expert 3: %v, want %v", got, inner*inner)
	}
	a.IDs = ids(t, 2, 1, 3, 5, 0)
	if err := kernel.Do(d, a); err == nil || !strings.Contains(err.Error(), "row 1 chose expert 5") {
		t.Errorf("an expert of no rank: %v", err)
	}
}

// Matrices of different widths that are next to each other in memory are not one matrix.
func TestMatricesOfDifferentWidthsAreNotTakenTogether(t *testing.T) {
	d := calibrate.On(&ref.Device{})
	whole := tensor(t, 1, 1, 2, 3, 4)
	narrow, wide, last := whole.Columns(0, 1), whole.Columns(1, 3), whole.Columns(3, 4)
	for _, w := range []kernel.Tensor{narrow, wide, last} {
		m, err := d.Prepare(kernel.Weight{Data: w}, kernel.Projected)
		if err != nil {
			t.Fatal(err)
		}
		x := tensor(t, 1, make([]float32, w.Cols)...)
		host.F32(x)[0] = float32(w.Cols)
		if err := kernel.Do(d, kernel.MultiplyArgs{Out: tensor(t, 1, 0), X: x, W: m}); err != nil {
			t.Fatal(err)
		}
	}
	of := d.MeanSquares()
	if got := of(host.Bytes(narrow)); !slices.Equal(got, []float32{1}) {
		t.Errorf("the first matrix: %v", got)
	}
	if got := of(host.Bytes(wide)); !slices.Equal(got, []float32{4, 0}) {
		t.Errorf("the second matrix: %v", got)
	}
	for name, w := range map[string]kernel.Tensor{"the first two": whole.Columns(0, 3),
		"the last two": whole.Columns(1, 4)} {
		if got := of(host.Bytes(w)); got != nil {
			t.Errorf("%s together have mean squares %v, want none", name, got)
		}
	}
}

// foreign are experts of another device.
type foreign struct{ kernel.Experts }

func (foreign) Count() int  { return 2 }
func (foreign) Hidden() int { return 1 }

func TestExpertsThatCannotBeCalibratedAreRefused(t *testing.T) {
	d := calibrate.On(&ref.Device{})
	if _, err := d.PrepareExperts(kernel.ExpertWeights{}); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("no experts: %v", err)
	}
	w := ofOne(t, 2)
	w.Methods = kernel.ExpertMethods{Decode: []kernel.ExpertMethod{kernel.Resident, kernel.Fetched},
		Prefill: []kernel.ExpertMethod{kernel.Resident, kernel.Fetched}}
	if _, err := d.PrepareExperts(w); !errors.Is(err, kernel.ErrUnsupported) ||
		!strings.Contains(err.Error(), "two memories") {
		t.Errorf("experts in two memories: %v", err)
	}
	a := kernel.ExpertArgs{Out: tensor(t, 1, 0), X: tensor(t, 1, 1), IDs: ids(t, 1, 0), Weights: tensor(t, 1, 1),
		Experts: foreign{}}
	if err := d.Do(a); !errors.Is(err, kernel.ErrArgument) || !strings.Contains(err.Error(), "another device") {
		t.Errorf("experts of another device: %v", err)
	}
}
