package bench

import (
	"fmt"

	"sparrow/internal/bench/harness"
	"sparrow/kernel/cuda"
	"sparrow/layout"
)

// latentSplits lists after how many keys plans split rows that attend to every key; 0 means no split.
var latentSplits = []int{512, 1024, 2048, 0}

// latentCases returns the main combinations of batch size, heads and keys for attention over every key.
func latentCases() []Case {
	var list []Case
	for _, c := range [][3]int{{1, 128, 8192}, {16, 128, 8192}, {64, 128, 8192}, {128, 128, 8192}, {16, 128, 65536},
		{1, 128, 65536}, {64, 64, 8192}, {64, 20, 8192}, {16, 64, 65536}, {1, 20, 8192}} {
		for _, split := range latentSplits {
			list = append(list, latentCase(layout.FP8Row656, c[0], c[1], c[2], split))
		}
	}
	for _, split := range latentSplits {
		list = append(list, latentCase(layout.FP8Row576, 64, 128, 8192, split),
			latentCase(layout.BF16Row1152, 128, 128, 4096, split), latentCase(layout.BF16Row1152, 1, 128, 8192, split),
			latentCase(layout.BF16Row1152, 16, 128, 8192, split), latentCase(layout.BF16Row1152, 64, 128, 8192, split))
	}
	return list
}

// latentCase returns a decode of a batch of sequences, all with the same number of keys, with pages in random order.
// Rows are split after split keys.
func latentCase(kind layout.Kind, rows, heads, keys, split int) Case {
	const tokens = 64
	pages := keys / tokens
	shape := fmt.Sprintf("%v, %d x %dk, %d heads", kind, rows, keys>>10, heads)
	segments, blocks := cuda.LatentSegments(int32(keys), int32(split))
	if split > 0 {
		shape += fmt.Sprintf(" cut after %d", split)
	} else {
		shape += ", whole"
	}
	rowBytes := map[layout.Kind]int{layout.FP8Row656: 656, layout.FP8Row576: 576, layout.BF16Row1152: 1152}[kind]
	return Case{
		Case:  harness.Case{Name: "latent_decode", Shape: shape},
		Rate:  BF16,
		Bytes: float64(rows*keys)*float64(rowBytes) + float64(rows*heads*(layout.RowDim+512)*2),
		FLOPs: 2 * float64(rows*heads) * float64(keys) * float64(layout.RowDim+512),
		New: func(h *holder) Set {
			x := &sparse{holder: h, kind: kind, dim: layout.RowDim}
			var pattern []byte
			for range 4 {
				pattern = append(pattern, sparsePage(h, kind, tokens)...)
			}
			size := len(pattern) / 4
			pool := cuda.PoolView{PageBytes: int64(size), PageTokens: tokens, Slots: int32(rows * keys),
				Base: h.repeat(pattern, rows*pages*size)}
			table, row := make([]int32, 0, rows*pages), make([]int32, rows)
			for _, p := range h.rng.Perm(rows * pages) {
				table = append(table, int32(p))
			}
			for i := range row {
				row[i] = int32(i)
			}
			var err error
			if x.args.Streams, err = pool.Tables(putAll(h, table), int64(pages), int32(pages), putAll(h, row), 1,
				h.ints(keys, rows), 1); h.err == nil {
				h.err = err
			}
			x.streams[0] = sparseStream{kind: kind, pool: pool, width: keys}
			for i := range rows * keys {
				x.streams[0].indices = append(x.streams[0].indices, table[i/tokens]*tokens+int32(i%tokens))
			}
			x.finish(rows, heads, segments, blocks)
			return Set{overlapping(func(s *cuda.Stream) error {
				return cuda.LatentAttend(x.rig.Kernels, s, kind, &x.args)
			}), x.check}
		},
	}
}
