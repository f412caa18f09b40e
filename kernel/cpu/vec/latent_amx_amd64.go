//go:build !purego

package vec

import "unsafe"

// latentScratch is the memory of one product of rows by weights that run along the output. It uses the kernels that
// multiply attention's weights by rows of the cache, with x as the weights and the weights as the rows.
type latentScratch struct {
	split  packArgs
	value  attendValueArgs
	result attendQueryArgs
	shapes tileShapes

	x      []uint16  // [2 groups, d/32, 2 parts] tiles of 16 rows
	out    []float32 // [32] tiles
	tiles  []uint16
	places []int // of the rows of weights, then of those to prefetch, with fetchBehind before and after

	// Of many rows.
	pair    pairArgs
	product partsArgs
	right   []uint16 // [32 tiles of columns, d/32] tiles
}

var latentScratches recycler[latentScratch]

func (s *latentScratch) ready() {
	if s.tiles != nil {
		return
	}
	s.x = onLines[uint16](2 * LatentRows / LatentDepth * 2 * tileHalves)
	s.out = onLines[float32](valueTiles * tileFloats)
	s.tiles = onLines[uint16](nearHalves)
	s.places = make([]int, 2*LatentRows+2*fetchBehind)
	for i := range 8 {
		s.shapes.set(i, 16, 64)
	}
}

func tiledLatent(p product, w []byte, ahead int) {
	s := latentScratches.get()
	defer releaseLatent(s)
	s.ready()
	if p.m >= latentWide {
		s.wide(&p, w)
		return
	}
	line := 2 * p.ldw
	for i := range p.k {
		s.places[i] = i * line
	}
	v := &s.value
	v.rows, v.memory, v.at = at(w, 0), at(w, 0), at(s.places, 0)
	v.weights, v.out, v.shapes, v.tiles = at(s.x, 0), at(s.out, 0), unsafe.Pointer(&s.shapes), at(s.tiles, 0)
	v.groups, v.first = p.k/LatentDepth, 1
	if v.fetch = nil; ahead != 0 {
		next := s.places[p.k:][:p.k+2*fetchBehind]
		for i := range p.k {
			next[fetchBehind+i] = (ahead + i) * line
		}
		for i := range fetchBehind {
			next[i], next[fetchBehind+p.k+i] = next[fetchBehind], next[fetchBehind+p.k-1]
		}
		v.fetch = at(next, fetchBehind)
	}
	for m := 0; m < p.m; m += tileHeads {
		rows := min(tileHeads, p.m-m)
		s.splitRows(&p, m, rows, s.x)
		v.columns = valueBlocks // the kernel counts down
		runKernel(latentValuesamx, v)
		v.fetch = nil
		for r := range rows {
			s.result = attendQueryArgs{q: at(s.out, r*16), tiles: at(p.y, (m+r)*p.ldy), by: 1}
			runKernel(attendResultamx, &s.result)
		}
	}
}

// splitRows splits up to 16 rows of x from m on into tiles.
func (s *latentScratch) splitRows(p *product, m, rows int, tiles []uint16) {
	a := &s.split
	a.columns, a.count, a.steps, a.mask = at(tiles, 0), rows, p.k/LatentDepth, 1<<LatentDepth-1
	for r := range rows {
		a.rows[r] = at(p.x, (m+r)*p.ldx)
	}
	runKernel(splitSixteen, a)
}

// latentWide is the rows from which on interleaving weights before they are multiplied is faster.
const latentWide = 64

// wide multiplies many rows: pairs of rows of weights are interleaved once, and 32 rows share a tile of them.
// Every sum has the order of fewer rows.
func (s *latentScratch) wide(p *product, w []byte) {
	steps := p.k / LatentDepth
	grown(&s.right, valueTiles*steps*tileHalves)
	a := &s.pair
	a.nextTile, a.columns = steps*tileBytes, valueTiles
	for k := 0; k < p.k; k += LatentDepth {
		for r := range a.rows {
			a.rows[r] = at(w, 2*(k+r)*p.ldw)
		}
		a.tiles = at(s.right, k/LatentDepth*tileHalves)
		runKernel(pairWeights, a)
	}
	each := steps * 2 * tileHalves
	b := &s.product
	b.shapes = s.shapes
	b.left, b.nextLeft, b.nextRight, b.ldSums, b.fresh = at(s.x, 0), 2*each, steps*tileBytes, 4*p.ldy, 1
	b.steps, b.columns = steps, valueTiles/2
	for m := 0; m < p.m; m += denseRows {
		groups := 0
		for r := m; r < min(m+denseRows, p.m); r += tileSide {
			rows := min(tileSide, p.m-r)
			s.splitRows(p, r, rows, s.x[groups*each:])
			for column := range 2 {
				b.shapes.set(2*groups+column, rows, pairLanes)
			}
			b.shapes.set(tileW+groups, rows, pairLanes)
			groups++
		}
		b.right, b.sums = at(s.right, 0), at(p.y, m*p.ldy)
		runKernel(partsKernels[groups-1][0], b)
	}
}

// releaseLatent drops the pointers into the caller's memory and returns s.
func releaseLatent(s *latentScratch) {
	s.split.rows = [GroupRows]unsafe.Pointer{}
	s.value.rows, s.value.memory, s.result.tiles = nil, nil, nil
	s.pair.rows, s.product.sums = [stepDepth]unsafe.Pointer{}, nil
	latentScratches.put(s)
}
