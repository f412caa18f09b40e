package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"sparrow/internal/num"
)

// quickest returns the shortest run of work in a benchmark: on a shared machine the other runs include the load of
// other programs.
func quickest(b *testing.B, work func()) time.Duration {
	best := time.Duration(1 << 62)
	for b.Loop() {
		start := time.Now()
		work()
		best = min(best, time.Since(start))
	}
	return best
}

// These constants are the size at which rates of matrix products are compared.
const (
	rateM = 960
	rateN = 1024
	rateK = 1024
)

// BenchmarkTiled measures products of packed columns, which have one part for bfloat16 x and two parts for float32 x.
func BenchmarkTiled(b *testing.B) {
	a := newMatrix(newRand(1), rateM, rateN, rateK, 0, 0)
	y := make([]float32, rateM*rateN)
	xs := narrow(a.x)
	held := make([]float32, len(a.x)) // x rounded to bfloat16
	widenBF16Go(held, xs)
	power := newMatrix(newRand(1), rateM, rateN, rateK, 0, 0).withPowerScales()
	a.ldw, power.ldw = rateK, rateK // rows begin at cache lines, as in checkpoints
	fp4, scales := make([]byte, rateN*rateK/2), make([]byte, rateN*rateK/GroupFP4)
	for i := range scales {
		scales[i] = 120
	}
	for _, tier := range Tiers() {
		if !tier.Tiled() {
			continue
		}
		var cols, plain Columns
		packIn := func(o Order) {
			cols.Reset(rateM, rateK, o)
			for i := range cols.Chunks() {
				tier.PackChunk(&cols, i, a.x, a.ldx)
			}
		}
		plainIn := func(o Order) {
			plain.ResetBF16(rateM, rateK, o)
			for i := range plain.Chunks() {
				tier.PackChunkBF16(&plain, i, xs, a.ldx)
			}
		}
		cut := func(c *Columns) Cut { return Cut{Y: y, Ldy: rateN, X: c, M1: rateM, N: rateN} }
		for _, c := range []struct {
			name string
			run  func()
		}{
			{"pack", func() { packIn(InOrder) }},
			{"pack nibbles", func() { packIn(Nibbles) }},
			{"pack halves", func() { packIn(Halves) }},
			{"packbf16", func() { plainIn(InOrder) }},
			{"bf16xbf16", func() { plainIn(InOrder); tier.TiledBF16(cut(&plain), a.bf16, a.ldw) }},
			{"bf16xfp8", func() {
				plainIn(Halves)
				tier.TiledFP8(cut(&plain), power.fp8, a.ldw, power.scale, a.ldScale, 0)
			}},
			{"bf16xfp8 any scale", func() {
				plainIn(Halves)
				tier.TiledFP8(cut(&plain), a.fp8, a.ldw, a.scale, a.ldScale, 0)
			}},
			{"f32xbf16", func() { packIn(InOrder); tier.TiledBF16(cut(&cols), a.bf16, a.ldw) }},
			{"held f32xbf16", func() {
				cols.Reset(rateM, rateK, InOrder)
				for i := range cols.Chunks() {
					tier.PackChunk(&cols, i, held, a.ldx)
				}
				tier.TiledBF16(cut(&cols), a.bf16, a.ldw)
			}},
			{"f32xfp8", func() {
				packIn(Halves)
				tier.TiledFP8(cut(&cols), power.fp8, a.ldw, power.scale, a.ldScale, 0)
			}},
			{"f32xfp8 any scale", func() {
				packIn(Halves)
				tier.TiledFP8(cut(&cols), a.fp8, a.ldw, a.scale, a.ldScale, 0)
			}},
			{"f32xfp4", func() { packIn(Nibbles); tier.TiledFP4(cut(&cols), fp4, rateK/2, scales, rateK/GroupFP4) }},
		} {
			b.Run(fmt.Sprintf("%s/%s", tier.Name, c.name), func(b *testing.B) {
				best := quickest(b, c.run)
				b.ReportMetric(2*rateM*rateN*rateK/float64(best.Nanoseconds()), "best-GFLOP/s")
			})
		}
	}
}

// BenchmarkFewRows measures products of few rows with weights in the L2 cache, which shows the rate of the kernels, and
// with weights in memory, relative to plain reading. Weight rows are long, or as short as in small models.
func BenchmarkFewRows(b *testing.B) {
	for _, k := range []int{4096, 1024} {
		fewRowsBy(b, k)
	}
}

func fewRowsBy(b *testing.B, k int) {
	const near, far = 512 << 10, 512 << 20
	const part = 16 << 20 // bytes of the memory that one run reads; runs take the parts in turn
	mem := make([]float32, far/4)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), far) // the memory of mem, as bytes
	scale := make([]float32, part/k/scaleBlock*(k/scaleBlock))
	for i := range scale {
		scale[i] = 0.015 + float32(i%7)/1000
	}
	exponents, spread := make([]byte, part*2/GroupFP4), make([]byte, part*2/GroupFP4)
	repeat(exponents, scalesE8M0(newRand(8), 1<<12+k/GroupFP4+1))
	for i := range spread {
		spread[i] = 119 + byte(i%5)
	}
	formats := []struct {
		name  string
		bits  int
		order Order
		fill  func()
		run   func(tier *Tier, c Cut, w []byte)
	}{
		{"bf16", 16, InOrder, func() { repeat(bytes, narrow(normals(newRand(8), 1<<20+k))) },
			func(tier *Tier, c Cut, w []byte) { tier.TiledBF16(c, w, k) }},
		{"fp8", 8, Halves, func() { repeat(bytes, weightsE4M3(newRand(8), 1<<20+k)) },
			func(tier *Tier, c Cut, w []byte) { tier.TiledFP8(c, w, k, scale, k/scaleBlock, 0) }},
		{"fp4", 4, Nibbles, func() { repeat(bytes, randomBytes(newRand(8), 1<<20+k)) },
			func(tier *Tier, c Cut, w []byte) { tier.TiledFP4(c, w, k/2, exponents, k/GroupFP4) }},
		{"fp4 in two windows", 4, Nibbles, func() {}, // the codes of "fp4" with other scales
			func(tier *Tier, c Cut, w []byte) { tier.TiledFP4(c, w, k/2, spread, k/GroupFP4) }},
	}
	for _, tier := range Tiers() {
		if !tier.Tiled() {
			continue
		}
		for _, f := range formats {
			f.fill()
			for _, m := range []int{1, 4, 8, 16, 32} {
				xs := normals(newRand(7), m*k)
				y := make([]float32, m*part*8/f.bits/k)
				x := packed(tier, f.order, xs, k, m, k)
				multiply := func(w []byte) {
					n := len(w) * 8 / f.bits / k
					f.run(tier, Cut{Y: y, Ldy: n, X: x, M1: m, N: n}, w)
				}
				b.Run(fmt.Sprintf("%s/k%d/m%d/%s", tier.Name, k, m, f.name), func(b *testing.B) {
					cached, read := time.Duration(1<<62), time.Duration(1<<62)
					at := 0
					next := func() int { at = (at + part) % far; return at }
					memory := time.Duration(1 << 62)
					timed := func(best *time.Duration, work func()) {
						start := time.Now()
						work()
						*best = min(*best, time.Since(start))
					}
					for b.Loop() {
						for range 4 { // the first run loads the weights into the cache
							timed(&cached, func() { multiply(bytes[:near]) })
						}
						i := next() / 4
						timed(&read, func() {
							tier.MatMulF32(y, part/4/k, mem[:k], k, 1, mem[i:][:part/4], k, part/4/k, k)
						})
						timed(&memory, func() { multiply(bytes[next():][:part]) })
					}
					b.ReportMetric(near/float64(cached.Nanoseconds()), "cache-GB/s")
					b.ReportMetric(part/float64(memory.Nanoseconds()), "memory-GB/s")
					b.ReportMetric(100*read.Seconds()/memory.Seconds(), "%read")
				})
			}
		}
	}
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// repeat fills memory with copies of values.
func repeat(to, values []byte) {
	for n := 0; n < len(to); n += len(values) {
		copy(to[n:], values)
	}
}

// scalesE8M0 returns scales like those of checkpoints: powers of two with which the largest of 32 normal numbers is at
// most 6.
func scalesE8M0(r *rand.Rand, n int) []byte {
	scales := make([]byte, n)
	for i := range scales {
		peak := 0.0
		for range GroupFP4 {
			peak = max(peak, math.Abs(r.NormFloat64()))
		}
		scales[i] = byte(120 + int(math.Ceil(math.Log2(peak/6))))
	}
	return scales
}

// weightsE4M3 returns codes like those of checkpoints, whose blocks of 128 x 128 are scaled so that the largest value
// is 448: one code in ten thousand is zero or subnormal.
func weightsE4M3(r *rand.Rand, n int) []byte {
	codes := make([]byte, n)
	for i := range codes {
		codes[i] = num.E4M3(float32(max(-448, min(r.NormFloat64()*448/4.1, 448))))
	}
	return codes
}
