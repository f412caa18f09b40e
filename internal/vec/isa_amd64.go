//go:build !purego

package vec

import (
	"unsafe"
)

// isa is one instruction set: its kernels and their shapes. The code that divides a product into blocks is shared by
// all instruction sets.
type isa struct {
	name string
	vec  vectors

	// Kernels that read weights in place, indexed by format, number of rows of x minus one, and width: [0] takes groups
	// of four weight rows, [1] single weight rows.
	rowsMR int
	rows   [formats][4][2]func(*rowsArgs)
	// rowsCode are the kernels for e4m3 weights whose scales were multiplied into x.
	rowsCode [4][2]func(*rowsArgs)
	// rowsUpTo is the maximum number of rows of x for which reading weights in place is faster than packing them.
	rowsUpTo [formats]int

	// Kernels for packed panels and panelMR rows of x, the widest first.
	panelMR int
	panels  []panelKernel

	// Kernels that accumulate accCols columns, indexed by the number of rows of x minus one, and kernels that
	// accumulate wideCols columns for one row, indexed by format.
	accCols  int
	acc      [accMR]func(*accArgs)
	wideCols int
	wide     [formats]func(*accArgs)
	pack     [formats]func(*accArgs) // widens blocks of accCols columns

	float   floatKernels  // attention over latent rows
	nibbles nibbleKernels // kernels for e2m1 weights
	selects selectKernels
	// quant prepares indexer vectors; nil if the instruction set has too few registers.
	quant func(*quantArgs)
	// indexLines transposes keys of the indexer; nil if the instruction set has too few registers
	// for that to be faster.
	indexLines func(*indexLinesArgs)
	indexHeads func(*indexHeadsArgs) // scores of transposed keys
	// indexFP4 widens FP4 keys of the indexer, for newIndexFP4.
	indexFP4    func(*indexFP4Args)
	newIndexFP4 func(*isa) indexFP4Scorer
}

// panelKernel multiplies rows of x by a panel of cols packed weight rows.
type panelKernel struct {
	cols int
	run  func(*panelArgs)
}

// vectors holds the element-wise operations of an instruction set.
type vectors struct {
	lanes   int // float32 per register
	kernels vecKernels
}

type vecKernels struct {
	axpy, scaleMul, widenBF16, widenE4M3, scaleExact, narrowBF16, siluMul, expSum, maximum, reluAdd, rotatePairs,
	rotateHalves, softmax func(*vecArgs)
}

// selectKernels count numbers above a floor and collect them; the collecting kernels are nil if the instruction set
// cannot compress registers.
type selectKernels struct{ count, counted, placed func(*selectArgs) }

// format is the storage format of weights.
type format int

const (
	formatF32 format = iota
	formatBF16
	formatFP8
	formats
)

// The structs below are the arguments of kernels. Strides are in bytes. The assembly reads the fields by their
// generated offsets.

// rowsArgs are the arguments of kernels that multiply up to four rows of x by groups of four weight rows, or by one.
type rowsArgs struct {
	//lint:ignore U1000 only the assembly uses it
	spill        [512]byte // e4m3: halves between two steps of decoding
	y, x, w      unsafe.Pointer
	ldy, ldx     int
	ldw, apart   int            // bytes between the weight rows of a group, and between their results
	next         int            // bytes between groups; their results are adjacent
	groups       int            // groups of weight rows; the kernel counts it down
	steps        int            // whole registers along k
	scale        unsafe.Pointer // e4m3: scales of these rows, one per block of columns
	each         int            // e4m3: registers of x of a block
	bias         float32        // e4m3: the factor that undoes the decoder's 2^-8
	xTail, wTail unsafe.Pointer // last elements of k as zero-padded registers; only with one group
	codes        [16]uint32     // e4m3, out: largest codes read, four to a word, without signs
}

// panelArgs are the arguments of kernels that multiply tiles of panelMR rows of x by one panel.
type panelArgs struct {
	y, x, w     unsafe.Pointer
	ldy, ldx    int
	ldw         int
	tiles       int
	steps       int            // whole registers along k
	mask        int            // lanes of an additional, partial register
	maskVec     unsafe.Pointer // mask as a vector
	sums        unsafe.Pointer // [tiles, panelMR, cols, lanes], read unless first, written unless last
	first, last int
	ahead       uintptr // address of the next panel's weights; may be out of range
	ldAhead     int
	lines       int // lines of each weight row to prefetch with every tile
}

// accArgs are the arguments of kernels that add the products of rows of x and d weight rows to y.
type accArgs struct {
	y, x, w       unsafe.Pointer
	ldy, ldx, ldw int
	d             int
	scale         float32 // e4m3: 256 times the scale that all these weights share
	nan           int     // e4m3, out: a NaN was read and y is unchanged
}

// vecArgs are the arguments of element-wise kernels over whole registers.
type vecArgs struct {
	dst, a, b unsafe.Pointer
	steps     int
	s         float32
	stride    int         // rotations: bytes between heads
	each      int         // widenE4M3, scaleExact: registers of a block with one scale
	nan       int         // maximum: lanes with a NaN; scaleExact: lanes that rounded
	acc       [16]float32 // running vector of a reduction
	codes     [16]uint32  // widenE4M3, out: largest codes read, as in rowsArgs
}

const (
	accMR     = 6    // rows of x in the accumulation tile
	accDepth  = 128  // weight rows packed for accumulation, at most those that share a scale
	maxPanel  = 6    // rows of the widest panel
	panelK    = 1024 // columns of x in a packed panel
	panelLine = panelK + 16
	// Rows of x that are multiplied by a packed panel: with panelK columns they are half a megabyte, which shares the
	// L2 cache with the sums of groupPanels panels.
	blockRows   = 128
	groupPanels = 8
	// Elements of the sums of one panel: a tile of 4 x 6 registers of 16 lanes for every four rows, and one for the
	// tile that overlaps the last. Smaller tiles need less memory.
	panelSums = (blockRows/4 + 1) * 24 * 16
)

// scratch is the memory of one call.
type scratch struct {
	// Widened weights: a panel [maxPanel, panelLine], or [accDepth, accCols].
	pack [accDepth * 64]float32
	// rows is a field of scratch so that its spill space does not share a cache line with other data.
	rows rowsArgs
	// Sums of a panel between two blocks of k.
	sums [groupPanels * panelSums]float32
	// Results for columns of a panel beyond the end of y.
	edge [blockRows * maxPanel]float32
	// Results of an accumulation tile that extends beyond the end of y.
	edgeAcc [accMR * 64]float32
	// Zero-padded ends of rows.
	xTail, wTail [4 * 16]float32
	pad          [3][16]float32
	// x times the scales of a band of weights; grows to the largest size used so far.
	xScaled []float32
	// Memory for a single scale, a single result and the scales of a row.
	scale, one [1]float32
	groups     Groups

	panel panelArgs
	acc   accArgs
	vec   vecArgs
}

// scratches recycles scratch between calls. Kernels are called through function values, so their arguments would
// otherwise be allocated on the heap.
var scratches recycler[scratch]

func takeScratch() *scratch { return scratches.get() }

// releaseScratch drops the pointers into the caller's memory and returns s.
func releaseScratch(s *scratch) {
	r := &s.rows
	r.y, r.x, r.w, r.scale, r.xTail, r.wTail = nil, nil, nil, nil, nil, nil
	s.panel, s.acc, s.vec = panelArgs{}, accArgs{}, vecArgs{}
	scratches.put(s)
}
