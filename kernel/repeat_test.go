package kernel

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"sparrow/internal/block"
	"sparrow/internal/num"
)

// Packed random values have the requested standard deviation, and all scales are equal.
func TestPatterns(t *testing.T) {
	p, err := Pattern(E2M1x2, Drawn{Spread: 1.2})
	if err != nil {
		t.Fatal(err)
	}
	var sum, squares float64
	for _, b := range p {
		even, odd := num.UnpackE2M1(b)
		for _, v := range []float64{float64(num.FromE2M1(even)), float64(num.FromE2M1(odd))} {
			sum += v
			squares += v * v
		}
	}
	n := float64(2 * len(p))
	if spread := math.Sqrt(squares / n); math.Abs(sum/n) > 0.01 || math.Abs(spread-1.2) > 0.05 {
		t.Errorf("mean %v, spread %v", sum/n, spread)
	}
	s, err := Pattern(E8M0, Drawn{Mean: 0.25})
	if err != nil || num.FromE8M0(s[0]) != 0.25 || bytes.Count(s, s[:1]) != len(s) {
		t.Errorf("scales %v, %v", s[:4], err)
	}
	for _, d := range []DType{F32, Blocks(block.MXFP4)} {
		if _, err := Pattern(d, Drawn{}); !errors.Is(err, ErrArgument) {
			t.Errorf("%v: %v", d, err)
		}
	}
}

// Random blocks of GGUF types have mean zero and the requested standard deviation, and tensors begin with a whole
// block.
func TestPatternsOfBlocks(t *testing.T) {
	for _, f := range block.Formats() {
		if !f.Drawable() {
			continue
		}
		p, err := Pattern(Blocks(f), Drawn{Spread: 0.03})
		if err != nil || len(p)%f.Bytes() != 0 {
			t.Fatalf("%v: %d bytes, %v", f, len(p), err)
		}
		r := From(p, Blocks(f), 12345, 2000*int64(f.Bytes()))
		if r.First%int64(f.Bytes()) != 0 || r.First == 0 {
			t.Errorf("%v: a tensor begins at byte %d of the pattern", f, r.First)
		}
		b, v := make([]byte, r.Bytes), make([]float32, 2000*f.Values())
		r.Fill(b)
		f.Decode(v, b)
		var sum, squares float64
		for _, x := range v {
			sum, squares = sum+float64(x), squares+float64(x)*float64(x)
		}
		n := float64(len(v))
		if spread := math.Sqrt(squares / n); math.Abs(sum/n) > 0.004 || math.Abs(spread-0.03) > 0.002 {
			t.Errorf("%v: mean %v, spread %v", f, sum/n, spread)
		}
	}
}

// Bytes repeat the pattern from their offset on and wrap around at its end; different seeds begin at different offsets.
func TestRepeatedBytes(t *testing.T) {
	pattern := make([]byte, 3*64)
	for i := range pattern {
		pattern[i] = byte(i)
	}
	firsts := map[int64]bool{}
	for seed := range uint64(20) {
		r := From(pattern, E2M1x2, seed, 500)
		firsts[r.First] = true
		got := make([]byte, 500)
		r.Fill(got)
		for i, b := range got {
			if want := pattern[(int(r.First)+i)%len(pattern)]; b != want {
				t.Fatalf("seed %d: byte %d is %d, want %d", seed, i, b, want)
			}
		}
	}
	if len(firsts) != 3 {
		t.Errorf("seeds begin at %v, want all three lines", firsts)
	}
}

// Random experts are copied to host memory with their values, each matrix to its own memory; other experts are not
// copied.
func TestExpertsOnHost(t *testing.T) {
	pattern, err := Pattern(E2M1x2, Drawn{Spread: 1})
	if err != nil {
		t.Fatal(err)
	}
	kept := HostBuffer(make([]byte, 32))
	var w ExpertWeights
	for e := range uint64(4) {
		data := Tensor{Buf: From(pattern, E2M1x2, e, 32), DType: E2M1x2, Rows: 2, Cols: 16, Stride: 16}
		w.Gate = append(w.Gate, Weight{Data: data})
		drawn := Tensor{Buf: Drawn{Seed: e, Spread: 1}, DType: BF16, Rows: 2, Cols: 8, Stride: 8}
		w.Up = append(w.Up, Weight{Data: drawn})
		w.Down = append(w.Down, Weight{Data: Tensor{Buf: kept, DType: E2M1x2, Rows: 2, Cols: 16, Stride: 16}})
	}
	taken := 0
	alloc := func(bytes int64) (HostBuffer, error) {
		taken++
		return make(HostBuffer, bytes), nil
	}
	if err := w.OnHost(alloc); err != nil || taken != 8 {
		t.Fatalf("%d tensors, %v", taken, err)
	}
	for e := range uint64(4) {
		want := make([]byte, 32)
		From(pattern, E2M1x2, e, 32).Fill(want)
		if !bytes.Equal(w.Gate[e].Data.Buf.(HostBuffer), want) {
			t.Errorf("gate %d differs from its pattern", e)
		}
		if err := (Drawn{Seed: e, Spread: 1}).Fill(want, BF16, 0); err != nil ||
			!bytes.Equal(w.Up[e].Data.Buf.(HostBuffer), want) {
			t.Errorf("up %d differs from its drawn values, %v", e, err)
		}
		if b := w.Down[e].Data.Buf.(HostBuffer); &b[0] != &kept[0] {
			t.Error("a matrix of a file was copied")
		}
	}
	w.Gate[0].Data.Buf = From(pattern, E2M1x2, 0, 32)
	none := errors.New("no memory")
	if err := w.OnHost(func(int64) (HostBuffer, error) { return nil, none }); !errors.Is(err, none) {
		t.Errorf("without memory: %v", err)
	}
}
