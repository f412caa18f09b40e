package bench

import (
	"fmt"
	"math"

	"sparrow/kernel/cuda"
	"sparrow/kernel/cuda/expect"
)

// denseCases are the anchor shapes of dense prefill: whole prompts, a long one, short ones, and chunks behind a
// cached prefix.
func denseCases() []Case {
	return []Case{
		denseCase(8, 2048, 0, 128, 128, 128), denseCase(1, 16384, 0, 16, 128, 128),
		denseCase(64, 256, 0, 128, 128, 128), denseCase(8, 512, 7680, 32, 128, 128),
		denseCase(8, 2048, 0, 64, 192, 256),
	}
}

// dense is one set of dense attention: requests of the same number of rows, each behind the same number of cached keys.
type dense struct {
	*holder
	x    cuda.Dense
	args cuda.DenseAttendArgs
	// The host's copies of what rows see.
	start, lens []int32
}

const denseScale = 0.0722 // 192^-0.5

// denseCase counts the causal half: a row that sees n keys does n - 1/2 of them.
func denseCase(requests, rows, prefix, heads, nope, values int) Case {
	all, keys := requests*rows, requests*(prefix+rows)
	pairs := float64(requests) * (float64(rows)*float64(prefix) + float64(rows)*float64(rows)/2)
	shape := fmt.Sprintf("%d x %d", requests, rows)
	if prefix > 0 {
		shape += fmt.Sprintf(" behind %d", prefix)
	}
	bytes := 2 * (float64(all*heads)*float64(nope+64+values) + float64(keys)*float64(heads*(nope+values)+64))
	return Case{
		Name: "dense_prefill", Shape: fmt.Sprintf("%s, %d heads of %d/%d", shape, heads, nope+64, values), Rate: BF16,
		Bytes: bytes, SetBytes: int64(bytes), FLOPs: 2 * pairs * float64(heads) * float64(nope+64+values),
		New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			s := &dense{holder: h}
			for q := range requests {
				for i := range rows {
					s.start = append(s.start, int32(q*(prefix+rows)))
					s.lens = append(s.lens, int32(prefix+i+1))
				}
			}
			random := func(n int) cuda.Ptr { return h.repeat(raw16(h.bf16s(min(n, patternBytes/2+321))), int64(n)*2) }
			query, kv := heads*(nope+64), heads*(nope+values)
			s.x = cuda.Dense{
				Q: random(all * query), KV: random(keys * kv), Rope: random(keys * 64), Start: h.put(rawI32(s.start)),
				Lens: h.put(rawI32(s.lens)), Out: h.output(int64(all*heads*values) * 2),
				LSE: h.output(int64(all*heads) * 4), Plan: h.alloc(cuda.DensePlanBytes(int32(all))),
				QStride: int64(query), KVStride: int64(kv), RopeStride: 64, StartStride: 1, LenStride: 1,
				OutStride: int64(heads * values), LSEStride: int64(heads), Rows: int32(all), Keys: int32(keys),
				Heads: int32(heads), Nope: int32(nope), Values: int32(values), Scale: denseScale,
			}
			if h.err == nil {
				s.args, h.err = s.x.Encode(r.Device)
			}
			return s.ready(s)
		},
	}
}

func (d *dense) Launch(s *cuda.Stream) error {
	return d.rig.Kernels.DenseAttend(s, d.x.Nope, d.x.Values, &d.args)
}

// Check computes some heads of some rows on the host.
func (d *dense) Check(s *cuda.Stream) error {
	for _, row := range []int{0, 127, int(d.x.Rows) / 2, int(d.x.Rows) - 1} {
		for _, head := range []int{0, int(d.x.Heads) - 1} {
			if err := d.checkHead(s, row, head); err != nil {
				return fmt.Errorf("row %d head %d: %w", row, head, err)
			}
		}
	}
	return nil
}

func (d *dense) checkHead(s *cuda.Stream, row, head int) error {
	x := &d.x
	first := int64(d.start[row])
	columns := int(x.Nope + x.Values)
	var keys, values [][]float32
	for k := first; k < first+int64(d.lens[row]); k++ {
		b, err := read(s, x.KV.Add((k*x.KVStride+int64(head*columns))*2), int64(columns)*2)
		if err != nil {
			return err
		}
		turned, err := read(s, x.Rope.Add(k*x.RopeStride*2), 128)
		if err != nil {
			return err
		}
		key, value := make([]float32, x.Nope+64), make([]float32, x.Values)
		widen(key[:x.Nope], b)
		widen(key[x.Nope:], turned)
		widen(value, b[2*x.Nope:])
		keys, values = append(keys, key), append(values, value)
	}
	q, err := read(s, x.Q.Add((int64(row)*x.QStride+int64(head)*int64(x.Nope+64))*2), int64(x.Nope+64)*2)
	if err != nil {
		return err
	}
	b, err := read(s, x.Out.Add((int64(row)*x.OutStride+int64(head)*int64(x.Values))*2), int64(x.Values)*2)
	if err != nil {
		return err
	}
	l, err := read(s, x.LSE.Add((int64(row)*x.LSEStride+int64(head))*4), 4)
	if err != nil {
		return err
	}
	query, out := make([]float32, x.Nope+64), make([]float32, x.Values)
	widen(query, q)
	widen(out, b)
	want, lse := expect.AttendDense(query, keys, values, float64(x.Scale))
	if d := expect.Distance(out, want); !(d <= expect.AttendError) {
		return fmt.Errorf("%g of its norm away, at most %g; it begins %v, want %v", d, expect.AttendError, out[:4],
			want[:4])
	}
	if got := float64(f32At(l, 0)); !(math.Abs(got-lse) <= 1e-3) {
		return fmt.Errorf("lse %g, want %g", got, lse)
	}
	return nil
}
