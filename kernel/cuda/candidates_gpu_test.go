package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/cuda/expect"
	"sparrow/internal/num"
)

// logits returns rows of different kinds: spread values, many ties, with NaN, with infinities, all equal, without a
// finite value, only NaN, and with one infinity.
func logits(rng *rand.Rand, rows, columns int) []float32 {
	v := make([]float32, rows*columns)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for i := range v {
		switch i / columns % 8 {
		case 0:
			v[i] = float32(rng.NormFloat64() * 5)
		case 1:
			v[i] = float32(rng.IntN(4) - 2)
		case 2:
			if v[i] = float32(rng.NormFloat64()); rng.IntN(3) == 0 {
				v[i] = nan
			}
		case 3:
			if v[i] = -inf; rng.IntN(50) == 0 {
				v[i] = float32(rng.NormFloat64() * 100)
			}
		case 4:
			v[i] = -1.5
		case 5:
			v[i] = -inf
		case 6:
			v[i] = nan
		case 7:
			if v[i] = float32(rng.NormFloat64()); i%columns == columns/2 {
				v[i] = inf
			}
		}
	}
	return v
}

func TestGPUCandidatesEqualTheHost(t *testing.T) {
	r := onGPU(t)
	rng := rand.New(rand.NewPCG(3, 9))
	for _, c := range []struct{ rows, columns, stride, best int }{
		{1, 129280, 129280, 1}, {8, 129280, 129280, 64}, {8, 129280, 129283, 20}, {13, 8192, 8192, 64},
		{8, 8193, 8200, 5}, {8, 64, 64, 64}, {8, 1, 3, 1}, {8, 100, 101, 33},
	} {
		for _, kind := range []ElementType{ElementF32, ElementBF16} {
			v := logits(rng, c.rows, c.stride)
			a := CandidatesArgs{IDs: r.poisoned(int64(4 * c.rows * c.best)),
				Values: r.poisoned(int64(4 * c.rows * c.best)), LogSum: r.poisoned(int64(4 * c.rows)),
				Keys:   r.poisoned(CandidatesScratch(int32(c.rows), int32(c.columns), int32(c.best))),
				Stride: int64(c.stride), IDStride: int64(c.best), ValueStride: int64(c.best),
				Rows: int32(c.rows), Columns: int32(c.columns), Best: int32(c.best), Type: kind}
			if kind == ElementF32 {
				a.Logits = upload(r, v)
			} else {
				narrow := make([]uint16, len(v))
				for i := range v {
					narrow[i] = num.BF16(v[i])
					v[i] = num.FromBF16(narrow[i])
				}
				a.Logits = upload(r, narrow)
			}
			check(t, FindCandidates(r.k, r.s, &a))
			ids, sums := r.download(a.IDs, int64(4*c.rows*c.best)), r.download(a.LogSum, int64(4*c.rows))
			values := r.download(a.Values, int64(4*c.rows*c.best))
			for row := range c.rows {
				name := fmt.Sprintf("%+v type %d row %d", c, kind, row)
				line := v[row*c.stride:][:c.columns]
				want, logSum := expect.Candidates(line, c.best)
				for i, id := range want {
					got := int32(binary.LittleEndian.Uint32(ids[4*(row*c.best+i):]))
					value := math.Float32frombits(binary.LittleEndian.Uint32(values[4*(row*c.best+i):]))
					want := line[id]
					if want != want {
						want = float32(math.Inf(-1))
					}
					if got != id || value != want {
						t.Fatalf("%s: candidate %d is %d (%g), want %d (%g)", name, i, got, value, id, want)
					}
				}
				got := float64(math.Float32frombits(binary.LittleEndian.Uint32(sums[4*row:])))
				size := max(1, math.Abs(logSum))
				if math.IsNaN(got) != math.IsNaN(logSum) || (got != logSum && math.Abs(got-logSum) > 1e-5*size) {
					t.Errorf("%s: log-sum %g, want %g", name, got, logSum)
				}
			}
			// A row's result is bitwise equal alone and in a batch.
			one := a
			size := int64(kind.bytes())
			one.Logits, one.Rows = a.Logits.Add(int64(c.rows-1)*size*int64(c.stride)), 1
			one.IDs, one.Values, one.LogSum = r.poisoned(int64(4*c.best)), r.poisoned(int64(4*c.best)), r.poisoned(4)
			check(t, FindCandidates(r.k, r.s, &one))
			if last := r.download(one.LogSum, 4); !bytes.Equal(last, sums[4*(c.rows-1):]) {
				t.Errorf("%+v: the log-sum of a row alone differs from that in the batch", c)
			}
			sameBytes(t, fmt.Sprintf("%+v ids alone", c), r.download(one.IDs, int64(4*c.best)),
				ids[4*(c.rows-1)*c.best:])
		}
	}
}
