package vec

import (
	"fmt"
	"testing"
	"time"
)

func best(f func()) float64 {
	b := 1e9
	f()
	for range 40 {
		s := time.Now()
		n := 0
		for time.Since(s) < 2*time.Millisecond {
			f()
			n++
		}
		b = min(b, time.Since(s).Seconds()/float64(n))
	}
	return b
}

func TestMicroRow(t *testing.T) {
	for _, k := range []int{1024, 4096} {
		for _, m := range []int{1, 2, 3, 4, 6, 8, 16, 32, 64} {
			const n = 64
			a := newMatrix(newRand(1), m, n, k, 15, 0)
			a.ldw = k
			y := make([]float32, m*n)
			for _, tier := range Tiers()[:2] {
				s := fmt.Sprintf("%-7s k=%d m=%-3d", tier.Name, k, m)
				for format := range formatsTested {
					d := best(func() { a.into(tier, format, y) })
					s += fmt.Sprintf("  %s %6.1f GF %5.2f Gw", formatNames[format], 2*float64(m*n*k)/d/1e9, float64(n*k)/d/1e9)
				}
				fmt.Println(s)
			}
		}
	}
}
