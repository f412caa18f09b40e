package bench

import (
	"fmt"
	"math"
	"slices"

	"sparrow/internal/cuda/expect"
	"sparrow/kernel/cuda"
)

// denseCases returns the main shapes of dense prefill: whole prompts, and chunks after a cached prefix.
func denseCases() []Case {
	return []Case{
		denseCase(8, 2048, 0, 128, 128, 128), denseCase(1, 16384, 0, 16, 128, 128),
		denseCase(64, 256, 0, 128, 128, 128), denseCase(8, 512, 7680, 32, 128, 128),
		denseCase(8, 2048, 0, 64, 192, 256),
	}
}

// dense is one set of dense attention. All requests have the same number of rows, after the same number of cached keys.
type dense struct {
	cuda.Dense
	args cuda.DenseAttendArgs
	// Host copies of each row's range of keys: first key, number of keys.
	start, lens []int32
}

const denseScale = 0.0722 // about 192^-0.5

// denseCase returns a case. Its operations count only the causal half of the products: n - 1/2 keys for a row that
// attends to n keys.
func denseCase(requests, rows, prefix, heads, nope, values int) Case {
	all, keys := requests*rows, requests*(prefix+rows)
	pairs := float64(requests) * (float64(rows)*float64(prefix) + float64(rows)*float64(rows)/2)
	shape := fmt.Sprintf("%d x %d", requests, rows)
	if prefix > 0 {
		shape += fmt.Sprintf(" after %d", prefix)
	}
	bytes := 2 * (float64(all*heads)*float64(nope+64+values) + float64(keys)*float64(heads*(nope+values)+64))
	return Case{
		Case: titled("dense_prefill", "%s, %d heads of %d/%d", shape, heads, nope+64, values), Rate: BF16,
		Bytes: bytes, FLOPs: 2 * pairs * float64(heads) * float64(nope+64+values),
		New: func(h *holder) Set {
			d := &dense{}
			for q := range requests {
				for i := range rows {
					d.start = append(d.start, int32(q*(prefix+rows)))
					d.lens = append(d.lens, int32(prefix+i+1))
				}
			}
			random := func(n int) cuda.Ptr { return h.repeat(raw(h.bf16s(min(n, patternBytes/2+321))), n*2) }
			query, kv := heads*(nope+64), heads*(nope+values)
			d.Dense = cuda.Dense{
				Q: random(all * query), KV: random(keys * kv), Rope: random(keys * 64), Start: putAll(h, d.start),
				Lens: putAll(h, d.lens), Out: h.output(all * heads * values * 2),
				LSE: h.output(all * heads * 4), Plan: h.alloc(int(cuda.DensePlanBytes(int32(all)))),
				QStride: int64(query), KVStride: int64(kv), RopeStride: 64, StartStride: 1, LenStride: 1,
				OutStride: int64(heads * values), LSEStride: int64(heads), Rows: int32(all), Keys: int32(keys),
				Heads: int32(heads), Nope: int32(nope), Values: int32(values), Scale: denseScale,
			}
			if h.err == nil {
				d.args, h.err = d.Encode(h.rig.Device)
			}
			return Set{func(s *cuda.Stream) error {
				return cuda.DenseAttend(h.rig.Kernels, s, d.Nope, d.Values, &d.args)
			}, d.check}
		},
	}
}

// check compares some heads of some rows with values computed on the host.
func (d *dense) check(r *reader) error {
	for _, row := range []int{0, 127, int(d.Rows) / 2, int(d.Rows) - 1} {
		for _, head := range []int{0, int(d.Heads) - 1} {
			if err := d.checkHead(r, row, head); err != nil {
				return fmt.Errorf("row %d head %d: %w", row, head, err)
			}
		}
	}
	return nil
}

func (d *dense) checkHead(r *reader, row, head int) error {
	first, columns, query := int64(d.start[row]), int(d.Nope+d.Values), int(d.Nope)+64
	var keys, values [][]float32
	for k := first; k < first+int64(d.lens[row]); k++ {
		kv := r.bf16s(d.KV.Add((k*d.KVStride+int64(head*columns))*2), columns)
		turned := r.bf16s(d.Rope.Add(k*d.RopeStride*2), 64)
		keys, values = append(keys, slices.Concat(kv[:d.Nope], turned)), append(values, kv[d.Nope:])
	}
	q := r.bf16s(d.Q.Add((int64(row)*d.QStride+int64(head*query))*2), query)
	out := r.bf16s(d.Out.Add((int64(row)*d.OutStride+int64(head)*int64(d.Values))*2), int(d.Values))
	want, lse := expect.AttendDense(q, keys, values, float64(d.Scale))
	return attended(out, want, r.f32(d.LSE.Add((int64(row)*d.LSEStride+int64(head))*4)), lse)
}

// attended compares a head's output and log-sum-exp with want and lse, which the host computed.
func attended(out []float32, want []float64, gotLSE, lse float64) error {
	if d := expect.Distance(out, want); !(d <= expect.AttendError) {
		return fmt.Errorf("the result differs by %g of its norm, at most %g is allowed; it begins %v, want %v", d,
			expect.AttendError, out[:4], want[:4])
	}
	if !(math.Abs(gotLSE-lse) <= 1e-3) {
		return fmt.Errorf("the log-sum-exp is %g, want %g", gotLSE, lse)
	}
	return nil
}
