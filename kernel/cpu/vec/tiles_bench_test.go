package vec

import (
	"fmt"
	"testing"
	"time"
)

// quickest is the shortest of the runs of work in a benchmark: on a shared
// machine the others measure the neighbours.
func quickest(b *testing.B, work func()) time.Duration {
	best := time.Duration(1 << 62)
	for b.Loop() {
		start := time.Now()
		work()
		best = min(best, time.Since(start))
	}
	return best
}

// The size at which rates of matrix products are compared.
const (
	rateM = 960
	rateN = 1024
	rateK = 1024
)

// Products of packed columns: one part for bfloat16 x, three for float32.
func BenchmarkTiled(b *testing.B) {
	a := newMatrix(newRand(1), rateM, rateN, rateK, 0, 0)
	y := make([]float32, rateM*rateN)
	xs := narrow(a.x)
	power := newMatrix(newRand(1), rateM, rateN, rateK, 0, 0).withPowerScales()
	a.ldw, power.ldw = rateK, rateK // rows begin cache lines, as in checkpoints
	fp4, scales := make([]byte, rateN*rateK/2), make([]byte, rateN*rateK/GroupFP4)
	for i := range scales {
		scales[i] = 120
	}
	for _, tier := range Tiers() {
		if !tier.Tiled() {
			continue
		}
		var cols, plain Columns
		pack := func() {
			cols.Reset(rateM, rateK)
			for i := range cols.Chunks() {
				tier.PackChunk(&cols, i, a.x, a.ldx)
			}
		}
		packPlain := func() {
			plain.ResetBF16(rateM, rateK)
			for i := range plain.Chunks() {
				tier.PackChunkBF16(&plain, i, xs, a.ldx)
			}
		}
		cut := func(c *Columns) Cut { return Cut{Y: y, Ldy: rateN, X: c, M1: rateM, N: rateN} }
		for _, c := range []struct {
			name string
			run  func()
		}{
			{"pack", pack},
			{"packbf16", packPlain},
			{"bf16xbf16", func() { packPlain(); tier.TiledBF16(cut(&plain), a.bf16, a.ldw) }},
			{"bf16xfp8", func() { packPlain(); tier.TiledFP8(cut(&plain), power.fp8, a.ldw, power.scale, a.ldScale, 0) }},
			{"bf16xfp8 any scale", func() { packPlain(); tier.TiledFP8(cut(&plain), a.fp8, a.ldw, a.scale, a.ldScale, 0) }},
			{"f32xbf16", func() { pack(); tier.TiledBF16(cut(&cols), a.bf16, a.ldw) }},
			{"f32xfp8", func() { pack(); tier.TiledFP8(cut(&cols), power.fp8, a.ldw, power.scale, a.ldScale, 0) }},
			{"f32xfp8 any scale", func() { pack(); tier.TiledFP8(cut(&cols), a.fp8, a.ldw, a.scale, a.ldScale, 0) }},
			{"f32xfp4", func() { pack(); tier.TiledFP4(cut(&cols), fp4, rateK/2, scales, rateK/GroupFP4) }},
		} {
			b.Run(fmt.Sprintf("%s/%s", tier.Name, c.name), func(b *testing.B) {
				best := quickest(b, c.run)
				b.ReportMetric(2*rateM*rateN*rateK/float64(best.Nanoseconds()), "best-GFLOP/s")
			})
		}
	}
}
