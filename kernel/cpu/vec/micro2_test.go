package vec

import (
	"fmt"
	"testing"
	"time"
)

func TestMicroDRAM(t *testing.T) {
	const total = 256 << 20
	mem := make([]float32, total/4)
	bytes := make([]byte, total)
	for i := range bytes {
		bytes[i] = byte(i) & 0x3F
	}
	for i := range mem {
		mem[i] = 1
	}
	for _, k := range []int{2048, 7168} {
		scale := make([]float32, (total/k/scaleBlock+1)*(k/scaleBlock))
		for _, m := range []int{1, 2, 4, 8, 16} {
			for _, tier := range Tiers()[:2] {
				s := fmt.Sprintf("%-7s k=%d m=%-3d", tier.Name, k, m)
				x, y := make([]float32, m*k), make([]float32, m*total/k)
				for format, size := range [formatsTested]int{4, 2, 1} {
					n := total / size / k
					best := 1e9
					for range 4 {
						st := time.Now()
						switch format {
						case testF32:
							tier.MatMulF32(y, n, x, k, m, mem, k, n, k)
						case testBF16:
							tier.MatMulBF16(y, n, x, k, m, bytes, k, n, k)
						case testFP8:
							tier.MatMulFP8(y, n, x, k, m, bytes, k, n, k, scale, k/scaleBlock, 0)
						}
						best = min(best, time.Since(st).Seconds())
					}
					s += fmt.Sprintf("  %s %5.1f GB/s", formatNames[format], total/best/1e9)
				}
				fmt.Println(s)
			}
		}
	}
}
