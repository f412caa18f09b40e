//go:build !purego

package vec

import (
	"math/bits"
	"unsafe"

	"sparrow/internal/block"
)

// laneDots multiply one row of x by sixteen weight rows whose bytes they transpose; see _asm/blocklanes.go.
var laneDots = map[block.Format]func(*blockArgs){
	block.Q4_0: laneDotQ40, block.Q4_1: laneDotQ41, block.Q5_0: laneDotQ50, block.Q5_1: laneDotQ51,
	block.IQ4_NL: laneDotIQ4NL, block.MXFP4: laneDotMXFP4,
	block.Q4_K: laneDotQ4K, block.Q5_K: laneDotQ5K, block.IQ4_XS: laneDotIQ4XS,
}

const (
	laneValues = 256  // values of a step
	laneAhead  = 1024 // bytes of each row to prefetch ahead
)

// mulLanes multiplies rows of x one at a time by sixteen weight rows at a time. To read memory as sixteen long streams,
// these rows are one row of each of sixteen runs of rows.
func mulLanes(c BlockCut, f block.Format, w []byte, ldw int, dot func(*blockArgs)) {
	s := blockScratches.get()
	defer releaseBlocks(s)
	s.ready(&c)
	eachLanes(c.N, ldw, func(j, skip, run int) { s.lanes(&c, f, w, ldw, dot, j, skip, run) })
}

// eachLanes calls do for every sixteen of n weight rows: rows that are run rows apart, from row j on. The first skip of
// them have been multiplied before. If there are fewer than sixteen rows, do is called once.
func eachLanes(n, ldw int, do func(j, skip, run int)) {
	for j := 0; j < n; {
		run := laneRun((n-j)/tileSide, ldw)
		if run == 0 {
			first := max(0, n-tileSide)
			do(first, j-first, 1)
			return
		}
		for i := range run {
			do(j+i, 0, run)
		}
		j += run * tileSide
	}
}

// laneRun returns the rows of a run, at most the given number, so that streams are in different sets of the L1 cache.
func laneRun(most, ldw int) int {
	best, run := 0, most
	for n := most; n > max(0, most-8); n-- {
		sets := uint(0)
		for r := range tileSide {
			sets |= 1 << (r * n * ldw / 256 % 16)
		}
		if count := bits.OnesCount(sets); count > best {
			best, run = count, n
		}
	}
	return run
}

// lanes multiplies rows of x by weight rows that are run rows apart, from row j on, and stores the results of rows from
// lane skip on. Blocks after the last whole step, and all blocks if there are fewer than sixteen rows, are copied and
// padded.
func (s *blockScratch) lanes(c *BlockCut, f block.Format, w []byte, ldw int, dot func(*blockArgs), j, skip, run int) {
	a, sums := &s.rows, s.results[:lineBytes]
	a.trees, a.y = s.tiles.sums, at(sums, 0)
	step, bytes := laneValues/f.Values()*f.Bytes(), c.X.k/f.Values()*f.Bytes()
	rows, steps, whole := min(tileSide, c.N), (bytes+step-1)/step, bytes/step
	if rows < tileSide {
		whole = 0
	}
	for m := c.M0; m < c.M1; m++ {
		x := c.X.row(c.X.unit(m))
		clear(sums)
		for k := 0; k < steps; {
			a.ahead = laneAhead
			if k < whole {
				a.rows[0], a.stride, a.steps = at(w, j*ldw), run*ldw, whole
			} else {
				s.padLanes(w[j*ldw:], run*ldw, k*step, min(step, bytes-k*step), step, rows)
			}
			a.x, a.scales = at(x.codes, k*laneValues), at(x.scales, 4*k*laneValues/c.X.group)
			a.sums = at(x.sums, 32*k)
			k += a.steps
			runKernel(dot, a)
		}
		c.storeLanes(s.results, m-c.M0, j, skip, run)
	}
}

// storeLanes writes a line of results to row m of Y, from lane skip on.
func (c *BlockCut) storeLanes(line []byte, m, j, skip, run int) {
	to := c.Y[m*c.Ldy+j:]
	for r, v := range unsafe.Slice((*float32)(at(line, 0)), min(tileSide, c.N)) {
		if r < skip {
			continue
		}
		if c.Add {
			v += to[r*run]
		}
		to[r*run] = v
	}
}

// lanePanels adds the products of sixteen weight rows, which are run rows apart from row j on, to the results.
func (s *blockScratch) lanePanels(c *BlockCut, f block.Format, w []byte, ldw int, p *panelProduct, j, run, rows int) {
	a, step := &s.rows, f.Bytes()
	a.panel = at(s.panel, (tileSide*step+lineBytes-1)/lineBytes*lineBytes)
	for b := range c.X.k / laneValues {
		if c.N < tileSide {
			s.padLanes(w[j*ldw:], run*ldw, b*step, step, step, c.N)
		} else {
			a.rows[0], a.stride = at(w, j*ldw+b*step), run*ldw
		}
		a.ahead = laneAhead
		runKernel(p.fill, a)
		s.dotPanel(p, a.panel, rows, b*rows*recordBytes, 0)
	}
}

// padLanes copies n bytes of rows, from byte from of each row on, and pads them with zeros to a step.
func (s *blockScratch) padLanes(w []byte, ldw, from, n, step, rows int) {
	a := &s.rows
	a.rows[0], a.stride, a.steps = at(s.panel, 0), step, 1
	clear(s.panel[:tileSide*step])
	for r := range rows {
		copy(s.panel[r*step:], w[r*ldw+from:][:n])
	}
}
