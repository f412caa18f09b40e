package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/layout"
)

// repeats is the number of runs in which a launch must give bitwise equal results.
const repeats = 100

// sameEveryTime runs a launch repeatedly over poisoned outputs and checks that the results are bitwise equal.
func sameEveryTime(r *rig, name string, out Ptr, n int64, launch func() error) {
	r.t.Helper()
	var first []byte
	for i := range repeats {
		check(r.t, r.s.Fill(out, poison, n))
		check(r.t, launch())
		got := r.download(out, n)
		if i == 0 {
			first = got
		} else if !bytes.Equal(got, first) {
			sameBytes(r.t, fmt.Sprintf("%s: run %d compared with the first run", name, i), got, first)
			r.t.FailNow()
		}
	}
}

// randomRagged returns a ragged problem whose rows have different ranges of keys.
func randomRagged(r *rig, rng *rand.Rand, rows, keys, heads int) IndexRagged {
	scales, start, end := make([]float32, keys), make([]int32, rows), make([]int32, rows)
	for i := range scales {
		scales[i] = 0.01 + rng.Float32()
	}
	for i := range start {
		start[i] = int32(rng.IntN(keys))
		end[i] = start[i] + int32(rng.IntN(keys+1-int(start[i])))
	}
	return IndexRagged{Queries: upload(r, codes(rng, rows*heads*128)), Keys: upload(r, codes(rng, keys*128)),
		Scales: upload(r, scales), Weights: upload(r, floats(rng, rows*heads, 0.02, 0)), KeyStart: upload(r, start),
		KeyEnd: upload(r, end), Scores: r.alloc(int64(rows * keys * 4)), Stride: int64(keys), Rows: int32(rows),
		KeyCount: int32(keys), Heads: int32(heads)}
}

// randomPaged returns a paged problem whose requests have different lengths and may share pages.
func randomPaged(r *rig, rng *rand.Rand, requests, blocks, nextN, heads int) IndexPaged {
	pages, rows := min(requests*blocks, 1000), requests*nextN
	cache := codes(rng, pages*layout.IndexPageBytes)
	for p := range pages {
		for i := range 64 {
			binary.LittleEndian.PutUint32(cache[p*layout.IndexPageBytes+8192+4*i:],
				math.Float32bits(0.01+rng.Float32()))
		}
	}
	table, visible := make([]int32, requests*blocks), make([]int32, rows)
	for i := range table {
		table[i] = int32(rng.IntN(pages))
	}
	for i := range visible {
		visible[i] = int32(rng.IntN(blocks*64 + 1))
	}
	return IndexPaged{Queries: upload(r, codes(rng, rows*heads*128)), Cache: upload(r, cache),
		PageBytes: layout.IndexPageBytes, Pages: int64(pages), Weights: upload(r, floats(rng, rows*heads, 0.02, 0)),
		ContextLengths: upload(r, visible), BlockTable: upload(r, table),
		Scores: r.alloc(int64(rows * blocks * 64 * 4)), Stride: int64(blocks * 64), TableStride: int64(blocks),
		Requests: int32(requests), NextN: int32(nextN), Heads: int32(heads), MaxContext: int32(blocks * 64),
		MaxBlocks: int32(blocks)}
}

func TestGPUScoresAreTheSameEveryTime(t *testing.T) {
	r := onGPU(t)
	rng := rand.New(rand.NewPCG(21, 1))
	for _, heads := range []int{32, 64} {
		x := randomRagged(r, rng, 300, 3000, heads)
		a, err := x.Encode(r.d)
		check(t, err)
		sameEveryTime(r, fmt.Sprintf("ragged, %d heads", heads), x.Scores, 300*3000*4, func() error {
			return ScoreRagged(r.k, r.s, x.Heads, &a)
		})
		for nextN := 1; nextN <= 4; nextN++ {
			// In the second case a thread block has several times as many keys as its shared-memory ring holds.
			for _, c := range []struct{ requests, blocks int }{{37, 20}, {12, 1500}} {
				if testing.Short() && c.blocks > 20 {
					continue
				}
				x := randomPaged(r, rng, c.requests, c.blocks, nextN, heads)
				a, err := x.Encode(r.d)
				check(t, err)
				sameEveryTime(r, fmt.Sprintf("paged, %d heads, %d rows, %d blocks", heads, nextN, c.blocks), x.Scores,
					int64(c.requests*nextN*c.blocks*64*4), func() error { return ScorePaged(r.k, r.s, x.Heads, &a) })
			}
		}
	}
}

func TestGPUSelectionsAreTheSameEveryTime(t *testing.T) {
	r := onGPU(t)
	rng := rand.New(rand.NewPCG(22, 1))
	var many, short []int32
	for range 400 {
		many = append(many, int32(rng.IntN(9000)))
		short = append(short, int32(rng.IntN(8000)))
	}
	for name, c := range map[string]topKCase{
		"many rows":       {k: 2048, kind: TopKPaged, lengths: many, score: distributions["halves"]},
		"many short rows": {k: 2048, kind: TopKPaged, lengths: short, score: distributions["halves"]},
		"many short rows, no ties": {k: 512, kind: TopKRagged, lengths: short, starts: true,
			score: distributions["normal"]},
		"few rows": {k: 2048, kind: TopKPaged, lengths: many[:60], score: distributions["halves"]},
		"few rows, no ties": {k: 512, kind: TopKPaged, lengths: []int32{32768, 20000, 32000},
			score: distributions["normal"]},
		"in parts": {k: 2048, kind: TopKPaged, lengths: []int32{231072, 90000},
			score: distributions["relu, both signs"]},
		"in parts, no ties": {k: 512, kind: TopKPosition, lengths: []int32{200000}, score: distributions["normal"]},
	} {
		s := c.build(r, rng)
		for variant, a := range map[string]TopKArgs{"": s.args, ", streamed": s.without().args} {
			sameEveryTime(r, name+variant, a.Out, int64(4*len(s.want)), func() error {
				return SelectTopK(r.k, r.s,
					&a)
			})
		}
	}
}

// The scores and the selection of a row are bitwise equal alone and in any batch.
func TestGPURowsDoNotDependOnTheirNeighbours(t *testing.T) {
	r := onGPU(t)
	rng := rand.New(rand.NewPCG(23, 1))
	for _, heads := range []int{32, 64} {
		const rows, keys = 150, 2100
		x := randomRagged(r, rng, rows, keys, heads)
		a, err := x.Encode(r.d)
		check(t, err)
		check(t, r.s.Fill(x.Scores, poison, rows*keys*4))
		check(t, ScoreRagged(r.k, r.s, x.Heads, &a))
		together := r.download(x.Scores, rows*keys*4)
		for _, row := range []int64{0, 1, 77, rows - 1} {
			one := x
			one.Rows, one.Scores = 1, r.poisoned(keys*4)
			one.Queries, one.Weights = x.Queries.Add(row*int64(heads)*128), x.Weights.Add(row*int64(heads)*4)
			one.KeyStart, one.KeyEnd = x.KeyStart.Add(row*4), x.KeyEnd.Add(row*4)
			a, err := one.Encode(r.d)
			check(t, err)
			check(t, ScoreRagged(r.k, r.s, x.Heads, &a))
			sameBytes(t, fmt.Sprintf("ragged, %d heads, row %d alone", heads, row), r.download(one.Scores, keys*4),
				together[row*keys*4:][:keys*4])
		}
		for nextN := 1; nextN <= 4; nextN++ {
			const requests, blocks = 41, 18
			x := randomPaged(r, rng, requests, blocks, nextN, heads)
			a, err := x.Encode(r.d)
			check(t, err)
			perRequest := int64(nextN * blocks * 64 * 4)
			check(t, r.s.Fill(x.Scores, poison, requests*perRequest))
			check(t, ScorePaged(r.k, r.s, x.Heads, &a))
			together := r.download(x.Scores, requests*perRequest)
			for _, request := range []int64{0, 5, requests - 1} {
				one := x
				one.Requests, one.Scores = 1, r.poisoned(perRequest)
				row := request * int64(nextN)
				one.Queries, one.Weights = x.Queries.Add(row*int64(heads)*128), x.Weights.Add(row*int64(heads)*4)
				one.ContextLengths, one.BlockTable = x.ContextLengths.Add(row*4), x.BlockTable.Add(request*blocks*4)
				a, err := one.Encode(r.d)
				check(t, err)
				check(t, ScorePaged(r.k, r.s, x.Heads, &a))
				sameBytes(t, fmt.Sprintf("paged, %d heads, %d rows, request %d alone", heads, nextN, request),
					r.download(one.Scores, perRequest), together[request*perRequest:][:perRequest])
			}
		}
	}
}

// Native and split verify give bitwise equal results, whether all rows of a request are scored together, in groups, or
// one by one.
func TestGPUNativeAndSplitScoresAgree(t *testing.T) {
	r := onGPU(t)
	rng := rand.New(rand.NewPCG(24, 1))
	const requests, blocks = 7, 10
	for _, heads := range []int{32, 64} {
		for each := 2; each <= 8; each++ {
			rows := requests * each
			bytes := int64(rows * blocks * 64 * 4)
			var want []byte
			owner := make([]int32, rows)
			for i := range owner {
				owner[i] = int32(i / each)
			}
			x := randomPaged(r, rng, rows, blocks, 1, heads) // only the first table of each request is used
			x.TableRows = upload(r, owner)
			for together := 1; together <= min(each, 4); together++ {
				if each%together != 0 {
					continue
				}
				y := x
				y.Requests, y.NextN, y.Scores = int32(rows/together), int32(together), r.poisoned(bytes)
				a, err := y.Encode(r.d)
				check(t, err)
				check(t, ScorePaged(r.k, r.s, y.Heads, &a))
				got := r.download(y.Scores, bytes)
				if together == 1 {
					want = got
					continue
				}
				sameBytes(t, fmt.Sprintf("%d heads, %d rows, %d at once", heads, each, together), got, want)
			}
		}
	}
}
