package bench

import (
	"fmt"
	"math"
	"slices"

	"sparrow/internal/cuda/expect"
	"sparrow/internal/num"
	"sparrow/kernel/cuda"
	"sparrow/sample"
)

const vocabulary = 129280

// rowCases returns the small operations between a layer's GEMMs.
func rowCases() []Case {
	var list []Case
	for _, rows := range []int{1, 64, 4096} {
		list = append(list, normCase(rows, 7168), gateCase(rows, 18432), routeCase(rows, 256))
	}
	for _, rows := range []int{1, 64, 512} {
		for _, best := range []int{1, 20} {
			list = append(list, candidatesCase(rows, best))
		}
		list = append(list, sampleCase(rows, 0, 1), sampleCase(rows, 0, 0.95), sampleCase(rows, 50, 0.95))
	}
	return list
}

func normCase(rows, columns int) Case {
	return Case{Case: titled("rms_norm", "%d x %d", rows, columns),
		Bytes: float64(rows) * float64(columns) * 4, New: func(h *holder) Set {
			x, weight := h.bf16s(columns), h.floats(columns, 1, 0)
			args := cuda.RMSNormArgs{X: h.repeat(raw(x), 2*rows*columns),
				Out: h.output(2 * rows * columns), Weight: putAll(h, weight), Epsilon: 1e-6,
				XStride: int64(columns), OutStride: int64(columns), Rows: int32(rows), Columns: int32(columns)}
			return launching(h, cuda.RMSNorm, &args, func(r *reader) error {
				var sum float64
				for _, v := range x {
					sum += float64(num.FromBF16(v)) * float64(num.FromBF16(v))
				}
				inverse := 1 / math.Sqrt(sum/float64(columns)+args.Epsilon)
				return r.lastRow(args.Out, rows, columns, func(i int) float64 {
					return float64(num.FromBF16(x[i])) * inverse * float64(weight[i])
				})
			})
		}}
}

// lastRow compares the last row of a bf16 matrix [rows, columns] with the values that want returns.
func (r *reader) lastRow(p cuda.Ptr, rows, columns int, want func(int) float64) error {
	for i, v := range r.bf16s(p.Add(2*int64(columns)*int64(rows-1)), columns) {
		if g, w := float64(v), want(i); !(math.Abs(g-w) <= max(math.Abs(w), 1e-3)/200) {
			return fmt.Errorf("value %d is %g, want %g", i, g, w)
		}
	}
	return nil
}

func gateCase(rows, columns int) Case {
	return Case{Case: titled("gate", "%d x %d", rows, columns),
		Bytes: float64(rows) * float64(columns) * 6, New: func(h *holder) Set {
			gate, up, bytes := h.bf16s(columns), h.bf16s(columns), 2*rows*columns
			args := cuda.GateArgs{Gate: h.repeat(raw(gate), bytes), Up: h.repeat(raw(up), bytes),
				Out: h.output(bytes), GateStride: int64(columns), UpStride: int64(columns),
				OutStride: int64(columns), Rows: int32(rows), Columns: int32(columns), GateType: cuda.ElementBF16,
				UpType: cuda.ElementBF16, OutType: cuda.ElementBF16}
			return launching(h, cuda.GateRows, &args, func(r *reader) error {
				return r.lastRow(args.Out, rows, columns, func(i int) float64 {
					return expect.Gated(float64(num.FromBF16(gate[i])), float64(num.FromBF16(up[i])), 0)
				})
			})
		}}
}

// routeCase returns a case that chooses 8 experts from 4 of 8 groups, without bias: the first chosen expert then always
// has the highest score of all.
func routeCase(rows, experts int) Case {
	return Case{Case: titled("route", "%d x %d", rows, experts),
		Bytes: float64(rows) * float64(experts*4+64), New: func(h *holder) Set {
			logits := h.floats(rows*experts, 1, 0)
			args := cuda.RouteArgs{Logits: putAll(h, logits), Bias: h.put(make([]byte, 4*experts)),
				IDs: h.output(32 * rows), Weights: h.output(32 * rows),
				LogitStride: int64(experts), IDStride: 8, WeightStride: 8, Rows: int32(rows),
				Experts: int32(experts), Top: 8, Groups: 8, KeepGroups: 8, Normalize: 1, Scale: 2.5}
			return launching(h, cuda.RouteExperts, &args, func(r *reader) error {
				var want []int32
				for row := range rows {
					ids, _ := expect.Candidates(logits[row*experts:][:experts], 8)
					want = append(want, ids...)
				}
				return r.same("ids", args.IDs, raw(want))
			})
		}}
}

// sampleCase returns a case that samples one token per row. All rows have the same logits and different random numbers.
func sampleCase(rows, topK int, topP float64) Case {
	return Case{Case: titled("sample", "%d x %d, top_k %d, top_p %g", rows, vocabulary, topK, topP),
		Bytes: float64(rows) * vocabulary * 4, New: func(h *holder) Set {
			logits := h.floats(vocabulary, 3, 0)
			best, _ := expect.Candidates(logits, 1)
			words, want := make([]int32, rows*sample.DrawWords), make([]int32, rows)
			scratch, err := sample.NewScratch(vocabulary)
			if err != nil {
				panic(err) // cannot fail: the vocabulary is a constant
			}
			for i := range rows {
				d := sample.Draw{Inverse: 1, TopP: topP, TopK: topK, Random: uint64(i) * 0x9E3779B97F4A7C15}
				d.Put(words[i*sample.DrawWords:])
				want[i] = scratch.Choose(logits, best[0], d)
			}
			args := cuda.SampleArgs{Logits: h.repeat(raw(logits), rows*vocabulary*4), Draws: putAll(h, words),
				Best: putAll(h, slices.Repeat(best, rows)), IDs: h.output(4 * rows), Stride: vocabulary,
				IDStride: 1, Rows: int32(rows), Columns: vocabulary}
			return launching(h, cuda.SampleRows, &args,
				func(r *reader) error { return r.same("ids", args.IDs, raw(want)) })
		}}
}

func candidatesCase(rows, best int) Case {
	return Case{Case: titled("candidates", "best %d of %d x %d", best, rows, vocabulary),
		Bytes: float64(rows) * vocabulary * 4, New: func(h *holder) Set {
			logits := h.floats(vocabulary, 3, 0)
			args := cuda.CandidatesArgs{Logits: h.repeat(raw(logits), rows*vocabulary*4),
				IDs: h.output(4 * rows * best), Values: h.output(4 * rows * best),
				LogSum: h.output(4 * rows), Stride: vocabulary, IDStride: int64(best),
				Keys:        h.alloc(int(cuda.CandidatesScratch(int32(rows), vocabulary, int32(best)))),
				ValueStride: int64(best), Rows: int32(rows), Columns: vocabulary, Best: int32(best)}
			return launching(h, cuda.FindCandidates, &args, func(r *reader) error {
				ids, logSum := expect.Candidates(logits, best)
				if err := r.same("ids", args.IDs, raw(slices.Repeat(ids, rows))); err != nil {
					return err
				}
				if g := r.f32(args.LogSum.Add(4 * int64(rows-1))); !(math.Abs(g-logSum) < 1e-4) {
					return fmt.Errorf("the log-sum is %g, want %g", g, logSum)
				}
				return nil
			})
		}}
}
