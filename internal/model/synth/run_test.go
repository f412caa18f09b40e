package synth

import (
	"bytes"
	"context"
	"math"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/num"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/plan"
	"sparrow/weight"
)

// Every preset that fits in memory loads through internal/model/family. Its logits spread over a few units: they are
// not flat, and do not give nearly all probability to one token.
func TestWrittenCheckpointRuns(t *testing.T) {
	for _, name := range []string{"v32-tiny", "glm-tiny", "v4-tiny", "v41-tiny", "glm53f-tiny", "v3-tiny"} {
		for _, o := range []Options{{Seed: 1}, {Seed: 1, DType: FP8, NextN: one(1)}, {Seed: 1, DType: Int4}} {
			if o.DType == Int4 && name != "v3-tiny" {
				continue
			}
			logits := logitsOf(t, written(t, name, o))
			mean, square := 0.0, 0.0
			for _, v := range logits {
				mean += float64(v) / float64(len(logits))
			}
			for _, v := range logits {
				square += (float64(v) - mean) * (float64(v) - mean) / float64(len(logits))
			}
			if d := math.Sqrt(square); !(d > 1 && d < 4) {
				t.Errorf("%s %v: logits deviate by %g, want about %g", name, o.DType, d, headGain)
			}
		}
	}
}

// FP8 weights and four-bit experts are the rounded BF16 weights of the same seed, so their logits are close.
func TestFewerBitsAreTheSameModelRounded(t *testing.T) {
	for name, kind := range map[string]DType{"v32-tiny": FP8, "v3-tiny": Int4} {
		a, b := logitsOf(t, written(t, name, Options{Seed: 4})),
			logitsOf(t, written(t, name, Options{Seed: 4, DType: kind}))
		dot, aa, bb := 0.0, 0.0, 0.0
		for i := range a {
			x, y := float64(a[i]), float64(b[i])
			dot, aa, bb = dot+x*y, aa+x*x, bb+y*y
		}
		if c := dot / math.Sqrt(aa*bb); c < 0.98 {
			t.Errorf("%s, %v: logits of the two have cosine %g", name, kind, c)
		}
	}
}

// logitsOf runs one step of ten tokens on the reference kernels and returns the logits of the last.
func logitsOf(t *testing.T, dir string) []float32 {
	t.Helper()
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := kernel.NewRegistry(ref.Backends()).Open("ref", kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	})
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Allocate(&cfg, 1); err != nil {
		t.Fatal(err)
	}
	w := step.Work{Kind: plan.ModeExtend, Tokens: []int32{0, 5, 9, 100, 1279, 3, 3, 77, 640, 2}, Pages: []int32{0},
		Logits: 1}
	if s, ok := m.(model.Stateful); ok {
		if w.State, err = s.NewState(); err != nil {
			t.Fatal(err)
		}
	}
	run, err := step.New(m, cfg, step.Limits{Rows: 16, Requests: 1, Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	r, err := run.Run([]step.Work{w})
	if err != nil {
		t.Fatal(err)
	}
	return r.Row(0)
}

// A block's scale puts its largest magnitude at the top of e4m3's range: exactly there for GLM, within a factor of
// two for DeepSeek's powers of two. Ragged last blocks are part of the test: 576 and 96 are not multiples of 128.
func TestBlockScalesFitTheirBlocks(t *testing.T) {
	for _, name := range []string{"v32-tiny", "glm-tiny", "v4-tiny"} {
		w := open(t, written(t, name, Options{DType: FP8}))
		matrices := 0
		for _, tensor := range w.Names() {
			d, _ := w.Tensor(tensor)
			if d.DType != weight.F8E4M3 {
				continue
			}
			matrices++
			m, err := w.Matrix(tensor)
			if err != nil {
				t.Fatal(err)
			}
			checkScales(t, m, name != "glm-tiny")
		}
		if matrices < 20 {
			t.Errorf("%s: only %d matrices in FP8", name, matrices)
		}
	}
}

func checkScales(t *testing.T, m weight.Matrix, pow2 bool) {
	t.Helper()
	scales, err := weight.ReadF32(m.Scale)
	if err != nil {
		t.Fatal(err)
	}
	across := (m.Cols + block - 1) / block
	peaks := make([]float32, len(scales)) // largest magnitudes, in units of the scale
	for r := range m.Rows {
		for c := range m.Cols {
			at := r/block*across + c/block
			peaks[at] = max(peaks[at], float32(math.Abs(float64(num.FromE4M3(m.Data.Data[r*m.Cols+c])))))
		}
	}
	for i, s := range scales {
		if pow2 && (!num.IsPow2(s) || peaks[i] <= num.MaxE4M3/2*0.96 || peaks[i] > num.MaxE4M3) ||
			!pow2 && peaks[i] != num.MaxE4M3 {
			t.Errorf("%s: block %d has scale %g and reaches %g", m.Data.Name, i, s, peaks[i])
		}
	}
}

// Files order tensors by alignment, so that scales may come before their values. Both orders give the same bytes, and
// progress counts every byte once.
func TestScalesMayComeFirst(t *testing.T) {
	m := tensor{name: "w", like: "w", shape: []int{200, 130}, dtype: weight.F8E4M3, store: blockFP8,
		scale: "w_scale_inv", spread: 1}
	var got [2][2]bytes.Buffer
	for turn, order := range [2][2]int{{0, 1}, {1, 0}} {
		written := 0
		f := &filler{ctx: context.Background(), pow2: true, progress: func(n int) { written += n }}
		list := f.sources(m)
		for _, i := range order {
			if err := list[i].Fill(&got[turn][i]); err != nil {
				t.Fatal(err)
			}
		}
		if want := 200*130 + 4*2*2; written != want || got[turn][0].Len()+got[turn][1].Len() != want {
			t.Errorf("order %v: progress of %d, %d and %d bytes; want %d", order, written, got[turn][0].Len(),
				got[turn][1].Len(), want)
		}
	}
	for i := range got[0] {
		if !bytes.Equal(got[0][i].Bytes(), got[1][i].Bytes()) {
			t.Errorf("source %d depends on the order", i)
		}
	}
}
