package op

import (
	"errors"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/layout"
)

// mains and nopes list the layouts of latent rows that have kernels: with and without a rotated part.
var (
	mains   = []layout.Kind{layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576}
	nopes   = []layout.Kind{layout.BF16Row1024, layout.FP8Row528}
	latents = append(append([]layout.Kind(nil), mains...), nopes...)
)

func rmsNorm(d *Device, op string, out, x, weight kernel.Tensor, eps float32) error {
	r := require{op: op}
	r.dtype("x", x, kernel.BF16)
	r.dtype("out", out, kernel.BF16)
	args := cuda.RMSNormArgs{X: at(x), Out: at(out), Weight: at(weight), Epsilon: float64(eps),
		XStride: int64(x.Stride), OutStride: int64(out.Stride), Rows: r.count("rows", x.Rows),
		Columns: r.count("columns", x.Cols)}
	switch weight.DType {
	case kernel.F32:
	case kernel.BF16:
		args.WeightBF16 = 1
	default:
		r.fail("the weight has type %v, this backend supports f32 and bf16", weight.DType)
	}
	if r.err != nil {
		return r.err
	}
	return cuda.RMSNorm(d.kernels, d.stream, &args)
}

// normalised writes the RMSNorm of x to scratch memory, without gaps between rows, and calls use with that memory.
func normalised(d *Device, op string, x, weight kernel.Tensor, eps float32, use func(kernel.Tensor) error) error {
	return d.temporary(int64(x.Rows)*int64(x.Cols)*2, func(p cuda.Ptr) error {
		out := kernel.Tensor{Buf: &Buffer{ptr: p, bytes: int64(x.Rows) * int64(x.Cols) * 2}, DType: kernel.BF16,
			Rows: x.Rows, Cols: x.Cols, Stride: x.Cols}
		if err := rmsNorm(d, op, out, x, weight, eps); err != nil {
			return err
		}
		return use(out)
	})
}

// storeRows normalises, rotates and encodes latent rows. The normalised row is rounded to bf16 before it is encoded.
// The operation is delayed, to run in one launch with the indexer keys and queries of the same rows.
func storeRows(d *Device, a kernel.StoreArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "store rows"}
	r.layout(a.Pool, latents...)
	r.dtype("kv", a.KV, kernel.BF16)
	r.packed("slots", a.Slots)
	r.aligned("kv", a.KV, 4)
	if r.err == nil && layout.Width(a.Pool.Layout) == layout.LatentDim {
		return storeNope(d, &r, &a)
	}
	positions, err := counting(d, a.KV.Rows)
	if err != nil {
		return err
	}
	rope := a.KV.Columns(layout.LatentDim, layout.RowDim)
	args := cuda.WriteMainArgs{Pool: r.pool(a.Pool), Rotary: r.angles(a.Angles), Latent: at(a.KV), Key: at(rope),
		Positions: positions, Slots: at(a.Slots), Faults: d.faults.Ptr(), Norm: at(a.Norm), Epsilon: float64(a.Eps),
		LatentStride: stride(a.KV), KeyStride: stride(a.KV), Tokens: r.count("tokens", a.KV.Rows), KScale: 1}
	if r.err != nil || a.KV.Rows == 0 {
		return r.err
	}
	if a.KV.Off%16 != 0 || stride(a.KV)%8 != 0 || a.Norm.DType != kernel.F32 || a.Norm.Off%16 != 0 {
		return normalised(d, r.op, a.KV.Columns(0, layout.LatentDim), a.Norm, a.Eps, func(latent kernel.Tensor) error {
			args.Latent, args.LatentStride, args.Norm = at(latent), layout.LatentDim, 0
			return cuda.WriteMain(d.kernels, d.stream, a.Pool.Layout, &args)
		})
	}
	h := &d.held
	h.kind, h.layout, h.store, h.stored = holdStore, a.Pool.Layout, cuda.StoreLatentArgs{Rows: args},
		[2]kernel.Tensor{a.KV}
	return nil
}

// storeNope normalises and encodes latent rows in layouts without a rotated part.
func storeNope(d *Device, r *require, a *kernel.StoreArgs) error {
	args := cuda.WriteMainArgs{Pool: r.pool(a.Pool), Latent: at(a.KV), Slots: at(a.Slots), Faults: d.faults.Ptr(),
		Norm: at(a.Norm), Epsilon: float64(a.Eps), LatentStride: stride(a.KV), Tokens: r.count("tokens", a.KV.Rows),
		KScale: 1}
	if r.err != nil || a.KV.Rows == 0 {
		return r.err
	}
	if a.KV.Off%16 == 0 && stride(a.KV)%8 == 0 && a.Norm.DType == kernel.F32 && a.Norm.Off%16 == 0 {
		return cuda.WriteMain(d.kernels, d.stream, a.Pool.Layout, &args)
	}
	return normalised(d, r.op, a.KV, a.Norm, a.Eps, func(latent kernel.Tensor) error {
		args.Latent, args.LatentStride, args.Norm = at(latent), layout.LatentDim, 0
		return cuda.WriteMain(d.kernels, d.stream, a.Pool.Layout, &args)
	})
}

// gatherRows copies selected rows to the output as bf16.
func gatherRows(d *Device, a kernel.GatherArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "gather rows"}
	r.layout(a.Pool, latents...)
	r.dtype("out", a.Out, kernel.BF16)
	r.packed("slots", a.Slots)
	r.aligned("out", a.Out, 16)
	args := cuda.GatherSlotsArgs{Pool: r.pool(a.Pool), Source: cuda.SlotListView{Slots: at(a.Slots)}, Rows: at(a.Out),
		Faults: d.faults.Ptr(), RowBytes: 2 * int64(a.Out.Stride), Count: r.count("rows", a.Out.Rows), KScale: 1}
	if r.err != nil || a.Out.Rows == 0 {
		return r.err
	}
	return cuda.GatherSlots(d.kernels, d.stream, a.Pool.Layout, &args)
}

// convertPages converts pages of raw rows to pages of block rows.
func convertPages(d *Device, a kernel.ConvertArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "convert pages"}
	r.packed("pages", a.Pages)
	r.packed("out", a.Out.Mem)
	r.aligned("out", a.Out.Mem, 16)
	rows := a.Pages.Rows * a.In.PageTokens
	args := cuda.GatherPagesArgs{Pool: r.pool(a.In),
		Source: cuda.PageTableView{Table: at(a.Pages), TableStride: r.count("pages", a.Pages.Rows), Requests: 1},
		Rows:   at(a.Out.Mem), Faults: d.faults.Ptr(), RowBytes: layout.BlockRowBytes, Count: r.count("rows", rows),
		KScale: 1}
	if r.err != nil || rows == 0 {
		return r.err
	}
	return d.temporary(8, func(p cuda.Ptr) error {
		// The starts are 0 and the number of rows.
		starts := errors.Join(d.stream.FillWords(p, 0, 1), d.stream.FillWords(p.Add(4), uint32(rows), 1))
		if err := starts; err != nil {
			return err
		}
		args.Source.Starts = p
		return cuda.RawToBlockPages(d.kernels, d.stream, &args)
	})
}

// storeEntries normalises, rotates and encodes entries. For V4 entries it is delayed, to run as a part of a later
// launch. The normalised row is rounded to bf16 before it is encoded.
func storeEntries(d *Device, a kernel.EntryStoreArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	r := require{op: "store entries"}
	v41 := a.Pool.Layout == layout.V41Row288 || a.Pool.Layout == layout.V41Window528
	if !v41 {
		r.layout(a.Pool, layout.V4Row584, layout.V41Row288, layout.V41Window528)
	}
	r.dtype("rows", a.Rows, kernel.BF16)
	r.packed("slots", a.Slots)
	positions, err := counting(d, a.Rows.Rows)
	if err != nil {
		return err
	}
	args := cuda.WriteV4Args{Pool: r.pool(a.Pool), Rotary: r.angles(a.Angles), Positions: positions, Slots: at(a.Slots),
		Faults: d.faults.Ptr(), RowStride: layout.V4Dim, Tokens: r.count("entries", a.Rows.Rows)}
	if r.err != nil || a.Rows.Rows == 0 {
		return r.err
	}
	if bf16 := a.Norm.DType == kernel.BF16; (bf16 || a.Norm.DType == kernel.F32) && a.Rows.Off%16 == 0 &&
		stride(a.Rows)%8 == 0 {
		args.Rows, args.RowStride = at(a.Rows), stride(a.Rows)
		args.Norm, args.Epsilon, args.NormBF16 = at(a.Norm), float64(a.Eps), flag(bf16)
		if v41 {
			if err := d.settle(); err != nil {
				return err
			}
			return cuda.WriteV41(d.kernels, d.stream, a.Pool.Layout, &args)
		}
		err := addPart(d, d.held.parts.args.Entries.Tokens > 0, []kernel.Tensor{a.Rows, a.Slots, a.Angles},
			[]kernel.Tensor{a.Pool.Mem})
		if err == nil {
			d.held.parts.args.Entries = args
		}
		return err
	}
	if err := d.settle(); err != nil {
		return err
	}
	return normalised(d, r.op, a.Rows, a.Norm, a.Eps, func(rows kernel.Tensor) error {
		args.Rows = at(rows)
		if v41 {
			return cuda.WriteV41(d.kernels, d.stream, a.Pool.Layout, &args)
		}
		return cuda.WriteV4(d.kernels, d.stream, &args)
	})
}

// unpack copies selected V4 entries to the output as bf16.
func unpack(d *Device, a kernel.UnpackArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "unpack"}
	r.layout(a.Pool, layout.V4Row584)
	r.dtype("out", a.Out, kernel.BF16)
	r.packed("slots", a.Slots)
	r.aligned("out", a.Out, 16)
	args := cuda.GatherSlotsArgs{Pool: r.pool(a.Pool), Source: cuda.SlotListView{Slots: at(a.Slots)}, Rows: at(a.Out),
		Faults: d.faults.Ptr(), RowBytes: 2 * int64(a.Out.Stride), Count: r.count("entries", a.Slots.Rows)}
	if r.err != nil || a.Slots.Rows == 0 {
		return r.err
	}
	return cuda.GatherV4Slots(d.kernels, d.stream, &args)
}

// combine concatenates the indices of two streams into one list for each row.
func combine(d *Device, a kernel.CombineArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "combine"}
	for _, t := range []kernel.Tensor{a.Out, a.Lens, a.WindowLens, a.WindowBase} {
		r.packed("an index tensor", t)
	}
	args := cuda.CombineV4Args{Window: at(a.Window), WindowLength: at(a.WindowLens), WindowBase: at(a.WindowBase),
		Rows: at(a.Out), Lengths: at(a.Lens), WindowStride: int64(a.Window.Stride),
		Tokens: r.count("rows", a.Window.Rows), WindowWidth: r.count("window entries", a.Window.Cols),
		Width: r.count("entries", a.Out.Cols)}
	if a.Extra.Given() {
		r.packed("extra lens", a.ExtraLens)
		r.packed("extra base", a.ExtraBase)
		args.Extra, args.ExtraLength, args.ExtraBase = at(a.Extra), at(a.ExtraLens), at(a.ExtraBase)
		args.ExtraStride, args.ExtraWidth = int64(a.Extra.Stride), r.count("extra entries", a.Extra.Cols)
	}
	if r.err != nil || a.Window.Rows == 0 {
		return r.err
	}
	return cuda.CombineV4(d.kernels, d.stream, &args)
}
