package vec

import (
	"fmt"
	"testing"
	"time"
)

// Memory rates are reported relative to the rate of plain reading in the same process, because machines differ and the
// speed of shared machines changes.

// memoryBytes is larger than the caches of the machine.
const memoryBytes = 512 << 20

// readRate returns the best rate of reading mem in bytes per second: either one stream with a comparison for each
// register, or four streams with a multiplication.
func readRate(tier *Tier, mem []float32) float64 {
	const k = 4096
	x, y := make([]float32, k), make([]float32, len(mem)/k)
	best := time.Duration(1 << 62)
	for range 3 {
		start := time.Now()
		tier.Max(mem)
		best = min(best, time.Since(start))
		start = time.Now()
		tier.MatMulF32(y, len(y), x, k, 1, mem, k, len(y), k)
		best = min(best, time.Since(start))
	}
	return float64(4*len(mem)) / best.Seconds()
}

func BenchmarkMatMul(b *testing.B) {
	const m, n, k = 960, 1024, 1024
	r := newRand(1)
	a := newMatrix(r, m, n, k, 0, 0)
	y := make([]float32, m*n)
	for _, tier := range Tiers() {
		if tier.Name == "go" {
			continue
		}
		for format := range formatsTested {
			b.Run(fmt.Sprintf("%s/%s", tier.Name, formatNames[format]), func(b *testing.B) {
				for b.Loop() {
					a.into(tier, format, y)
				}
				b.ReportMetric(2*m*n*k*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// into multiplies x by the whole matrix and writes the result to y.
func (a *matrix) into(t *Tier, format int, y []float32) {
	switch format {
	case testF32:
		t.MatMulF32(y, a.n, a.x, a.ldx, a.m, a.w[testF32], a.ldw, a.n, a.k)
	case testBF16:
		t.MatMulBF16(y, a.n, a.x, a.ldx, a.m, a.bf16, a.ldw, a.n, a.k)
	case testFP8:
		t.MatMulFP8(y, a.n, a.x, a.ldx, a.m, a.fp8, a.ldw, a.n, a.k, a.scale, a.ldScale, a.row0)
	}
}

// BenchmarkRowFromMemory measures the product of one row with weights from memory, as in decoding.
func BenchmarkRowFromMemory(b *testing.B) {
	const k = 4096
	mem := make([]float32, memoryBytes/4)
	bytes := make([]byte, memoryBytes)
	for i := range bytes {
		bytes[i] = byte(i) & 0x3F
	}
	for i := range mem {
		mem[i] = 1
	}
	scale := make([]float32, (memoryBytes/k/scaleBlock+1)*(k/scaleBlock))
	for i := range scale {
		scale[i] = 1
	}
	for _, m := range []int{1, 2, 4, 8, 16, 32} {
		for _, tier := range Tiers() {
			if tier.Name == "go" {
				continue
			}
			x, y := make([]float32, m*k), make([]float32, m*memoryBytes/k)
			b.Run(fmt.Sprintf("%s/m%d", tier.Name, m), func(b *testing.B) {
				for format, size := range [formatsTested]int{4, 2, 1} {
					n := memoryBytes / size / k
					b.Run(formatNames[format], func(b *testing.B) {
						rate := readRate(tier, mem)
						b.SetBytes(memoryBytes)
						for b.Loop() {
							switch format {
							case testF32:
								tier.MatMulF32(y, n, x, k, m, mem, k, n, k)
							case testBF16:
								tier.MatMulBF16(y, n, x, k, m, bytes, k, n, k)
							case testFP8:
								tier.MatMulFP8(y, n, x, k, m, bytes, k, n, k, scale, k/scaleBlock, 0)
							}
						}
						got := memoryBytes * float64(b.N) / b.Elapsed().Seconds()
						b.ReportMetric(100*got/rate, "%read")
					})
				}
			})
		}
	}
}

func BenchmarkAccumulate(b *testing.B) {
	const d, c = 2048, 512
	for _, m := range []int{1, 6, 128} {
		a := newTransposed(newRand(2), m, d, c, 0, 0)
		for _, tier := range Tiers() {
			for format := range formatsTested {
				if tier.Name == "go" {
					continue
				}
				b.Run(fmt.Sprintf("%s/m%d/%s", tier.Name, m, formatNames[format]), func(b *testing.B) {
					for b.Loop() {
						a.run(tier, format, a.y, 0, m, 0, d, 0)
					}
					b.ReportMetric(2*float64(m)*d*c*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}

func BenchmarkIndexScores(b *testing.B) {
	const heads, n = 64, 4096
	q, w, keys, scales := queryAndKeys(1, heads, n)
	scores := make([]float32, n)
	for _, tier := range Tiers() {
		b.Run(tier.Name, func(b *testing.B) {
			for b.Loop() {
				tier.IndexScoresFP8(scores, q, w, keys, scales, heads, n)
			}
			b.ReportMetric(2*heads*n*IndexDim*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

func BenchmarkVectors(b *testing.B) {
	const n = 4096
	r := newRand(3)
	x, y, w := normals(r, n), normals(r, n), normals(r, n)
	bytes := numbersE4M3(r, 2*n)
	for _, tier := range Tiers() {
		for name, run := range map[string]func(){
			"dot":        func() { tier.Dot(x, y) },
			"axpy":       func() { tier.Axpy(y, 1e-9, x) },
			"max":        func() { tier.Max(x) },
			"expsum":     func() { tier.ExpSum(y, x, 3) },
			"silu":       func() { tier.SiluMul(y, x, w) },
			"widenBF16":  func() { tier.WidenBF16(y, bytes) },
			"widenE4M3":  func() { tier.WidenE4M3(y, bytes[:n], 2) },
			"narrowBF16": func() { tier.NarrowBF16(bytes, x) },
		} {
			b.Run(tier.Name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					run()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/element")
			})
		}
	}
}
