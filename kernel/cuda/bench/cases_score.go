package bench

import (
	"fmt"
	"math"
	"slices"

	"sparrow/kernel/cuda"
	"sparrow/kernel/cuda/expect"
	"sparrow/layout"
)

// patternBytes is how much of a large input is random; the rest repeats it.
const patternBytes = 4 << 20

// scoreCases are the anchor shapes of the indexer and of the selection.
func scoreCases() []Case {
	return []Case{
		raggedCase(4096, 8192, 64, 506), raggedCase(4096, 32768, 64, 1941), raggedCase(4096, 131072, 64, 8385),
		raggedCase(4096, 32768, 32, 0), pagedCase(64, 32768, 1, 1, 64, 79.0), pagedCase(64, 32768, 2, 2, 64, 82.9),
		pagedCase(64, 32768, 2, 1, 64, 0), pagedCase(64, 32768, 3, 3, 64, 0), pagedCase(64, 32768, 3, 1, 64, 0),
		pagedCase(64, 32768, 4, 4, 64, 0), pagedCase(64, 32768, 4, 2, 64, 0), pagedCase(64, 32768, 4, 1, 64, 0),
		pagedCase(64, 32768, 6, 3, 64, 0), pagedCase(64, 32768, 6, 2, 64, 0), pagedCase(64, 32768, 6, 1, 64, 0),
		pagedCase(64, 32768, 8, 4, 64, 0), pagedCase(64, 32768, 8, 2, 64, 0), pagedCase(64, 32768, 8, 1, 64, 0),
		pagedCase(1, 131072, 8, 4, 64, 0), pagedCase(1, 131072, 8, 1, 64, 0),
		pagedCase(128, 65536, 1, 1, 64, 283.9), pagedCase(128, 65536, 2, 2, 64, 293.5),
		pagedCase(64, 32768, 1, 1, 32, 0), topKCase(1, 131072, 2048, slots), topKCase(1, 1<<20, 2048, slots),
		topKCase(64, 32768, 2048, positions), topKCase(64, 32768, 2048, slots), topKCase(64, 32768, 512, slots),
		topKCase(64, 32768, 2048, zeros), topKCase(128, 65536, 2048, slots), topKCase(4096, 8192, 2048, slots),
		topKCase(4096, 32768, 2048, positions), topKCase(4096, 32768, 2048, slots), topKCase(4096, 32768, 2048, zeros),
		topKCase(1024, 131072, 2048, slots), topKCase(4096, 131072, 2048, slots),
	}
}

type ragged struct {
	*holder
	x    cuda.IndexRagged
	args cuda.IndexRaggedArgs
}

func raggedCase(rows, keys, heads int, peer float64) Case {
	return Case{
		Name: "index_ragged", Shape: fmt.Sprintf("%d x %dk, %d heads", rows, keys>>10, heads), Rate: FP8,
		Peer: Peer{"DeepGEMM", peer}, FLOPs: 2 * float64(rows) * float64(keys) * float64(heads) * 128,
		Bytes:    4*float64(rows)*float64(keys) + float64(keys)*132 + float64(rows*heads)*132,
		SetBytes: int64(rows)*int64(keys)*4 + int64(keys)*132 + int64(rows*heads)*132, New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			codes := h.codes(patternBytes)
			scales := h.floats(patternBytes/512, 0.01, 0.05)
			s := &ragged{holder: h, x: cuda.IndexRagged{
				Queries: h.repeat(codes, int64(rows*heads*128)), Keys: h.repeat(codes[64:], int64(keys*128)),
				Scales: h.repeat(rawF32(scales), int64(keys*4)), Weights: h.put(rawF32(h.floats(rows*heads, 0.02, 0))),
				KeyStart: h.put(rawI32(constant(0, rows))), KeyEnd: h.put(rawI32(constant(int32(keys), rows))),
				Scores: h.output(int64(rows) * int64(keys) * 4), Stride: int64(keys), Rows: int32(rows),
				KeyCount: int32(keys), Heads: int32(heads),
			}}
			if h.err == nil {
				s.args, h.err = s.x.Encode(r.Device)
			}
			return h.ready(s)
		},
	}
}

func (x *ragged) Launch(s *cuda.Stream) error {
	return x.rig.Kernels.ScoreRagged(s, x.x.Heads, &x.args)
}

// samples is the number of scores that a check computes on the host.
const samples = 400

func (x *ragged) Check(s *cuda.Stream) error {
	for range samples {
		row, key := int64(x.rng.IntN(int(x.x.Rows))), int64(x.rng.IntN(int(x.x.KeyCount)))
		k, err := read(s, x.x.Keys.Add(key*128), 128)
		if err != nil {
			return err
		}
		scale, err := read(s, x.x.Scales.Add(key*4), 4)
		if err != nil {
			return err
		}
		at := x.x.Scores.Add((row*x.x.Stride + key) * 4)
		if err := checkScore(s, x.x.Queries, x.x.Weights, int(x.x.Heads), row, k, f32At(scale, 0), at); err != nil {
			return fmt.Errorf("row %d key %d: %w", row, key, err)
		}
	}
	return nil
}

// checkScore compares one score with the host's.
func checkScore(s *cuda.Stream, queries, weights cuda.Ptr, heads int, row int64, key []byte, scale float32,
	at cuda.Ptr) error {
	q, err := read(s, queries.Add(row*int64(heads)*128), int64(heads*128))
	if err != nil {
		return err
	}
	raw, err := read(s, weights.Add(row*int64(heads)*4), int64(heads*4))
	if err != nil {
		return err
	}
	w := make([]float32, heads)
	for i := range w {
		w[i] = f32At(raw, i)
	}
	got, err := read(s, at, 4)
	if err != nil {
		return err
	}
	want, size := expect.IndexScore(q, key, w, scale)
	if g := float64(f32At(got, 0)); !(math.Abs(g-want) <= expect.IndexError*size) {
		return fmt.Errorf("score %g, want %g", g, want)
	}
	return nil
}

type paged struct {
	*holder
	x     cuda.IndexPaged
	args  cuda.IndexPagedArgs
	table []int32
	each  int64 // rows of a request
}

// pagedCase scores rows of each request, together of them at once: all of them natively, fewer in groups, one alone
// split.
func pagedCase(requests, keys, each, together, heads int, peer float64) Case {
	blocks := keys / 64
	rows := requests * each
	cache := int64(requests*blocks) * layout.IndexPageBytes
	shape := fmt.Sprintf("%d x %dk, next_n %d, %d heads", requests, keys>>10, each, heads)
	switch {
	case together == 1 && each > 1:
		shape += ", split"
	case together < each:
		shape += fmt.Sprintf(", in groups of %d", together)
	}
	return Case{
		Name: "index_paged", Shape: shape,
		Rate: FP8, Peer: Peer{"DeepGEMM", peer}, FLOPs: 2 * float64(rows) * float64(keys) * float64(heads) * 128,
		Bytes:    float64(cache) + 4*float64(rows)*float64(keys) + float64(rows*heads)*132,
		SetBytes: cache + 4*int64(rows)*int64(keys), New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			var pattern []byte
			for range 64 {
				pattern = append(pattern, indexPage(h)...)
			}
			p := &paged{holder: h, table: h.permutation(requests * blocks), each: int64(each)}
			owner := make([]int32, rows)
			for i := range owner {
				owner[i] = int32(i / each)
			}
			p.x = cuda.IndexPaged{
				Queries: h.put(h.codes(rows * heads * 128)), Cache: h.repeat(pattern, cache),
				PageBytes: layout.IndexPageBytes, Pages: int64(requests * blocks),
				Weights:        h.put(rawF32(h.floats(rows*heads, 0.02, 0))),
				ContextLengths: h.put(rawI32(constant(int32(keys), rows))), BlockTable: h.put(rawI32(p.table)),
				TableRows: h.put(rawI32(owner)),
				Scores:    h.output(int64(rows) * int64(keys) * 4), Stride: int64(keys), TableStride: int64(blocks),
				Requests: int32(rows / together), NextN: int32(together), Heads: int32(heads), MaxContext: int32(keys),
				MaxBlocks: int32(blocks),
			}
			if h.err == nil {
				p.args, h.err = p.x.Encode(r.Device)
			}
			return h.ready(p)
		},
	}
}

func (p *paged) Launch(s *cuda.Stream) error {
	return overlapping(s, func() error { return p.rig.Kernels.ScorePaged(s, p.x.Heads, &p.args) })
}

// overlapping lets the kernels of a launch start their prologue while the one before it ends, as the steps of a
// captured model do.
func overlapping(s *cuda.Stream, launch func() error) error {
	s.SetOverlap(true)
	defer s.SetOverlap(false)
	return launch()
}

func (p *paged) Check(s *cuda.Stream) error {
	for range samples {
		row, col := int64(p.rng.IntN(int(p.x.Requests*p.x.NextN))), p.rng.IntN(int(p.x.MaxContext))
		at := int64(p.table[row/p.each*p.x.TableStride+int64(col/64)]) * layout.IndexPageBytes
		page, err := read(s, p.x.Cache.Add(at), layout.IndexPageBytes)
		if err != nil {
			return err
		}
		l := layout.IndexFP8{}
		score := p.x.Scores.Add((row*p.x.Stride + int64(col)) * 4)
		if err := checkScore(s, p.x.Queries, p.x.Weights, int(p.x.Heads), row, l.Key(page, col%64),
			l.Scale(page, 64, col%64), score); err != nil {
			return fmt.Errorf("row %d column %d: %w", row, col, err)
		}
	}
	return nil
}

type topK struct {
	*holder
	args cuda.TopKArgs
}

// topKKind is what a selection writes and over which scores.
type topKKind string

const (
	positions topKKind = ""        // positions, normal scores
	slots     topKKind = ", paged" // slots through a page table, normal scores
	zeros     topKKind = ", zeros" // slots, fewer than k scores above zero, all others zero
)

// scores draws the scores of a kind.
func (k topKKind) scores(h *holder, n int) []float32 {
	v := h.floats(n, 1, 0)
	if k == zeros {
		for i, x := range v {
			v[i] = max(x-2, 0)
		}
	}
	return v
}

func topKCase(rows, length, k int, kind topKKind) Case {
	return Case{
		Name: "topk", Shape: fmt.Sprintf("%d of %d x %dk%s", k, rows, length>>10, kind),
		Bytes: 4 * float64(rows) * float64(length+k), SetBytes: 4 * int64(rows) * int64(length+k),
		New: func(r *Rig) (Set, error) {
			h := newHolder(r)
			t := &topK{holder: h}
			blocks := length / 64
			t.args = cuda.TopKArgs{
				Scores:  h.repeat(rawF32(kind.scores(h, patternBytes/4+257)), 4*int64(rows)*int64(length)),
				Lengths: h.put(rawI32(constant(int32(length), rows))), Out: h.output(int64(4 * rows * k)),
				PageTable: h.put(rawI32(h.permutation(blocks))), Stride: int64(length), TableStride: int64(blocks),
				Rows: int32(rows), K: int32(k), Transform: int32(cuda.TopKPaged), RowsPerRequest: int32(rows),
				PageShift: 6,
			}
			if kind == positions {
				t.args.Transform = int32(cuda.TopKPosition)
			}
			if n := r.Kernels.TopKScratch(int32(rows), int32(length), int32(k)); n > 0 {
				t.args.Kept, t.args.Via = h.alloc(4*n), h.alloc(4*n)
			}
			return h.ready(t)
		},
	}
}

func (t *topK) Launch(s *cuda.Stream) error {
	return overlapping(s, func() error { return t.rig.Kernels.SelectTopK(s, &t.args) })
}

func (t *topK) Check(s *cuda.Stream) error {
	length, k := t.args.Stride, int64(t.args.K)
	table, err := read(s, t.args.PageTable, t.args.TableStride*4)
	if err != nil {
		return err
	}
	for _, row := range slices.Compact([]int64{0, int64(t.args.Rows) / 2, int64(t.args.Rows) - 1}) {
		raw, err := read(s, t.args.Scores.Add(row*length*4), length*4)
		if err != nil {
			return err
		}
		scores := make([]float32, length)
		for i := range scores {
			scores[i] = f32At(raw, i)
		}
		want := expect.TopK(scores, int(k))
		for i, p := range want {
			if cuda.TopKTransform(t.args.Transform) == cuda.TopKPosition {
				continue
			}
			want[i] = int32(math.Float32bits(f32At(table, int(p/64))))*64 + p%64
		}
		if err := same(s, fmt.Sprintf("row %d", row), t.args.Out.Add(row*k*4), rawI32(want)); err != nil {
			return err
		}
	}
	return nil
}
