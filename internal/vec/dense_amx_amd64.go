//go:build !purego

package vec

import (
	"math"
	"unsafe"
)

// The structs below are the arguments of the kernels of dense attention. Distances are in bytes.

// partsArgs are the arguments of kernels that multiply groups of 16 rows by columns; _asm/dense.go describes the
// operands.
type partsArgs struct {
	shapes      tileShapes // first field, because LDTILECFG reads it there
	left, right unsafe.Pointer
	nextLeft    int // bytes between groups of rows
	nextRight   int // bytes between tiles of columns
	sums        unsafe.Pointer
	ldSums      int
	steps       int
	columns     int // pairs of tiles
	fresh       int // 1 if sums begin at zero instead of with the values in memory
}

// pairArgs are the arguments of kernels that convert a step of 32 rows into right operands.
type pairArgs struct {
	rows     [stepDepth]unsafe.Pointer
	tiles    unsafe.Pointer
	nextTile int // bytes between tiles of columns
	columns  int // tiles of columns
	nan      int // output: 1 if there are numbers that are not finite
}

// denseSoftmaxArgs are the arguments of kernels that convert scores of 16 rows into weights.
type denseSoftmaxArgs struct {
	scores, weights unsafe.Pointer
	steps           int           // steps of 32 keys
	seen            [tileSide]int // keys of every row
	grew            int           // output: bit mask of rows whose largest score grew
	scale           float32
	top, sum        [tileSide]float32 // largest score so far, sum of weights relative to it
	keep            [tileSide]float32 // output: factor of the earlier sums
	//lint:ignore U1000 only the assembly uses it
	most [tileSide]float32
}

// scaleRowsArgs are the arguments of kernels that multiply each row by a factor.
type scaleRowsArgs struct {
	from, to, by  unsafe.Pointer
	ldFrom, ldTo  int
	rows, columns int // columns: registers of a row
}

const (
	denseKeys  = 256 // keys between two updates of the softmax
	denseSteps = denseKeys / stepDepth
	denseRows  = 2 * tileSide // rows that are multiplied together
)

// partsKernels is indexed by the number of groups of rows minus one.
var partsKernels = [...]func(*partsArgs){parts1, parts2}

// denseScratch is the memory of dense attention of one head.
type denseScratch struct {
	product partsArgs
	split   packArgs
	pair    pairArgs
	soft    denseSoftmaxArgs
	scaled  scaleRowsArgs
	state   []denseState

	queries []uint16  // left: [groups, steps, 2] tiles
	keys    []uint16  // right: [16 groups, steps, 2] tiles
	values  []uint16  // right: [V/16, 8 steps, 2] tiles
	weights []uint16  // left: [2 groups, 8 steps, 2] tiles
	scores  []float32 // [32 rows, 256 keys]
	sums    []float32 // [rows, V]
	zeros   []float32 // [V]: values of missing keys after the last one
}

// denseState is the running softmax of 16 rows.
type denseState struct{ top, sum [tileSide]float32 }

// noScore is the largest score of rows that have not seen a key.
var noScore = func() (top [tileSide]float32) {
	for i := range top {
		top[i] = float32(math.Inf(-1))
	}
	return top
}()

var denseScratches recycler[denseScratch]

func attendDense(h *DenseHead) {
	s := denseScratches.get()
	defer s.release()
	if s.attend(h) {
		return
	}
	// A weight of zero times a value that is not finite is NaN, not zero, so every row uses only the values of its
	// own keys.
	for i := range h.Seen {
		one := h.row(i)
		s.attend(&one)
	}
}

// release drops the pointers into the caller's memory and returns s.
func (s *denseScratch) release() {
	s.split.rows, s.pair.rows, s.scaled.to = [GroupRows]unsafe.Pointer{}, [stepDepth]unsafe.Pointer{}, nil
	denseScratches.put(s)
}

// ready allocates the memory for the rows of a head.
func (s *denseScratch) ready(h *DenseHead) {
	if s.weights == nil {
		s.weights = onLines[uint16](denseRows / tileSide * denseSteps * 2 * tileHalves)
		s.scores = onLines[float32](denseRows * denseKeys)
		for i := range 8 {
			s.product.shapes.set(i, tileSide, pairLanes)
		}
	}
	groups := (len(h.Seen) + tileSide - 1) / tileSide
	grown(&s.queries, groups*h.stepTiles()*tileHalves)
	grown(&s.keys, denseKeys/tileSide*h.stepTiles()*tileHalves)
	grown(&s.values, h.V/tileSide*denseSteps*2*tileHalves)
	grown(&s.sums, groups*tileSide*h.V)
	grown(&s.zeros, h.V)
	s.state = sized(&s.state, groups)
	for i := range s.state {
		s.state[i] = denseState{top: noScore}
	}
}

// grown makes s at least n elements long; the memory begins at a cache line.
func grown[T any](s *[]T, n int) {
	if len(*s) < n {
		*s = onLines[T](n)
	}
}

// stepTiles returns the number of tiles of 16 queries or keys.
func (h *DenseHead) stepTiles() int { return 2 * (stepsOf(h.Nope) + stepsOf(h.Rope)) }

func stepsOf(n int) int { return (n + stepDepth - 1) / stepDepth }

// attend computes the attention of all rows. It returns false, and leaves the output undefined, if several rows might
// attend to different values that are not finite.
func (s *denseScratch) attend(h *DenseHead) bool {
	s.ready(h)
	rows, n := len(h.Seen), h.longest()
	each := h.stepTiles() * tileHalves
	for r := 0; r < rows; r += tileSide {
		at := s.queries[r/tileSide*each:][:each]
		q, count := h.Q[r*h.LdQ:], min(tileSide, rows-r)
		s.splitRows(denseQueries, at, q, h.LdQ, count, h.Nope)
		s.splitRows(denseQueries, at[2*stepsOf(h.Nope)*tileHalves:], q[h.Nope:], h.LdQ, count, h.Rope)
	}
	for first := 0; first < n; first += denseKeys {
		if !s.takeKeys(h, first, min(denseKeys, n-first)) && rows > 1 {
			return false
		}
		for r := 0; r < rows; r += denseRows {
			s.fold(h, r, min(denseRows, rows-r), first)
		}
	}
	s.finish(h)
	return true
}

// splitRows splits up to 16 rows of n elements into tiles.
func (s *denseScratch) splitRows(kernel func(*packArgs), tiles []uint16, x []float32, ld, count, n int) {
	a := &s.split
	a.columns, a.count, a.steps = at(tiles, 0), count, stepsOf(n)
	a.mask = 1<<(n-(a.steps-1)*stepDepth) - 1
	for r := range count {
		a.rows[r] = at(x, r*ld)
	}
	runKernel(kernel, a)
}

// takeKeys converts n keys and values, starting at key first, into right operands. It reports whether all values are
// finite. Columns of keys that do not exist are not written; their scores are not read.
func (s *denseScratch) takeKeys(h *DenseHead, first, n int) bool {
	each := h.stepTiles() * tileHalves
	for k := 0; k < n; k += tileSide {
		at, count := s.keys[k/tileSide*each:][:each], min(tileSide, n-k)
		s.splitRows(denseKeyTiles, at, h.Keys[(first+k)*h.LdKeys:], h.LdKeys, count, h.Nope)
		s.splitRows(denseKeyTiles, at[2*stepsOf(h.Nope)*tileHalves:], h.Ropes[(first+k)*h.LdRopes:], h.LdRopes, count,
			h.Rope)
	}
	a := &s.pair
	a.nextTile, a.columns = denseSteps*2*tileBytes, h.V/tileSide
	finite := true
	for k := 0; k < n; k += stepDepth {
		for r := range a.rows {
			if a.rows[r] = at(s.zeros, 0); k+r < n {
				a.rows[r] = at(h.Values, (first+k+r)*h.LdValues)
			}
		}
		a.tiles = at(s.values, k/stepDepth*2*tileHalves)
		runKernel(pairValues, a)
		finite = finite && a.nan == 0
	}
	return finite
}

// fold adds the keys of a block, starting at key first, to the sums of up to 32 rows, starting at row r.
func (s *denseScratch) fold(h *DenseHead, r, rows, first int) {
	var seen [denseRows]int
	most := 0
	for i := range rows {
		seen[i] = max(0, min(h.Seen[r+i]-first, denseKeys))
		most = max(most, seen[i])
	}
	if most == 0 {
		return
	}
	groups, tiles := (rows+tileSide-1)/tileSide, h.stepTiles()
	steps := stepsOf(most)
	kernel := partsKernels[groups-1]
	a := &s.product
	a.left, a.nextLeft = at(s.queries, r/tileSide*tiles*tileHalves), tiles*tileBytes
	a.right, a.nextRight = at(s.keys, 0), tiles*tileBytes
	a.sums, a.ldSums, a.fresh = at(s.scores, 0), 4*denseKeys, 1
	a.steps, a.columns = tiles/2, steps
	runKernel(kernel, a)

	for g := range groups {
		b, st := &s.soft, &s.state[r/tileSide+g]
		b.scores, b.weights = at(s.scores, g*tileSide*denseKeys), at(s.weights, g*denseSteps*2*tileHalves)
		b.steps, b.scale, b.top, b.sum = steps, h.Scale, st.top, st.sum
		copy(b.seen[:], seen[g*tileSide:])
		runKernel(denseSoftmax, b)
		st.top, st.sum = b.top, b.sum
		if first > 0 && b.grew != 0 {
			sums := at(s.sums, (r+g*tileSide)*h.V)
			s.scaled = scaleRowsArgs{from: sums, to: sums, by: unsafe.Pointer(&b.keep), ldFrom: 4 * h.V,
				ldTo: 4 * h.V, rows: tileSide, columns: h.V / tileSide}
			runKernel(scaleRows, &s.scaled)
		}
	}

	a.left, a.nextLeft = at(s.weights, 0), denseSteps*2*tileBytes
	a.right, a.nextRight = at(s.values, 0), denseSteps*2*tileBytes
	a.sums, a.ldSums, a.fresh = at(s.sums, r*h.V), 4*h.V, flag(first == 0)
	a.steps, a.columns = steps, h.V/denseColumns
	runKernel(kernel, a)
}

// finish divides the sums of values by the sums of weights and writes the output.
func (s *denseScratch) finish(h *DenseHead) {
	rows := len(h.Seen)
	for r := 0; r < rows; r += tileSide {
		st := &s.state[r/tileSide]
		for i, sum := range st.sum {
			st.sum[i] = 1 / sum
		}
		s.scaled = scaleRowsArgs{from: at(s.sums, r*h.V), to: at(h.Out, r*h.LdOut), by: unsafe.Pointer(&st.sum),
			ldFrom: 4 * h.V, ldTo: 4 * h.LdOut, rows: min(tileSide, rows-r), columns: h.V / tileSide}
		runKernel(scaleRows, &s.scaled)
	}
	for i := range rows {
		if math.IsInf(float64(s.state[i/tileSide].sum[i%tileSide]), 1) { // no key has a weight
			clear(h.Out[i*h.LdOut:][:h.V])
		}
	}
}
