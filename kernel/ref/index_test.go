package ref_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

var (
	nan  = float32(math.NaN())
	down = float32(math.Inf(-1))
	up   = float32(math.Inf(1))
)

// keys stores keys at consecutive slots of a float32 index cache with pages of two tokens. Each key is given by its
// first two values.
func (b *bench) keys(pages int, v ...[2]float32) kernel.Pool {
	b.Helper()
	p := b.indexPool(layout.IndexF32Row512, pages, 2)
	for s, k := range v {
		row := make([]float32, layout.IndexDim)
		row[0], row[1] = k[0], k[1]
		layout.IndexF32{}.Encode(host.Page(p, s/2), 2, s%2, row)
	}
	return p
}

// queries returns rows of query heads. Each head is given by its first two values.
func (b *bench) queries(heads int, v ...[2]float32) kernel.Tensor {
	b.Helper()
	t := b.f32(len(v)/heads, heads*layout.IndexDim)
	for i, q := range v {
		row := host.RowF32(t, i/heads)[i%heads*layout.IndexDim:]
		row[0], row[1] = q[0], q[1]
	}
	return t
}

// Two heads, q0 = (1, 0) with weight 2 and q1 = (0, 1) with weight -3. ReLU acts on each head before the weights:
//
//	key (4, 1):   2*4 - 3*1 = 5
//	key (1, 2):   2*1 - 3*2 = -4, negative although both products are positive
//	key (-5, -1): both products are cut off: 0, not 2*-5 + 3*1 = -7
//	key (2, -9):  2*2 - 3*0 = 4
//
// The pages of the request are 3 and 1 in that order. Column 3 of row 1 is beyond its length and is not written.
func TestScores(t *testing.T) {
	b := newBench(t)
	pool := b.keys(4, [2]float32{}, [2]float32{}, [2]float32{-5, -1}, [2]float32{2, -9}, [2]float32{}, [2]float32{},
		[2]float32{4, 1}, [2]float32{1, 2})
	q := b.queries(2, [2]float32{1, 0}, [2]float32{0, 1}, [2]float32{1, 0}, [2]float32{0, 1})
	out := b.f32(2, 4, 7, 7, 7, 7, 7, 7, 7, 7)
	args := kernel.ScoreArgs{Out: out, Q: q, W: b.f32(2, 2, 2, -3, 2, -3), Keys: pool, Table: b.i32(2, 2, 0, 0, 3, 1),
		TableRow: b.i32(2, 1, 1, 1), Lens: b.i32(2, 1, 4, 3), Heads: 2}
	b.must(b.run(args))
	b.near("row 0", host.RowF32(out, 0), 5, -4, 0, 4)
	b.near("row 1", host.RowF32(out, 1), 5, -4, 0, 7)

	args.SkipUpTo, args.Out = 3, b.f32(2, 4, 7, 7, 7, 7, 7, 7, 7, 7)
	b.must(b.run(args))
	b.near("row 0 is longer than the selection", host.RowF32(args.Out, 0), 5, -4, 0, 4)
	b.near("row 1 needs no scores", host.RowF32(args.Out, 1), 7, 7, 7, 7)
}

// Two requests extend by 3 of 10 and by 2 of 4 tokens: their rows see keys [0,8), [0,9), [0,10) and [10,13), [10,14) of
// the gathered keys (v32 spec, 6.5). Key i is (i, 0) and the query is (1, 0), so column s of row r is Start[r]+s.
func TestScoresOverGatheredKeys(t *testing.T) {
	b := newBench(t)
	pool := b.pool(layout.IndexF32Row512, layout.IndexF32{}.PageBytes(14), 1, 14)
	for i := range 14 {
		row := make([]float32, layout.IndexDim)
		row[0] = float32(i)
		layout.IndexF32{}.Encode(host.Page(pool, 0), 14, i, row)
	}
	starts, lens := []int32{0, 0, 0, 10, 10}, []int32{8, 9, 10, 3, 4}
	q := b.queries(1, slices.Repeat([][2]float32{{1, 0}}, 5)...)
	out := b.f32(5, 10, slices.Repeat([]float32{-1}, 50)...)
	b.must(b.run(kernel.ScoreArgs{Out: out, Q: q, W: b.f32(5, 1, 1, 1, 1, 1, 1), Keys: pool,
		Start: b.i32(5, 1, starts...), Lens: b.i32(5, 1, lens...), Heads: 1}))
	for r := range starts {
		for s, v := range host.RowF32(out, r) {
			want := float32(starts[r]) + float32(s)
			if s >= int(lens[r]) {
				want = -1
			}
			if v != want {
				t.Errorf("row %d column %d is %v, want %v", r, s, v, want)
			}
		}
	}
}

// For quantised keys the query scale and n^-1/2 d^-1/2 are multiplied into the weights: 4 heads of 128 give 1/sqrt(512)
// = 0.0441941738. Head 0 is 448 everywhere, so its scale is 1 and its codes are 448. Head 1 is 449: 449/448 is above 1,
// so the power of two is 2, and 224.5 rounds to 224. Head 2 is zero: max(0, 1e-4)/448 = 2.2e-7 rounds up to 2^-22. Head
// 3 has a single value 1: 1/448 rounds up to 2^-8, and 1*256 = 256.
func TestIndexQueryQuantises(t *testing.T) {
	b := newBench(t)
	q := b.f32(1, 4*128)
	for i := range 128 {
		host.F32(q)[i], host.F32(q)[128+i] = 448, 449
	}
	host.F32(q)[3*128+7] = 1
	out, err := kernel.New(&b.Device, kernel.E4M3, 1, 4*128)
	b.must(err)
	w := b.f32(1, 4)
	b.must(b.run(kernel.IndexQueryArgs{Out: out, W: w, Q: q, Weights: b.f32(1, 4, 1, -1, 2, 1),
		Angles: b.noRotation(1), Heads: 4, Pairing: kernel.HalfSplit}))
	fold := 1 / math.Sqrt(512)
	b.near("weights", host.F32(w), fold, -2*fold, 2*fold/(1<<22), fold/256)
	got := host.Bytes(out)
	for i, want := range map[int]float32{0: 448, 127: 448, 128: 224, 256: 0, 3*128 + 7: 256, 3 * 128: 0} {
		if v := num.FromE4M3(got[i]); v != want {
			t.Errorf("query value %d is %v, want %v", i, v, want)
		}
	}
}

// The Hadamard rotation spreads one value over all elements: H v is ±v/sqrt(128) everywhere, and rotating twice gives
// the original vector.
func TestIndexQueryHadamard(t *testing.T) {
	b := newBench(t)
	q, out := b.f32(1, 128), b.f32(1, 128)
	host.F32(q)[100] = 8 // beyond the rotated half
	b.must(b.run(kernel.IndexQueryArgs{Out: out, W: b.f32(1, 1), Q: q, Weights: b.f32(1, 1, 1),
		Angles: b.noRotation(1), Heads: 1, Pairing: kernel.HalfSplit, Hadamard: true}))
	for i, v := range host.F32(out) {
		// The transform rounds to bf16: 8/sqrt(128) = 0.70710678 becomes 0.70703125.
		if math.Abs(float64(v)) != 0.70703125 {
			t.Fatalf("value %d is %v, want ±0.70703125", i, v)
		}
	}
}

func TestSelect(t *testing.T) {
	for _, c := range []struct {
		name   string
		scores []float32
		len    int32
		want   []int32 // the expected indices, for K = 3
	}{
		{"the best three, in ascending order", []float32{1, 9, 5, 7, 3}, 5, []int32{1, 2, 3}},
		{"the lowest position wins a tie at the cut", []float32{0, 5, 0, 0, 0}, 5, []int32{0, 1, 2}},
		{"a tie of all", []float32{0, 0, 0, 0, 0}, 5, []int32{0, 1, 2}},
		{"a tie below the cut does not matter", []float32{1, 1, 9, 8, 7}, 5, []int32{2, 3, 4}},
		{"minus zero ties with zero", []float32{float32(math.Copysign(0, -1)), 0, 0, 0}, 4, []int32{0, 1, 2}},
		{"negative scores are chosen when they are best", []float32{-5, -1, -2, -3}, 4, []int32{1, 2, 3}},
		{"columns beyond the length do not count", []float32{1, 2, 3, 4, 99}, 4, []int32{1, 2, 3}},
		{"as many keys as fit: scores are not read", []float32{nan, down, 1, 9, 9}, 3, []int32{0, 1, 2}},
		{"fewer keys than fit", []float32{4, 4, 4, 4, 4}, 2, []int32{0, 1, -1}},
		{"one key", []float32{4, 4, 4, 4, 4}, 1, []int32{0, -1, -1}},
		{"no key", []float32{4, 4, 4, 4, 4}, 0, []int32{-1, -1, -1}},
		{"a negative length is no key", []float32{4, 4, 4, 4, 4}, -3, []int32{-1, -1, -1}},
		{"NaN is never chosen", []float32{nan, 1, nan, 2, 3}, 5, []int32{1, 3, 4}},
		{"minus infinity is never chosen", []float32{down, 1, 2, down, 3}, 5, []int32{1, 2, 4}},
		{"plus infinity is the best", []float32{1, 2, up, 3, 4}, 5, []int32{2, 3, 4}},
		{"too few real scores leave entries empty", []float32{nan, down, 2, down, nan}, 5, []int32{2, -1, -1}},
		{"no real score at all", []float32{nan, down, nan, down, nan}, 5, []int32{-1, -1, -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			out := b.i32(1, 3, 42, 42, 42)
			b.must(b.run(kernel.SelectArgs{Out: out, Scores: b.f32(1, len(c.scores), c.scores...),
				Lens: b.i32(1, 1, c.len)}))
			b.ints("selection", host.I32(out), c.want...)
		})
	}
	t.Run("without scores when every row is short", func(t *testing.T) {
		b := newBench(t)
		out := b.i32(2, 3, 42, 42, 42, 42, 42, 42)
		b.must(b.run(kernel.SelectArgs{Out: out, Lens: b.i32(2, 1, 3, 1)}))
		b.ints("selections", host.I32(out), 0, 1, 2, 0, -1, -1)
	})
	t.Run("a long row without scores is refused", func(t *testing.T) {
		b := newBench(t)
		if err := b.run(kernel.SelectArgs{Out: b.i32(1, 3), Lens: b.i32(1, 1, 4)}); !errors.Is(err,
			kernel.ErrArgument) {
			t.Errorf("got %v, want ErrArgument", err)
		}
	})
}

// Select is right for lengths around K (v32 spec, 11.8): position p has score p, so the last K of n positions are
// chosen, or all of them if n <= K.
func TestSelectAroundTopK(t *testing.T) {
	const k = 2048
	b := newBench(t)
	scores := b.f32(1, k+1)
	for i := range host.F32(scores) {
		host.F32(scores)[i] = float32(i)
	}
	for _, n := range []int{0, 1, k - 1, k, k + 1} {
		out := b.i32(1, k)
		b.must(b.run(kernel.SelectArgs{Out: out, Scores: scores, Lens: b.i32(1, 1, int32(n))}))
		for i, p := range host.I32(out) {
			want := int32(i + max(n-k, 0))
			if i >= n {
				want = -1
			}
			if p != want {
				t.Fatalf("%d keys: entry %d is %d, want %d", n, i, p, want)
			}
		}
	}
}

// For paged keys, position p of request 1, whose pages are 7 and 3, is slot page*64 + p%64: 0 → 448, 63 → 511, 64 →
// 192, 100 → 228. For ragged keys the result is p + offset. Both keep -1 (v32 spec, 6.6).
func TestLocate(t *testing.T) {
	b := newBench(t)
	positions := b.i32(2, 5, 0, 63, -1, 64, 100, 5, -1, -1, -1, 0)
	out := b.i32(2, 5)
	b.must(b.run(kernel.LocateArgs{Out: out, Positions: positions, Table: b.i32(2, 2, 9, 9, 7, 3),
		TableRow: b.i32(2, 1, 1, 0), PageTokens: 64}))
	b.ints("paged", host.I32(out), 448, 511, -1, 192, 228, 581, -1, -1, -1, 576)
	b.must(b.run(kernel.LocateArgs{Out: out, Positions: positions, Offset: b.i32(2, 1, 0, 10)}))
	b.ints("ragged", host.I32(out), 0, 63, -1, 64, 100, 15, -1, -1, -1, 10)
	b.must(b.run(kernel.LocateArgs{Out: positions, Positions: positions, Offset: b.i32(2, 1, 1, 2)}))
	b.ints("in place", host.I32(positions), 1, 64, -1, 65, 101, 7, -1, -1, -1, 2)
	for _, bad := range []kernel.LocateArgs{
		{Out: out, Positions: b.i32(2, 5, 128), Table: b.i32(1, 2, 7, 3), TableRow: b.i32(2, 1), PageTokens: 64},
		{Out: out, Positions: b.i32(2, 5, 0), Table: b.i32(1, 2, 7, 3), TableRow: b.i32(2, 1, 1), PageTokens: 64},
	} {
		if err := b.run(bad); !errors.Is(err, kernel.ErrArgument) {
			t.Errorf("outside the table: got %v, want ErrArgument", err)
		}
	}
}

// GatherIndex copies the bytes of index keys in the order of the slots, for any page sizes; scales are copied
// separately from keys.
func TestGatherIndex(t *testing.T) {
	for _, kind := range []layout.Kind{layout.IndexPage132, layout.IndexF32Row512} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			b := newBench(t)
			l, err := layout.IndexOf(kind)
			b.must(err)
			pool := b.indexPool(kind, 3, 4)
			for s := range 12 {
				row := make([]float32, layout.IndexDim)
				for i := range row {
					row[i] = float32(s*s + i)
				}
				l.Encode(host.Page(pool, s/4), 4, s%4, row)
			}
			slots := []int32{11, 0, 5, 5}
			out := b.pool(kind, l.PageBytes(6), 1, 6)
			b.must(b.run(kernel.IndexGatherArgs{Out: out, Slots: b.i32(4, 1, slots...), Pool: pool}))
			got, want := make([]float32, layout.IndexDim), make([]float32, layout.IndexDim)
			for i, s := range slots {
				l.Decode(got, host.Page(out, 0), 6, i)
				l.Decode(want, host.Page(pool, int(s)/4), 4, int(s)%4)
				if !slices.Equal(got, want) {
					t.Errorf("gathered key %d differs from slot %d", i, s)
				}
			}
			err = b.run(kernel.IndexGatherArgs{Out: out, Slots: b.i32(1, 1, 12), Pool: pool})
			if !errors.Is(err, kernel.ErrArgument) {
				t.Errorf("slot 12 of 12: got %v, want ErrArgument", err)
			}
		})
	}
}
