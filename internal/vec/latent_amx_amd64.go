//go:build !purego

package vec

import "unsafe"

// latentScratch is the memory of one product of rows by weights whose rows run along the output. It uses the kernels
// with which attention multiplies weights by cache rows: x takes the place of the attention weights, and the weight
// rows that of the cache rows.
type latentScratch struct {
	split  packArgs
	value  attendValueArgs
	result attendQueryArgs
	shapes tileShapes

	x      []uint16  // [d/32, 2 parts] tiles of 16 rows
	out    []float32 // [32] tiles
	tiles  []uint16
	places []int // byte offsets of weight rows, then of rows to prefetch; fetchBehind more before and after
}

var latentScratches recycler[latentScratch]

func (s *latentScratch) ready() {
	if s.tiles != nil {
		return
	}
	s.x = onLines[uint16](LatentRows / LatentDepth * 2 * tileHalves)
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
		a := &s.split
		a.columns, a.count, a.steps, a.mask = at(s.x, 0), rows, p.k/LatentDepth, 1<<LatentDepth-1
		for r := range rows {
			a.rows[r] = at(p.x, (m+r)*p.ldx)
		}
		runKernel(splitSixteen, a)
		v.columns = valueBlocks // the kernel counts columns down
		runKernel(latentValuesamx, v)
		v.fetch = nil
		for r := range rows {
			s.result = attendQueryArgs{q: at(s.out, r*16), tiles: at(p.y, (m+r)*p.ldy), by: 1}
			runKernel(attendResultamx, &s.result)
		}
	}
}

// releaseLatent drops the pointers into the caller's memory and returns s.
func releaseLatent(s *latentScratch) {
	s.split.rows = [GroupRows]unsafe.Pointer{}
	s.value.rows, s.value.memory, s.result.tiles = nil, nil, nil
	latentScratches.put(s)
}
