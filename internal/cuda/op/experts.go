package op

import (
	"errors"
	"fmt"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// experts holds the packed experts of a layer.
type experts struct {
	shape  cuda.ExpertShape
	at     cuda.PackedExperts
	scales num.ScaleMode // rounding of the scales of quantised rows
	split  *split        // nil if all experts are resident
}

func (x *experts) Count() int  { return int(x.shape.Experts) }
func (x *experts) Hidden() int { return int(x.shape.Hidden) }
func (x *experts) Inner() int  { return int(x.shape.Inner) }

// PrepareExperts packs the matrices of experts. If all are e4m3 in blocks of 128 x 128, they are packed as e4m3; if all
// are e2m1, as e2m1. If gate and up have the same packed format and down has a packed format, these formats are kept.
// All other experts are converted to bf16. e2m1 is multiplied as e4m3 if the scales of all experts of the layer allow
// it.
func (d *Device) PrepareExperts(w kernel.ExpertWeights) (kernel.Experts, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	r := require{op: "prepare experts"}
	x := &experts{scales: num.ScaleF32, shape: cuda.ExpertShape{Experts: r.count("experts", len(w.Gate)),
		Hidden: r.count("columns", w.Gate[0].In()),
		Inner:  r.count("inner columns", w.Gate[0].Out())}}
	if w.Gate[0].Pow2Rows {
		x.scales = num.ScalePow2
	}
	if err := cuda.CheckExperts(len(w.Gate), w.Gate[0].In(), w.Gate[0].Out()); err != nil {
		r.fail("%v", err)
	}
	if gateUp, down, ok := packedExperts(&w); ok {
		x.shape.Packed, x.shape.PackedDown, x.shape.BF16 = gateUp, down, true
	}
	// The error names the matrix that has no kernel.
	for _, m := range []kernel.Weight{w.Gate[0], w.Up[0], w.Down[0]} {
		if _, ok := packedFormat(m); !ok && isBlocks(m) {
			r.weight(m)
		}
	}
	x.shape.E2M1 = w.Gate[0].Data.DType == kernel.E2M1x2 && x.shape.Packed == ""
	for e := range w.Gate {
		for _, m := range []kernel.Weight{w.Gate[e], w.Up[e], w.Down[e]} {
			if x.shape.Packed != "" {
				continue
			}
			if x.shape.E2M1 {
				r.packed4(m)
				continue
			}
			r.weight(m)
			x.shape.BF16 = x.shape.BF16 || !blocked(m)
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	if x.shape.E2M1 {
		x.shape.BF16 = !w.Fold()
	}
	if w.Split() {
		return x, loaded(d, func(u *upload) error { return prepareSplit(d, u, x, &w) })
	}
	n := int64(x.shape.Experts)
	size := packedSize(n, x.shape)
	return x, loaded(d, func(u *upload) error {
		base, err := u.room(size, size)
		if err != nil {
			return err
		}
		x.at = packedAt(base, n, x.shape)
		return u.pack(x, &w, x.at, nil)
	})
}

// pack copies each expert to device memory and packs it at its position. If after is not nil, all experts are packed at
// the first position, one after another, and after is called when an expert is packed.
func (u *upload) pack(x *experts, w *kernel.ExpertWeights, at cuda.PackedExperts, after func(e int) error) error {
	if x.shape.Packed != "" {
		return u.packFormat(x, w, at, after)
	}
	side := (int64(x.shape.Hidden)*int64(x.shape.Inner)*2 + 255) / 256 * 256 // maximum bytes of a matrix
	blocks := 4 * int64((x.shape.Hidden+blockSide-1)/blockSide) * int64((x.shape.Inner+blockSide-1)/blockSide)
	if x.shape.E2M1 {
		side = (int64(x.shape.Hidden)*int64(x.shape.Inner)/2 + 255) / 256 * 256
		blocks = int64(x.shape.Hidden) * int64(x.shape.Inner) / packedGroup
	}
	each := (side + blocks + 255) / 256 * 256
	for e := range w.Gate {
		err := u.temporary(3*each, func(staged cuda.Ptr) (err error) {
			var to [3]cuda.Matrix
			for i, m := range []kernel.Weight{w.Gate[e], w.Up[e], w.Down[e]} {
				if to[i], err = u.stage(m, x.shape.BF16 && !x.shape.E2M1, staged.Add(int64(i)*each), side); err != nil {
					return err
				}
			}
			u.do(func() error {
				if after == nil {
					return cuda.PackExpert(u.d.kernels, u.stream, x.shape, int32(e), to[0], to[1], to[2], at)
				}
				if err := cuda.PackExpert(u.d.kernels, u.stream, x.shape, 0, to[0], to[1], to[2], at); err != nil {
					return err
				}
				return after(e)
			})
			return nil
		})
		if err != nil {
			return fmt.Errorf("expert %d: %w", e, err)
		}
	}
	return nil
}

// packedGroup is the number of values of a row of e2m1 that share a scale.
const packedGroup = 32

// packed4 requires that w is e2m1 with a scale for each packedGroup values.
func (r *require) packed4(w kernel.Weight) {
	if w.Data.DType != kernel.E2M1x2 || w.BlockCols != packedGroup || w.In()%packedGroup != 0 {
		r.fail("an expert has type %v [%d, %d] in groups of %d, but others have type e2m1x2; this backend supports "+
			"layers in which all matrices, or none, have type e2m1x2 in whole groups of "+
			"%d", w.Data.DType, w.Out(), w.In(), w.BlockCols,
			packedGroup)
	}
}

// stage copies a weight to device memory, with its scales at an offset after the start of its values.
func (u *upload) stage(w kernel.Weight, asBF16 bool, to cuda.Ptr, scalesAt int64) (cuda.Matrix, error) {
	m := cuda.Matrix{Data: to, Stride: int64(w.In())}
	if asBF16 {
		return m, u.widen(w, to, 0, 0)
	}
	m.Scales, m.ScaleStride = to.Add(scalesAt), int64(w.Scale.Cols)
	if err := u.put(to, w.Data); err != nil {
		return m, err
	}
	return m, u.put(m.Scales, w.Scale)
}

// chosenExperts runs the chosen experts; their weighted sum is delayed (held). More rows than one call of the kernels
// supports are computed in groups, which does not change the bits.
func chosenExperts(d *Device, a kernel.ExpertArgs) error {
	p, err := checkExperts(d, &a)
	if err != nil || p == nil {
		return err
	}
	if p.split != nil {
		return runSplit(d, p, &a)
	}
	if a.Part != (kernel.Part{}) {
		return partOfExperts(d, p, a)
	}
	return runExperts(d, p, &a)
}

// partOfExperts runs the chosen experts that the rank has.
func partOfExperts(d *Device, p *experts, a kernel.ExpertArgs) error {
	if err := d.settle(); err != nil {
		return err
	}
	ids, scratch, err := localExperts(d, &require{op: "experts"}, a.IDs, a.Part, p.shape.Experts, cuda.FaultExpert)
	if err != nil {
		return err
	}
	a.IDs = ids
	err = runExperts(d, p, &a)
	if d.held.kind == holdSum { // the delayed sum reads the ids
		d.held.scratch = append(d.held.scratch, scratch)
		return err
	}
	return errors.Join(err, d.scratch.Put(scratch))
}

// runExperts runs experts; the ids are indices of experts on this device.
func runExperts(d *Device, p *experts, a *kernel.ExpertArgs) error {
	rows, most := a.X.Rows, cuda.MaxExpertPairs/a.IDs.Cols
	h, holds := &d.held, rows <= most && normable(a.Out) && a.IDs.Cols <= cuda.MaxTop
	routed := holds && h.routes && h.route.IDs == at(a.IDs) && h.route.Weights == at(a.Weights) &&
		h.route.Experts == p.shape.Experts && int(h.route.Rows) == rows && int(h.route.Top) == a.IDs.Cols
	if h.routes && routed {
		h.routes = false // the delayed routing is launched below
	}
	if !holds || h.routes || h.kind != holdSum || h.sum.rows != a.Out || overlap(a.Out, a.X) {
		if err := d.settle(); err != nil {
			return err
		}
	}
	scratch, err := d.scratch.Get(p.shape.ScratchBytes(int32(min(rows, most)), int32(a.IDs.Cols)))
	if err != nil {
		return err
	}
	if holds {
		args, err := multiplyExperts(d, p, a, scratch, routed)
		if err != nil {
			return errors.Join(err, d.scratch.Put(scratch))
		}
		holdResults(d, a.Out, &args, scratch)
		return nil
	}
	for from := 0; from < rows && err == nil; from += most {
		to := min(from+most, rows)
		part := kernel.ExpertArgs{Out: a.Out.Slice(from, to), X: a.X.Slice(from, to), IDs: a.IDs.Slice(from, to),
			Weights: a.Weights.Slice(from, to), Limit: a.Limit}
		var args cuda.ExpertsArgs
		if args, err = multiplyExperts(d, p, &part, scratch, false); err == nil {
			err = cuda.CombineExperts(d.kernels, d.stream, &args)
		}
	}
	return errors.Join(err, d.scratch.Put(scratch))
}

// checkExperts checks the arguments and returns the experts, or nil if there are no rows to compute.
func checkExperts(d *Device, a *kernel.ExpertArgs) (*experts, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	p, ok := a.Experts.(*experts)
	if !ok {
		return nil, fmt.Errorf("%w: experts: the experts were prepared by another device", kernel.ErrArgument)
	}
	r := require{op: "experts"}
	if p.split != nil && a.Part != (kernel.Part{}) {
		r.fail("a rank has only some of the experts, and they are in two memories; this backend supports two " +
			"memories only on one rank")
	}
	r.dtype("x", a.X, kernel.BF16)
	r.dtype("out", a.Out, kernel.BF16)
	r.aligned("x", a.X, 16)
	r.aligned("out", a.Out, 16)
	most := cuda.MaxExpertPairs
	if p.split != nil {
		most = cuda.MaxExchangeTop
	}
	if r.count("choices", a.IDs.Cols) > int32(most) {
		r.fail("a row has %d choices, this backend supports up to %d", a.IDs.Cols, most)
	}
	if r.err != nil || a.X.Rows == 0 || a.IDs.Cols == 0 {
		return nil, r.err
	}
	return p, nil
}

// multiplyExperts computes the results of the experts for rows that fit one call. If routed is set, it launches the
// delayed routing first. The caller computes the weighted sum of the results.
func multiplyExperts(d *Device, p *experts, a *kernel.ExpertArgs, scratch cuda.Ptr, routed bool) (cuda.ExpertsArgs,
	error) {
	x := cuda.Experts{Shape: p.shape, Packed: p.at, X: at(a.X), Out: at(a.Out), IDs: at(a.IDs), Weights: at(a.Weights),
		Faults: d.faults.Ptr(), Scratch: scratch, XStride: stride(a.X), OutStride: stride(a.Out),
		IDStride: stride(a.IDs), WeightStride: stride(a.Weights), Rows: int32(a.X.Rows), Top: int32(a.IDs.Cols),
		Limit: a.Limit, Scales: p.scales}
	args, err := x.Encode()
	if err != nil {
		return args, err
	}
	if routed {
		err = cuda.RouteAndPrepare(d.kernels, d.stream, p.shape, &cuda.RouteExpertsArgs{Route: d.held.route,
			Experts: args,
			Arrived: d.faults.Ptr().Add(4)})
	} else {
		err = cuda.PrepareExperts(d.kernels, d.stream, p.shape, &args)
	}
	if err == nil {
		err = multiplySorted(d, p.shape, &args)
	}
	return args, err
}

// multiplySorted runs gate and up, and then down, for sorted pairs.
func multiplySorted(d *Device, s cuda.ExpertShape, args *cuda.ExpertsArgs) error {
	if err := cuda.MultiplyGateUp(d.kernels, d.stream, s, args); err != nil {
		return err
	}
	return cuda.MultiplyDown(d.kernels, d.stream, s, args)
}
