package ref

import (
	"fmt"
	"math"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

// storeRows normalises, rotates and encodes latent rows.
func storeRows(d *Device, a kernel.StoreArgs) error {
	if err := onlyF32("store rows", a.KV); err != nil {
		return err
	}
	main, err := layout.MainOf(a.Pool.Layout)
	if err != nil {
		return err
	}
	norm := vector(a.Norm)
	row := make([]float32, layout.Width(a.Pool.Layout))
	slots := host.I32(a.Slots)
	for t := range a.KV.Rows {
		slot := slots[t*a.Slots.Stride]
		if slot < 0 {
			continue
		}
		page, offset, err := host.Place("store rows", a.Pool, slot)
		if err != nil {
			return err
		}
		kv := host.RowF32(a.KV, t)
		rmsNorm(row[:layout.LatentDim], kv[:layout.LatentDim], norm, a.Eps)
		copy(row[layout.LatentDim:], kv[layout.LatentDim:])
		if len(row) > layout.LatentDim {
			rotate(row[layout.LatentDim:], host.RowF32(a.Angles, t), kernel.Interleaved, false)
		}
		d.kept(row)
		main.Encode(page, offset, row)
	}
	return nil
}

// gatherRows decodes rows into a contiguous tensor.
func gatherRows(a kernel.GatherArgs) error {
	main, err := layout.MainOf(a.Pool.Layout)
	if err != nil {
		return err
	}
	row := make([]float32, layout.Width(a.Pool.Layout))
	slots := host.I32(a.Slots)
	for i := range a.Out.Rows {
		page, offset, err := host.Place("gather rows", a.Pool, slots[i*a.Slots.Stride])
		if err != nil {
			return err
		}
		main.Decode(row, page, offset)
		narrow(a.Out, i, row)
	}
	return nil
}

// storeIndex normalises, rotates and encodes indexer keys.
func storeIndex(a kernel.IndexStoreArgs) error {
	if err := onlyF32("store index", a.Key); err != nil {
		return err
	}
	index, err := layout.IndexOf(a.Pool.Layout)
	if err != nil {
		return err
	}
	w, b := vector(a.Weight), vector(a.Bias)
	var key [layout.IndexDim]float32
	slots := host.I32(a.Slots)
	for t := range a.Key.Rows {
		slot := slots[t*a.Slots.Stride]
		if slot < 0 {
			continue
		}
		page, offset, err := host.Place("store index", a.Pool, slot)
		if err != nil {
			return err
		}
		layerNorm(key[:], host.RowF32(a.Key, t), w, b, a.Eps)
		rotate(key[:layout.RopeDim], host.RowF32(a.Angles, t), a.Pairing, false)
		if a.Hadamard {
			num.Hadamard128(key[:])
		}
		index.Encode(page, a.Pool.PageTokens, offset, key[:])
	}
	return nil
}

func layerNorm(out, x []float32, w, b []float64, eps float32) {
	var mean, variance float64
	for _, v := range x {
		mean += float64(v)
	}
	mean /= float64(len(x))
	for _, v := range x {
		variance += (float64(v) - mean) * (float64(v) - mean)
	}
	inv := 1 / math.Sqrt(variance/float64(len(x))+float64(eps))
	for c, v := range x {
		out[c] = float32((float64(v)-mean)*inv*w[c] + b[c])
	}
}

// gatherIndex copies indexer keys into a contiguous page.
func gatherIndex(a kernel.IndexGatherArgs) error {
	slots := host.I32(a.Slots)
	for i := range a.Slots.Rows {
		if err := host.MoveIndex(a.Out, i, a.Pool, slots[i*a.Slots.Stride], 1); err != nil {
			return err
		}
	}
	return nil
}

// convertPages converts raw pages to block pages.
func convertPages(a kernel.ConvertArgs) error {
	pages := host.I32(a.Pages)
	raw, block := layout.FP8Raw{}, layout.FP8Block{}
	for i := range a.Pages.Rows {
		p := int(pages[i*a.Pages.Stride])
		if p < 0 || p >= a.In.Pages() {
			return fmt.Errorf("%w: convert pages: page %d is outside the %d pages", kernel.ErrArgument, p, a.In.Pages())
		}
		in, out := host.Page(a.In, p), host.Page(a.Out, i)
		for s := range a.In.PageTokens {
			layout.RawToBlock(out[s*block.RowBytes():][:block.RowBytes()], in[s*raw.RowBytes():][:raw.RowBytes()], 1)
		}
	}
	return nil
}
