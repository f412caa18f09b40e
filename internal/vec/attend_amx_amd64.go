//go:build !purego

package vec

import (
	"encoding/binary"
	"math"
	"unsafe"
)

const (
	tileHeads   = 16
	tileFloats  = 256
	tileHalves  = 512
	gatherRows  = 32  // rows the kernels take at a time
	attendRows  = 128 // rows between two updates of the softmax: four tiles of weights share one pass over out
	querySteps  = LatentRow / 32
	valueTiles  = LatentDim / 16
	valueBlocks = valueTiles / 4  // tiles of columns the kernel takes at a time
	scoreRows   = 64              // rows the kernels of scores take at a time
	holdRows    = 512             // rows that one call checks
	nearHalves  = 16 * tileHalves // tiles that rows are copied to or decoded in
	markRows    = 4               // coded rows that share a mark
	// rows that kernels fetch after a block of attendRows: 2 x 9 rounds of 4 and 4 x 8 of 2
	fetchBeyond = 16
	fetchBehind = 2                           // rows before those to fetch whose remaining lines are fetched
	queryHalves = 2 * querySteps * tileHalves // of 16 heads
	weightTiles = 2 * attendRows / gatherRows
)

// latentTiles is LatentAttend on tiles, in blocks of 16 heads. For the arrays see
// _asm/attend.go.
type latentTiles struct {
	width   int // elements of a row
	heads   int
	queries [][]uint16 // tiles of the queries, for each row and block of heads
	current []uint16   // query tiles of the current call
	blocks  []headBlock
	places  []int // row offsets of one call, padded to whole blocks of attendRows and a group
	ahead   []int // rows to fetch during the last block of a call
	format  RowFormat

	// The rows that the last call prefetched: the first of them, and its address.
	fetched     int
	fetchedFrom uintptr // only to compare

	// For coded rows: exponents of their scales [128, 8] and of pairs of them [64, 8], and which have rare codes [8,
	// 32].
	exponents, pairExponents []uint32
	marks                    []byte

	tiles   []uint16  // the tiles that are multiplied next
	weights []uint16  // [4 groups, 2] tiles
	between []float32 // two tiles
	padded  []float32 // [16, width]: queries of a block that is not full
	shapes  tileShapes

	fetch   fetchArgs
	split   attendQueryArgs
	score   attendScoreArgs
	soft    attendSoftmaxArgs
	value   attendValueArgs
	cut     vecArgs
	unpack  entryArgs
	scaling float32
}

// headBlock is 16 heads: the scores of the current rows, and the sums over all rows so far.
type headBlock struct {
	scores []float32 // [128 rows, 16]
	out    []float32
	// Largest score; the base of the weights, which may be smaller; and their sum.
	most, top, sum [tileHeads]float32
}

func newLatentTiles(width int) latentAttend {
	t := &latentTiles{
		width:   width,
		tiles:   onLines[uint16](nearHalves),
		weights: onLines[uint16](weightTiles * tileHalves),
		between: onLines[float32](2 * tileFloats),
	}
	for i := range 8 {
		t.shapes.set(i, 16, 64)
	}
	return t
}

// onLines returns n zeros that start on a cache line: tiles are read line by line.
func onLines[T any](n int) []T {
	const line = 64
	var zero T
	size := int(unsafe.Sizeof(zero))
	s := make([]T, n+line/size)
	skip := int(-uintptr(unsafe.Pointer(&s[0]))&(line-1)) / size
	return s[skip : skip+n : skip+n]
}

func (t *latentTiles) query(i int, q []float32, heads int, scale float32, format RowFormat) {
	t.heads, t.scaling = heads, scale
	split := attendQueryamx
	if format != RowBF16 {
		split = attendQueryCodedamx
	}
	n := (heads + tileHeads - 1) / tileHeads
	for len(t.blocks) < n {
		t.blocks = append(t.blocks, headBlock{scores: onLines[float32](attendRows * tileHeads),
			out: onLines[float32](valueTiles * tileFloats)})
	}
	for len(t.queries) <= i {
		t.queries = append(t.queries, nil)
	}
	if len(t.queries[i]) < n*queryHalves {
		t.queries[i] = onLines[uint16](n * queryHalves)
	}
	a := &t.split
	for b := range n {
		part := q[b*tileHeads*t.width:]
		if len(part) < tileHeads*t.width {
			if t.padded == nil {
				t.padded = make([]float32, tileHeads*t.width)
			}
			clear(t.padded[copy(t.padded, part):])
			part = t.padded
		}
		*a = attendQueryArgs{q: at(part, 0), ld: 4 * t.width, tiles: at(t.queries[i], b*queryHalves),
			between: at(t.between, 0), chunks: t.width / 64}
		runKernel(split, a)
	}
	*a = attendQueryArgs{}
}

func (t *latentTiles) used() []headBlock { return t.blocks[:(t.heads+tileHeads-1)/tileHeads] }

func (t *latentTiles) attend(i int, memory []byte, places, ahead []int, format RowFormat) bool {
	n := len(places)
	t.format = format
	t.current = t.queries[i]
	t.places = padded(t.places, places, n+scoreRows)
	t.begin(memory, n, format)
	for i := range t.used() {
		b := &t.blocks[i]
		for h := range tileHeads {
			b.most[h], b.top[h], b.sum[h] = float32(math.Inf(-1)), float32(math.Inf(-1)), 0
		}
	}
	t.value.memory = unsafe.Pointer(&memory[0])
	for first := 0; first < n; first += attendRows {
		rows := min(attendRows, n-first)
		t.value.fetch = nil
		switch next := first + attendRows; {
		case next < n:
			t.value.fetch = at(t.places, next)
		case len(ahead) > 0:
			t.ahead = padded(t.ahead, ahead[:min(attendRows, len(ahead))], attendRows)
			t.value.fetch = at(t.ahead, fetchBehind)
		}
		if !t.collect(memory, first, rows, format) {
			t.value.memory, t.value.rows = nil, nil
			return false
		}
		for i := range t.used() {
			t.fold(&t.blocks[i], rows, first, format)
			t.value.fetch = nil
		}
	}
	if t.fetchedFrom = 0; len(ahead) > 0 {
		t.fetched, t.fetchedFrom = ahead[0], address(memory)
	}
	t.value.memory, t.value.rows = nil, nil
	return true
}

// address returns where memory begins.
func address(memory []byte) uintptr { return uintptr(unsafe.Pointer(&memory[0])) }

// padded copies places into the memory of into and repeats the last offset up to a whole block of at least n, plus
// the rows that are prefetched beyond it.
func padded(into, places []int, n int) []int {
	into = append(into[:0], places...)
	for len(into) < (n+attendRows-1)/attendRows*attendRows+fetchBeyond {
		into = append(into, places[len(places)-1])
	}
	return into
}

// begin prefetches the first of n rows of a call, unless the previous call did so or the rows are contiguous, and
// allocates the memory in which rows are decoded.
func (t *latentTiles) begin(memory []byte, n int, format RowFormat) {
	n = min(n, attendRows)
	if (t.fetchedFrom != address(memory) || t.fetched != t.places[0]) && !t.inRow(t.places[:n]) {
		t.fetch = fetchArgs{memory: unsafe.Pointer(&memory[0]), at: at(t.places, 0), rows: n,
			lines: (rowSize(format, t.width) + 63) / 64}
		runKernel(fetchRowsamx, &t.fetch)
		t.fetch = fetchArgs{}
	}
	if format != RowBF16 && t.marks == nil {
		t.exponents, t.pairExponents = onLines[uint32](attendRows*valueBlocks),
			onLines[uint32](attendRows/2*valueBlocks)
		t.marks = onLines[byte](valueBlocks * attendRows / markRows)
	}
}

// collect multiplies n rows with the queries. It reports false for rows that bfloat16 does not hold.
func (t *latentTiles) collect(memory []byte, first, n int, format RowFormat) bool {
	groups := (n + scoreRows - 1) / scoreRows
	if format != RowBF16 {
		return t.scores(codedScores[format], attendScoreArgs{
			rows: unsafe.Pointer(&memory[0]), at: at(t.places, first), groups: groups,
			exponents: at(t.exponents, 0), pairExponents: at(t.pairExponents, 0), marks: at(t.marks, 0),
		}, 0)
	}
	near, far := attendScoresamx, attendScoresAtamx
	if t.width == LatentDim {
		near, far = attendScoresShortamx, attendScoresShortAtamx
	}
	for g := range groups {
		// Contiguous rows are multiplied in place.
		places := t.places[first+g*scoreRows:]
		if t.inRow(places[:scoreRows]) {
			t.scores(near, attendScoreArgs{rows: unsafe.Pointer(&memory[places[0]]), groups: 1}, g)
			continue
		}
		t.scores(far, attendScoreArgs{rows: unsafe.Pointer(&memory[0]), at: at(places, 0), groups: 1}, g)
	}
	return true
}

// scores multiplies the groups of a from group g on with the queries of all heads. It reports false for rows that
// bfloat16 does not hold.
func (t *latentTiles) scores(kernel func(*attendScoreArgs), a attendScoreArgs, g int) bool {
	s := &t.score
	held := true
	for i := range t.used() {
		b := &t.blocks[i]
		*s = a
		if i == 0 {
			s.memory, s.fetch = t.value.memory, t.value.fetch
		}
		s.query, s.shapes, s.tiles = at(t.current, i*queryHalves), unsafe.Pointer(&t.shapes), at(t.tiles, 0)
		s.scores = at(b.scores, g*scoreRows*tileHeads)
		runKernel(kernel, s)
		if i == 0 {
			t.value.fetch = s.fetch
		}
		if held = s.nan == 0; !held {
			break
		}
	}
	s.rows = nil
	return held
}

// inRow reports whether rows of bfloat16 are contiguous in memory, as most are when
// nearly everything is selected. They are then multiplied in place.
func (t *latentTiles) inRow(places []int) bool {
	for i, p := range places {
		if p != places[0]+i*2*t.width {
			return false
		}
	}
	return true
}

// fold adds n collected rows, of which the first is given, to the sums of a block of heads.
func (t *latentTiles) fold(b *headBlock, n, first int, format RowFormat) {
	groups := (n + gatherRows - 1) / gatherRows
	s := &t.soft
	s.scores, s.weights, s.between = at(b.scores, 0), at(t.weights, 0), at(t.between, 0)
	s.keys, s.groups, s.scale, s.most, s.top, s.sum = n, groups, t.scaling, b.most, b.top, b.sum
	runKernel(attendSoftmaxamx, s)
	b.most, b.top, b.sum = s.most, s.top, s.sum

	v := &t.value
	v.weights, v.out, v.keep, v.shapes, v.tiles = at(t.weights, 0), at(b.out, 0), unsafe.Pointer(&s.keep),
		unsafe.Pointer(&t.shapes), at(t.tiles, 0)
	v.groups, v.first, v.columns = groups, flag(first == 0), valueBlocks
	if first > 0 && s.grew != 0 {
		runKernel(attendRescaleamx, v)
	}
	v.rows, v.at = v.memory, at(t.places, first)
	if format == RowBF16 {
		runKernel(attendValuesamx, v)
		return
	}
	v.exponents, v.marks = at(t.pairExponents, 0), at(t.marks, 0)
	runKernel(codedValues[format], v)
}

// result rescales sums whose weights are relative to less than the largest score.
func (t *latentTiles) result(out, top, sum []float32) {
	a, order := &t.split, attendResultamx
	if t.format != RowBF16 {
		order = attendResultCodedamx
	}
	for h := range top {
		b, i := &t.blocks[h/tileHeads], h%tileHeads
		by := float32(1)
		if b.top[i] != b.most[i] {
			by = float32(math.Exp(float64(b.top[i] - b.most[i])))
		}
		top[h], sum[h] = b.most[i], b.sum[i]*by
		*a = attendQueryArgs{q: at(b.out, i*16), tiles: at(out, h*LatentDim), by: by}
		runKernel(order, a)
	}
	*a = attendQueryArgs{}
}

func (t *latentTiles) holds(memory []byte, places []int) bool {
	a := &t.fetch
	exact := true
	for i := 0; i < len(places) && exact; i += holdRows {
		*a = fetchArgs{memory: unsafe.Pointer(&memory[0]), at: at(places, i), rows: min(holdRows, len(places)-i)}
		runKernel(holdsamx, a)
		exact = a.nan == 0
	}
	*a = fetchArgs{}
	return exact
}

func (t *latentTiles) narrow(dst []byte, src []float32) bool {
	const lanes = 16
	exact := true
	if whole := len(src) / lanes; whole > 0 {
		a := &t.cut
		a.dst, a.a, a.steps = at(dst, 0), at(src, 0), whole
		runKernel(narrowExactamx, a)
		exact = a.nan == 0
		a.dst, a.a = nil, nil
	}
	for i := len(src) / lanes * lanes; i < len(src); i++ {
		bits := math.Float32bits(src[i])
		exact = exact && bits&0xFFFF == 0 && (bits&0x7F800000 != 0 || bits&0x7FFFFFFF == 0)
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(bits>>16))
	}
	return exact
}

// entry adds exponents to those of e4m3, which range from 2^-9 to 2^8: outside this range of scales the result might
// not be a normal number.
func (t *latentTiles) entry(dst, data, scales []byte) bool {
	for _, e := range scales[:EntryScales] {
		if e < 10 || e > 245 {
			return false
		}
	}
	a := &t.unpack
	a.data, a.scales, a.row = at(data, 0), at(scales, 0), at(dst, 0)
	runKernel(entryamx, a)
	a.data, a.scales, a.row = nil, nil, nil
	return a.nan == 0
}

// Kernels of coded rows.
var (
	codedScores = [rowFormats]func(*attendScoreArgs){RowRaw: attendScoresRawamx, RowBlock: attendScoresBlockamx}
	codedValues = [rowFormats]func(*attendValueArgs){RowRaw: attendValuesRawamx, RowBlock: attendValuesBlockamx}
)
