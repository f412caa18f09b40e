//go:build !purego

package vec

import (
	"math"
	"unsafe"

	"sparrow/internal/block"
)

// neonBlockArgs are the arguments of kernels that multiply one quantised row of x by four weight rows. If there are
// fewer weight rows, the last one is repeated.
type neonBlockArgs struct {
	y               [4]float32 // output
	w               [4]unsafe.Pointer
	x, scales, sums unsafe.Pointer
	blocks          int            // blocks of a weight row
	tables          unsafe.Pointer // *nibbleTables
}

// nibbleTables holds the lookup tables of MXFP4.
type nibbleTables struct {
	values [16]int8     // e2m1 values times two
	scales [256]float32 // e8m0 values divided by two
}

var mxfp4Tables = func() *nibbleTables {
	t := &nibbleTables{}
	for i, v := range twiceE2M1 {
		t.values[i] = int8(v)
	}
	for e := range t.scales {
		t.scales[e] = float32(math.Ldexp(1, e-128))
	}
	return t
}()

//go:noescape
func blockQ80neon(a *neonBlockArgs)

//go:noescape
func blockQ40neon(a *neonBlockArgs)

//go:noescape
func blockMXFP4neon(a *neonBlockArgs)

//go:noescape
func blockQ4Kneon(a *neonBlockArgs)

//go:noescape
func blockQ6Kneon(a *neonBlockArgs)

//go:noescape
func blockQ80dotprod(a *neonBlockArgs)

//go:noescape
func blockQ40dotprod(a *neonBlockArgs)

//go:noescape
func blockMXFP4dotprod(a *neonBlockArgs)

//go:noescape
func blockQ4Kdotprod(a *neonBlockArgs)

//go:noescape
func blockQ6Kdotprod(a *neonBlockArgs)

// neonBlocks multiplies bytes with multiplication instructions, and dotprodBlocks with dot-product instructions.
var (
	neonBlocks = neonBlockOps(map[block.Format]func(*neonBlockArgs){block.Q8_0: blockQ80neon,
		block.Q4_0: blockQ40neon, block.MXFP4: blockMXFP4neon, block.Q4_K: blockQ4Kneon, block.Q6_K: blockQ6Kneon})
	dotprodBlocks = neonBlockOps(map[block.Format]func(*neonBlockArgs){block.Q8_0: blockQ80dotprod,
		block.Q4_0: blockQ40dotprod, block.MXFP4: blockMXFP4dotprod, block.Q4_K: blockQ4Kdotprod,
		block.Q6_K: blockQ6Kdotprod})
)

func neonBlockOps(kernels map[block.Format]func(*neonBlockArgs)) *blockOps {
	return &blockOps{together: 1, quant: quantRowGo, mul: func(c BlockCut, f block.Format, w []byte, ldw int) {
		if unpacked(f) {
			mulBlocksGo(c, f, w, ldw) // there are no kernels for these formats
			return
		}
		mulBlocksNEON(c, f, w, ldw, kernels[f])
	}}
}

// mulBlocksNEON multiplies all rows of x by four weight rows at a time, which stay in the L1 cache.
func mulBlocksNEON(c BlockCut, f block.Format, w []byte, ldw int, kernel func(*neonBlockArgs)) {
	s := neonScratches.get()
	defer releaseNEON(s)
	a := &s.blocks
	a.blocks, a.tables = c.X.k/f.Values(), unsafe.Pointer(mxfp4Tables)
	for j := 0; j < c.N; j += len(a.w) {
		n := min(len(a.w), c.N-j)
		for r := range a.w {
			a.w[r] = at(w, (j+min(r, n-1))*ldw)
		}
		for m := c.M0; m < c.M1; m++ {
			x := c.X.row(c.X.unit(m))
			a.x, a.scales, a.sums = at(x.codes, 0), at(x.scales, 0), at(x.sums, 0)
			runKernel(kernel, a)
			to := c.Y[(m-c.M0)*c.Ldy+j:][:n]
			for r := range to {
				if c.Add {
					to[r] += a.y[r]
				} else {
					to[r] = a.y[r]
				}
			}
		}
	}
}
