package cpu

import (
	"math"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/layout"
)

// blockMax computes the largest score of every block of keys, row by row.
func blockMax(d *Device, a kernel.BlockMaxArgs) error {
	if err := host.CheckBlocks(&a); err != nil {
		return err
	}
	return each(d, a.Scores.Rows, a, func(_ *Device, a *kernel.BlockMaxArgs, _, r int) {
		host.BlockMaxRow(a, r)
	})
}

// readTable looks rows up. Rows of a large table are spread over memory or still on disk, so tokens are divided among
// workers one by one, and the workers' waits overlap.
func readTable(d *Device, a kernel.TableArgs) error {
	if err := onlyF32("read table", a.Out); err != nil {
		return err
	}
	if err := host.CheckTable(&a); err != nil {
		return err
	}
	return each(d, a.IDs.Rows, a, readTableRow)
}

func readTableRow(d *Device, a *kernel.TableArgs, _, t int) {
	v, out := a.Table.Values, host.RowF32(a.Out, t)
	for _, id := range host.RowI32(a.IDs, t) {
		row, to := v.Slice(int(id), int(id)+1), out[:v.Cols]
		out = out[v.Cols:]
		switch v.DType {
		case kernel.F32:
			copy(to, host.F32(row))
		case kernel.BF16:
			d.tier.WidenBF16(to, host.Bytes(row))
		case kernel.E4M3:
			values := host.Bytes(row)
			for i, s := range host.Bytes(a.Table.Scales.Slice(int(id), int(id)+1)) {
				const n = kernel.TableScale
				d.tier.WidenE4M3(to[i*n:][:n], values[i*n:][:n], num.FromE8M0(s))
			}
		}
	}
}

// addEngram adds the gated value to every stream. The inner products of a row are summed in float64, because the gate
// multiplies the whole value.
func addEngram(d *Device, a kernel.EngramArgs) error {
	if err := onlyF32("engram", a.X, a.KV); err != nil {
		return err
	}
	return each(d, a.X.Rows, a, engramRow)
}

func engramRow(d *Device, a *kernel.EngramArgs, _, t int) {
	n, h := a.Weight.Rows, a.Weight.Cols
	x, kv := host.RowF32(a.X, t), host.RowF32(a.KV, t)
	for i := range n {
		stream, key, weight := x[i*h:][:h], kv[i*h:][:h], host.RowF32(a.Weight, i)
		dot := 0.0
		for c, v := range stream {
			dot += float64(v * weight[c] * key[c])
		}
		dot *= rootMean(d.tier, stream, a.Eps) * rootMean(d.tier, key, a.Eps) / math.Sqrt(float64(h))
		gate := sigmoid(math.Copysign(math.Sqrt(max(math.Abs(dot), 1e-6)), dot))
		d.tier.Axpy(stream, float32(gate), kv[n*h:])
	}
}

// widenShared decodes a shared entry of DeepSeek-V4.1, or a window entry.
func widenShared(tier *vec.Tier, out []float32, kind layout.Kind, page []byte, slot int) {
	if kind == layout.V41Row288 {
		data, scales := layout.V41Entry{}.Row(page, slot)
		const n = layout.V41EntryGroup
		for g, s := range scales {
			widenFP4(out[g*n:][:n], data[g*n/2:][:n/2], num.FromE4M3(s))
		}
		return
	}
	data, scales := layout.V41Window{}.Row(page, slot)
	var groups vec.Groups
	const half = layout.V4Dim / 2 // number of groups that one call decodes
	for at := 0; at < layout.V4Dim; at += half {
		for g := range groups {
			groups[g] = num.FromE8M0(scales[at/layout.V41WindowGroup+g])
		}
		tier.WidenE4M3Groups(out[at:at+half], data[at:at+half], groups, layout.V41WindowGroup)
	}
}
