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

// codes returns n random e4m3 codes without NaN.
func codes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = num.E4M3(float32(rng.NormFloat64() * 30))
	}
	return b
}

// floats returns n random values with standard deviation size and mean shift.
func floats(rng *rand.Rand, n int, size, shift float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.NormFloat64()*size + shift)
	}
	return v
}

// poisonedFloat is the value of four poison bytes.
var poisonedFloat = math.Float32frombits(poison * 0x01010101)

func TestGPURaggedScoresMatchTheReference(t *testing.T) {
	r := onGPU(t)
	for _, heads := range []int{32, 64} {
		for _, relative := range []bool{false, true} {
			for _, c := range []struct{ rows, keys int }{{1, 1}, {5, 130}, {9, 70}, {13, 257}} {
				rng := rand.New(rand.NewPCG(11, uint64(c.keys)))
				q, keys := codes(rng, c.rows*heads*128), codes(rng, c.keys*128)
				w, scales := floats(rng, c.rows*heads, 0.02, 0), make([]float32, c.keys)
				for i := range scales {
					scales[i] = 0.01 + rng.Float32()
				}
				start, end := make([]int32, c.rows), make([]int32, c.rows)
				for i := range start {
					start[i] = int32(rng.IntN(c.keys))
					end[i] = start[i] + int32(rng.IntN(c.keys+1-int(start[i])))
				}
				start[0], end[0] = 0, int32(c.keys)
				stride := (c.keys + 3) / 4 * 4
				x := IndexRagged{Queries: upload(r, q), Keys: upload(r, keys), Scales: upload(r, scales),
					Weights: upload(r, w), KeyStart: upload(r, start), KeyEnd: upload(r, end),
					Scores: r.poisoned(int64(c.rows * stride * 4)), Stride: int64(stride), Rows: int32(c.rows),
					KeyCount: int32(c.keys), Heads: int32(heads), Relative: relative}
				a, err := x.Encode(r.d)
				check(t, err)
				name := fmt.Sprintf("%d heads, relative %v, %+v", heads, relative, c)
				check(t, ScoreRagged(r.k, r.s, int32(heads), &a))
				if err := r.s.Sync(); err != nil {
					t.Fatalf("%s: ranges %v to %v: %v", name, start, end, err)
				}
				got := r.download(x.Scores, int64(c.rows*stride*4))
				for row := range c.rows {
					for col := range stride {
						key := col
						if relative {
							key += int(start[row])
						}
						g := math.Float32frombits(binary.LittleEndian.Uint32(got[(row*stride+col)*4:]))
						if key < int(start[row]) || key >= int(end[row]) {
							if g != poisonedFloat {
								t.Fatalf("%s: row %d column %d outside the range was written", name, row, col)
							}
							continue
						}
						want, size := expect.IndexScore(q[row*heads*128:], keys[key*128:], w[row*heads:(row+1)*heads],
							scales[key])
						if !(math.Abs(float64(g)-want) <= expect.IndexError*size) {
							t.Fatalf("%s: row %d key %d scores %g, want %g", name, row, key, g, want)
						}
					}
				}
			}
		}
	}
}

func TestGPUPagedScoresMatchTheReference(t *testing.T) {
	r := onGPU(t)
	for _, heads := range []int{32, 64} {
		for nextN := 1; nextN <= 4; nextN++ {
			rng := rand.New(rand.NewPCG(12, uint64(heads+nextN)))
			lengths := []int{0, 1, 63, 64, 65, 200}
			const pages, maxBlocks, columns = 20, 4, 256
			cache := codes(rng, pages*layout.IndexPageBytes)
			for p := range pages {
				for i := range 64 {
					binary.LittleEndian.PutUint32(cache[p*layout.IndexPageBytes+8192+4*i:],
						math.Float32bits(0.01+rng.Float32()))
				}
			}
			rows := len(lengths) * nextN
			q, w := codes(rng, rows*heads*128), floats(rng, rows*heads, 0.02, 0)
			table, visible := make([]int32, 0, len(lengths)*maxBlocks), make([]int32, 0, rows)
			for _, n := range lengths {
				for range maxBlocks {
					table = append(table, int32(rng.IntN(pages)))
				}
				for j := range nextN {
					visible = append(visible, int32(max(n-(nextN-1-j), 0)))
				}
			}
			x := IndexPaged{Queries: upload(r, q), Cache: upload(r, cache), PageBytes: layout.IndexPageBytes,
				Pages: pages, Weights: upload(r, w), ContextLengths: upload(r, visible), BlockTable: upload(r, table),
				Scores: r.poisoned(int64(rows * columns * 4)), Stride: columns, TableStride: maxBlocks,
				Requests: int32(len(lengths)), NextN: int32(nextN), Heads: int32(heads), MaxContext: columns,
				MaxBlocks: maxBlocks}
			a, err := x.Encode(r.d)
			check(t, err)
			check(t, ScorePaged(r.k, r.s, int32(heads), &a))
			got := r.download(x.Scores, int64(rows*columns*4))
			l := layout.IndexFP8{}
			for row := range rows {
				request := row / nextN
				for col := range columns {
					g := math.Float32frombits(binary.LittleEndian.Uint32(got[(row*columns+col)*4:]))
					if col >= int(visible[row]) {
						if g != poisonedFloat {
							t.Fatalf("%d heads, %d rows: row %d column %d beyond its length was written", heads, nextN,
								row, col)
						}
						continue
					}
					page := cache[int(table[request*maxBlocks+col/64])*layout.IndexPageBytes:][:layout.IndexPageBytes]
					want, size := expect.IndexScore(q[row*heads*128:], l.Key(page, col%64), w[row*heads:(row+1)*heads],
						l.Scale(page, 64, col%64))
					if !(math.Abs(float64(g)-want) <= expect.IndexError*size) {
						t.Fatalf("%d heads, %d rows: row %d column %d scores %g, want %g", heads, nextN, row, col, g,
							want)
					}
				}
			}
		}
	}
}
