package cpu

import (
	"fmt"
	"math"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/layout"
)

// embed looks up embeddings.
func embed(d *Device, a kernel.EmbedArgs) error {
	if err := onlyF32("embed", a.Out); err != nil {
		return err
	}
	table, err := host.Own("embed", a.Table)
	if err != nil {
		return err
	}
	for t := range a.Out.Rows {
		if id := int(host.RowI32(a.IDs, t)[0]); !a.Part.Valid(id, table.Out()) {
			return fmt.Errorf("%w: embed: token %d is outside the vocabulary of %d tokens",
				kernel.ErrArgument, id, max(a.Part.Of, table.Out()))
		}
	}
	return eachRow(d, a.Out.Rows, a, func(d *Device, a *kernel.EmbedArgs, _, t int) {
		out := host.RowF32(a.Out, t)
		id, here := a.Part.Local(int(host.RowI32(a.IDs, t)[0]), a.Table.Out())
		if !here {
			clear(out)
			return
		}
		switch row := a.Table.(*host.Matrix).Data.Slice(id, id+1); row.DType {
		case kernel.F32:
			copy(out, host.F32(row))
		case kernel.BF16:
			d.tier.WidenBF16(out, host.Bytes(row))
		default:
			widenBand(out, a.Table.(*host.Matrix), id, id+1)
		}
	})
}

// norm computes RMSNorm.
func norm(d *Device, a kernel.NormArgs) error {
	if err := onlyF32("norm", a.Out, a.X, a.Weight); err != nil {
		return err
	}
	return eachRow(d, a.X.Rows, a, func(d *Device, a *kernel.NormArgs, _, r int) {
		rmsNorm(d.tier, host.RowF32(a.Out, r), host.RowF32(a.X, r), host.RowF32(a.Weight, 0), a.Eps)
	})
}

func rmsNorm(tier *vec.Tier, out, x, w []float32, eps float32) {
	mean := tier.Dot(x, x) / float32(len(x))
	tier.ScaleMul(out, x, w, float32(1/math.Sqrt(float64(mean+eps))))
}

// Take copies chosen rows.
func (*Device) Take(a kernel.TakeArgs) error { return host.Take(a) }

// gateRows computes silu(Gate) * Up, with the clamps of GateArgs.
func gateRows(d *Device, a kernel.GateArgs) error {
	if err := onlyF32("gate", a.Out, a.Gate, a.Up); err != nil {
		return err
	}
	return eachRow(d, a.Gate.Rows, a, func(d *Device, a *kernel.GateArgs, worker, r int) {
		out, g, u := host.RowF32(a.Out, r), host.RowF32(a.Gate, r), host.RowF32(a.Up, r)
		if l := a.Limit; l > 0 {
			clamped := grow(&d.scratch[worker].tile, len(u))
			copy(clamped, u)
			copy(out, g)
			clampGate(out, clamped, l)
			g, u = out, clamped
		}
		d.tier.SiluMul(out, g, u)
	})
}

// clampGate limits gate to at most limit, and up to [-limit, limit].
func clampGate(gate, up []float32, limit float32) {
	for c, g := range gate {
		gate[c] = min(g, limit)
		up[c] = min(max(up[c], -limit), limit)
	}
}

// angles computes the cosines and sines of every row's rotation.
func angles(d *Device, a kernel.AngleArgs) error {
	return eachRow(d, a.Out.Rows, a, func(_ *Device, a *kernel.AngleArgs, _, r int) {
		pos := float32(host.RowI32(a.Positions, r)[0])
		out, freq := host.RowF32(a.Out, r), host.RowF32(a.InvFreq, 0)
		for i, f := range freq {
			sin, cos := math.Sincos(float64(pos * f))
			out[i], out[len(freq)+i] = float32(cos)*a.Scale, float32(sin)*a.Scale
		}
	})
}

// rotateRows applies RoPE in place.
func rotateRows(d *Device, a kernel.RotateArgs) error {
	if err := onlyF32("rotate", a.X); err != nil {
		return err
	}
	return eachRow(d, a.X.Rows, a, func(d *Device, a *kernel.RotateArgs, worker, r int) {
		heads := headsAt{x: host.RowF32(a.X, r)[a.Offset:], n: a.Heads, ld: a.HeadDim}
		d.rotate(worker, heads, host.RowF32(a.Angles, r), a.Pairing, a.Inverse)
	})
}

// headsAt describes n heads, ld elements apart, whose first elements are rotated.
type headsAt struct {
	x     []float32
	n, ld int
}

// rotate rotates the pairs of every head by their angles, or by the negative angles if inverse is true.
func (d *Device) rotate(worker int, h headsAt, angles []float32, p kernel.Pairing, inverse bool) {
	half := len(angles) / 2
	if 2*half == vec.TurnDim {
		turn := &d.scratch[worker].turn
		turn.Set(angles[:half], angles[half:], p == kernel.HalfSplit, inverse)
		d.tier.Rotate(h.x, h.n, h.ld, turn)
		return
	}
	for i := range h.n {
		rotateAny(h.x[i*h.ld:][:2*half], angles[:half], angles[half:], p, inverse)
	}
}

// rotateAny rotates the pairs of one head, for any number of pairs.
func rotateAny(v, cos, sin []float32, p kernel.Pairing, inverse bool) {
	for i, c := range cos {
		a, b, s := 2*i, 2*i+1, sin[i]
		if p == kernel.HalfSplit {
			a, b = i, i+len(cos)
		}
		if inverse {
			s = -s
		}
		x, y := v[a], v[b]
		v[a], v[b] = x*c-y*s, y*c+x*s
	}
}

// checkSlots checks that every slot is in the pool, once, so that workers need not return errors. Slots below zero are
// valid if padding is true.
func checkSlots(op string, t kernel.Tensor, p kernel.Pool, padding bool) error {
	slots := host.I32(t)
	for i := range t.Rows {
		s := slots[i*t.Stride]
		if int(s) >= p.Slots() || (s < 0 && !padding) {
			return fmt.Errorf("%w: %s: slot %d is outside the pool of %d slots", kernel.ErrArgument, op, s, p.Slots())
		}
	}
	return nil
}

// storeRows normalises, rotates and encodes latent rows.
func storeRows(d *Device, a kernel.StoreArgs) error {
	if err := onlyF32("store rows", a.KV, a.Norm); err != nil {
		return err
	}
	if err := checkSlots("store rows", a.Slots, a.Pool, true); err != nil {
		return err
	}
	return eachRow(d, a.KV.Rows, a, storeRow)
}

func storeRow(d *Device, a *kernel.StoreArgs, worker, r int) {
	slot := int(host.RowI32(a.Slots, r)[0])
	if slot < 0 {
		return
	}
	kv, row := host.RowF32(a.KV, r), grow(&d.scratch[worker].tile, layout.Width(a.Pool.Layout))
	rmsNorm(d.tier, row[:layout.LatentDim], kv[:layout.LatentDim], host.RowF32(a.Norm, 0), a.Eps)
	if copy(row[layout.LatentDim:], kv[layout.LatentDim:]) > 0 {
		d.rotate(worker, headsAt{x: row[layout.LatentDim:], n: 1, ld: layout.RopeDim}, host.RowF32(a.Angles, r),
			kernel.Interleaved, false)
	}
	page, offset := host.Page(a.Pool, slot/a.Pool.PageTokens), slot%a.Pool.PageTokens
	switch a.Pool.Layout {
	case layout.BF16Row1152:
		d.tier.NarrowBF16(page[offset*layout.BF16RowBytes:][:layout.BF16RowBytes], row)
	case layout.FP8Row656:
		layout.FP8Block{}.Encode(page, offset, row)
	case layout.FP8Row576:
		layout.FP8Raw{}.Encode(page, offset, row)
	case layout.F32Row2304:
		layout.F32{}.Encode(page, offset, row)
	case layout.BF16Row1024:
		d.tier.NarrowBF16(page[offset*layout.NopeBF16Bytes:][:layout.NopeBF16Bytes], row)
	case layout.FP8Row528:
		layout.NopeFP8{}.Encode(page, offset, row)
	case layout.F32Row2048:
		layout.NopeF32{}.Encode(page, offset, row)
	}
}

// gatherRows decodes rows into a contiguous tensor.
func gatherRows(d *Device, a kernel.GatherArgs) error {
	if err := checkSlots("gather rows", a.Slots, a.Pool, false); err != nil {
		return err
	}
	return eachRow(d, a.Out.Rows, a, func(d *Device, a *kernel.GatherArgs, worker, r int) {
		slot := int(host.RowI32(a.Slots, r)[0])
		if a.Out.DType == kernel.F32 {
			widenSlot(d.tier, host.RowF32(a.Out, r), a.Pool, slot)
			return
		}
		row := grow(&d.scratch[worker].tile, layout.Width(a.Pool.Layout))
		widenSlot(d.tier, row, a.Pool, slot)
		d.tier.NarrowBF16(host.Bytes(a.Out.Slice(r, r+1)), row)
	})
}

// widenSlot decodes the row at a slot of a pool into layout.Width float32 values.
func widenSlot(tier *vec.Tier, out []float32, p kernel.Pool, slot int) {
	n := p.Mem.Cols / p.PageTokens // bytes of a row: a page of a main layout is an array of rows
	widenRow(tier, out, p.Layout, host.Page(p, slot/p.PageTokens)[slot%p.PageTokens*n:][:n])
}

// widenRow decodes the bytes of one cache row into layout.Width float32 values.
func widenRow(tier *vec.Tier, out []float32, k layout.Kind, row []byte) {
	switch k {
	case layout.BF16Row1152:
		tier.WidenBF16(out, row)
	case layout.FP8Row656:
		var groups vec.Groups
		for j, scale := range (layout.FP8Block{}).Scales(row) {
			groups[j] = scale
		}
		tier.WidenE4M3Groups(out[:layout.LatentDim], row[:layout.LatentDim], groups, 128)
		tier.WidenBF16(out[layout.LatentDim:], (layout.FP8Block{}).Rope(row))
	case layout.FP8Row576:
		tier.WidenE4M3(out, row, 1)
	case layout.F32Row2304:
		layout.F32{}.Decode(out, row, 0)
	case layout.BF16Row1024:
		tier.WidenBF16(out, row)
	case layout.FP8Row528:
		var groups vec.Groups
		for j, scale := range (layout.NopeFP8{}).Scales(row) {
			groups[j] = scale
		}
		tier.WidenE4M3Groups(out, row[:layout.LatentDim], groups, 128)
	case layout.F32Row2048:
		layout.NopeF32{}.Decode(out, row, 0)
	}
}

// storeIndex normalises, rotates and encodes indexer keys.
func storeIndex(d *Device, a kernel.IndexStoreArgs) error {
	if err := onlyF32("store index", a.Key, a.Weight, a.Bias); err != nil {
		return err
	}
	if err := checkSlots("store index", a.Slots, a.Pool, true); err != nil {
		return err
	}
	return eachRow(d, a.Key.Rows, a, storeIndexRow)
}

func storeIndexRow(d *Device, a *kernel.IndexStoreArgs, worker, r int) {
	slot := int(host.RowI32(a.Slots, r)[0])
	if slot < 0 {
		return
	}
	key := grow(&d.scratch[worker].tile, layout.IndexDim)
	layerNorm(key, host.RowF32(a.Key, r), host.RowF32(a.Weight, 0), host.RowF32(a.Bias, 0), a.Eps)
	d.rotate(worker, headsAt{x: key, n: 1, ld: layout.IndexDim}, host.RowF32(a.Angles, r), a.Pairing, false)
	writeKey(a.Pool, slot, key, a.Hadamard, num.ScalePow2)
}

// writeKey encodes an indexer key, after the Hadamard rotation if requested. mode selects the scales, if the layout has
// scales.
func writeKey(p kernel.Pool, slot int, key []float32, hadamard bool, mode num.ScaleMode) {
	if hadamard {
		num.Hadamard128(key)
	}
	page, offset := host.Page(p, slot/p.PageTokens), slot%p.PageTokens
	if err := host.EncodeKey(p, page, offset, key, mode); err != nil {
		panic(err) // cannot happen: the arguments were checked
	}
}

// layerNorm computes LayerNorm with its two sums in float64: for 128 values they cost little, and a key is written once
// and read often.
func layerNorm(out, x, w, b []float32, eps float32) {
	var mean, variance float64
	for _, v := range x {
		mean += float64(v)
	}
	mean /= float64(len(x))
	for _, v := range x {
		variance += (float64(v) - mean) * (float64(v) - mean)
	}
	inv := float32(1 / math.Sqrt(variance/float64(len(x))+float64(eps)))
	for c, v := range x {
		out[c] = (v-float32(mean))*inv*w[c] + b[c]
	}
}

// gatherIndex copies indexer keys into a contiguous page.
func gatherIndex(d *Device, a kernel.IndexGatherArgs) error {
	if err := checkSlots("gather index", a.Slots, a.Pool, false); err != nil {
		return err
	}
	blocks := ceilDiv(a.Slots.Rows, a.Pool.PageTokens)
	return each(d, blocks, a, func(_ *Device, a *kernel.IndexGatherArgs, _, block int) {
		size := a.Pool.PageTokens
		if err := moveIndexKeys(a, block*size, min((block+1)*size, a.Slots.Rows)); err != nil {
			panic(err) // cannot happen: slots and layouts were checked
		}
	})
}

// moveIndexKeys copies the keys of tokens [first, end). It copies tokens that are adjacent in a page of the pool
// together, because a long prompt is gathered again for every chunk.
func moveIndexKeys(a *kernel.IndexGatherArgs, first, end int) error {
	slots, stride, size := host.I32(a.Slots), a.Slots.Stride, int32(a.Pool.PageTokens)
	for first < end {
		slot, n := slots[first*stride], 1
		for first+n < end && slots[(first+n)*stride] == slot+int32(n) && (slot+int32(n))%size != 0 {
			n++
		}
		if err := host.MoveIndex(a.Out, first, a.Pool, slot, n); err != nil {
			return err
		}
		first += n
	}
	return nil
}

// convertPages converts raw pages to block pages.
func convertPages(d *Device, a kernel.ConvertArgs) error {
	for i := range a.Pages.Rows {
		if p := int(host.RowI32(a.Pages, i)[0]); p < 0 || p >= a.In.Pages() {
			return fmt.Errorf("%w: convert pages: page %d is outside the %d pages", kernel.ErrArgument, p, a.In.Pages())
		}
	}
	return each(d, a.Pages.Rows, a, func(_ *Device, a *kernel.ConvertArgs, _, i int) {
		in, out := host.Page(a.In, int(host.RowI32(a.Pages, i)[0])), host.Page(a.Out, i)
		for s := range a.In.PageTokens {
			layout.RawToBlock(out[s*656:][:656], in[s*576:][:576], 1)
		}
	})
}
