package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// denseCase returns a random attention problem with gaps between rows.
func denseCase(r *rand.Rand, nope, rope, v int, seen []int) DenseHead {
	return DenseHead{Nope: nope, Rope: rope, V: v, Seen: seen, LdQ: nope + rope + 3, LdKeys: nope + v + 5,
		LdRopes: rope + 1, LdOut: v + 7}.filled(r)
}

// filled fills h with random numbers and returns it. Values follow the keys of a row.
func (h DenseHead) filled(r *rand.Rand) DenseHead {
	nope, v, seen := h.Nope, h.V, h.Seen
	h.LdValues, h.Scale = h.LdKeys, 0.1
	n := h.longest()
	kv := normals(r, n*h.LdKeys+v)
	h.Keys, h.Values = kv, kv[min(nope, len(kv)):]
	h.Q, h.Ropes, h.Out = normals(r, len(seen)*h.LdQ), normals(r, n*h.LdRopes), normals(r, len(seen)*h.LdOut)
	return h
}

// want returns the output of row i computed in float64.
func (h *DenseHead) want(i int) []float64 {
	out, scores := make([]float64, h.V), make([]float64, h.Seen[i])
	q, largest, sum := h.Q[i*h.LdQ:], math.Inf(-1), 0.0
	for k := range scores {
		for c := range h.Nope {
			scores[k] += float64(q[c]) * float64(h.Keys[k*h.LdKeys+c])
		}
		for c := range h.Rope {
			scores[k] += float64(q[h.Nope+c]) * float64(h.Ropes[k*h.LdRopes+c])
		}
		scores[k] *= float64(h.Scale)
		largest = max(largest, scores[k])
	}
	for k := range scores {
		p := math.Exp(scores[k] - largest)
		sum += p
		for c := range out {
			out[c] += p * float64(h.Values[k*h.LdValues+c])
		}
	}
	for c := range out {
		if sum > 0 {
			out[c] /= sum
		}
	}
	return out
}

// Results are within the rounding of scores and values for shapes of released models and odd shapes, with numbers of
// rows and keys around the kernels' block sizes. A row is bitwise equal alone, and nothing is written outside the
// output.
func TestAttendDense(t *testing.T) {
	tier := tiledTier(t)
	r := newRand(61)
	for _, s := range []struct {
		nope, rope, v int
		seen          []int
	}{
		{128, 64, 128, []int{1}},
		{128, 64, 128, ascendingFrom(1, 40)},
		{192, 64, 256, ascendingFrom(240, 33)},
		{128, 64, 128, []int{300, 0, 17, 512, 511, 513, 0, 256, 255, 257, 600, 1, 31, 32, 33, 64, 700}},
		{20, 10, 32, []int{5, 0, 290, 3}},
		{33, 1, 96, ascendingFrom(1, 70)},
		{1, 32, 32, []int{0, 0}},
	} {
		h := denseCase(r, s.nope, s.rope, s.v, s.seen)
		before := append([]float32(nil), h.Out...)
		tier.AttendDense(h)
		for i := range s.seen {
			name := fmt.Sprintf("row %d of %d, %d keys of %d+%d, %d values", i, len(s.seen), s.seen[i], s.nope, s.rope,
				s.v)
			got := h.Out[i*h.LdOut:][:h.V]
			for c, want := range h.want(i) {
				// Scores are up to 5 with errors of 2^-16 of the sums of magnitudes, and the weights have these errors
				// too.
				if math.Abs(float64(got[c])-want) > 2e-4 {
					t.Fatalf("%s: column %d is %v, want %v", name, c, got[c], want)
				}
			}
			wantSame(t, name+": after the row", h.Out[i*h.LdOut+h.V:(i+1)*h.LdOut], before[i*h.LdOut+h.V:(i+1)*h.LdOut])
			one := h.row(i)
			one.Out = make([]float32, h.V)
			tier.AttendDense(one)
			wantSame(t, name+" alone", one.Out, got)
		}
	}
}

// ascendingFrom returns n counts that begin with first and increase by one.
func ascendingFrom(first, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = first + i
	}
	return out
}

// Values and keys that are not finite change only the rows that attend to them.
func TestAttendDenseNotFinite(t *testing.T) {
	tier := tiledTier(t)
	for _, bad := range []float32{float32(math.Inf(1)), float32(math.NaN()), math.MaxFloat32} {
		h := denseCase(newRand(62), 128, 64, 64, ascendingFrom(280, 30))
		clean := h
		clean.Out = append([]float32(nil), h.Out...)
		tier.AttendDense(clean)
		const key = 290
		for _, at := range []*float32{&h.Values[key*h.LdValues+3], &h.Keys[key*h.LdKeys+5]} {
			was := *at
			*at = bad
			tier.AttendDense(h)
			for i, seen := range h.Seen {
				row := h.Out[i*h.LdOut:][:h.V]
				if seen <= key {
					wantSame(t, fmt.Sprintf("%v: row %d", bad, i), row, clean.Out[i*h.LdOut:][:h.V])
				} else if slices.EqualFunc(row, clean.Out[i*h.LdOut:][:h.V], same) {
					t.Errorf("%v: row %d, which sees it, did not change", bad, i)
				}
			}
			*at = was
		}
	}
}

// BenchmarkAttendDense measures one of 16 heads of DeepSeek-V3.2 with the row strides of a pass: all rows of prompts of
// 64 and of 512 tokens, and the last 512 rows of 2048. It reports the best of all runs.
func BenchmarkAttendDense(b *testing.B) {
	tier := tiledTier(b)
	for _, seen := range [][]int{ascendingFrom(1, 64), ascendingFrom(1, 512), ascendingFrom(1537, 512)} {
		const heads = 16
		h := DenseHead{Nope: 128, Rope: 64, V: 128, Seen: seen, LdQ: heads * 192, LdKeys: heads * 256, LdRopes: 576,
			LdOut: heads * 128}.filled(newRand(63))
		pairs := 0
		for _, n := range seen {
			pairs += n
		}
		b.Run(fmt.Sprintf("%d rows, %d keys", len(seen), h.longest()), func(b *testing.B) {
			best := quickest(b, func() { tier.AttendDense(h) })
			b.ReportMetric(2*float64(pairs*(128+64+128))/best.Seconds()/1e9, "GFLOP/s")
		})
	}
}
