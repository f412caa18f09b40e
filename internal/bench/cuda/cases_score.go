package bench

import (
	"fmt"
	"math"
	"slices"

	"sparrow/internal/bench/harness"
	"sparrow/internal/cuda/expect"
	"sparrow/kernel/cuda"
	"sparrow/layout"
)

// patternBytes is the number of random bytes of a large input; the other bytes repeat them.
const patternBytes = 4 << 20

// scoreCases returns the main shapes of the indexer's scores and of its selection.
func scoreCases() []Case {
	list := []Case{raggedCase(4096, 8192, 64), raggedCase(4096, 32768, 64), raggedCase(4096, 131072, 64),
		raggedCase(4096, 32768, 32)}
	for _, c := range [][4]int{{64, 32768, 1, 1}, {64, 32768, 2, 2}, {64, 32768, 2, 1}, {64, 32768, 3, 3},
		{64, 32768, 3, 1}, {64, 32768, 4, 4}, {64, 32768, 4, 2}, {64, 32768, 4, 1}, {64, 32768, 6, 3},
		{64, 32768, 6, 2}, {64, 32768, 6, 1}, {64, 32768, 8, 4}, {64, 32768, 8, 2}, {64, 32768, 8, 1},
		{1, 131072, 8, 4}, {1, 131072, 8, 1}, {128, 65536, 1, 1}, {128, 65536, 2, 2}} {
		list = append(list, pagedCase(c[0], c[1], c[2], c[3], 64))
	}
	list = append(list, pagedCase(64, 32768, 1, 1, 32))
	for _, c := range []struct {
		rows, length, k int
		kind            topKKind
	}{{1, 131072, 2048, slots}, {1, 1 << 20, 2048, slots}, {64, 32768, 2048, positions}, {64, 32768, 2048, slots},
		{64, 32768, 512, slots}, {64, 32768, 2048, zeros}, {128, 65536, 2048, slots}, {4096, 8192, 2048, slots},
		{4096, 8192, 2048, tenth}, {4096, 32768, 2048, positions}, {4096, 32768, 2048, slots},
		{4096, 32768, 2048, zeros}, {1024, 131072, 2048, slots}, {4096, 131072, 2048, slots}} {
		list = append(list, topKCase(c.rows, c.length, c.k, c.kind))
	}
	return list
}

func raggedCase(rows, keys, heads int) Case {
	return Case{
		Case: titled("index_ragged", "%d x %dk, %d heads", rows, keys>>10, heads), Rate: FP8,
		FLOPs: 2 * float64(rows) * float64(keys) * float64(heads) * 128,
		Bytes: 4*float64(rows)*float64(keys) + float64(keys)*132 + float64(rows*heads)*132,
		New: func(h *holder) Set {
			codes := h.codes(patternBytes)
			scales := h.floats(patternBytes/512, 0.01, 0.05)
			x := cuda.IndexRagged{
				Queries: h.repeat(codes, rows*heads*128), Keys: h.repeat(codes[64:], keys*128),
				Scales: h.repeat(raw(scales), keys*4), Weights: putAll(h, h.floats(rows*heads, 0.02, 0)),
				KeyStart: h.ints(0, rows), KeyEnd: h.ints(keys, rows),
				Scores: h.output(rows * keys * 4), Stride: int64(keys), Rows: int32(rows),
				KeyCount: int32(keys), Heads: int32(heads),
			}
			var args cuda.IndexRaggedArgs
			if h.err == nil {
				args, h.err = x.Encode(h.rig.Device)
			}
			return Set{func(s *cuda.Stream) error { return cuda.ScoreRagged(h.rig.Kernels, s, x.Heads, &args) },
				func(r *reader) error {
					for range samples {
						row, key := int64(h.rng.IntN(rows)), int64(h.rng.IntN(keys))
						at := x.Scores.Add((row*x.Stride + key) * 4)
						if err := r.checkScore(x.Queries, x.Weights, heads, row, r.bytes(x.Keys.Add(key*128), 128),
							float32(r.f32(x.Scales.Add(key*4))), at); err != nil {
							return fmt.Errorf("row %d key %d: %w", row, key, err)
						}
					}
					return nil
				}}
		},
	}
}

// samples is the number of scores that a check computes on the host.
const samples = 400

// checkScore compares one score with the score computed on the host.
func (r *reader) checkScore(queries, weights cuda.Ptr, heads int, row int64, key []byte, scale float32,
	at cuda.Ptr) error {
	q := r.bytes(queries.Add(row*int64(heads)*128), heads*128)
	w := r.f32s(weights.Add(row*int64(heads)*4), heads)
	want, size := expect.IndexScore(q, key, w, scale)
	if g := r.f32(at); !(math.Abs(g-want) <= expect.IndexError*size) {
		return fmt.Errorf("the score is %g, want %g", g, want)
	}
	return nil
}

// pagedCase returns a case of index scores with each query rows per request. together rows are scored at once: all of
// them for native verify, some for groups, one for split verify.
func pagedCase(requests, keys, each, together, heads int) Case {
	blocks := keys / 64
	rows := requests * each
	cache := requests * blocks * layout.IndexPageBytes
	shape := fmt.Sprintf("%d x %dk, next_n %d, %d heads", requests, keys>>10, each, heads)
	switch {
	case together == 1 && each > 1:
		shape += ", split"
	case together < each:
		shape += fmt.Sprintf(", in groups of %d", together)
	}
	return Case{
		Case: harness.Case{Name: "index_paged", Shape: shape},
		Rate: FP8, FLOPs: 2 * float64(rows) * float64(keys) * float64(heads) * 128,
		Bytes: float64(cache) + 4*float64(rows)*float64(keys) + float64(rows*heads)*132,
		New: func(h *holder) Set {
			var pattern []byte
			for range 64 {
				pattern = append(pattern, indexPage(h)...)
			}
			table, owner := h.permutation(requests*blocks), make([]int32, rows)
			for i := range owner {
				owner[i] = int32(i / each)
			}
			x := cuda.IndexPaged{
				Queries: h.put(h.codes(rows * heads * 128)), Cache: h.repeat(pattern, cache),
				PageBytes: layout.IndexPageBytes, Pages: int64(requests * blocks),
				Weights:        putAll(h, h.floats(rows*heads, 0.02, 0)),
				ContextLengths: h.ints(keys, rows), BlockTable: putAll(h, table),
				TableRows: putAll(h, owner),
				Scores:    h.output(rows * keys * 4), Stride: int64(keys), TableStride: int64(blocks),
				Requests: int32(rows / together), NextN: int32(together), Heads: int32(heads), MaxContext: int32(keys),
				MaxBlocks: int32(blocks),
			}
			var args cuda.IndexPagedArgs
			if h.err == nil {
				args, h.err = x.Encode(h.rig.Device)
			}
			return Set{overlapping(func(s *cuda.Stream) error {
				return cuda.ScorePaged(h.rig.Kernels, s, x.Heads,
					&args)
			}),
				func(r *reader) error {
					for range samples {
						row, col := h.rng.IntN(rows), h.rng.IntN(keys)
						at := int64(table[row/each*blocks+col/64]) * layout.IndexPageBytes
						page, l := r.bytes(x.Cache.Add(at), layout.IndexPageBytes), layout.IndexFP8{}
						score := x.Scores.Add((int64(row)*x.Stride + int64(col)) * 4)
						if err := r.checkScore(x.Queries, x.Weights, heads, int64(row), l.Key(page, col%64),
							l.Scale(page, 64, col%64), score); err != nil {
							return fmt.Errorf("row %d column %d: %w", row, col, err)
						}
					}
					return nil
				}}
		},
	}
}

// overlapping returns a launch with programmatic dependent launch: a kernel starts its prologue while the previous
// kernel ends, as in a captured model.
func overlapping(launch func(*cuda.Stream) error) func(*cuda.Stream) error {
	return func(s *cuda.Stream) error {
		s.SetOverlap(true)
		defer s.SetOverlap(false)
		return launch(s)
	}
}

// topKKind selects the output of a selection and the distribution of its scores.
type topKKind string

const (
	positions topKKind = ""        // positions; normally distributed scores
	slots     topKKind = ", paged" // slots from a page table; normally distributed scores
	zeros     topKKind = ", zeros" // slots; fewer than k scores above zero, the others zero
	tenth     topKKind = ", tenth" // slots; one score in ten above zero, the others zero
)

// scores returns n random scores with the distribution of k.
func (k topKKind) scores(h *holder, n int) []float32 {
	v := h.floats(n, 1, 0)
	if above, ok := map[topKKind]float32{zeros: 2, tenth: 1.28}[k]; ok {
		for i, x := range v {
			v[i] = max(x-above, 0)
		}
	}
	return v
}

func topKCase(rows, length, k int, kind topKKind) Case {
	return Case{
		Case:  titled("topk", "%d of %d x %dk%s", k, rows, length>>10, kind),
		Bytes: 4 * float64(rows) * float64(length+k), New: func(h *holder) Set {
			blocks := length / 64
			args := cuda.TopKArgs{
				Scores:  h.repeat(raw(kind.scores(h, patternBytes/4+257)), 4*rows*length),
				Lengths: h.ints(length, rows), Out: h.output(4 * rows * k),
				PageTable: putAll(h, h.permutation(blocks)), Stride: int64(length), TableStride: int64(blocks),
				Rows: int32(rows), K: int32(k), Transform: int32(cuda.TopKPaged), RowsPerRequest: int32(rows),
				PageShift: 6,
			}
			if kind == positions {
				args.Transform = int32(cuda.TopKPosition)
			}
			if n := cuda.TopKScratch(h.rig.Kernels, int32(rows), int32(length), int32(k)); n > 0 {
				args.Kept, args.Via = h.alloc(int(4*n)), h.alloc(int(4*n))
			}
			return Set{overlapping(func(s *cuda.Stream) error { return cuda.SelectTopK(h.rig.Kernels, s, &args) }),
				func(r *reader) error { return r.checkTopK(&args) }}
		},
	}
}

// checkTopK compares the selections of some rows with selections computed on the host.
func (r *reader) checkTopK(a *cuda.TopKArgs) error {
	length, k := a.Stride, int64(a.K)
	table := r.bytes(a.PageTable, int(a.TableStride*4))
	for _, row := range slices.Compact([]int64{0, int64(a.Rows) / 2, int64(a.Rows) - 1}) {
		want := expect.TopK(r.f32s(a.Scores.Add(row*length*4), int(length)), int(k))
		for i, p := range want {
			if cuda.TopKTransform(a.Transform) == cuda.TopKPosition {
				continue
			}
			want[i] = int32(math.Float32bits(f32At(table, int(p/64))))*64 + p%64
		}
		if err := r.same(fmt.Sprintf("row %d", row), a.Out.Add(row*k*4), raw(want)); err != nil {
			return err
		}
	}
	return nil
}
