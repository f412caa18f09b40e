package bench

import (
	"bytes"
	"encoding/binary"
	"math"

	"sparrow/internal/cuda/expect"
	"sparrow/internal/num"
	"sparrow/kernel/cuda"
	"sparrow/layout"
)

func writeKeyCase(tokens int) Case {
	return Case{
		Case:  titled("write_index_key", "%d tokens", tokens),
		Bytes: float64(tokens) * (256 + 256 + 8 + 132), New: func(h *holder) Set {
			keys, gamma, beta := h.bf16s(tokens*128), h.floats(128, 1, 0), h.floats(128, 1, 0)
			to, size, slots, positions := h.written(tokens, 64, layout.IndexPageBytes)
			args := cuda.WriteIndexKeyArgs{
				Pool:   to,
				Rotary: h.rotary(), Recipe: recipe, Keys: putAll(h, keys), Gamma: putAll(h, gamma),
				Beta: putAll(h, beta), Positions: putAll(h, positions), Slots: putAll(h, slots), Epsilon: 1e-6,
				KeyStride: 128, Tokens: int32(tokens),
			}
			return launching(h, cuda.WriteIndexKeys, &args, func(r *reader) error {
				want := bytes.Repeat([]byte{poisoned}, size)
				for t, slot := range slots {
					v := expect.Widen(keys[t*128:][:128])
					expect.LayerNorm(v, gamma, beta, args.Epsilon)
					hostRecipe.Apply(v, angles()[int(positions[t])*64:])
					layout.IndexFP8{}.Encode(want[int(slot)/64*layout.IndexPageBytes:], 64, int(slot)%64, v)
				}
				return r.same("pages", args.Pool.Base, want)
			})
		},
	}
}

func queryCase(tokens, heads int) Case {
	rows := tokens * heads
	return Case{
		Case:  titled("index_query", "%d tokens, %d heads", tokens, heads),
		Bytes: float64(rows) * (256 + 4 + 128 + 4), New: func(h *holder) Set {
			queries, weights := h.bf16s(rows*128), h.floats(rows, 1, 0)
			positions := h.permutation(tableRows)[:tokens]
			args := cuda.IndexQueryArgs{
				Rotary: h.rotary(), Recipe: recipe, Queries: putAll(h, queries), Weights: putAll(h, weights),
				Positions: putAll(h, positions), Codes: h.output(rows * 128),
				Folded: h.output(rows * 4), QueryStride: int64(heads * 128), WeightStride: int64(heads),
				Tokens: int32(tokens), Heads: int32(heads), PaddedHeads: int32(heads),
				WeightScale: float32(1 / math.Sqrt(float64(heads)*128)),
			}
			return launching(h, cuda.PrepareIndexQueries, &args, func(r *reader) error {
				codes, folded := make([]byte, len(queries)), make([]float32, rows)
				for row := range rows {
					v := expect.Widen(queries[row*128:][:128])
					hostRecipe.Apply(v, angles()[int(positions[row/heads])*64:])
					scale := num.QuantE4M3(codes[row*128:][:128], v, hostRecipe.Mode)
					folded[row] = float32(weights[row]*args.WeightScale) * scale
				}
				if err := r.same("codes", args.Codes, codes); err != nil {
					return err
				}
				return r.same("weights", args.Folded, raw(folded))
			})
		},
	}
}

// indexPage returns a host page of 64 random keys and scales.
func indexPage(h *holder) []byte {
	page := h.codes(layout.IndexPageBytes)
	for i := range 64 {
		binary.LittleEndian.PutUint32(page[8192+4*i:], math.Float32bits(0.01+h.rng.Float32()*0.05))
	}
	return page
}

func gatherIndexCase(count int) Case {
	return Case{
		Case: titled("gather_index", "%d keys", count), Bytes: float64(count) * (132*2 + 4),
		New: func(h *holder) Set {
			page, slots := indexPage(h), h.permutation(count)
			args := cuda.GatherIndexSlotsArgs{
				Pool:   pooled(h, page, count),
				Source: cuda.SlotListView{Slots: putAll(h, slots)}, Keys: h.output(count * 128),
				Scales: h.output(count * 4), Count: int32(count),
			}
			return launching(h, cuda.GatherIndexSlots, &args, func(r *reader) error {
				var keys, scales []byte
				for _, slot := range slots {
					keys = append(keys, layout.IndexFP8{}.Key(page, int(slot)%64)...)
					scales = append(scales, page[8192+int(slot)%64*4:][:4]...)
				}
				if err := r.same("keys", args.Keys, keys); err != nil {
					return err
				}
				return r.same("scales", args.Scales, scales)
			})
		},
	}
}
