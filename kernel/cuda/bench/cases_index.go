package bench

import (
	"encoding/binary"
	"fmt"
	"math"

	"sparrow/internal/num"
	"sparrow/kernel/cuda"
	"sparrow/kernel/cuda/expect"
	"sparrow/layout"
)

type writeKeys struct {
	*holder
	args             cuda.WriteIndexKeyArgs
	keys             []uint16
	gamma, beta      []float32
	positions, slots []int32
	table            []float32
}

func writeKeyCase(tokens int) Case {
	return Case{
		Name: "write_index_key", Shape: fmt.Sprintf("%d tokens", tokens),
		Bytes: float64(tokens) * (256 + 256 + 8 + 132), SetBytes: int64(tokens * (512 + 132)),
		New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			pages := (tokens + 63) / 64
			w := &writeKeys{holder: h, keys: h.bf16s(tokens * 128), gamma: h.floats(128, 1, 0),
				beta: h.floats(128, 1, 0), slots: h.permutation(pages * 64)[:tokens],
				positions: h.permutation(tableRows)[:tokens], table: angles()}
			w.args = cuda.WriteIndexKeyArgs{
				Pool: cuda.PoolView{Base: h.output(int64(pages) * layout.IndexPageBytes),
					PageBytes: layout.IndexPageBytes, PageTokens: 64, Slots: int32(pages * 64)},
				Rotary: cuda.RotaryView{Table: h.put(rawF32(w.table)), Rows: tableRows}, Recipe: recipe,
				Keys: h.put(raw16(w.keys)), Gamma: h.put(rawF32(w.gamma)), Beta: h.put(rawF32(w.beta)),
				Positions: h.put(rawI32(w.positions)), Slots: h.put(rawI32(w.slots)), Epsilon: 1e-6, KeyStride: 128,
				Tokens: int32(tokens),
			}
			return h.ready(w)
		},
	}
}

func (w *writeKeys) Launch(s *cuda.Stream) error { return w.rig.Kernels.WriteIndexKeys(s, &w.args) }

func (w *writeKeys) Check(s *cuda.Stream) error {
	want := make([]byte, w.outputs[0].bytes)
	for i := range want {
		want[i] = 0xAB
	}
	for t, slot := range w.slots {
		v := expect.Widen(w.keys[t*128:][:128])
		expect.LayerNorm(v, w.gamma, w.beta, w.args.Epsilon)
		hostRecipe.Apply(v, w.table[int(w.positions[t])*64:])
		layout.IndexFP8{}.Encode(want[int(slot)/64*layout.IndexPageBytes:], 64, int(slot)%64, v)
	}
	return same(s, "pages", w.args.Pool.Base, want)
}

type queries struct {
	*holder
	args      cuda.IndexQueryArgs
	queries   []uint16
	weights   []float32
	positions []int32
	table     []float32
}

func queryCase(tokens, heads int) Case {
	rows := tokens * heads
	return Case{
		Name: "index_query", Shape: fmt.Sprintf("%d tokens, %d heads", tokens, heads),
		Bytes: float64(rows) * (256 + 4 + 128 + 4), SetBytes: int64(rows * (256 + 128 + 8)),
		New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			q := &queries{holder: h, queries: h.bf16s(rows * 128), weights: h.floats(rows, 1, 0),
				positions: h.permutation(tableRows)[:tokens], table: angles()}
			q.args = cuda.IndexQueryArgs{
				Rotary: cuda.RotaryView{Table: h.put(rawF32(q.table)), Rows: tableRows}, Recipe: recipe,
				Queries: h.put(raw16(q.queries)), Weights: h.put(rawF32(q.weights)),
				Positions: h.put(rawI32(q.positions)), Codes: h.output(int64(rows * 128)),
				Folded: h.output(int64(rows * 4)), QueryStride: int64(heads * 128), WeightStride: int64(heads),
				Tokens: int32(tokens), Heads: int32(heads), PaddedHeads: int32(heads),
				WeightScale: float32(1 / math.Sqrt(float64(heads)*128)),
			}
			return h.ready(q)
		},
	}
}

func (q *queries) Launch(s *cuda.Stream) error { return q.rig.Kernels.PrepareIndexQueries(s, &q.args) }

func (q *queries) Check(s *cuda.Stream) error {
	heads := int(q.args.Heads)
	codes, folded := make([]byte, len(q.queries)), make([]float32, len(q.weights))
	for row := range q.weights {
		v := expect.Widen(q.queries[row*128:][:128])
		hostRecipe.Apply(v, q.table[int(q.positions[row/heads])*64:])
		scale := num.QuantE4M3(codes[row*128:][:128], v, hostRecipe.Mode)
		folded[row] = float32(q.weights[row]*q.args.WeightScale) * scale
	}
	if err := same(s, "codes", q.args.Codes, codes); err != nil {
		return err
	}
	return same(s, "weights", q.args.Folded, rawF32(folded))
}

// indexPage is a host page of 64 random keys and scales.
func indexPage(h *holder) []byte {
	page := h.codes(layout.IndexPageBytes)
	for i := range 64 {
		binary.LittleEndian.PutUint32(page[8192+4*i:], math.Float32bits(0.01+h.rng.Float32()*0.05))
	}
	return page
}

type gatherIndex struct {
	*holder
	args  cuda.GatherIndexSlotsArgs
	page  []byte
	slots []int32
}

func gatherIndexCase(count int) Case {
	return Case{
		Name: "gather_index", Shape: fmt.Sprintf("%d keys", count), Bytes: float64(count) * (132*2 + 4),
		SetBytes: int64(count * 264), New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			g := &gatherIndex{holder: h, page: indexPage(h), slots: h.permutation(count)}
			g.args = cuda.GatherIndexSlotsArgs{
				Pool: cuda.PoolView{Base: h.repeat(g.page, int64(count/64*layout.IndexPageBytes)),
					PageBytes: layout.IndexPageBytes, PageTokens: 64, Slots: int32(count)},
				Source: cuda.SlotListView{Slots: h.put(rawI32(g.slots))}, Keys: h.output(int64(count * 128)),
				Scales: h.output(int64(count * 4)), Count: int32(count),
			}
			return h.ready(g)
		},
	}
}

func (g *gatherIndex) Launch(s *cuda.Stream) error { return g.rig.Kernels.GatherIndexSlots(s, &g.args) }

func (g *gatherIndex) Check(s *cuda.Stream) error {
	var keys, scales []byte
	for _, slot := range g.slots {
		keys = append(keys, layout.IndexFP8{}.Key(g.page, int(slot)%64)...)
		scales = append(scales, g.page[8192+int(slot)%64*4:][:4]...)
	}
	if err := same(s, "keys", g.args.Keys, keys); err != nil {
		return err
	}
	return same(s, "scales", g.args.Scales, scales)
}
