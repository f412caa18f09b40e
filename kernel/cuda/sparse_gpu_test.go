package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"sparrow/internal/cuda/expect"
	"sparrow/internal/num"
	"sparrow/layout"
)

// sparsePool is a pool on the device in which only some slots hold rows: all other bytes are NaN in every format, so
// that reading a row that is not selected changes the result.
type sparsePool struct {
	view   PoolView
	values map[int32][]float32
}

// poolDim returns the number of values of a row; kind 0 means gathered V4 rows.
func poolDim(kind layout.Kind) int {
	switch kind {
	case 0, layout.V4Row584, layout.V41Row288, layout.V41Window528:
		return V4Dim
	}
	return layout.RowDim
}

func newSparsePool(r *rig, rng *rand.Rand, kind layout.Kind, slots, pageTokens int, used []int32) *sparsePool {
	pageBytes := 2 * V4Dim * pageTokens
	switch kind {
	case 0:
	case layout.V4Row584:
		pageBytes = int(V4PageBytes(pageTokens))
	case layout.V41Row288, layout.V41Window528:
		l, err := layout.V4Of(kind)
		check(r.t, err)
		pageBytes = l.PageBytes(pageTokens)
	default:
		main, err := layout.MainOf(kind)
		check(r.t, err)
		pageBytes = main.PageBytes(pageTokens)
	}
	pages := (slots + pageTokens - 1) / pageTokens
	mem := make([]byte, pages*pageBytes)
	for i := range mem {
		mem[i] = 0xFF
	}
	p := &sparsePool{values: map[int32][]float32{}}
	for _, s := range used {
		v := make([]float32, poolDim(kind))
		for i := range v {
			v[i] = num.RoundBF16(float32(rng.NormFloat64()))
		}
		page, at := mem[int(s)/pageTokens*pageBytes:], int(s)%pageTokens
		switch kind {
		case 0:
			for i, x := range v {
				binary.LittleEndian.PutUint16(page[(at*V4Dim+i)*2:], num.BF16(x))
			}
		case layout.V4Row584:
			expect.EncodeV4(page, pageTokens, at, v)
			raw := expect.DecodeV4(page, pageTokens, at)
			for i := range v {
				v[i] = num.FromBF16(binary.LittleEndian.Uint16(raw[2*i:]))
			}
		case layout.V41Row288, layout.V41Window528:
			l, err := layout.V4Of(kind)
			check(r.t, err)
			l.Encode(page[:pageBytes], pageTokens, at, v)
			l.Decode(v, page[:pageBytes], pageTokens, at)
		default:
			main, err := layout.MainOf(kind)
			check(r.t, err)
			main.Encode(page[:pageBytes], at, v)
			main.Decode(v, page[:pageBytes], at)
		}
		p.values[s] = v
	}
	p.view = PoolView{Base: upload(r, mem), PageBytes: int64(pageBytes), PageTokens: int32(pageTokens),
		Slots: int32(slots)}
	return p
}

// sparseStream holds a pool and the slots that each row selects.
type sparseStream struct {
	pool    *sparsePool
	indices []int32
	lens    []int32
	width   int
	view    SelectionView
}

// newSparseStream selects width slots for every row; one in eight of them is -1 or beyond the pool.
func newSparseStream(r *rig, rng *rand.Rand, kind layout.Kind, slots, pageTokens, width int,
	lens []int32) *sparseStream {
	s := &sparseStream{lens: lens, width: width}
	used := map[int32]bool{}
	for _, n := range lens {
		for i, p := range rng.Perm(slots)[:width] {
			slot := int32(p)
			switch rng.IntN(16) {
			case 0:
				slot = -1
			case 1:
				slot = int32(slots + rng.IntN(9))
			}
			s.indices = append(s.indices, slot)
			if i < int(n) && slot >= 0 && int(slot) < slots {
				used[slot] = true
			}
		}
	}
	var list []int32
	for slot := range int32(slots) {
		if used[slot] {
			list = append(list, slot)
		}
	}
	s.pool = newSparsePool(r, rng, kind, slots, pageTokens, list)
	v, err := s.pool.view.Select(upload(r, s.indices), int64(width), int32(width), upload(r, s.lens), 1)
	check(r.t, err)
	switch kind {
	case layout.V41Row288:
		v.Scales = layout.V41EntryBytes
	case layout.V41Window528:
		v.Scales = layout.V41WindowBytes
	}
	s.view = v
	return s
}

// rows returns the values that a row attends to, in order.
func (s *sparseStream) rows(row int) [][]float32 {
	var list [][]float32
	for _, slot := range s.indices[row*s.width:][:min(max(int(s.lens[row]), 0), s.width)] {
		if v := s.pool.values[slot]; v != nil {
			list = append(list, v)
		}
	}
	return list
}

// sparseCase holds one launch and its inputs on the host.
type sparseCase struct {
	kind    layout.Kind
	heads   int
	streams []*sparseStream
	q       []uint16
	sinks   []float32
	args    SparseAttendArgs

	withoutMax bool // if set, largest scores are not requested
}

const sparseScale = 0.05

func newSparseCase(r *rig, rng *rand.Rand, kind layout.Kind, heads int, sinks bool,
	streams ...*sparseStream) *sparseCase {
	rows, dim := len(streams[0].lens), poolDim(kind)
	c := &sparseCase{kind: kind, heads: heads, streams: streams, q: make([]uint16, rows*heads*dim)}
	for i := range c.q {
		c.q[i] = num.BF16(float32(2 * rng.NormFloat64()))
	}
	c.args = SparseAttendArgs{
		Streams: [2]SelectionView{streams[0].view}, Q: upload(r, c.q), QStride: int64(heads * dim),
		OutStride: int64(heads * valueDim), LSEStride: int64(heads), MaxStride: int64(heads), Rows: int32(rows),
		Heads: int32(heads), ScoreScale: sparseScale * math.Log2E, ValueScale: 1,
	}
	if len(streams) > 1 {
		c.args.Streams[1] = streams[1].view
	}
	if sinks {
		for range heads {
			c.sinks = append(c.sinks, float32(rng.NormFloat64()))
		}
		c.args.Sinks = upload(r, c.sinks)
	}
	return c
}

// sparseResult holds the outputs of a launch.
type sparseResult struct{ out, lse, max []byte }

// run launches rows [from, to) into poisoned memory, in segments of the given number of blocks; 0 means one segment.
func (c *sparseCase) run(r *rig, from, to int, blocks int32) sparseResult {
	r.t.Helper()
	return c.prepare(r, from, to, blocks)()
}

// prepare returns a function that poisons one set of outputs, launches the kernel and returns the outputs.
func (c *sparseCase) prepare(r *rig, from, to int, blocks int32) func() sparseResult {
	r.t.Helper()
	a := c.args
	rows, dim := to-from, poolDim(c.kind)
	var all int32
	for i := range a.Streams {
		v := &a.Streams[i]
		all += (v.Width + 63) / 64
		v.Indices, v.Lens = v.Indices.Add(int64(from)*v.IndexStride*4), v.Lens.Add(int64(from)*4)
	}
	a.Q, a.Rows = a.Q.Add(int64(from*c.heads*dim*2)), int32(rows)
	if blocks == 0 {
		blocks = all
	}
	a.SegmentBlocks, a.Segments = blocks, (all+blocks-1)/blocks
	n := int64(rows * c.heads)
	partial, stats := SparseScratch(c.kind, a.Rows, a.Heads, a.Segments)
	sizes := [5]int64{n * valueDim * 2, n * 4, n * 4, partial, stats}
	places := [5]*Ptr{&a.Out, &a.LSE, &a.Max, &a.Partial, &a.Stats}
	if c.withoutMax {
		sizes[2] = 0
	}
	for i, size := range sizes {
		if size > 0 {
			*places[i] = r.alloc(size)
		}
	}
	return func() sparseResult {
		r.t.Helper()
		for i, size := range sizes {
			if size > 0 {
				check(r.t, r.s.Fill(*places[i], poison, size))
			}
		}
		if c.kind == 0 {
			check(r.t, SparseAttendFlat(r.k, r.s, &a))
		} else {
			check(r.t, SparseAttend(r.k, r.s, c.kind, &a))
		}
		got := sparseResult{out: r.download(a.Out, sizes[0]), lse: r.download(a.LSE, sizes[1])}
		if !c.withoutMax {
			got.max = r.download(a.Max, sizes[2])
		}
		return got
	}
}

// check compares a result with the host result, head by head, and stops at the first wrong head.
func (c *sparseCase) check(t *testing.T, name string, got sparseResult) {
	t.Helper()
	dim := poolDim(c.kind)
	for row := range int(c.args.Rows) {
		var rows [][]float32
		for _, s := range c.streams {
			rows = append(rows, s.rows(row)...)
		}
		for h := range c.heads {
			sink := math.Inf(-1)
			if c.sinks != nil {
				sink = float64(c.sinks[h])
			}
			at := row*c.heads + h
			want, lse, largest := expect.Attend(expect.Widen(c.q[at*dim:(at+1)*dim]), rows, sparseScale, sink)
			out := make([]float32, valueDim)
			for i := range out {
				out[i] = num.FromBF16(binary.LittleEndian.Uint16(got.out[(at*valueDim+i)*2:]))
			}
			if d := expect.Distance(out, want); !(d <= expect.AttendError) {
				t.Errorf("%s: row %d head %d of %d keys is %g of its norm away, at most %g; it begins %v, want %v",
					name, row, h, len(rows), d, expect.AttendError, out[:4], want[:4])
				return
			}
			for what, v := range map[string][2]float64{"lse": {float64(f32(got.lse, at)), lse},
				"max": {float64(f32(got.max, at)), largest}} {
				if v[0] != v[1] && !(math.Abs(v[0]-v[1]) <= 1e-3) {
					t.Errorf("%s: row %d head %d of %d keys: %s %g, want %g", name, row, h, len(rows), what, v[0], v[1])
					return
				}
			}
		}
	}
}

func f32(b []byte, i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])) }

func (a sparseResult) same(t *testing.T, name string, b sparseResult) {
	t.Helper()
	sameBytes(t, name+": out", a.out, b.out)
	sameBytes(t, name+": lse", a.lse, b.lse)
	sameBytes(t, name+": max", a.max, b.max)
}

// row returns the part of a result that belongs to one row.
func (a sparseResult) row(i, heads int) sparseResult {
	n := heads * 4
	return sparseResult{a.out[i*heads*valueDim*2:][:heads*valueDim*2], a.lse[i*n:][:n], a.max[i*n:][:n]}
}

// sparseKinds returns the row layouts that have kernels; 0 means gathered V4 rows. Rows of V4.1, which is refused on
// GPUs older than Hopper, have no portable kernels.
func sparseKinds() []layout.Kind {
	kinds := []layout.Kind{layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576, layout.V4Row584, 0}
	if !*portableTier {
		kinds = append(kinds, layout.V41Row288)
	}
	return kinds
}

// streamKinds returns the layouts of both streams of rows of two streams that have kernels.
func streamKinds() [][2]layout.Kind {
	kinds := [][2]layout.Kind{{layout.V4Row584, layout.V4Row584}}
	if !*portableTier {
		kinds = append(kinds, [2]layout.Kind{layout.V41Window528, layout.V41Row288},
			[2]layout.Kind{layout.V41Window528, layout.V41Window528})
	}
	return kinds
}

func TestGPUSparseAttentionEqualsTheHost(t *testing.T) {
	r := onGPU(t)
	lens := []int32{0, 1, 63, 64, 65, 127, 128, 129, 319, 320, 400, -3}
	for i, kind := range sparseKinds() {
		rng := rand.New(rand.NewPCG(7, uint64(i)))
		for _, heads := range []int{128, 64, 16, 100} {
			if testing.Short() && heads%64 == 0 { // sanitizers take too long for more heads
				continue
			}
			s := newSparseStream(r, rng, kind, 640, 64, 320, lens)
			c := newSparseCase(r, rng, kind, heads, heads == 16, s)
			for _, blocks := range []int32{0, 2} {
				c.check(t, fmt.Sprintf("%v, %d heads, segments of %d", kind, heads, blocks),
					c.run(r, 0, len(lens), blocks))
			}
		}
		c := newSparseCase(r, rng, kind, 64, false, newSparseStream(r, rng, kind, 333, 333, 200, []int32{200, 7}))
		c.check(t, fmt.Sprintf("%v, one page", kind), c.run(r, 0, 2, 0))
	}
}

// A thread block processes several units of work in sequence, with and without keys. The queries, keys and outputs of
// a unit reuse the memory of the previous unit while that is still in use.
func TestGPUSparseUnitsFollowEachOther(t *testing.T) {
	r := onGPU(t)
	rows := 1200 // so many that units of work reuse each ring
	if testing.Short() {
		rows = 300
	}
	var lens []int32
	for len(lens) < rows {
		lens = append(lens, 1, 64, 0, 65, 130, 200, 0, 0, 129)
	}
	for i, kind := range sparseKinds() {
		rng := rand.New(rand.NewPCG(11, uint64(i)))
		c := newSparseCase(r, rng, kind, 8, true, newSparseStream(r, rng, kind, 640, 64, 200, lens))
		for _, blocks := range []int32{0, 2} {
			c.check(t, fmt.Sprintf("%v, segments of %d", kind, blocks), c.run(r, 0, len(lens), blocks))
		}
	}
}

// Results are bitwise equal if kernels do not compute the largest score because it is not requested.
func TestGPUSparseResultsAreTheSameWithoutLargestScores(t *testing.T) {
	r := onGPU(t)
	lens := []int32{0, 1, 63, 64, 65, 200, 319, 320}
	for i, kind := range sparseKinds() {
		rng := rand.New(rand.NewPCG(10, uint64(i)))
		c := newSparseCase(r, rng, kind, 100, true, newSparseStream(r, rng, kind, 640, 64, 320, lens))
		for _, scale := range []float32{1, 30} { // with scale 30, many blocks exceed the largest score so far
			c.args.ScoreScale = sparseScale * math.Log2E * scale
			for _, blocks := range []int32{0, 2} {
				c.withoutMax = false
				want := c.run(r, 0, len(lens), blocks)
				c.withoutMax, want.max = true, nil
				c.run(r, 0, len(lens), blocks).same(t, fmt.Sprintf("%v, scale %g, segments of %d", kind, scale, blocks),
					want)
			}
		}
	}
}

// Attention reads the right row if the byte offset of the row does not fit in 32 bits.
func TestGPUSparsePagesMayBeFarApart(t *testing.T) {
	r := onGPU(t)
	const pages, apart = 6, 1 << 30
	far := r.alloc((pages-1)*apart + 1<<20)
	for i, kind := range sparseKinds() {
		rng := rand.New(rand.NewPCG(12, uint64(i)))
		lens := []int32{320, 200, 1}
		c := newSparseCase(r, rng, kind, 64, false, newSparseStream(r, rng, kind, pages*64, 64, 320, lens))
		want := c.run(r, 0, len(lens), 0)
		v := &c.args.Streams[0]
		for p := range int64(pages) {
			check(t, r.s.CopyOnDevice(far.Add(p*apart), v.Base.Add(p*v.PageBytes), v.PageBytes))
		}
		v.Base, v.PageBytes = far, apart
		c.run(r, 0, len(lens), 0).same(t, fmt.Sprintf("%v, pages far apart", kind), want)
	}
}

func TestGPUSparseSlotsBeyondThePoolAreFaults(t *testing.T) {
	r := onGPU(t)
	const slots = 640
	for i, kind := range sparseKinds() {
		rng := rand.New(rand.NewPCG(13, uint64(i)))
		s := newSparseStream(r, rng, kind, slots, 64, 320, []int32{320})
		c := newSparseCase(r, rng, kind, 64, false, s)
		inside := slices.Clone(s.indices)
		for i, slot := range inside {
			if slot >= slots {
				inside[i] = -1
			}
		}
		for _, blocks := range []int32{0, 2} {
			for want, list := range map[uint32][]int32{FaultSlot: s.indices, 0: inside} {
				c.args.Streams[0].Indices, c.args.Faults = upload(r, list), r.faultWord()
				c.run(r, 0, 1, blocks)
				if f := r.faults(c.args.Faults); f != want {
					t.Errorf("%v, segments of %d: faults %d, want %d", kind, blocks, f, want)
				}
			}
		}
	}
}

func TestGPUTwoStreamsShareOneSoftmax(t *testing.T) {
	r := onGPU(t)
	for i, kinds := range streamKinds() {
		rng := rand.New(rand.NewPCG(8, uint64(i)))
		kind := kinds[0] // of the kernel
		if kind == layout.V41Window528 {
			kind = layout.V41Row288
		}
		window := newSparseStream(r, rng, kinds[0], 512, 128, 128, []int32{128, 0, 5, 64, 128, 0})
		for _, pageTokens := range []int{64, 2} {
			extra := newSparseStream(r, rng, kinds[1], 1024, pageTokens, 300, []int32{300, 100, 0, 1, 64, 0})
			c := newSparseCase(r, rng, kind, 64, true, window, extra)
			for _, blocks := range []int32{0, 2} {
				c.check(t, fmt.Sprintf("%v, pages of %d, segments of %d", kinds, pageTokens, blocks),
					c.run(r, 0, 6, blocks))
			}
		}
	}
}

// Rows of V4.1 have the same results in a batch, which has more units of work than half of the SMs, and among few rows.
func TestGPURowsOfTwoStreamsDoNotDependOnTheirBatch(t *testing.T) {
	r := onHopper(t)
	rng := rand.New(rand.NewPCG(14, 1))
	var lens, more []int32
	for len(lens) < 150 {
		lens = append(lens, 128, 128, 3, 0, 128, 64)
		more = append(more, 512, 65, 512, 0, 0, 511)
	}
	window := newSparseStream(r, rng, layout.V41Window528, 640, 64, 128, lens)
	c := newSparseCase(r, rng, layout.V41Row288, 64, true, window,
		newSparseStream(r, rng, layout.V41Row288, 2048, 64, 512, more))
	for _, blocks := range []int32{0, 3, 5} {
		name := fmt.Sprintf("segments of %d", blocks)
		again := c.prepare(r, 0, len(lens), blocks)
		all := again()
		for range repeats {
			again().same(t, name+" again", all)
		}
		few := c.prepare(r, 0, 12, blocks)
		for range repeats {
			first := few()
			for row := range 12 {
				first.row(row, 64).same(t, fmt.Sprintf("%s, row %d among few", name, row), all.row(row, 64))
			}
		}
		for row := range 6 {
			c.run(r, row, row+1, blocks).same(t, fmt.Sprintf("%s, row %d alone", name, row), all.row(row, 64))
		}
	}
}

func TestGPUSparseRowsDoNotDependOnTheirBatchOrTheRun(t *testing.T) {
	r := onGPU(t)
	// 20 rows of 128 heads in 2 segments are more units than two thread blocks per SM can hold; 7 rows are not.
	var lens []int32
	for len(lens) < 20 {
		lens = append(lens, 1024, 1023, 1, 513, 512, 0, 700)
	}
	for i, kind := range sparseKinds() {
		rng := rand.New(rand.NewPCG(9, uint64(i)))
		c := newSparseCase(r, rng, kind, 128, false, newSparseStream(r, rng, kind, 2048, 64, 1024, lens))
		for _, blocks := range []int32{0, 4, 8} {
			name := fmt.Sprintf("%v, segments of %d", kind, blocks)
			again := c.prepare(r, 0, len(lens), blocks)
			all := again()
			for range repeats {
				again().same(t, name+" again", all)
			}
			few := c.prepare(r, 0, 7, blocks)
			first := few()
			for range repeats {
				few().same(t, name+", few rows again", first)
			}
			for row := range 7 {
				first.row(row, 128).same(t, fmt.Sprintf("%s, row %d among few", name, row), all.row(row, 128))
				c.run(r, row, row+1, blocks).same(t, fmt.Sprintf("%s, row %d alone", name, row), all.row(row, 128))
			}
		}
	}
}
