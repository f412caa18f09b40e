package bench

import (
	"encoding/binary"
	"fmt"
	"math"

	"sparrow/internal/bench/harness"
	"sparrow/internal/cuda/expect"
	"sparrow/internal/num"
	"sparrow/kernel/cuda"
	"sparrow/layout"
)

// decodeSplits lists after how many keys plans split rows with FP8 pages; 0 means no split.
var decodeSplits = []int{512, 256, 0}

// sparseCases returns the main shapes of sparse attention.
func sparseCases() []Case {
	var list []Case
	for _, split := range decodeSplits {
		for _, c := range [][3]int{{1, 1, 128}, {4, 1, 128}, {8, 1, 128}, {16, 1, 128}, {32, 1, 128}, {48, 1, 128},
			{64, 1, 128}, {96, 1, 128}, {128, 1, 128}, {64, 2, 128}, {128, 2, 128}, {64, 1, 64}} {
			list = append(list, decodeCase(layout.FP8Row656, c[0], c[1], c[2], 2048, 0, split))
		}
		list = append(list, decodeCase(layout.FP8Row576, 64, 1, 128, 2048, 0, split))
	}
	for _, c := range [][2]int{{1, 512}, {16, 512}, {64, 512}, {64, 0}} {
		list = append(list, decodeCase(layout.BF16Row1152, c[0], 1, 128, 2048, 0, c[1]))
	}
	for _, batch := range []int{64, 128} {
		list = append(list, decodeCase(layout.V4Row584, batch, 2, 64, 128, 512, cuda.V4SplitKeys),
			decodeCase(layout.V41Row288, batch, 1, 64, 128, 512, cuda.V4SplitKeys),
			decodeCase(layout.V41Row288, batch, 6, 64, 128, 512, cuda.V4SplitKeys))
	}
	for _, keys := range []int{8192, 32768, 131072} {
		list = append(list, prefillCase(layout.BF16Row1152, keys, 128, 2048))
	}
	return append(list, prefillCase(layout.BF16Row1152, 32768, 64, 2048), prefillCase(0, 32768, 64, 512),
		prefillCase(0, 32768, 128, 1024))
}

// sparse is one set of sparse attention. Kind 0 means V4 rows of 512 bf16 values, gathered before the kernel.
type sparse struct {
	*holder
	kind    layout.Kind
	dim     int
	args    cuda.SparseAttendArgs
	streams [2]sparseStream
}

// sparseStream is a device pool and the host copy of the rows that are selected from it.
type sparseStream struct {
	kind    layout.Kind
	pool    cuda.PoolView
	indices []int32
	width   int
}

const sparseScale = 0.0417 // about 576^-0.5

// rowDim returns the number of values of a cached row, which is also that of a head's query.
func rowDim(kind layout.Kind) int {
	switch kind {
	case 0, layout.V4Row584, layout.V41Row288, layout.V41Window528:
		return cuda.V4Dim
	}
	return layout.RowDim
}

// streamKinds returns the layouts of the two streams of a kind of attention: V4.1 has window rows of their own.
func streamKinds(kind layout.Kind) [2]layout.Kind {
	if kind == layout.V41Row288 {
		return [2]layout.Kind{layout.V41Window528, kind}
	}
	return [2]layout.Kind{kind, kind}
}

// sparseRowBytes are the bytes of the rows from which decodes select.
var sparseRowBytes = map[layout.Kind]int{layout.FP8Row656: 656, layout.FP8Row576: 576, layout.BF16Row1152: 1152,
	layout.V4Row584: 584, layout.V41Window528: layout.V41WindowBytes, layout.V41Row288: layout.V41EntryBytes}

// sparsePage returns a page with the given number of random rows.
func sparsePage(h *holder, kind layout.Kind, tokens int) []byte {
	dim := rowDim(kind)
	rows := make([]float32, tokens*dim)
	for i, v := range h.bf16s(len(rows)) {
		rows[i] = num.FromBF16(v)
	}
	switch kind {
	case 0:
		b := make([]byte, 0, 2*len(rows))
		for _, v := range rows {
			b = binary.LittleEndian.AppendUint16(b, num.BF16(v))
		}
		return b
	case layout.V4Row584:
		page := make([]byte, cuda.V4PageBytes(tokens))
		for t := range tokens {
			expect.EncodeV4(page, tokens, t, rows[t*dim:(t+1)*dim])
		}
		return page
	case layout.V41Row288, layout.V41Window528:
		l, err := layout.V4Of(kind)
		if err != nil {
			h.err = err
			return nil
		}
		page := make([]byte, l.PageBytes(tokens))
		for t := range tokens {
			l.Encode(page, tokens, t, rows[t*dim:(t+1)*dim])
		}
		return page
	}
	main, err := layout.MainOf(kind)
	if err != nil {
		h.err = err
		return nil
	}
	page := make([]byte, main.PageBytes(tokens))
	layout.EncodeRows(main, page, 0, rows)
	return page
}

// stream makes a pool of shares * keys cached rows in pages of tokens rows, and width ascending slots for each query
// row. The slots are in one share of the pool; rows/shares adjacent query rows use the same share.
func (x *sparse) stream(kind layout.Kind, rows, shares, keys, tokens, width int) (sparseStream, cuda.SelectionView) {
	h := x.holder
	var pattern []byte
	for range max(1, 256/tokens) {
		pattern = append(pattern, sparsePage(h, kind, min(tokens, 4096))...)
	}
	page := int64(len(pattern)) / int64(max(1, 256/tokens))
	slots := shares * keys
	v := sparseStream{kind: kind, width: width, indices: make([]int32, 0, rows*width)}
	v.pool = cuda.PoolView{PageBytes: page, PageTokens: int32(tokens), Slots: int32(slots)}
	bytes := int64(slots/tokens) * page
	if tokens > 4096 { // the pattern repeats within the single long page
		v.pool.PageBytes = page / 4096 * int64(tokens)
		bytes = v.pool.PageBytes
	}
	v.pool.Base = h.repeat(pattern, int(bytes))
	for r := range rows { // choose one key from each of width ranges
		first := r * shares / rows * keys
		for i := range width {
			from, to := i*keys/width, (i+1)*keys/width
			v.indices = append(v.indices, int32(first+from+h.rng.IntN(to-from)))
		}
	}
	sel, err := v.pool.Select(putAll(h, v.indices), int64(width), int32(width),
		h.ints(width, rows), 1)
	if h.err == nil {
		h.err = err
	}
	if kind == layout.V41Row288 || kind == layout.V41Window528 {
		sel.Scales = int64(sparseRowBytes[kind])
	}
	return v, sel
}

// finish allocates the queries and outputs of a set.
func (x *sparse) finish(rows, heads int, segments, blocks int32) {
	h := x.holder
	partial, stats := cuda.SparseScratch(x.kind, int32(rows), int32(heads), segments)
	a := &x.args
	a.Q, a.QStride = h.repeat(raw(h.bf16s(min(rows*heads*x.dim, patternBytes/2+321))), rows*heads*x.dim*2),
		int64(heads*x.dim)
	a.Out, a.OutStride = h.output(rows*heads*1024), int64(heads)*512
	a.LSE, a.LSEStride = h.output(rows*heads*4), int64(heads)
	if partial > 0 {
		a.Partial, a.Stats = h.output(int(partial)), h.output(int(stats))
	}
	if x.dim == cuda.V4Dim {
		a.Sinks = putAll(h, h.floats(heads, 1, 0))
	}
	a.Rows, a.Heads, a.Segments, a.SegmentBlocks = int32(rows), int32(heads), segments, blocks
	a.ScoreScale, a.ValueScale = sparseScale*math.Log2E, 1
}

// decodeCase returns a case in which every row attends to width keys, and to extra keys in a second pool. Rows are
// split after split keys.
func decodeCase(kind layout.Kind, batch, queries, heads, width, extra, split int) Case {
	rows, keys, dim, kinds := batch*queries, 4096, rowDim(kind), streamKinds(kind)
	shape := fmt.Sprintf("%v, %d x %d, %d heads, %d keys", kind, batch, queries, heads, width)
	if extra > 0 {
		shape += fmt.Sprintf(" and %d", extra)
	}
	segments, blocks := cuda.SparseSegments(int32((width+63)/64*64+(extra+63)/64*64), int32(split))
	if segments > 1 {
		shape += fmt.Sprintf(" cut after %d", split)
	} else if extra == 0 {
		shape += ", whole"
	}
	touched := float64(rows*(width*sparseRowBytes[kinds[0]]+extra*sparseRowBytes[kinds[1]])) +
		float64(rows*heads*(dim+512)*2)
	return Case{
		Case: harness.Case{Name: "sparse_decode", Shape: shape}, Rate: BF16, Bytes: touched,
		FLOPs: 2 * float64(rows*heads) * float64(width+extra) * float64(dim+512),
		New: func(h *holder) Set {
			x := &sparse{holder: h, kind: kind, dim: dim}
			x.streams[0], x.args.Streams[0] = x.stream(kinds[0], rows, batch, keys, 64, width)
			if extra > 0 {
				x.streams[1], x.args.Streams[1] = x.stream(kinds[1], rows, batch, keys, 64, extra)
			}
			x.finish(rows, heads, segments, blocks)
			return Set{overlapping(x.launch), x.check}
		},
	}
}

func prefillCase(kind layout.Kind, keys, heads, width int) Case {
	const rows = 4096
	dim := rowDim(kind)
	name := "bf16 rows"
	if kind == 0 {
		name = "V4 rows"
	}
	fewest := float64(rows*heads*(dim+512)*2) + float64(keys*dim*2) + float64(rows*width*4)
	return Case{
		Case: titled("sparse_prefill", "%s, %d x %dk, %d heads, top-k %d", name, rows, keys>>10, heads,
			width), Rate: BF16, Bytes: fewest, FLOPs: 2 * float64(rows*heads) * float64(width) * float64(dim+512),
		New: func(h *holder) Set {
			x := &sparse{holder: h, kind: kind, dim: dim}
			x.streams[0], x.args.Streams[0] = x.stream(kind, rows, 1, keys, keys, width)
			x.finish(rows, heads, 1, int32(width+63)/64)
			return Set{overlapping(x.launch), x.check}
		},
	}
}

func (x *sparse) launch(s *cuda.Stream) error {
	if x.kind == 0 {
		return cuda.SparseAttendFlat(x.rig.Kernels, s, &x.args)
	}
	return cuda.SparseAttend(x.rig.Kernels, s, x.kind, &x.args)
}

// check compares some heads of some rows with values computed on the host.
func (x *sparse) check(r *reader) error {
	for _, row := range []int{0, int(x.args.Rows) / 2, int(x.args.Rows) - 1} {
		var rows [][]float32
		for i := range x.streams {
			list, err := x.selected(r, &x.streams[i], row)
			if err != nil {
				return err
			}
			rows = append(rows, list...)
		}
		for _, head := range []int{0, int(x.args.Heads) - 1} {
			if err := x.checkHead(r, row, head, rows); err != nil {
				return fmt.Errorf("row %d head %d: %w", row, head, err)
			}
		}
	}
	return nil
}

// selected returns the cached rows that a query row attends to, from one pool.
func (x *sparse) selected(r *reader, v *sparseStream, row int) ([][]float32, error) {
	if v.width == 0 {
		return nil, nil
	}
	var rows [][]float32
	pages := map[int64][]byte{}
	for _, slot := range v.indices[row*v.width:][:v.width] {
		page, at := int64(slot/v.pool.PageTokens), int(slot%v.pool.PageTokens)
		if pages[page] == nil {
			pages[page] = r.bytes(v.pool.Base.Add(page*v.pool.PageBytes), int(v.pool.PageBytes))
		}
		b, values := pages[page], make([]float32, x.dim)
		switch v.kind {
		case 0:
			widen(values, b[at*2*x.dim:])
		case layout.V4Row584:
			widen(values, expect.DecodeV4(b, int(v.pool.PageTokens), at))
		case layout.V41Row288, layout.V41Window528:
			l, err := layout.V4Of(v.kind)
			if err != nil {
				return nil, err
			}
			l.Decode(values, b, int(v.pool.PageTokens), at)
		default:
			main, err := layout.MainOf(v.kind)
			if err != nil {
				return nil, err
			}
			main.Decode(values, b, at)
		}
		rows = append(rows, values)
	}
	return rows, nil
}

func (x *sparse) checkHead(r *reader, row, head int, rows [][]float32) error {
	a := &x.args
	query := r.bf16s(a.Q.Add((int64(row)*a.QStride+int64(head*x.dim))*2), x.dim)
	out := r.bf16s(a.Out.Add((int64(row)*a.OutStride+int64(head)*512)*2), 512)
	sink := math.Inf(-1)
	if a.Sinks != 0 {
		sink = r.f32(a.Sinks.Add(int64(head) * 4))
	}
	want, lse, _ := expect.Attend(query, rows, sparseScale, sink)
	return attended(out, want, r.f32(a.LSE.Add((int64(row)*a.LSEStride+int64(head))*4)), lse)
}

// widen converts bf16 bytes to float32 values in dst.
func widen(dst []float32, b []byte) {
	for i := range dst {
		dst[i] = num.FromBF16(binary.LittleEndian.Uint16(b[2*i:]))
	}
}
