//go:build !purego

package vec

import (
	"fmt"
	"testing"

	"sparrow/internal/block"
)

// Processors with byte permutations do not use the kernels of other processors with AVX-512 VNNI. Both kinds of kernels
// have the same results as plain Go for one row of x, for a few, and for panels.
func TestGridsOfEachKind(t *testing.T) {
	if !hasVNNI() {
		t.Skip("the processor has no AVX-512 VNNI")
	}
	type kind struct {
		*blockOps
		*planes
	}
	kinds := map[string]kind{"words": {vnniBlocks, wordPlanes}}
	if hasBytePermutes() {
		kinds["bytes"] = kind{vnniBlocks, bytePlanes}
	}
	r := newRand(37)
	for name, kind := range kinds {
		o := *kind.blockOps
		o.planes = kind.planes
		tier := &Tier{Name: name, ops: ops{blocks: &o}}
		for f := range grids {
			for _, units := range []int{1, 2, 5} {
				for _, n := range []int{1, 15, 17, 32} {
					k := 256 * units
					w := randomBlocks(r, f, n, k)
					for _, m := range []int{1, 2, 6, 7, 17} {
						x := normals(r, m*k)
						x[r.IntN(len(x))] *= 100
						for _, add := range []bool{false, true} {
							want := blockProduct(portable, f, x, m, k, 0, m, w, n, add)
							got := blockProduct(tier, f, x, m, k, 0, m, w, n, add)
							wantSame(t, fmt.Sprintf("%s: %v [%d, %d] by %d", name, f, m, k, n), got, want)
						}
					}
				}
			}
		}
	}
}

// The two tables of bytes contain the levels of every point of a grid.
func TestGridBytes(t *testing.T) {
	for _, f := range []block.Format{block.IQ2_XXS, block.IQ2_XS, block.IQ2_S, block.IQ3_XXS, block.IQ3_S} {
		values, bits := 8, 2
		if f.Quads() != nil {
			values, bits = 4, 4
		}
		table := byteGrids[f].bytes
		points := len(table) / 2
		if want := max(len(f.Octets()), len(f.Quads())); points != want {
			t.Fatalf("%v: the tables have %d points, want %d", f, points, want)
		}
		levels := levelsOf(f.Octets(), 8)
		if values == 4 {
			levels = levelsOf(f.Quads(), 4)
		}
		for i := range points {
			for j := range values {
				code := table[j/(values/2)*points+i] >> (j % (values / 2) * bits) & (1<<bits - 1)
				var want byte
				if values == 8 {
					want = byte(f.Octets()[i] >> (8 * j))
				} else {
					want = byte(f.Quads()[i] >> (8 * j))
				}
				if levels[code] != want {
					t.Fatalf("%v: value %d of point %d is %d, want %d", f, j, i, levels[code], want)
				}
			}
		}
	}
}
