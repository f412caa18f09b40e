package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/cuda/expect"
	"sparrow/internal/num"
	"sparrow/layout"
)

// hostMain returns a main layout on the host, with the scale that the tests use for 576-byte rows.
func hostMain(kind layout.Kind, scale float32) layout.Main {
	switch kind {
	case layout.BF16Row1152:
		return layout.BF16{}
	case layout.FP8Row656:
		return layout.FP8Block{}
	}
	return layout.FP8Raw{Scale: scale}
}

// mainInput holds the inputs of a write to the main cache.
type mainInput struct {
	latent, key      []uint16
	positions, slots []int32
	table            []float32
	tableRows        int
}

// newMainInput returns inputs whose first 128 latents contain every bf16 pattern; the other latents are random.
func newMainInput(rng *rand.Rand, tokens, slots int) mainInput {
	in := mainInput{
		latent: randomBF16(rng, tokens*512), key: randomBF16(rng, tokens*64),
		tableRows: 1000, table: expect.RotaryTable(1000, 10000),
		positions: positionsBelow(rng, tokens, 1000), slots: scatter(rng, tokens, slots),
	}
	for i := range min(1<<16, tokens*512) {
		in.latent[i] = uint16(i)
	}
	for i := range 128 { // one tile and one row of zeros
		in.latent[(tokens-1)*512+128+i] = 0
	}
	return in
}

// row returns the 576 values that token t stores: the latent, and the rotated key rounded to bf16.
func (in *mainInput) row(t int) []float32 {
	return expect.MainRow(in.latent[t*512:][:512], in.key[t*64:][:64], in.table[int(in.positions[t])*64:])
}

// written returns the pool after the write; bytes that are not written stay poisoned.
func (in *mainInput) written(m layout.Main, pageBytes, pages int) []byte {
	pool := make([]byte, pages*pageBytes)
	for i := range pool {
		pool[i] = poison
	}
	for t, slot := range in.slots {
		if slot >= 0 {
			m.Encode(pool[int(slot)/64*pageBytes:], int(slot)%64, in.row(t))
		}
	}
	return pool
}

// args uploads the input and returns the launcher's arguments over a poisoned pool.
func (in *mainInput) args(r *rig, pageBytes, pages int, scale float32) *WriteMainArgs {
	return &WriteMainArgs{
		Pool: PoolView{Base: r.poisoned(int64(pageBytes * pages)), PageBytes: int64(pageBytes), PageTokens: 64,
			Slots: int32(64 * pages)},
		Rotary: RotaryView{Table: upload(r, in.table), Rows: int32(in.tableRows)},
		Latent: upload(r, in.latent), Key: upload(r, in.key), Positions: upload(r, in.positions),
		Slots: upload(r, in.slots), Faults: r.faultWord(), LatentStride: 512, KeyStride: 64,
		Tokens: int32(len(in.slots)), KScale: scale,
	}
}

var mainKinds = []layout.Kind{layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576}

func TestGPUWriteMainEqualsTheHostByteForByte(t *testing.T) {
	r := onGPU(t)
	for _, kind := range mainKinds {
		for _, tokens := range []int{1, 7, 8, 9, 333} {
			for _, scale := range []float32{1, 0.5, 0.037} {
				if kind != layout.FP8Row576 && scale != 1 {
					continue
				}
				rng := rand.New(rand.NewPCG(1, uint64(tokens)))
				const pages = 8
				in := newMainInput(rng, tokens, 64*pages)
				m := hostMain(kind, scale)
				pageBytes := m.PageBytes(65) // pages have one row of padding
				a := in.args(r, pageBytes, pages, scale)
				check(t, WriteMain(r.k, r.s, kind, a))
				name := fmt.Sprintf("%v tokens %d scale %g", kind, tokens, scale)
				sameBytes(t, name, r.download(a.Pool.Base, int64(pageBytes*pages)), in.written(m, pageBytes, pages))
				if f := r.faults(a.Faults); f != 0 {
					t.Errorf("%s: fault %d", name, f)
				}
			}
		}
	}
}

func TestGPUWriteMainRaisesFaultsInsteadOfWritingOutside(t *testing.T) {
	r := onGPU(t)
	in := newMainInput(rand.New(rand.NewPCG(2, 2)), 4, 64)
	in.slots = []int32{3, 64, -5, 1 << 30}
	m := layout.FP8Block{}
	a := in.args(r, m.PageBytes(64), 1, 1)
	check(t, WriteMain(r.k, r.s, layout.FP8Row656, a))
	in.slots = []int32{3, -1, -1, -1}
	sameBytes(t, "pool", r.download(a.Pool.Base, int64(m.PageBytes(64))), in.written(m, m.PageBytes(64), 1))
	if f := r.faults(a.Faults); f != FaultSlot {
		t.Errorf("faults %d, want %d", f, FaultSlot)
	}
	a.Rotary.Rows = in.positions[0]
	a.Faults = r.faultWord()
	check(t, WriteMain(r.k, r.s, layout.FP8Row656, a))
	if f := r.faults(a.Faults); f&faultPosition == 0 {
		t.Errorf("faults %d, want the position bit", f)
	}
}

// newPool returns a host pool with random rows of the layout: encoded values, and in FP8 rows also arbitrary codes and
// scales.
func newPool(rng *rand.Rand, m layout.Main, pageBytes, pages int) []byte {
	pool := make([]byte, pages*pageBytes)
	for i := range pool {
		pool[i] = byte(rng.Uint32())
	}
	v := make([]float32, 576)
	for slot := range 64 * pages {
		for i := range v {
			v[i] = num.FromBF16(randomBF16(rng, 1)[0])
		}
		page := pool[slot/64*pageBytes:]
		m.Encode(page, slot%64, v)
		row := page[slot%64*m.RowBytes():]
		if slot%3 == 0 && m.Kind() != layout.BF16Row1152 {
			for i := range 512 {
				row[i] = byte(rng.Uint32())
			}
		}
		if slot%5 == 0 && m.Kind() == layout.FP8Row656 {
			for j := range 4 { // a scale that is not a power of two, as older writers stored
				binary.LittleEndian.PutUint32(row[512+4*j:], math.Float32bits(rng.Float32()*3+0.001))
			}
		}
	}
	return pool
}

func TestGPUGatherEqualsTheHost(t *testing.T) {
	r := onGPU(t)
	for _, kind := range mainKinds {
		rng := rand.New(rand.NewPCG(3, uint64(kind)))
		const pages = 6
		scale := float32(0.25)
		m := hostMain(kind, scale)
		pageBytes := m.PageBytes(66)
		host := newPool(rng, m, pageBytes, pages)
		pool := PoolView{Base: upload(r, host), PageBytes: int64(pageBytes), PageTokens: 64, Slots: 64 * pages}
		rowAt := func(slot int32) []byte {
			return host[int(slot)/64*pageBytes+int(slot)%64*m.RowBytes():][:m.RowBytes()]
		}
		want := func(slots []int32) []byte {
			out := make([]byte, len(slots)*layout.BF16RowBytes)
			for i, s := range slots {
				d := out[i*layout.BF16RowBytes:][:layout.BF16RowBytes]
				switch {
				case s < 0 || s >= 64*pages:
				case kind == layout.BF16Row1152:
					copy(d, rowAt(s))
				case kind == layout.FP8Row656:
					toBF16(d, rowAt(s), layout.FP8Block{})
				default:
					toBF16(d, rowAt(s), layout.FP8Raw{Scale: scale})
				}
			}
			return out
		}
		slots := scatter(rng, 201, 64*pages)
		slots[5] = 64 * pages // beyond the pool: the row becomes zeros and a fault is raised
		a := &GatherSlotsArgs{Pool: pool, Source: SlotListView{upload(r, slots)},
			Rows: r.poisoned(int64(len(slots) * layout.BF16RowBytes)), Faults: r.faultWord(),
			RowBytes: layout.BF16RowBytes, Count: int32(len(slots)), KScale: scale}
		check(t, GatherSlots(r.k, r.s, kind, a))
		sameBF16(t, fmt.Sprintf("%v by slots", kind), r.download(a.Rows, int64(len(slots)*layout.BF16RowBytes)),
			want(slots))
		if f := r.faults(a.Faults); f != FaultSlot {
			t.Errorf("%v: faults %d, want %d", kind, f, FaultSlot)
		}

		src, through := pagedRequests(rng, pages, []int{0, 65, 0, 1, 128, 63, 0})
		source := src.view(r)
		p := &GatherPagesArgs{Pool: pool, Source: source,
			Rows: r.poisoned(int64((len(through) + 3) * layout.BF16RowBytes)), RowBytes: layout.BF16RowBytes,
			Count: int32(len(through) + 3), KScale: scale}
		check(t, GatherPages(r.k, r.s, kind, p))
		got := r.download(p.Rows, int64((len(through)+3)*layout.BF16RowBytes))
		sameBF16(t, fmt.Sprintf("%v by pages", kind), got, want(through))
		for _, b := range got[len(through)*layout.BF16RowBytes:] {
			if b != poison {
				t.Errorf("%v: rows beyond the last request were written", kind)
				break
			}
		}
	}
}

// pagedSource holds the page tables of several requests on the host.
type pagedSource struct {
	table, starts []int32
	stride        int
}

// pagedRequests assigns random pages to requests of the given lengths and returns the slots of their tokens.
func pagedRequests(rng *rand.Rand, pages int, lengths []int) (src pagedSource, slots []int32) {
	src = pagedSource{stride: 3, starts: []int32{0}}
	for _, n := range lengths {
		row := make([]int32, src.stride)
		for i := range row {
			row[i] = int32(rng.IntN(pages))
		}
		if n > 100 {
			row[1] = -1 // a missing page: its tokens become zeros
		}
		src.table = append(src.table, row...)
		src.starts = append(src.starts, src.starts[len(src.starts)-1]+int32(n))
		for t := range n {
			slot := int32(-1)
			if row[t/64] >= 0 {
				slot = row[t/64]*64 + int32(t%64)
			}
			slots = append(slots, slot)
		}
	}
	return src, slots
}

func (p pagedSource) view(r *rig) PageTableView {
	return PageTableView{Table: upload(r, p.table), Starts: upload(r, p.starts), TableStride: int32(p.stride),
		Requests: int32(len(p.starts) - 1)}
}

func TestGPURawToBlockEqualsTheHostByteForByte(t *testing.T) {
	r := onGPU(t)
	for _, scale := range []float32{1, 0.125, 0.7} {
		rng := rand.New(rand.NewPCG(4, 4))
		m := layout.FP8Raw{Scale: scale}
		const pages = 5
		host := newPool(rng, m, m.PageBytes(64), pages)
		for i := range host { // NaN codes are not compared, because NaN is never written
			if host[i]&0x7F == 0x7F {
				host[i] = 0x38
			}
		}
		pool := PoolView{Base: upload(r, host), PageBytes: int64(m.PageBytes(64)), PageTokens: 64, Slots: 64 * pages}
		want := func(slots []int32) []byte {
			out := make([]byte, len(slots)*layout.BlockRowBytes)
			for i, s := range slots {
				if s >= 0 {
					layout.RawToBlock(out[i*layout.BlockRowBytes:][:layout.BlockRowBytes],
						host[int(s)*layout.RawRowBytes:][:layout.RawRowBytes], scale)
				}
			}
			return out
		}
		slots := scatter(rng, 130, 64*pages)
		size := int64(len(slots) * layout.BlockRowBytes)
		a := &GatherSlotsArgs{Pool: pool, Source: SlotListView{upload(r, slots)}, Rows: r.poisoned(size),
			RowBytes: layout.BlockRowBytes, Count: int32(len(slots)), KScale: scale}
		check(t, RawToBlockSlots(r.k, r.s, a))
		sameBytes(t, fmt.Sprintf("scale %g by slots", scale), r.download(a.Rows, size), want(slots))

		src, through := pagedRequests(rng, pages, []int{64, 1, 70})
		size = int64(len(through) * layout.BlockRowBytes)
		p := &GatherPagesArgs{Pool: pool, Source: src.view(r), Rows: r.poisoned(size), RowBytes: layout.BlockRowBytes,
			Count: int32(len(through)), KScale: scale}
		check(t, RawToBlockPages(r.k, r.s, p))
		sameBytes(t, fmt.Sprintf("scale %g by pages", scale), r.download(p.Rows, size), want(through))
	}
}

func TestGPURepeatedRunsAreBitIdentical(t *testing.T) {
	r := onGPU(t)
	in := newMainInput(rand.New(rand.NewPCG(5, 5)), 257, 512)
	m := layout.FP8Block{}
	a := in.args(r, m.PageBytes(64), 8, 1)
	want := in.written(m, m.PageBytes(64), 8)
	for i := range 100 {
		check(t, r.s.Fill(a.Pool.Base, poison, int64(len(want))))
		check(t, WriteMain(r.k, r.s, layout.FP8Row656, a))
		sameBytes(t, fmt.Sprintf("run %d", i), r.download(a.Pool.Base, int64(len(want))), want)
	}
}

// toBF16 converts one row of layout l to bf16 and writes it to dst.
func toBF16(dst, src []byte, l layout.Main) {
	var v [layout.RowDim]float32
	l.Decode(v[:], src, 0)
	layout.BF16{}.Encode(dst, 0, v[:])
}
