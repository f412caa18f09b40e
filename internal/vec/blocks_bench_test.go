package vec_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"sparrow/internal/bench/peak"
	"sparrow/internal/block"
	"sparrow/internal/vec"
)

// BenchmarkBlockRows measures products of one row and of sixteen rows by packed weights in the L2 cache and in memory,
// and compares the rate of reading weights from memory with that of plain reads. Each measurement takes at most a few
// milliseconds, and the best is reported, so that other programs on the machine disturb little.
func BenchmarkBlockRows(b *testing.B) {
	const k, far = 4096, 512 << 20
	mem := make([]byte, far)
	reader := peak.NewReader(1)
	defer reader.Close()
	r := rand.New(rand.NewPCG(5, 6))
	x := make([]float32, 16*k)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	for _, f := range block.Formats() {
		if vec.BlockGroup(f) == 0 {
			continue
		}
		row := k / f.Values() * f.Bytes()
		near, part := 256<<10/row*row, 1<<20/row*row
		f.Random(mem[:part], r)
		for n := part; n < far; n *= 2 {
			copy(mem[n:], mem[:n])
		}
		for _, tier := range vec.Tiers() {
			if !tier.Blocks() || tier.SlowBlocks(f) != "" || tier.Name == "go" {
				continue
			}
			for _, m := range []int{1, 16} {
				b.Run(fmt.Sprintf("%s/%v/m%d", tier.Name, f, m), func(b *testing.B) {
					var rows vec.BlockRows
					tier.ResetBlocks(&rows, m, k, vec.BlockGroup(f), false)
					for i := range rows.Units() {
						tier.QuantUnit(&rows, i, x, k)
					}
					y := make([]float32, m*(part/row))
					multiply := func(from, bytes int) time.Duration {
						n := bytes / row
						start := time.Now()
						tier.MulBlocks(vec.BlockCut{Y: y, Ldy: n, X: &rows, M1: m, N: n}, f, mem[from:][:n*row], row)
						return time.Since(start)
					}
					cached, memory, read := time.Duration(1<<62), time.Duration(1<<62), time.Duration(1<<62)
					at := 0
					next := func() int { at = (at + part) % (far - 2*part) / part * part; return at }
					for b.Loop() {
						for range 4 { // the first run loads the weights into the cache
							cached = min(cached, multiply(0, near))
						}
						memory = min(memory, multiply(next(), part))
						for _, streams := range peak.Streams {
							d, err := reader.TimeStreams(mem[next():][:part], streams)
							if err != nil {
								b.Fatal(err)
							}
							read = min(read, d)
						}
					}
					b.ReportMetric(float64(near)/float64(cached.Nanoseconds()), "cache-GB/s")
					b.ReportMetric(float64(part)/float64(memory.Nanoseconds()), "memory-GB/s")
					b.ReportMetric(100*read.Seconds()/memory.Seconds(), "%read")
				})
			}
		}
	}
}
