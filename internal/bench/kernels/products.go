package kernels

import (
	"errors"
	"fmt"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// Rows and dimensions of the GEMM in the table of targets.
const (
	gemmRows, gemmOut, gemmIn = 960, 1024, 1024
	dramIn                    = 4096 // columns of weights that are read from DRAM
)

var (
	gemmShape = fmt.Sprintf("%dx%dx%d", gemmRows, gemmOut, gemmIn)
	avx512    = []string{"cpu-avx512"}
	streamed  = []kernel.DType{kernel.BF16, kernel.E4M3, kernel.E2M1x2} // types of weights that are measured from DRAM
)

func productCases() []Case {
	var out []Case
	for _, d := range []kernel.DType{kernel.BF16, kernel.E4M3, kernel.F32, kernel.E2M1x2} {
		c := Case{Name: "multiply " + d.String(), Shape: gemmShape, Group: "gemm", OfPeak: true,
			Make: func(r *Rig) *Op { return multiply(r, gemmRows, r.weight(d, gemmOut, gemmIn)) }}
		if d == kernel.F32 {
			c.Also = avx512
		}
		out = append(out, c)
	}
	for _, d := range []kernel.DType{kernel.BF16, kernel.E4M3} {
		out = append(out, Case{Name: "tiles bf16 x " + d.String(), Shape: gemmShape, Group: "gemm", OfPeak: true,
			Only: tiled, Threads: []int{1}, Make: func(r *Rig) *Op { return tiles(r, d) }})
	}
	for _, rows := range []int{1, 16, 32} {
		for _, d := range streamed {
			// Only row counts with targets are compared with the peak rate, because such cases may need many more
			// rounds.
			out = append(out, Case{Name: "multiply " + d.String(), Shape: dramShape(rows), OfPeak: rows <= 16,
				Make: func(r *Rig) *Op { return multiplyInTurn(r, rows, r.dram(d, dramIn)) }})
		}
	}
	for _, in := range []int{1024, 8192} {
		out = append(out, Case{Name: "multiply e4m3", OfPeak: true,
			Shape: fmt.Sprintf("1 rows of %d, weights out of DRAM", in),
			Make:  func(r *Rig) *Op { return multiplyInTurn(r, 1, r.dram(kernel.E4M3, in)) }})
	}
	for _, rows := range []int{1, 16} {
		out = append(out, Case{Name: "project bf16", Shape: fmt.Sprintf("%d rows, 512+576+128+64x1024", rows),
			Make: func(r *Rig) *Op { return project(r, rows) }})
	}
	for _, tokens := range []int{1, 16, 64, 512} {
		out = append(out,
			Case{Name: "experts bf16", Shape: fmt.Sprintf("%d tokens, 4 of 16 experts of 512x1024", tokens),
				Make: func(r *Rig) *Op { return experts(r, tokens) }},
			Case{Name: "absorb bf16", Shape: fmt.Sprintf("%d tokens, 16 heads", tokens), Make: func(r *Rig) *Op {
				return absorb(r, tokens)
			}},
			Case{Name: "expand bf16", Shape: fmt.Sprintf("%d tokens, 16 heads", tokens), Make: func(r *Rig) *Op {
				return expand(r, tokens)
			}})
	}
	return out
}

func dramShape(rows int) string { return fmt.Sprintf("%d rows, weights out of DRAM", rows) }

// multiply returns a GEMM with the weight w and the given number of rows.
func multiply(r *Rig, rows int, w kernel.Weight) *Op {
	op := multiplyParts(r, rows, w, w.Out())
	op.Turn = nil
	return op
}

// dramPart is the number of bytes of weights that one run reads from DRAM. This takes a few milliseconds, so that on a
// shared machine some runs are not disturbed.
const dramPart = 32 << 20

// multiplyInTurn returns a GEMM whose runs use one part of the weight after the other.
func multiplyInTurn(r *Rig, rows int, w kernel.Weight) *Op {
	return multiplyParts(r, rows, w, min(dramPart/(w.Data.Cols*w.Data.DType.Size())/128*128, w.Out()))
}

// multiplyParts returns a GEMM whose runs use n output columns of the weight, one part after the other. The check
// compares two bands of the result.
func multiplyParts(r *Rig, rows int, all kernel.Weight, n int) *Op {
	x, out := r.normal(rows, all.In(), 1), r.empty(kernel.F32, rows, n)
	var parts []kernel.Weight
	for at := 0; at+n <= all.Out(); at += n {
		parts = append(parts, all.Slice(at, at+n))
	}
	// All parts are prepared before the first one is timed.
	handles := prepare(func(d kernel.Device) ([]kernel.Matrix, error) {
		list := make([]kernel.Matrix, len(parts))
		for i, w := range parts {
			var err error
			if list[i], err = d.Prepare(w, kernel.Projected); err != nil {
				return nil, err
			}
		}
		return list, nil
	})
	bytes := float64(parts[0].Data.Extent())
	if all.Scale.Given() {
		bytes += float64(parts[0].Scale.Extent())
	}
	next, last := 0, 0 // the next part, and the part that was used last
	turn := func() int {
		last, next = next, (next+1)%len(parts)
		return last
	}
	return &Op{
		Run: func(d kernel.Device) error {
			return handles.with(d, func(list []kernel.Matrix) error {
				return kernel.Do(d, kernel.MultiplyArgs{Out: out, X: x, W: list[turn()]})
			})
		},
		Poison: poison(out),
		Check: func(ref kernel.Device) error {
			for _, at := range []int{0, n - 128} {
				band := matrix(parts[last].Slice(at, at+128), kernel.Projected)
				alone := func(d kernel.Device, row int, to kernel.Tensor) error {
					return band.with(d, func(m kernel.Matrix) error {
						return kernel.Do(d, kernel.MultiplyArgs{Out: to, X: x.Slice(row, row+1), W: m})
					})
				}
				check := sampled(out.Columns(at, at+128), tolerance(all), alone)
				if err := check(ref); err != nil {
					return fmt.Errorf("weights from row %d: %w", at, err)
				}
			}
			return nil
		},
		FLOPs: 2 * float64(rows) * float64(n) * float64(all.In()), Bytes: bytes, Memory: host.Bytes(all.Data),
		Turn: func() []byte { return host.Bytes(parts[turn()].Data) },
	}
}

// project returns the GEMMs of a layer of v32-mini that have the same input: the normalised rows.
func project(r *Rig, rows int) *Op {
	const in = 1024
	x := r.normal(rows, in, 1)
	var outs []kernel.Tensor
	var weights []kernel.Weight
	var checks []func(kernel.Device) error
	total := 0
	for _, n := range []int{512, 576, 128, 64} {
		out, w := r.empty(kernel.F32, rows, n), r.weight(kernel.BF16, n, in)
		outs, weights, total = append(outs, out), append(weights, w), total+n
		handle := matrix(w, kernel.Projected)
		checks = append(checks, sampled(out, 1e-4, func(d kernel.Device, row int, to kernel.Tensor) error {
			return handle.with(d, func(m kernel.Matrix) error {
				return kernel.Do(d, kernel.MultiplyArgs{Out: to, X: x.Slice(row, row+1), W: m})
			})
		}))
	}
	list := prepare(func(d kernel.Device) (list []kernel.Projection, err error) {
		list = make([]kernel.Projection, len(outs))
		for i, out := range outs {
			list[i].Out = out
			if list[i].W, err = d.Prepare(weights[i], kernel.Projected); err != nil {
				return nil, err
			}
		}
		return list, nil
	})
	return &Op{
		Run: func(d kernel.Device) error {
			return list.with(d, func(to []kernel.Projection) error {
				return kernel.Do(d, kernel.ProjectArgs{X: x, To: to})
			})
		},
		Poison: poison(outs...),
		Check:  all(checks...),
		FLOPs:  2 * float64(rows*total*in), Bytes: 2 * float64(total*in),
	}
}

// experts returns an operation that runs the experts of v32-mini; every token chooses four of sixteen experts.
func experts(r *Rig, tokens int) *Op {
	const count, topk, hidden, inner = 16, 4, 1024, 512
	a := kernel.ExpertArgs{X: r.normal(tokens, hidden, 1), Out: r.empty(kernel.F32, tokens, hidden),
		IDs:     r.ints(tokens, topk, func(i int) int32 { return int32((i/topk*5 + i%topk*3) % count) }),
		Weights: r.normal(tokens, topk, 1)}
	var w kernel.ExpertWeights
	for range count {
		w.Gate = append(w.Gate, r.weight(kernel.BF16, inner, hidden))
		w.Up = append(w.Up, r.weight(kernel.BF16, inner, hidden))
		w.Down = append(w.Down, r.weight(kernel.BF16, hidden, inner))
	}
	handle := prepare(func(d kernel.Device) (kernel.Experts, error) { return d.PrepareExperts(w) })
	op := rowwiseAfter(r, a, outs{"Out": 1e-4}, func(d kernel.Device, a *kernel.ExpertArgs, _ int) (err error) {
		a.Experts, err = handle.of(d)
		return err
	})
	op.Poison = zero(a.Out) // experts adds its results to Out
	op.FLOPs = 2 * 3 * float64(tokens) * topk * hidden * inner
	op.Bytes = 3 * 2 * hidden * inner * float64(min(count, tokens*topk))
	return op
}

var miniDims = kernel.LatentDims{Heads: 16, Nope: 128, Rope: 64, V: 128, Latent: 512}

func absorb(r *Rig, tokens int) *Op {
	d := miniDims
	a := kernel.AbsorbArgs{Out: r.empty(kernel.F32, tokens, d.Heads*d.Row()), Q: r.normal(tokens, d.Heads*d.QK(), 1),
		Dims: d}
	return latent(r, a, d.Nope, func(a *kernel.AbsorbArgs, kvb kernel.Matrix) { a.KVB = kvb })
}

func expand(r *Rig, tokens int) *Op {
	d := miniDims
	a := kernel.ExpandArgs{Out: r.empty(kernel.F32, tokens, d.Heads*d.V), U: r.normal(tokens, d.Heads*d.Latent, 1),
		Dims: d}
	return latent(r, a, d.V, func(a *kernel.ExpandArgs, kvb kernel.Matrix) { a.KVB = kvb })
}

// latent returns a GEMM per head with the head's part of the KV up-projection, which has columns columns.
func latent[A kernel.Op](r *Rig, a A, columns int, set func(*A, kernel.Matrix)) *Op {
	w := r.weight(kernel.BF16, miniDims.KVB(), miniDims.Latent)
	kvb := matrix(w, kernel.Latent)
	op := rowwiseAfter(r, a, outs{"Out": 1e-4}, func(d kernel.Device, a *A, _ int) error {
		return kvb.with(d, func(m kernel.Matrix) error {
			set(a, m)
			return nil
		})
	})
	op.Bytes, op.Memory = 2*float64(miniDims.Heads*columns*miniDims.Latent), host.Bytes(w.Data)
	op.FLOPs = float64(tensor(&a, "Out").Rows) * op.Bytes
	return op
}

// all returns a check that runs all the given checks and joins their errors.
func all(checks ...func(kernel.Device) error) func(kernel.Device) error {
	return func(ref kernel.Device) error {
		var errs []error
		for _, c := range checks {
			errs = append(errs, c(ref))
		}
		return errors.Join(errs...)
	}
}
