package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/cuda/expect"
	"sparrow/internal/num"
	"sparrow/layout"
)

// recipes returns every recipe that the kernels support.
func recipes() (list []IndexRecipeView) {
	for _, at := range []int32{0, 64} {
		for choice := range int32(8) {
			list = append(list, IndexRecipeView{RopeAt: at, Interleaved: choice & 1, Hadamard: choice >> 1 & 1,
				ExactScale: choice >> 2})
		}
	}
	return list
}

// onHost converts a recipe to that of package expect.
func (v IndexRecipeView) onHost() expect.Recipe {
	r := expect.Recipe{RopeAt: int(v.RopeAt), Interleaved: v.Interleaved == 1, Hadamard: v.Hadamard == 1,
		Mode: num.ScalePow2}
	if v.ExactScale == 1 {
		r.Mode = num.ScaleF32
	}
	return r
}

func TestGPUIndexKeysEqualTheHostByteForByte(t *testing.T) {
	r := onGPU(t)
	const tokens, pages = 203, 5
	rng := rand.New(rand.NewPCG(6, 6))
	keys, table := randomBF16(rng, tokens*128), expect.RotaryTable(700, 10000)
	clear(keys[128*3 : 128*4]) // a vector of zeros
	positions, slots := positionsBelow(rng, tokens, 700), scatter(rng, tokens, 64*pages)
	gamma, beta := make([]float32, 128), make([]float32, 128)
	for i := range gamma {
		gamma[i], beta[i] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
	}
	base := WriteIndexKeyArgs{
		Rotary: RotaryView{Table: upload(r, table), Rows: 700}, Keys: upload(r, keys), Positions: upload(r, positions),
		Slots: upload(r, slots), Faults: r.faultWord(), Epsilon: 1e-6, KeyStride: 128, Tokens: tokens,
	}
	onDevice := [2]Ptr{upload(r, gamma), upload(r, beta)}
	pageBytes := layout.IndexPageBytes + 64
	pool := r.alloc(int64(pages * pageBytes))
	for _, recipe := range recipes() {
		for _, norm := range []bool{true, false} {
			a := base
			a.Recipe = recipe
			a.Pool = PoolView{Base: pool, PageBytes: int64(pageBytes), PageTokens: 64, Slots: 64 * pages}
			if norm {
				a.Gamma, a.Beta = onDevice[0], onDevice[1]
			}
			check(t, r.s.Fill(pool, poison, int64(pages*pageBytes)))
			check(t, WriteIndexKeys(r.k, r.s, &a))
			want := make([]byte, pages*pageBytes)
			for i := range want {
				want[i] = poison
			}
			l := layout.IndexFP8{Mode: recipe.onHost().Mode}
			for i, slot := range slots {
				if slot < 0 {
					continue
				}
				x := expect.Widen(keys[i*128 : (i+1)*128])
				if norm {
					expect.LayerNorm(x, gamma, beta, 1e-6)
				}
				recipe.onHost().Apply(x, table[int(positions[i])*64:])
				l.Encode(want[int(slot)/64*pageBytes:], 64, int(slot)%64, x)
			}
			sameBytes(t, fmt.Sprintf("%+v norm %v", recipe, norm), r.download(pool, int64(pages*pageBytes)), want)
		}
	}
	if f := r.faults(base.Faults); f != 0 {
		t.Errorf("fault %d", f)
	}
}

func TestGPUIndexQueriesEqualTheHost(t *testing.T) {
	r := onGPU(t)
	rng := rand.New(rand.NewPCG(7, 7))
	table := expect.RotaryTable(500, 10000)
	for _, c := range []struct{ tokens, heads, padded int }{{1, 64, 64}, {3, 32, 32}, {5, 4, 32}, {33, 64, 64}} {
		queries := randomBF16(rng, c.tokens*c.heads*128)
		weights := make([]float32, c.tokens*c.heads)
		for i := range weights {
			weights[i] = float32(rng.NormFloat64())
		}
		positions := positionsBelow(rng, c.tokens, 500)
		scale := float32(1 / math.Sqrt(float64(c.heads)*128))
		rows := c.tokens * c.padded
		a := IndexQueryArgs{
			Rotary: RotaryView{Table: upload(r, table), Rows: 500}, Queries: upload(r, queries),
			Weights: upload(r, weights), Positions: upload(r, positions), Codes: r.alloc(int64(rows * 128)),
			Folded: r.alloc(int64(rows * 4)), QueryStride: int64(c.heads * 128), WeightStride: int64(c.heads),
			Tokens: int32(c.tokens), Heads: int32(c.heads), PaddedHeads: int32(c.padded), WeightScale: scale,
		}
		for _, recipe := range recipes() {
			a.Recipe = recipe
			check(t, r.s.Fill(a.Codes, poison, int64(rows*128)))
			check(t, r.s.Fill(a.Folded, poison, int64(rows*4)))
			check(t, PrepareIndexQueries(r.k, r.s, &a))
			codes, folded := make([]byte, rows*128), make([]float32, rows)
			for token := range c.tokens {
				for h := range c.heads {
					x := expect.Widen(queries[(token*c.heads+h)*128:][:128])
					recipe.onHost().Apply(x, table[int(positions[token])*64:])
					row := token*c.padded + h
					s := num.QuantE4M3(codes[row*128:], x, recipe.onHost().Mode)
					folded[row] = float32(weights[token*c.heads+h]*scale) * s
				}
			}
			name := fmt.Sprintf("%+v %+v", c, recipe)
			sameBytes(t, name+" codes", r.download(a.Codes, int64(rows*128)), codes)
			sameBytes(t, name+" weights", r.download(a.Folded, int64(rows*4)), bytesOf(folded))
		}
	}
}

func TestGPUIndexGatherEqualsTheHost(t *testing.T) {
	r := onGPU(t)
	rng := rand.New(rand.NewPCG(8, 8))
	const pages = 4
	host := make([]byte, pages*layout.IndexPageBytes)
	for i := range host {
		host[i] = byte(rng.Uint32())
	}
	pool := PoolView{Base: upload(r, host), PageBytes: layout.IndexPageBytes, PageTokens: 64, Slots: 64 * pages}
	want := func(slots []int32) (keys, scales []byte) {
		for _, s := range slots {
			if s < 0 || s >= 64*pages {
				keys, scales = append(keys, make([]byte, 128)...), append(scales, 0, 0, 0, 0)
				continue
			}
			l := layout.IndexFP8{}
			keys = append(keys, host[l.KeyOffset(64, int(s)):][:128]...)
			scales = append(scales, host[l.ScaleOffset(64, int(s)):][:4]...)
		}
		return keys, scales
	}
	slots := append(scatter(rng, 99, 64*pages), 64*pages, 1<<30)
	a := GatherIndexSlotsArgs{Pool: pool, Source: SlotListView{upload(r, slots)},
		Keys: r.poisoned(int64(len(slots) * 128)), Scales: r.poisoned(int64(len(slots) * 4)), Faults: r.faultWord(),
		Count: int32(len(slots))}
	check(t, GatherIndexSlots(r.k, r.s, &a))
	keys, scales := want(slots)
	sameBytes(t, "keys by slots", r.download(a.Keys, int64(len(keys))), keys)
	sameBytes(t, "scales by slots", r.download(a.Scales, int64(len(scales))), scales)
	if f := r.faults(a.Faults); f != FaultSlot {
		t.Errorf("faults %d, want %d", f, FaultSlot)
	}
	src, through := pagedRequests(rng, pages, []int{1, 0, 192, 64})
	p := GatherIndexPagesArgs{Pool: pool, Source: src.view(r), Keys: r.poisoned(int64(len(through) * 128)),
		Scales: r.poisoned(int64(len(through) * 4)), Count: int32(len(through))}
	check(t, gatherIndexPages(r.k, r.s, &p))
	keys, scales = want(through)
	sameBytes(t, "keys by pages", r.download(p.Keys, int64(len(keys))), keys)
	sameBytes(t, "scales by pages", r.download(p.Scales, int64(len(scales))), scales)
}
