package bench

import (
	"encoding/binary"
	"fmt"
	"math"

	"sparrow/internal/cuda/expect"
	"sparrow/kernel/cuda"
	"sparrow/layout"
)

// Sizes of the indexer of DeepSeek-V4.1-Flash.
const (
	v41Heads  = 32
	v41Best   = 512  // entries that an indexer selects
	v41Blocks = 2048 // blocks that the first level selects
	v41Shift  = 3    // a block has 8 entries
	v41Page   = 64   // entries of a page
	// Layers of one token per entry that have an indexer: 20, which also selects blocks, and 24, 28, 32 and 36, which
	// select inside these blocks.
	v41Layers = 5
)

// v41Cases returns index scores over FP4 keys, and the selections of the layers that share candidate blocks.
func v41Cases() []Case {
	const rows, keys = 64, 128 << 10
	list := []Case{scoreV41Case(rows, keys, false), scoreV41Case(rows, keys, true)}
	for _, levels := range []int{1, 2} {
		list = append(list, levelsCase(rows, keys, levels))
	}
	return list
}

// scoreV41Case returns a case of index scores over all keys, or over the keys of candidate blocks.
func scoreV41Case(rows, keys int, within bool) Case {
	scored, shape := keys, fmt.Sprintf("%d x %dk", rows, keys>>10)
	if within {
		scored = v41Blocks << v41Shift
		shape += fmt.Sprintf(", %d blocks of %d", v41Blocks, 1<<v41Shift)
	}
	c := scoresV41(rows, scored)
	c.Case = titled("score_v41", "%s", shape)
	c.New = func(h *holder) Set {
		x := newIndexV41(h, rows, keys)
		args := x.score(0)
		if within {
			blocks := make([]int32, 0, rows*v41Blocks)
			for range rows {
				for i := range v41Blocks { // one block from each of equal ranges
					each := keys >> v41Shift / v41Blocks
					blocks = append(blocks, int32(i*each+h.rng.IntN(each)))
				}
			}
			x.blocks = putAll(h, blocks)
			x.within(&args)
		}
		return launching(h, cuda.ScoreV41, &args, func(r *reader) error { return x.checkScores(r, &args) })
	}
	return c
}

// levelsCase returns the scores and selections of all indexers over entries of one token. With two levels the first of
// them scores all keys and also selects blocks, and the others score only the keys of these blocks; with one level each
// of them scores all keys.
func levelsCase(rows, keys, levels int) Case {
	c := scoresV41(rows, v41Layers*keys)
	shape := fmt.Sprintf("%d x %dk, %d layers, all keys", rows, keys>>10, v41Layers)
	if levels == 2 {
		c = scoresV41(rows, keys+(v41Layers-1)*v41Blocks<<v41Shift)
		shape = fmt.Sprintf("%d x %dk, %d layers, two levels", rows, keys>>10, v41Layers)
	}
	c.Case = titled("index_v41", "%s", shape)
	c.New = func(h *holder) Set {
		x := newIndexV41(h, rows, keys)
		x.blocks = h.output(4 * rows * v41Blocks)
		x.largest = h.output(4 * rows * keys >> v41Shift)
		var last cuda.ScoreV41Args
		launch := func(s *cuda.Stream) error {
			for layer := range v41Layers {
				last = x.score(layer)
				if layer > 0 && levels == 2 {
					x.within(&last)
				}
				if err := x.choose(s, layer, &last); err != nil {
					return err
				}
				if layer == 0 && levels == 2 {
					if err := x.publish(s, &last); err != nil {
						return err
					}
				}
			}
			return nil
		}
		return Set{launch, func(r *reader) error {
			if err := x.checkScores(r, &last); err != nil {
				return err
			}
			return x.checkSelection(r, &last)
		}}
	}
	return c
}

// scoresV41 returns a case with the floor of scores of the given number of keys for each row.
func scoresV41(rows, keys int) Case {
	n := float64(rows) * float64(keys)
	return Case{Rate: BF16, FLOPs: 2 * n * v41Heads * layout.IndexDim, Bytes: n * (layout.IndexFP4Bytes + 4)}
}

// indexV41 is a batch of sequences, each with a query row in every layer and the same number of keys, which all layers
// share. Pages have random order.
type indexV41 struct {
	*holder
	rows, keys          int
	pool                cuda.PoolView
	pages               []int32  // page table of all rows
	table, owner        cuda.Ptr // i32 [rows, pages of a row] and i32 [rows]
	all, inside, counts cuda.Ptr // i32 [rows]: keys, keys of the candidate blocks, blocks
	queries, weights    [v41Layers]cuda.Ptr
	scores, largest     cuda.Ptr // f32 [rows, keys] and [rows, blocks]
	blocks              cuda.Ptr // i32 [rows, v41Blocks]
	selected, kept, via cuda.Ptr // i32 [layers, rows, v41Best], and scratch memory of selections
}

func newIndexV41(h *holder, rows, keys int) *indexV41 {
	const patternPages = 256
	l := layout.IndexFP4{}
	size := l.PageBytes(v41Page)
	pattern := make([]byte, 0, patternPages*size)
	for range patternPages {
		page := make([]byte, size)
		for i := range v41Page {
			l.Encode(page, v41Page, i, h.floats(layout.IndexDim, 1, 0))
		}
		pattern = append(pattern, page...)
	}
	each := keys / v41Page
	x := &indexV41{holder: h, rows: rows, keys: keys, pages: h.permutation(rows * each)}
	x.pool = cuda.PoolView{PageBytes: int64(size), PageTokens: v41Page, Slots: int32(rows * keys),
		Base: h.repeat(pattern, rows*each*size)}
	owner := make([]int32, rows)
	for i := range owner {
		owner[i] = int32(i)
	}
	x.table, x.owner = putAll(h, x.pages), putAll(h, owner)
	x.all, x.inside, x.counts = h.ints(keys, rows), h.ints(v41Blocks<<v41Shift, rows), h.ints(keys>>v41Shift, rows)
	for i := range v41Layers {
		x.queries[i] = putAll(h, h.bf16s(rows*v41Heads*layout.IndexDim))
		x.weights[i] = putAll(h, h.floats(rows*v41Heads, 0.02, 0))
	}
	x.scores, x.selected = h.output(4*rows*keys), h.output(4*v41Layers*rows*v41Best)
	n := 4 * max(cuda.TopKScratch(h.rig.Kernels, int32(rows), int32(keys), v41Best),
		cuda.TopKScratch(h.rig.Kernels, int32(rows), int32(keys>>v41Shift), v41Blocks))
	x.kept, x.via = h.alloc(int(n)), h.alloc(int(n))
	return x
}

// score returns the arguments of a layer's scores over all keys.
func (x *indexV41) score(layer int) cuda.ScoreV41Args {
	pages := x.keys / v41Page
	return cuda.ScoreV41Args{Pool: x.pool, Queries: x.queries[layer], Weights: x.weights[layer], Table: x.table,
		TableRows: x.owner, Lengths: x.all, Scores: x.scores, TableStride: int64(pages), Stride: int64(x.keys),
		Rows: int32(x.rows), Columns: int32(x.keys), Skip: v41Best, Tables: int32(x.rows), Pages: int32(pages)}
}

// within restricts scores to the keys of the candidate blocks.
func (x *indexV41) within(a *cuda.ScoreV41Args) {
	a.Lengths, a.Blocks, a.BlockStride, a.BlockShift, a.MostBlocks = x.inside, x.blocks, v41Blocks, v41Shift, v41Blocks
	a.Columns = v41Blocks << v41Shift
	a.Stride = int64(a.Columns)
}

// choose enqueues a layer's scores and the selection of its best entries.
func (x *indexV41) choose(s *cuda.Stream, layer int, a *cuda.ScoreV41Args) error {
	if err := cuda.ScoreV41(x.rig.Kernels, s, a); err != nil {
		return err
	}
	out := x.selection(layer)
	if err := x.best(s, a.Scores, a.Lengths, out, a.Columns, v41Best); err != nil || a.Blocks == 0 {
		return err
	}
	return cuda.Locate(x.rig.Kernels, s, &cuda.LocateArgs{Positions: out, Out: out, Table: x.blocks,
		TableRows: x.owner, PositionStride: v41Best, OutStride: v41Best, TableStride: v41Blocks, Rows: int32(x.rows),
		Columns: v41Best, PageTokens: 1 << v41Shift, TableColumns: v41Blocks, Tables: int32(x.rows)})
}

// publish enqueues the selection of candidate blocks from scores over all keys.
func (x *indexV41) publish(s *cuda.Stream, a *cuda.ScoreV41Args) error {
	blocks := int32(x.keys >> v41Shift)
	if err := cuda.BlockMax(x.rig.Kernels, s, &cuda.BlockMaxArgs{Scores: a.Scores, Lengths: a.Lengths, Out: x.largest,
		Stride: a.Stride, OutStride: int64(blocks), Rows: a.Rows, Columns: a.Columns, Size: 1 << v41Shift,
		Skip: a.Skip}); err != nil {
		return err
	}
	return x.best(s, x.largest, x.counts, x.blocks, blocks, v41Blocks)
}

// best enqueues the selection of the k largest scores of every row.
func (x *indexV41) best(s *cuda.Stream, scores, lengths, out cuda.Ptr, columns, k int32) error {
	return cuda.SelectTopK(x.rig.Kernels, s, &cuda.TopKArgs{Scores: scores, Lengths: lengths, Out: out, Kept: x.kept,
		Via: x.via, Stride: int64(columns), Rows: int32(x.rows), K: k, RowsPerRequest: 1, Columns: columns})
}

// selection returns the address of a layer's selected entries.
func (x *indexV41) selection(layer int) cuda.Ptr {
	return x.selected.Add(4 * int64(layer*x.rows*v41Best))
}

// keyAt returns the number of the key that a column of the scores has.
func (x *indexV41) keyAt(r *reader, a *cuda.ScoreV41Args, row, column int) int {
	if a.Blocks == 0 {
		return column
	}
	b := binary.LittleEndian.Uint32(r.bytes(a.Blocks.Add(4*(int64(row)*a.BlockStride+int64(column>>v41Shift))), 4))
	return int(b)<<v41Shift + column&(1<<v41Shift-1)
}

// checkScores compares samples of the scores with scores computed on the host.
func (x *indexV41) checkScores(r *reader, a *cuda.ScoreV41Args) error {
	l, key := layout.IndexFP4{}, make([]float32, layout.IndexDim)
	for range samples {
		row, column := x.rng.IntN(x.rows), x.rng.IntN(int(a.Columns))
		at := x.keyAt(r, a, row, column)
		page := x.pages[(row*x.keys+at)/v41Page]
		l.Decode(key, r.bytes(x.pool.Base.Add(int64(page)*x.pool.PageBytes), int(x.pool.PageBytes)), v41Page,
			at%v41Page)
		q := r.bf16s(a.Queries.Add(int64(row)*v41Heads*layout.IndexDim*2), v41Heads*layout.IndexDim)
		w := r.f32s(a.Weights.Add(int64(row)*v41Heads*4), v41Heads)
		var want, size float64
		for h := range v41Heads {
			var dot float64
			for i, k := range key {
				dot += float64(q[h*layout.IndexDim+i]) * float64(k)
			}
			want += float64(w[h]) * max(dot, 0)
			size += math.Abs(float64(w[h]) * dot)
		}
		got := r.f32(a.Scores.Add(4 * (int64(row)*a.Stride + int64(column))))
		if !(math.Abs(got-want) <= 1e-5*size) {
			return fmt.Errorf("row %d column %d: the score is %g, want %g", row, column, got, want)
		}
	}
	return nil
}

// checkSelection compares the candidate blocks and the last layer's selection with those computed on the host from the
// device's scores.
func (x *indexV41) checkSelection(r *reader, a *cuda.ScoreV41Args) error {
	blocks := x.keys >> v41Shift
	for _, row := range []int{0, x.rows / 2, x.rows - 1} {
		if a.Blocks != 0 {
			want := expect.TopK(r.f32s(x.largest.Add(4*int64(row*blocks)), blocks), v41Blocks)
			if err := r.same(fmt.Sprintf("blocks of row %d", row), a.Blocks.Add(4*int64(row)*a.BlockStride),
				raw(want)); err != nil {
				return err
			}
		}
		want := expect.TopK(r.f32s(a.Scores.Add(4*int64(row)*a.Stride), int(a.Columns)), v41Best)
		for i, column := range want {
			want[i] = int32(x.keyAt(r, a, row, int(column)))
		}
		at := x.selection(v41Layers - 1).Add(4 * int64(row*v41Best))
		if err := r.same(fmt.Sprintf("selection of row %d", row), at, raw(want)); err != nil {
			return err
		}
	}
	return nil
}
