package bench

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"sparrow/internal/cuda/expect"
	"sparrow/internal/num"
	"sparrow/kernel/cuda"
	"sparrow/layout"
)

// tableRows is the number of positions in the rotary table of the cases.
const tableRows = 4096

// angles returns the rotary table of all cases.
var angles = sync.OnceValue(func() []float32 { return expect.RotaryTable(tableRows, 10000) })

// Cases returns all cases of the embedded kernels.
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
	return slices.Concat(list, scoreCases(), v41Cases(), sparseCases(), latentCases(), denseCases(), productCases(),
		packedCases(), rowCases(), expertCases())
}

// mainLayout returns the host implementation of a main layout.
func mainLayout(kind layout.Kind) layout.Main {
	m, err := layout.MainOf(kind)
	if err != nil {
		panic(err) // cannot fail: the kinds are constants of this package
	}
	return m
}

func writeMainCase(kind layout.Kind, tokens int) Case {
	m := mainLayout(kind)
	row := m.RowBytes()
	return Case{
		Case:  titled("write_main", "%v, %d tokens", kind, tokens),
		Bytes: float64(tokens) * float64(1152+256+8+row), New: func(h *holder) Set {
			latent, key := h.bf16s(tokens*512), h.bf16s(tokens*64)
			to, size, slots, positions := h.written(tokens, 64, m.PageBytes(64))
			args := cuda.WriteMainArgs{
				Pool:   to,
				Rotary: h.rotary(), Latent: putAll(h, latent), Key: putAll(h, key), Positions: putAll(h, positions),
				Slots: putAll(h, slots), LatentStride: 512, KeyStride: 64, Tokens: int32(tokens), KScale: 1,
			}
			return Set{func(s *cuda.Stream) error { return cuda.WriteMain(h.rig.Kernels, s, kind, &args) },
				func(r *reader) error {
					pool, want := r.bytes(args.Pool.Base, size), make([]byte, m.RowBytes())
					for t, slot := range slots {
						m.Encode(want, 0, expect.MainRow(latent[t*512:][:512], key[t*64:][:64],
							angles()[int(positions[t])*64:]))
						at := int(slot)/64*m.PageBytes(64) + int(slot)%64*m.RowBytes()
						if string(pool[at:at+len(want)]) != string(want) {
							return fmt.Errorf("row of token %d in slot %d differs from the host's", t, slot)
						}
					}
					return nil
				}}
		},
	}
}

// written returns a device pool to write tokens to, the size of its memory in bytes, and the slots and positions of the
// tokens.
func (h *holder) written(tokens, pageTokens, pageBytes int) (pool cuda.PoolView, size int, slots, positions []int32) {
	pages := (tokens + pageTokens - 1) / pageTokens
	size = pages * pageBytes
	return cuda.PoolView{Base: h.output(size), PageBytes: int64(pageBytes), PageTokens: int32(pageTokens),
			Slots: int32(pages * pageTokens)}, size, h.permutation(pages * pageTokens)[:tokens],
		h.permutation(tableRows)[:tokens]
}

// rotary returns the rotary table of all cases in device memory.
func (h *holder) rotary() cuda.RotaryView {
	return cuda.RotaryView{Table: putAll(h, angles()), Rows: tableRows}
}

// gatherSet returns a set that copies the rows of a pool in the order of a list of slots. convert returns the expected
// bytes of the row from a slot.
func gatherSet(h *holder, pool cuda.PoolView, rowBytes, count int,
	launch func(*cuda.Kernels, *cuda.Stream, *cuda.GatherSlotsArgs) error, convert func(slot int) []byte) Set {
	slots := h.permutation(int(pool.Slots))[:count]
	args := cuda.GatherSlotsArgs{Pool: pool, Source: cuda.SlotListView{Slots: putAll(h, slots)},
		Rows: h.output(rowBytes * count), RowBytes: int64(rowBytes), Count: int32(count), KScale: 1}
	return Set{func(s *cuda.Stream) error { return launch(h.rig.Kernels, s, &args) }, func(r *reader) error {
		for i := 0; i < len(slots); i += 61 {
			if err := r.same(fmt.Sprintf("row %d", i), args.Rows.Add(int64(i*rowBytes)),
				convert(int(slots[i]))); err != nil {
				return err
			}
		}
		return nil
	}}
}

// mainPool returns a device pool of a layout that repeats one random page, and that page.
func mainPool(h *holder, kind layout.Kind, slots int) (cuda.PoolView, []byte) {
	m := mainLayout(kind)
	page := make([]byte, m.PageBytes(64))
	for t := range 64 {
		m.Encode(page, t, h.floats(576, 1, 0))
	}
	return pooled(h, page, slots), page
}

// pooled returns a device pool in which every page is a copy of page, which has 64 rows.
func pooled(h *holder, page []byte, slots int) cuda.PoolView {
	return cuda.PoolView{Base: h.repeat(page, slots/64*len(page)), PageBytes: int64(len(page)), PageTokens: 64,
		Slots: int32(slots)}
}

func gatherCase(kind layout.Kind, count int) Case {
	m := mainLayout(kind)
	row := m.RowBytes()
	return Case{
		Case:  titled("gather_slots", "%v to bf16, %d rows", kind, count),
		Bytes: float64(count) * float64(row+4+layout.BF16RowBytes),
		New: func(h *holder) Set {
			pool, page := mainPool(h, kind, count)
			launch := func(k *cuda.Kernels, s *cuda.Stream, a *cuda.GatherSlotsArgs) error {
				return cuda.GatherSlots(k, s, kind, a)
			}
			return gatherSet(h, pool, layout.BF16RowBytes, count, launch, func(slot int) []byte {
				v, out := make([]float32, 576), make([]byte, layout.BF16RowBytes)
				m.Decode(v, page, slot%64)
				layout.BF16{}.Encode(out, 0, v)
				return out
			})
		},
	}
}

func rawToBlockCase(count int) Case {
	return Case{
		Case:  titled("raw_to_block", "%d rows", count),
		Bytes: float64(count) * (layout.RawRowBytes + 4 + layout.BlockRowBytes),
		New: func(h *holder) Set {
			pool, page := mainPool(h, layout.FP8Row576, count)
			convert := func(slot int) []byte {
				out := make([]byte, layout.BlockRowBytes)
				layout.RawToBlock(out, page[slot%64*layout.RawRowBytes:][:layout.RawRowBytes], 1)
				return out
			}
			return gatherSet(h, pool, layout.BlockRowBytes, count, cuda.RawToBlockSlots, convert)
		},
	}
}

// v4Page returns a host page of 64 random entries.
func v4Page(h *holder) []byte {
	page := make([]byte, cuda.V4PageBytes(64))
	for t := range 64 {
		expect.EncodeV4(page, 64, t, h.floats(512, 1, 0))
	}
	return page
}

func gatherV4Case(count int) Case {
	return Case{
		Case:  titled("gather_slots_v4", "%d rows", count),
		Bytes: float64(count) * (584 + 4 + 1024), New: func(h *holder) Set {
			page := v4Page(h)
			return gatherSet(h, pooled(h, page, count), 1024, count, cuda.GatherV4Slots,
				func(slot int) []byte { return expect.DecodeV4(page, 64, slot%64) })
		},
	}
}

func writeV4Case(tokens int) Case {
	return Case{
		Case: titled("write_v4", "%d tokens", tokens), Bytes: float64(tokens) * (1024 + 256 + 8 + 584),
		New: func(h *holder) Set {
			rows := h.bf16s(tokens * 512)
			to, size, slots, positions := h.written(tokens, 256, int(cuda.V4PageBytes(256)))
			args := cuda.WriteV4Args{
				Pool:   to,
				Rotary: h.rotary(), Rows: putAll(h, rows), Positions: putAll(h, positions), Slots: putAll(h, slots),
				RowStride: 512, Tokens: int32(tokens),
			}
			return launching(h, cuda.WriteV4, &args, func(r *reader) error {
				want := bytes.Repeat([]byte{poisoned}, size)
				for t, slot := range slots {
					page := want[int64(slot)/256*cuda.V4PageBytes(256):]
					expect.EncodeV4(page, 256, int(slot)%256,
						expect.V4Row(rows[t*512:][:512], angles()[int(positions[t])*64:]))
				}
				return r.same("pool", args.Pool.Base, want)
			})
		},
	}
}

func combineCase(tokens, ks, ke int) Case {
	width := int(cuda.CombinedWidth(int32(ks), int32(ke)))
	return Case{
		Case:  titled("combine_v4", "%d tokens, %d + %d", tokens, ks, ke),
		Bytes: 4 * float64(tokens) * float64(ks+ke+width+3), New: func(h *holder) Set {
			window, extra := h.permutation(tokens*ks), h.permutation(tokens*ke)
			args := cuda.CombineV4Args{Window: putAll(h, window), WindowLength: h.ints(ks, tokens),
				Extra: putAll(h, extra), ExtraLength: h.ints(ke-1, tokens),
				Rows: h.output(4 * tokens * width), Lengths: h.output(4 * tokens),
				WindowStride: int64(ks), ExtraStride: int64(ke), Tokens: int32(tokens), WindowWidth: int32(ks),
				ExtraWidth: int32(ke), WindowRows: int32(tokens * ks)}
			return launching(h, cuda.CombineV4, &args, func(r *reader) error {
				var want []int32
				for t := range tokens {
					want = append(want, expect.Combine(window[t*ks:][:ks], extra[t*ke:][:ke-1],
						int(args.WindowRows), int(args.Width))...)
				}
				return r.same("rows", args.Rows, raw(want))
			})
		},
	}
}

// recipe is how V3.2 prepares indexer vectors.
var recipe = cuda.IndexRecipeView{Hadamard: 1}

// hostRecipe is the same preparation, in the types of the host's computation.
var hostRecipe = expect.Recipe{Hadamard: true, Mode: num.ScalePow2}
