package bench

import (
	"fmt"
	"slices"
	"sync"

	"sparrow/internal/num"
	"sparrow/kernel/cuda"
	"sparrow/kernel/cuda/expect"
	"sparrow/layout"
)

// tableRows is the length of the rotary tables of the cases.
const tableRows = 4096

// angles is the rotary table of all cases.
var angles = sync.OnceValue(func() []float32 { return expect.RotaryTable(tableRows, 10000) })

// Cases are all cases of the embedded kernels.
func Cases() []Case {
	var list []Case
	for _, tokens := range []int{64, 4096} {
		for _, kind := range []layout.Kind{layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576} {
			list = append(list, writeMainCase(kind, tokens))
		}
		list = append(list, writeKeyCase(tokens), queryCase(tokens, 64), writeV4Case(tokens))
	}
	for _, kind := range []layout.Kind{layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576} {
		list = append(list, gatherCase(kind, 65536))
	}
	list = append(list, rawToBlockCase(65536), gatherIndexCase(262144), gatherV4Case(65536),
		combineCase(4096, 128, 512))
	return slices.Concat(list, scoreCases(), sparseCases(), denseCases(), productCases(), rowCases(), expertCases())
}

// mainLayout is the host's form of a main layout.
func mainLayout(kind layout.Kind) layout.Main {
	m, err := layout.MainOf(kind)
	if err != nil {
		panic(err) // the kinds are constants of this package
	}
	return m
}

type writeMain struct {
	*holder
	kind             layout.Kind
	args             cuda.WriteMainArgs
	latent, key      []uint16
	positions, slots []int32
	table            []float32
}

func writeMainCase(kind layout.Kind, tokens int) Case {
	m := mainLayout(kind)
	row := m.RowBytes()
	return Case{
		Name: "write_main", Shape: fmt.Sprintf("%v, %d tokens", kind, tokens),
		Bytes: float64(tokens) * float64(1152+256+8+row), SetBytes: int64(tokens * (1152 + 256 + row)),
		New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			pages := (tokens + 63) / 64
			w := &writeMain{holder: h, kind: kind, latent: h.bf16s(tokens * 512), key: h.bf16s(tokens * 64),
				slots: h.permutation(pages * 64)[:tokens], positions: h.permutation(tableRows)[:tokens],
				table: angles()}
			w.args = cuda.WriteMainArgs{
				Pool: cuda.PoolView{Base: h.output(int64(m.PageBytes(64) * pages)), PageBytes: int64(m.PageBytes(64)),
					PageTokens: 64, Slots: int32(64 * pages)},
				Rotary: cuda.RotaryView{Table: h.put(rawF32(w.table)), Rows: tableRows},
				Latent: h.put(raw16(w.latent)), Key: h.put(raw16(w.key)), Positions: h.put(rawI32(w.positions)),
				Slots: h.put(rawI32(w.slots)), LatentStride: 512, KeyStride: 64, Tokens: int32(tokens), KScale: 1,
			}
			return h.ready(w)
		},
	}
}

func (w *writeMain) Launch(s *cuda.Stream) error { return w.rig.Kernels.WriteMain(s, w.kind, &w.args) }

func (w *writeMain) Check(s *cuda.Stream) error {
	m := mainLayout(w.kind)
	pool, err := read(s, w.args.Pool.Base, w.outputs[0].bytes)
	if err != nil {
		return err
	}
	want := make([]byte, m.RowBytes())
	for t, slot := range w.slots {
		m.Encode(want, 0, expect.MainRow(w.latent[t*512:][:512], w.key[t*64:][:64], w.table[int(w.positions[t])*64:]))
		at := int(slot)/64*m.PageBytes(64) + int(slot)%64*m.RowBytes()
		if string(pool[at:at+len(want)]) != string(want) {
			return fmt.Errorf("row of token %d in slot %d differs from the host's", t, slot)
		}
	}
	return nil
}

// gatherRows copies rows by slot list; convert gives the expected row.
type gatherRows struct {
	*holder
	args    cuda.GatherSlotsArgs
	launch  func(*cuda.Stream, *cuda.GatherSlotsArgs) error
	convert func(slot int) []byte
	slots   []int32
}

// newGather makes a set over a pool of given bytes; only its first page's worth of rows is different, the rest
// repeats it.
func newGather(h *holder, pool cuda.PoolView, rowBytes int64, count int) *gatherRows {
	g := &gatherRows{holder: h, slots: h.permutation(int(pool.Slots))[:count]}
	g.args = cuda.GatherSlotsArgs{Pool: pool, Source: cuda.SlotListView{Slots: h.put(rawI32(g.slots))},
		Rows: h.output(rowBytes * int64(count)), RowBytes: rowBytes, Count: int32(count), KScale: 1}
	return g
}

func (g *gatherRows) Launch(s *cuda.Stream) error { return g.launch(s, &g.args) }

func (g *gatherRows) Check(s *cuda.Stream) error {
	for i := 0; i < len(g.slots); i += 61 {
		if err := same(s, fmt.Sprintf("row %d", i), g.args.Rows.Add(int64(i)*g.args.RowBytes),
			g.convert(int(g.slots[i]))); err != nil {
			return err
		}
	}
	return nil
}

// mainPool is a device pool of a layout that repeats one random page, and that page.
func mainPool(h *holder, kind layout.Kind, slots int) (cuda.PoolView, []byte) {
	m := mainLayout(kind)
	page := make([]byte, m.PageBytes(64))
	for t := range 64 {
		m.Encode(page, t, h.floats(576, 1, 0))
	}
	return cuda.PoolView{Base: h.repeat(page, int64(slots/64*len(page))), PageBytes: int64(len(page)), PageTokens: 64,
		Slots: int32(slots)}, page
}

func gatherCase(kind layout.Kind, count int) Case {
	m := mainLayout(kind)
	row := m.RowBytes()
	return Case{
		Name: "gather_slots", Shape: fmt.Sprintf("%v to bf16, %d rows", kind, count),
		Bytes:    float64(count) * float64(row+4+layout.BF16RowBytes),
		SetBytes: int64(count * (row + layout.BF16RowBytes)), New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			pool, page := mainPool(h, kind, count)
			g := newGather(h, pool, layout.BF16RowBytes, count)
			g.launch = func(s *cuda.Stream, a *cuda.GatherSlotsArgs) error { return r.Kernels.GatherSlots(s, kind, a) }
			g.convert = func(slot int) []byte {
				v, out := make([]float32, 576), make([]byte, layout.BF16RowBytes)
				m.Decode(v, page, slot%64)
				layout.BF16{}.Encode(out, 0, v)
				return out
			}
			return h.ready(g)
		},
	}
}

func rawToBlockCase(count int) Case {
	return Case{
		Name: "raw_to_block", Shape: fmt.Sprintf("%d rows", count),
		Bytes:    float64(count) * (layout.RawRowBytes + 4 + layout.BlockRowBytes),
		SetBytes: int64(count * (layout.RawRowBytes + layout.BlockRowBytes)), New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			pool, page := mainPool(h, layout.FP8Row576, count)
			g := newGather(h, pool, layout.BlockRowBytes, count)
			g.launch = r.Kernels.RawToBlockSlots
			g.convert = func(slot int) []byte {
				out := make([]byte, layout.BlockRowBytes)
				layout.RawToBlock(out, page[slot%64*layout.RawRowBytes:][:layout.RawRowBytes], 1)
				return out
			}
			return h.ready(g)
		},
	}
}

// v4Page is a host page of 64 random entries.
func v4Page(h *holder) []byte {
	page := make([]byte, cuda.V4PageBytes(64))
	for t := range 64 {
		v := h.floats(512, 1, 0)
		expect.EncodeV4(page, 64, t, v)
	}
	return page
}

func gatherV4Case(count int) Case {
	return Case{
		Name: "gather_slots_v4", Shape: fmt.Sprintf("%d rows", count),
		Bytes: float64(count) * (584 + 4 + 1024), SetBytes: int64(count * (585 + 1024)),
		New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			page := v4Page(h)
			pool := cuda.PoolView{Base: h.repeat(page, int64(count/64*len(page))), PageBytes: int64(len(page)),
				PageTokens: 64, Slots: int32(count)}
			g := newGather(h, pool, 1024, count)
			g.launch = r.Kernels.GatherV4Slots
			g.convert = func(slot int) []byte { return expect.DecodeV4(page, 64, slot%64) }
			return h.ready(g)
		},
	}
}

type writeV4 struct {
	*holder
	args             cuda.WriteV4Args
	rows             []uint16
	positions, slots []int32
	table            []float32
}

func writeV4Case(tokens int) Case {
	return Case{
		Name: "write_v4", Shape: fmt.Sprintf("%d tokens", tokens), Bytes: float64(tokens) * (1024 + 256 + 8 + 584),
		SetBytes: int64(tokens * (1024 + 256 + 584)), New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			pages := (tokens + 255) / 256
			w := &writeV4{holder: h, rows: h.bf16s(tokens * 512), slots: h.permutation(pages * 256)[:tokens],
				positions: h.permutation(tableRows)[:tokens], table: angles()}
			w.args = cuda.WriteV4Args{
				Pool: cuda.PoolView{Base: h.output(int64(pages) * cuda.V4PageBytes(256)),
					PageBytes: cuda.V4PageBytes(256), PageTokens: 256, Slots: int32(pages * 256)},
				Rotary: cuda.RotaryView{Table: h.put(rawF32(w.table)), Rows: tableRows}, Rows: h.put(raw16(w.rows)),
				Positions: h.put(rawI32(w.positions)), Slots: h.put(rawI32(w.slots)), RowStride: 512,
				Tokens: int32(tokens),
			}
			return h.ready(w)
		},
	}
}

func (w *writeV4) Launch(s *cuda.Stream) error { return w.rig.Kernels.WriteV4(s, &w.args) }

func (w *writeV4) Check(s *cuda.Stream) error {
	want := make([]byte, w.outputs[0].bytes)
	for i := range want {
		want[i] = 0xAB
	}
	for t, slot := range w.slots {
		page := want[int64(slot)/256*cuda.V4PageBytes(256):]
		expect.EncodeV4(page, 256, int(slot)%256, expect.V4Row(w.rows[t*512:][:512], w.table[int(w.positions[t])*64:]))
	}
	return same(s, "pool", w.args.Pool.Base, want)
}

type combine struct {
	*holder
	args          cuda.CombineV4Args
	window, extra []int32
	lengths       [2][]int32
}

func combineCase(tokens, ks, ke int) Case {
	width := int(cuda.CombinedWidth(int32(ks), int32(ke)))
	return Case{
		Name: "combine_v4", Shape: fmt.Sprintf("%d tokens, %d + %d", tokens, ks, ke),
		Bytes: 4 * float64(tokens) * float64(ks+ke+width+3), SetBytes: int64(4 * tokens * (ks + ke + width)),
		New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			c := &combine{holder: h, window: h.permutation(tokens * ks), extra: h.permutation(tokens * ke)}
			c.lengths = [2][]int32{constant(int32(ks), tokens), constant(int32(ke-1), tokens)}
			c.args = cuda.CombineV4Args{Window: h.put(rawI32(c.window)), WindowLength: h.put(rawI32(c.lengths[0])),
				Extra: h.put(rawI32(c.extra)), ExtraLength: h.put(rawI32(c.lengths[1])),
				Rows: h.output(int64(4 * tokens * width)), Lengths: h.output(int64(4 * tokens)),
				WindowStride: int64(ks), ExtraStride: int64(ke), Tokens: int32(tokens), WindowWidth: int32(ks),
				ExtraWidth: int32(ke), WindowRows: int32(tokens * ks)}
			return h.ready(c)
		},
	}
}

func (c *combine) Launch(s *cuda.Stream) error { return c.rig.Kernels.CombineV4(s, &c.args) }

func (c *combine) Check(s *cuda.Stream) error {
	ks, ke := int(c.args.WindowWidth), int(c.args.ExtraWidth)
	var want []int32
	for t := range int(c.args.Tokens) {
		want = append(want, expect.Combine(c.window[t*ks:][:c.lengths[0][t]], c.extra[t*ke:][:c.lengths[1][t]],
			int(c.args.WindowRows), int(c.args.Width))...)
	}
	return same(s, "rows", c.args.Rows, rawI32(want))
}

// recipe is the preparation of indexer vectors in V3.2.
var recipe = cuda.IndexRecipeView{Hadamard: 1}

// hostRecipe is the same on the host.
var hostRecipe = expect.Recipe{Hadamard: true, Mode: num.ScalePow2}
