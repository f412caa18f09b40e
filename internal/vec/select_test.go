package vec

import (
	"fmt"
	"math"
	"testing"
)

func TestCountAndCollect(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		for _, n := range []int{0, 1, 7, 15, 16, 17, 64, 100, 16*selectSteps + 5} {
			r := newRand(uint64(n))
			x := normals(r, n)
			for i := range x {
				switch r.IntN(8) {
				case 0:
					x[i] = float32(math.NaN())
				case 1:
					x[i] = float32(math.Inf(-1))
				case 2:
					x[i] = 0
				}
			}
			places := make([]int32, n)
			for i := range places {
				places[i] = int32(3 * i)
			}
			for _, floor := range []float32{-math.MaxFloat32, -1, 0, math.SmallestNonzeroFloat32, 1.5,
				float32(math.Inf(1)), float32(math.NaN())} {
				name := fmt.Sprintf("%d numbers, floor %v", n, floor)
				at, kept := make([]int32, n+CollectSlack), make([]float32, n+CollectSlack)
				counted := tier.Collect(at, kept, x, nil, 100, floor)
				from, numbers := append(append([]int32(nil), places...), make([]int32, CollectSlack)...),
					append(clone(x), make([]float32, CollectSlack)...)
				// Collect also works in place: kept elements overwrite elements that were already read.
				placed := tier.Collect(from, numbers, numbers[:n], from[:n], 0, floor)
				k := 0
				for i, v := range x {
					if !(v >= floor) {
						continue
					}
					if at[k] != int32(100+i) || kept[k] != v || from[k] != int32(3*i) || numbers[k] != v {
						t.Fatalf("%s: number %d kept is %v from %d, and %v from %d", name, k, kept[k], at[k],
							numbers[k], from[k])
					}
					k++
				}
				if c := tier.CountAbove(x, floor); c != k || counted != k || placed != k {
					t.Fatalf("%s: counted %d, collected %d and %d of %d", name, c, counted, placed, k)
				}
			}
		}
	})
}

// selectSteps is a number of registers that needs more than one call of a kernel.
const selectSteps = 4100
