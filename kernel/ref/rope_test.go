package ref_test

import (
	"math"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/kernel"
	"sparrow/layout"
)

// Position 2 with frequencies π/4 and 0 is multiplied by a scale of 3: the first angle is π/2, which has cosine 0 and
// sine 1.
func TestAngles(t *testing.T) {
	b := newBench(t)
	out := b.f32(2, 4)
	b.must(b.run(kernel.AngleArgs{Out: out, Positions: b.i32(2, 1, 2, 0), InvFreq: b.f32(1, 2, math.Pi/4, 0),
		Scale: 3}))
	b.near("position 2", host.RowF32(out, 0), 0, 3, 3, 0)
	b.near("position 0", host.RowF32(out, 1), 3, 3, 0, 0)
}

// Vector (1, 2, 3, 4) follows one unchanged value. Pair 0 is rotated by 90 degrees, pair 1 is not rotated. (a, b)
// becomes (-b, a). Interleaved pairs are (1,2) and (3,4), which gives -2 1 3 4; half-split pairs are (1,3) and (2,4),
// which gives -3 2 1 4. The second head is rotated in the same way.
func TestPairings(t *testing.T) {
	for _, c := range []struct {
		pairing kernel.Pairing
		want    []float64
	}{
		{kernel.Interleaved, []float64{9, -2, 1, 3, 4, 9, -6, 5, 7, 8}},
		{kernel.HalfSplit, []float64{9, -3, 2, 1, 4, 9, -7, 6, 5, 8}},
	} {
		b := newBench(t)
		x := b.f32(1, 10, 9, 1, 2, 3, 4, 9, 5, 6, 7, 8)
		b.must(b.run(kernel.RotateArgs{X: x, Angles: b.f32(1, 4, 0, 1, 1, 0), Heads: 2, HeadDim: 5, Offset: 1,
			Pairing: c.pairing}))
		b.near(c.pairing.String(), host.F32(x), c.want...)
	}
}

// A rotation by 30 degrees has cosine 0.8660254 and sine 0.5: (1, 2) becomes (0.8660254 - 1, 0.5 + 1.7320508). The
// length of a pair does not change.
func TestRotationSign(t *testing.T) {
	b := newBench(t)
	x := b.f32(1, 2, 1, 2)
	b.must(b.run(kernel.RotateArgs{X: x, Angles: b.f32(1, 2, 0.8660254, 0.5), Heads: 1, HeadDim: 2,
		Pairing: kernel.Interleaved}))
	b.near("30 degrees", host.F32(x), -0.1339746, 2.2320508)
}

// The indexer rotates the first 64 of its 128 values, and model families use different pairs. With only value 1 set and
// every pair rotated by 90 degrees, half-split rotation moves it to value 1+32. Interleaved rotation moves it from the
// second place of pair 0 to the first and negates it.
func TestIndexerRotatesItsFirstHalf(t *testing.T) {
	for _, c := range []struct {
		pairing kernel.Pairing
		at      int
		value   float64
	}{{kernel.HalfSplit, 33, 1}, {kernel.Interleaved, 0, -1}} {
		b := newBench(t)
		q, out, w := b.f32(1, 128), b.f32(1, 128), b.f32(1, 1)
		host.F32(q)[1], host.F32(q)[100] = 1, 5
		angles := b.f32(1, layout.RopeDim)
		for i := range layout.RopeDim / 2 {
			host.F32(angles)[layout.RopeDim/2+i] = 1
		}
		b.must(b.run(kernel.IndexQueryArgs{Out: out, W: w, Q: q, Weights: b.f32(1, 1, 1), Angles: angles,
			Heads: 1, Pairing: c.pairing}))
		for i, v := range host.F32(out) {
			want := 0.0
			switch i {
			case c.at:
				want = c.value
			case 100:
				want = 5
			}
			if math.Abs(float64(v)-want) > 1e-6 {
				t.Errorf("%v: value %d is %v, want %v", c.pairing, i, v, want)
			}
		}
	}
}
