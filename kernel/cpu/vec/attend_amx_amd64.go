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
	fetchAhead  = 32 // rows that are fetched before they are needed
	scaleLeast  = (127 - 100) << 23
	scaleMost   = (127 + 100) << 23
	queryTiles  = 2 * querySteps
	weightTiles = 2 * attendRows / gatherRows
)

// latentTiles is LatentAttend on tiles, in blocks of 16 heads. For the arrays see
// _asm/attend.go.
type latentTiles struct {
	heads  int
	blocks []headBlock
	places []int // of one call, filled up to whole groups and by fetchAhead

	rows    []uint16  // [32, 576]
	pairs   []uint16  // [4 groups, 32 tiles]
	weights []uint16  // [4 groups, 2] tiles
	between []float32 // two tiles
	padded  []float32 // [16, 576]: queries of a block that is not full
	shapes  tileShapes

	gather  gatherArgs
	split   attendQueryArgs
	score   attendScoreArgs
	soft    attendSoftmaxArgs
	value   attendValueArgs
	cut     vecArgs
	unpack  entryArgs
	scaling float32
}

// headBlock is 16 heads: their query, the scores of the rows at hand, and what
// they have gathered.
type headBlock struct {
	query    []uint16
	scores   []float32 // [2 parts, 128 rows, 16]
	out      []float32
	top, sum [tileHeads]float32
}

// The structs below are the arguments of kernels.

// gatherArgs: 32 rows of memory, in both forms.
type gatherArgs struct {
	memory, at, rows, pairs unsafe.Pointer
	nan                     int       // out: NaN codes were read
	odd, least, most        [4]uint32 // out: bits of scales that are no exponent, least and largest scale
}

// entryArgs: one V4 entry to bfloat16.
type entryArgs struct {
	data, scales, row unsafe.Pointer
	nan               int // out: NaN codes were read
}

// attendQueryArgs: queries to tiles; results of a head from tiles.
type attendQueryArgs struct {
	q, tiles, between unsafe.Pointer
	ld, steps         int
}

// attendScoreArgs: 32 rows by 16 heads.
type attendScoreArgs struct{ rows, query, scores, rest, shapes unsafe.Pointer }

// attendSoftmaxArgs: scores to weights.
type attendSoftmaxArgs struct {
	scores, rest, weights, between unsafe.Pointer
	keys, groups                   int
	grew                           int // out: heads whose largest score grew
	scale                          float32
	top, sum                       [tileHeads]float32
	keep                           [tileHeads]float32 // out: factor of what was gathered before
}

// attendValueArgs: weights by rows.
type attendValueArgs struct {
	pairs, weights, out, keep, shapes unsafe.Pointer
	groups, first                     int
}

func newLatentTiles() latentAttend {
	t := &latentTiles{
		rows:    onLines[uint16](gatherRows * LatentRow),
		pairs:   onLines[uint16](attendRows / gatherRows * valueTiles * tileHalves),
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

func (t *latentTiles) query(q []float32, heads int, scale float32) {
	t.heads, t.scaling = heads, scale
	n := (heads + tileHeads - 1) / tileHeads
	for len(t.blocks) < n {
		t.blocks = append(t.blocks, headBlock{
			query:  onLines[uint16](queryTiles * tileHalves),
			scores: onLines[float32](2 * attendRows * tileHeads),
			out:    onLines[float32](valueTiles * tileFloats),
		})
	}
	a := &t.split
	for i := range n {
		part := q[i*tileHeads*LatentRow:]
		if len(part) < tileHeads*LatentRow {
			if t.padded == nil {
				t.padded = make([]float32, tileHeads*LatentRow)
			}
			clear(t.padded[copy(t.padded, part):])
			part = t.padded
		}
		*a = attendQueryArgs{q: at(part, 0), ld: 4 * LatentRow, tiles: at(t.blocks[i].query, 0), between: at(t.between, 0), steps: querySteps}
		runAttendQuery(a)
	}
	*a = attendQueryArgs{}
}

func (t *latentTiles) used() []headBlock { return t.blocks[:(t.heads+tileHeads-1)/tileHeads] }

func (t *latentTiles) attend(memory []byte, places []int, format RowFormat) bool {
	n := len(places)
	t.places = append(t.places[:0], places...)
	for range -n&(gatherRows-1) + fetchAhead {
		t.places = append(t.places, places[n-1])
	}
	for i := range t.used() {
		b := &t.blocks[i]
		for h := range tileHeads {
			b.top[h], b.sum[h] = float32(math.Inf(-1)), 0
		}
	}
	for first := 0; first < n; first += attendRows {
		if !t.collect(memory, first, min(attendRows, n-first), format) {
			return false
		}
		for i := range t.used() {
			t.fold(&t.blocks[i], min(attendRows, n-first), first == 0)
		}
	}
	t.gather.memory = nil
	return true
}

// collect gathers n rows and multiplies them with the queries.
func (t *latentTiles) collect(memory []byte, first, n int, format RowFormat) bool {
	for row := 0; row < n; row += gatherRows {
		a := &t.gather
		a.memory, a.at = unsafe.Pointer(&memory[0]), at(t.places, first+row)
		a.rows, a.pairs = at(t.rows, 0), at(t.pairs, row/gatherRows*valueTiles*tileHalves)
		rows := a.rows
		if format == RowBF16 && inRow(t.places[first+row:][:gatherRows]) {
			rows = unsafe.Pointer(&memory[t.places[first+row]])
			runGather(pairBF16amx, a)
		} else {
			runGather(gathers[format], a)
		}
		if format == RowBlock && !a.exact() {
			a.memory = nil
			return false
		}
		for i := range t.used() {
			b, s := &t.blocks[i], &t.score
			*s = attendScoreArgs{
				rows: rows, query: at(b.query, 0), shapes: unsafe.Pointer(&t.shapes),
				scores: at(b.scores, row*tileHeads), rest: at(b.scores, (attendRows+row)*tileHeads),
			}
			runAttendScores(s)
		}
	}
	t.score.rows = nil
	return true
}

// inRow reports whether rows of bfloat16 follow each other in memory, as most do when
// nearly everything is selected. They are then multiplied where they lie.
func inRow(places []int) bool {
	for i, p := range places {
		if p != places[0]+i*rowBytes[RowBF16] {
			return false
		}
	}
	return true
}

// exact reports whether every scale was a power of two that an exponent of
// bfloat16 can take up.
func (a *gatherArgs) exact() bool {
	ok := a.nan == 0
	for i := range a.odd {
		ok = ok && a.odd[i] == 0 && a.least[i] >= scaleLeast && a.most[i] <= scaleMost
	}
	return ok
}

// fold adds n collected rows to what a block of heads has gathered.
func (t *latentTiles) fold(b *headBlock, n int, first bool) {
	groups := (n + gatherRows - 1) / gatherRows
	s := &t.soft
	s.scores, s.rest, s.weights, s.between = at(b.scores, 0), at(b.scores, attendRows*tileHeads), at(t.weights, 0), at(t.between, 0)
	s.keys, s.groups, s.scale, s.top, s.sum = n, groups, t.scaling, b.top, b.sum
	runAttendSoftmax(s)
	b.top, b.sum = s.top, s.sum

	v := &t.value
	*v = attendValueArgs{pairs: at(t.pairs, 0), weights: at(t.weights, 0), out: at(b.out, 0), keep: unsafe.Pointer(&s.keep), shapes: unsafe.Pointer(&t.shapes), groups: groups}
	switch {
	case first:
		v.first = 1
	case s.grew != 0:
		runAttendRescale(v)
	}
	runAttendValues(v)
}

func (t *latentTiles) result(out, top, sum []float32) {
	a := &t.split
	for h := range top {
		b := &t.blocks[h/tileHeads]
		top[h], sum[h] = b.top[h%tileHeads], b.sum[h%tileHeads]
		*a = attendQueryArgs{q: at(b.out, h%tileHeads*16), tiles: at(out, h*LatentDim)}
		runAttendResult(a)
	}
	*a = attendQueryArgs{}
}

func (t *latentTiles) narrow(dst []byte, src []float32) bool {
	const lanes = 16
	exact := true
	if whole := len(src) / lanes; whole > 0 {
		a := &t.cut
		a.dst, a.a, a.steps = at(dst, 0), at(src, 0), whole
		runVec(narrowExactamx, a)
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

// entry adds exponents to those of e4m3, which reach from 2^-9 to 2^8: what lies
// outside this range of scales might not be a normal number.
func (t *latentTiles) entry(dst, data, scales []byte) bool {
	for _, e := range scales[:EntryScales] {
		if e < 10 || e > 245 {
			return false
		}
	}
	a := &t.unpack
	a.data, a.scales, a.row = at(data, 0), at(scales, 0), at(dst, 0)
	runEntry(a)
	a.data, a.scales, a.row = nil, nil, nil
	return a.nan == 0
}

var gathers = [rowFormats]func(*gatherArgs){RowBF16: gatherBF16amx, RowRaw: gatherRawamx, RowBlock: gatherBlockamx}

//go:noinline
func runGather(f func(*gatherArgs), a *gatherArgs) { f(a) }

//go:noinline
func runEntry(a *entryArgs) { entryamx(a) }

//go:noinline
func runAttendQuery(a *attendQueryArgs) { attendQueryamx(a) }

//go:noinline
func runAttendResult(a *attendQueryArgs) { attendResultamx(a) }

//go:noinline
func runAttendScores(a *attendScoreArgs) { attendScoresamx(a) }

//go:noinline
func runAttendSoftmax(a *attendSoftmaxArgs) { attendSoftmaxamx(a) }

//go:noinline
func runAttendRescale(a *attendValueArgs) { attendRescaleamx(a) }

//go:noinline
func runAttendValues(a *attendValueArgs) { attendValuesamx(a) }

//go:noescape
func entryamx(a *entryArgs)

//go:noescape
func narrowExactamx(a *vecArgs)

//go:noescape
func gatherBF16amx(a *gatherArgs)

//go:noescape
func pairBF16amx(a *gatherArgs)

//go:noescape
func gatherRawamx(a *gatherArgs)

//go:noescape
func gatherBlockamx(a *gatherArgs)

//go:noescape
func attendQueryamx(a *attendQueryArgs)

//go:noescape
func attendResultamx(a *attendQueryArgs)

//go:noescape
func attendScoresamx(a *attendScoreArgs)

//go:noescape
func attendSoftmaxamx(a *attendSoftmaxArgs)

//go:noescape
func attendRescaleamx(a *attendValueArgs)

//go:noescape
func attendValuesamx(a *attendValueArgs)
