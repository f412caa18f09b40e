package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/cuda/expect"
	"sparrow/internal/num"
)

// request is a run of query rows over the same keys: the last row attends to all keys, and each earlier row attends to
// one key less than the next.
type request struct{ rows, keys int }

// denseCase holds a launch and its inputs on the host. There are gaps of some rows between the keys of requests; unused
// keys are NaN.
type denseCase struct {
	nope, values, heads int
	start, lens         []int32
	q, kv, rope         []uint16 // [rows, heads*(nope+64)], [keys, heads*(nope+values)], [keys, 64]
	args                Dense
}

const denseScale = 0.08

// denseHeads lists the head sizes that have kernels: the key columns without the rotated ones, and the value columns.
var denseHeads = [][2]int{{128, 128}, {192, 256}}

func newDenseCase(r *rig, rng *rand.Rand, dims [2]int, heads, gap int, requests []request) *denseCase {
	c := &denseCase{nope: dims[0], values: dims[1], heads: heads}
	keys := gap
	var seen []bool
	for _, q := range requests {
		for i := range q.rows {
			c.start = append(c.start, int32(keys))
			c.lens = append(c.lens, int32(q.keys-q.rows+i+1))
		}
		keys += q.keys + gap
	}
	seen = make([]bool, keys)
	for i, s := range c.start {
		for k := range c.lens[i] {
			seen[s+k] = true
		}
	}
	random := func(rows, cols int, real func(int) bool) []uint16 {
		v := make([]uint16, rows*cols)
		for i := range v {
			if v[i] = 0x7FC0; real(i / cols) { // NaN
				v[i] = num.BF16(float32(rng.NormFloat64()))
			}
		}
		return v
	}
	c.q = random(len(c.start), heads*(c.nope+64), func(int) bool { return true })
	c.kv = random(keys, heads*(c.nope+c.values), func(k int) bool { return seen[k] })
	c.rope = random(keys, 64, func(k int) bool { return seen[k] })
	c.args = Dense{
		Q: upload(r, c.q), KV: upload(r, c.kv), Rope: upload(r, c.rope), Start: upload(r, c.start),
		Lens: upload(r, c.lens), Plan: r.poisoned(DensePlanBytes(int32(len(c.start)))),
		QStride: int64(heads * (c.nope + 64)), KVStride: int64(heads * (c.nope + c.values)), RopeStride: 64,
		StartStride: 1, LenStride: 1, OutStride: int64(heads * c.values), LSEStride: int64(heads),
		Rows: int32(len(c.start)), Keys: int32(keys), Heads: int32(heads), Nope: int32(c.nope), Values: int32(c.values),
		Scale: denseScale,
	}
	return c
}

// run launches rows [from, to) into poisoned memory and returns outputs and log-sum-exps.
func (c *denseCase) run(r *rig, from, to int) (out, lse []byte) {
	r.t.Helper()
	x := c.args
	x.Rows = int32(to - from)
	x.Q, x.Start, x.Lens = x.Q.Add(int64(from)*x.QStride*2), x.Start.Add(int64(from)*4), x.Lens.Add(int64(from)*4)
	n := int64(to-from) * int64(c.heads)
	x.Out, x.LSE, x.Faults = r.poisoned(n*int64(c.values)*2), r.poisoned(n*4), r.faultWord()
	a, err := x.Encode(r.d)
	check(r.t, err)
	check(r.t, DenseAttend(r.k, r.s, x.Nope, x.Values, &a))
	if f := r.faults(x.Faults); f != 0 {
		r.t.Errorf("fault bits %#x", f)
	}
	return r.download(x.Out, n*int64(c.values)*2), r.download(x.LSE, n*4)
}

// check compares one head of every stride-th row with the host's result and stops at the first difference above the
// limit.
func (c *denseCase) check(t *testing.T, name string, out, lse []byte, stride int) {
	t.Helper()
	for row := 0; row < len(c.start); row += stride {
		h := row % c.heads
		at := row*c.heads + h
		var keys, values [][]float32
		for k := c.start[row]; k < c.start[row]+c.lens[row]; k++ {
			head := c.kv[(int(k)*c.heads+h)*(c.nope+c.values):]
			keys = append(keys, expect.Widen(append(append([]uint16(nil), head[:c.nope]...), c.rope[k*64:][:64]...)))
			values = append(values, expect.Widen(head[c.nope:][:c.values]))
		}
		want, wantLSE := expect.AttendDense(expect.Widen(c.q[at*(c.nope+64):][:c.nope+64]), keys, values, denseScale)
		if want == nil {
			want = make([]float64, c.values)
		}
		got := make([]float32, c.values)
		for i := range got {
			got[i] = num.FromBF16(binary.LittleEndian.Uint16(out[(at*c.values+i)*2:]))
		}
		if d := expect.Distance(got, want); !(d <= expect.AttendError) {
			t.Errorf("%s: row %d head %d of %d keys: relative L2 error %g, want at most %g; begins %v, want %v", name,
				row, h, len(keys), d, expect.AttendError, got[:4], want[:4])
			return
		}
		if l := float64(f32(lse, at)); l != wantLSE && !(math.Abs(l-wantLSE) <= 1e-3) {
			t.Errorf("%s: row %d head %d of %d keys: lse %g, want %g", name, row, h, len(keys), l, wantLSE)
			return
		}
	}
}

func TestGPUDenseAttentionEqualsTheHost(t *testing.T) {
	r := onGPU(t)
	for i, dims := range denseHeads {
		rng := rand.New(rand.NewPCG(31, uint64(i)))
		for _, c := range []struct {
			name       string
			heads, gap int
			requests   []request
			stride     int
		}{
			{"one key", 1, 0, []request{{1, 1}}, 1},
			{"lengths around tiles", 3, 3,
				[]request{{1, 1}, {63, 63}, {64, 64}, {65, 65}, {127, 127}, {129, 129}, {79, 79}, {81, 81}}, 1},
			{"prefixes", 16, 5, []request{{1, 300}, {5, 6}, {64, 127}, {3, 132}, {100, 260}, {0, 40}, {2, 161}}, 1},
			{"128 heads", 128, 1, []request{{130, 130}, {70, 333}}, 1},
			{"several tiles of rows", 2, 0, []request{{600, 900}, {300, 300}}, 7},
		} {
			x := newDenseCase(r, rng, dims, c.heads, c.gap, c.requests)
			name := fmt.Sprintf("%d and %d columns, %s", dims[0], dims[1], c.name)
			out, lse := x.run(r, 0, len(x.start))
			x.check(t, name, out, lse, c.stride)
		}
		// Lengths may be in any order and may be zero.
		x := newDenseCase(r, rng, dims, 3, 2, []request{{11, 200}})
		x.lens = []int32{1, 200, 39, 0, 128, 129, 64, 80, 81, 7, 127}
		x.args.Lens = upload(r, x.lens)
		out, lse := x.run(r, 0, len(x.lens))
		x.check(t, fmt.Sprintf("%d and %d columns, lengths in any order", dims[0], dims[1]), out, lse, 1)
	}
}

func TestGPUDenseRowsDoNotDependOnTheirBatchOrTheRun(t *testing.T) {
	r := onGPU(t)
	for i, dims := range denseHeads {
		rng := rand.New(rand.NewPCG(32, uint64(i)))
		c := newDenseCase(r, rng, dims, 16, 4, []request{{300, 700}, {33, 33}, {1, 640}})
		out, lse := c.run(r, 0, len(c.start))
		row := c.heads * c.values * 2
		for range repeats {
			again, l := c.run(r, 0, len(c.start))
			sameBytes(t, "again: out", again, out)
			sameBytes(t, "again: lse", l, lse)
		}
		for _, part := range [][2]int{{0, 1}, {64, 65}, {127, 128}, {128, 129}, {299, 300}, {333, 334}, {10, 200},
			{250, 334}} {
			some, l := c.run(r, part[0], part[1])
			sameBytes(t, fmt.Sprintf("rows %v: out", part), some, out[part[0]*row:part[1]*row])
			sameBytes(t, fmt.Sprintf("rows %v: lse", part), l, lse[part[0]*c.heads*4:part[1]*c.heads*4])
		}
	}
}

func TestGPUDenseRowsOutsideTheKeysAreAFault(t *testing.T) {
	r := onGPU(t)
	rng := rand.New(rand.NewPCG(33, 1))
	c := newDenseCase(r, rng, denseHeads[0], 2, 0, []request{{3, 50}})
	x := c.args
	x.Lens = upload(r, []int32{48, 51, 50})
	x.Out, x.LSE, x.Faults = r.poisoned(3*2*128*2), r.poisoned(3*2*4), r.faultWord()
	a, err := x.Encode(r.d)
	check(t, err)
	check(t, DenseAttend(r.k, r.s, x.Nope, x.Values, &a))
	if f := r.faults(x.Faults); f != FaultKeys {
		t.Errorf("fault bits %#x, want %#x", f, FaultKeys)
	}
	c.lens = []int32{48, 0, 50} // a length out of range is treated as 0
	c.check(t, "outside", r.download(x.Out, 3*2*128*2), r.download(x.LSE, 3*2*4), 1)
}
