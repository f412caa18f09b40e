package op

import (
	"math"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/layout"
)

// indexRecipe returns how indexer vectors are rotated and quantised.
func indexRecipe(ropeAt int, p kernel.Pairing, hadamard bool, scales num.ScaleMode) cuda.IndexRecipeView {
	v := cuda.IndexRecipeView{RopeAt: int32(ropeAt)}
	if p == kernel.Interleaved {
		v.Interleaved = 1
	}
	if hadamard {
		v.Hadamard = 1
	}
	if scales == num.ScaleF32 {
		v.ExactScale = 1
	}
	return v
}

// storeIndex normalises, rotates and quantises indexer keys, in one launch with a delayed store of latent rows.
func storeIndex(d *Device, a kernel.IndexStoreArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if h := &d.held; h.kind != holdStore || h.store.Keys.Tokens > 0 {
		if err := d.settle(); err != nil {
			return err
		}
	}
	r := require{op: "store index"}
	r.dtype("weight", a.Weight, kernel.F32)
	r.dtype("bias", a.Bias, kernel.F32)
	r.aligned("weight", a.Weight, 16)
	r.aligned("bias", a.Bias, 16)
	r.indexPool(a.Pool)
	args := keyWriter(d, &r, a.Key, a.Angles, a.Slots, a.Pool)
	args.Recipe = indexRecipe(0, a.Pairing, a.Hadamard, num.ScalePow2)
	args.Gamma, args.Beta, args.Epsilon = at(a.Weight), at(a.Bias), float64(a.Eps)
	if r.err != nil || a.Key.Rows == 0 {
		return r.err
	}
	var err error
	if args.Positions, err = counting(d, a.Key.Rows); err != nil {
		return err
	}
	if h := &d.held; h.kind == holdStore {
		h.store.Keys, h.stored[1] = args, a.Key
		return nil
	}
	return cuda.WriteIndexKeys(d.kernels, d.stream, &args)
}

// keyWriter returns the arguments that are common to all writers of indexer keys.
func keyWriter(d *Device, r *require, keys, angles, slots kernel.Tensor, pool kernel.Pool) cuda.WriteIndexKeyArgs {
	r.dtype("keys", keys, kernel.BF16)
	r.packed("slots", slots)
	r.aligned("keys", keys, 8)
	return cuda.WriteIndexKeyArgs{Pool: r.pool(pool), Rotary: r.perhapsAngles(angles), Keys: at(keys), Slots: at(slots),
		Faults: d.faults.Ptr(), KeyStride: int64(keys.Stride), Tokens: r.count("keys", keys.Rows)}
}

// indexPool requires quantised keys in pages of a multiple of four tokens.
func (r *require) indexPool(p kernel.Pool) {
	r.layout(p, layout.IndexPage132)
	if p.PageTokens%4 != 0 {
		r.fail("pages have %d keys, this backend supports multiples of 4", p.PageTokens)
	}
}

// storeKeys normalises, rotates and quantises indexer keys that Compress computed. The normalised key is rounded to
// bf16 before it is rotated. Without a norm, keys are stored without both.
func storeKeys(d *Device, a kernel.KeyStoreArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	r := require{op: "store keys"}
	if a.Pool.Layout == layout.V41Index68 {
		return storeKeysV41(d, &r, &a)
	}
	r.indexPool(a.Pool)
	args := keyWriter(d, &r, a.Keys, a.Angles, a.Slots, a.Pool)
	args.Recipe = indexRecipe(layout.IndexDim-layout.RopeDim, kernel.Interleaved, a.Hadamard, num.ScaleF32)
	if r.err != nil || a.Keys.Rows == 0 {
		return r.err
	}
	var err error
	if args.Positions, err = counting(d, a.Keys.Rows); err != nil {
		return err
	}
	if root := a.Norm.DType == kernel.F32 && a.Norm.Off%16 == 0; root || !a.Norm.Given() {
		if a.Norm.Given() {
			args.Gamma, args.Epsilon = at(a.Norm), float64(a.Eps)
		}
		err := addPart(d, d.held.parts.args.Index.Tokens > 0, []kernel.Tensor{a.Keys, a.Slots, a.Angles},
			[]kernel.Tensor{a.Pool.Mem})
		if err == nil {
			d.held.parts.args.Index = args
		}
		return err
	}
	if err := d.settle(); err != nil {
		return err
	}
	return normalised(d, r.op, a.Keys, a.Norm, a.Eps, func(keys kernel.Tensor) error {
		args.Keys, args.KeyStride = at(keys), layout.IndexDim
		return cuda.WriteIndexKeys(d.kernels, d.stream, &args)
	})
}

// gatherIndex collects indexer keys into one page.
func gatherIndex(d *Device, a kernel.IndexGatherArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "gather index"}
	r.indexPool(a.Pool)
	r.packed("slots", a.Slots)
	r.aligned("out", a.Out.Mem, 16)
	keys := at(a.Out.Mem)
	args := cuda.GatherIndexSlotsArgs{Pool: r.pool(a.Pool), Source: cuda.SlotListView{Slots: at(a.Slots)}, Keys: keys,
		Scales: keys.Add(int64(a.Out.PageTokens) * layout.IndexDim), Faults: d.faults.Ptr(),
		Count: r.count("keys", a.Slots.Rows)}
	if r.err != nil || a.Slots.Rows == 0 {
		return r.err
	}
	return cuda.GatherIndexSlots(d.kernels, d.stream, &args)
}

// indexQuery rotates and quantises indexer queries and multiplies the weights by their scales, in one launch with
// delayed stores of rows and keys.
func indexQuery(d *Device, a kernel.IndexQueryArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	parts := d.held.kind == holdNothing && !d.held.routes && d.held.parts.held() && !a.V41
	if (d.held.kind != holdStore || a.V41) && !parts {
		if err := d.settle(); err != nil {
			return err
		}
	}
	if err := apart(d, a.Out, a.W); err != nil {
		return err
	}
	r := require{op: "index query"}
	if !a.V41 {
		r.dtype("out", a.Out, kernel.E4M3)
	} else if r.dtype("out", a.Out, kernel.BF16); a.Hadamard {
		r.fail("queries have a Hadamard rotation, but keys of layout %v have none", layout.V41Index68)
	}
	r.dtype("q", a.Q, kernel.BF16)
	r.packed("out", a.Out)
	r.packed("w", a.W)
	r.aligned("q", a.Q, 8)
	r.aligned("out", a.Out, 16)
	if a.Offset != 0 && a.Offset != layout.IndexDim-layout.RopeDim {
		r.fail("the rotated part is at %d, this backend supports 0 and %d", a.Offset, layout.IndexDim-layout.RopeDim)
	}
	args := cuda.IndexQueryArgs{Rotary: r.perhapsAngles(a.Angles),
		Recipe: indexRecipe(a.Offset, a.Pairing, a.Hadamard, a.Scales), Queries: at(a.Q), Weights: at(a.Weights),
		Codes: at(a.Out), Folded: at(a.W), Faults: d.faults.Ptr(), QueryStride: int64(a.Q.Stride),
		WeightStride: int64(a.Weights.Stride), Tokens: r.count("tokens", a.Q.Rows), Heads: r.count("heads", a.Heads),
		PaddedHeads: r.count("padded heads", a.OutHeads()),
		WeightScale: float32(1 / math.Sqrt(float64(a.Heads)*layout.IndexDim))}
	if r.err != nil || a.Q.Rows == 0 {
		return r.err
	}
	var err error
	if args.Positions, err = counting(d, a.Q.Rows); err != nil {
		return err
	}
	if a.V41 {
		return cuda.PrepareQueriesV41(d.kernels, d.stream, &args)
	}
	if d.held.kind == holdStore {
		d.held.store.Queries = args
		return d.settle()
	}
	if parts {
		if err := addPart(d, d.held.parts.args.Queries.Tokens > 0, []kernel.Tensor{a.Q, a.Weights, a.Angles},
			[]kernel.Tensor{a.Out, a.W}); err != nil {
			return err
		}
		d.held.parts.args.Queries = args
		return nil
	}
	return cuda.PrepareIndexQueries(d.kernels, d.stream, &args)
}
