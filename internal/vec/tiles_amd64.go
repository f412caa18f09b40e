//go:build !purego

package vec

import "unsafe"

// The structs below are the arguments of the tile kernels. Distances are in
// bytes. The assembly reads the fields by their generated offsets.

// tileArgs: groups of tiles of columns by one block of up to 32 rows of weights.
type tileArgs struct {
	shapes       tileShapes // first, because LDTILECFG reads it there
	w, x         unsafe.Pointer
	sums         unsafe.Pointer // [groups, tiles of rows, tiles of columns, 16, 16]
	nextW, nextX int            // from one tile of a step to the other
	ldw, ldx     int            // between rows of a tile
	stepW        int            // between steps of 32 along k
	stepX        int            // as stepW
	groupX       int            // between groups of columns
	offsetX      int            // of this group; the kernel advances it
	groupW       int            // between the weights of two groups: 0 where they share them
	offsetW      int            // as offsetX
	groups       int
	steps        int
	fresh        int // sums begin at zero instead of in memory
	// sums over steps are times a scale and 1: added to memory, 2: its first block begins there
	scaled      int
	scales      unsafe.Pointer // [blocks along k]
	offsetScale int            // of the current block
	endScale    int            // four for every block
	block       unsafe.Pointer // [4, 16, 16] scratch for sums to be scaled
	ahead       uintptr        // address to prefetch, or 0; may be out of range
	ldAhead     int            // a line of each row at every step
	stepAhead   int            // from the row after the last to the next step's first
	soon        uintptr        // address to prefetch further ahead: a line of four rows, ldAhead apart, at every step
	soonRows    int            // rows of that; every group takes the next four
}

// fillArgs: rows of weights into a panel.
type fillArgs struct {
	panel, w unsafe.Pointer
	ldw      int
	rows     int
	steps    int            // whole steps
	mask     int            // what exists of one more, in elements or bytes
	table    unsafe.Pointer // e4m3: [2, 128] low and high bytes
	ahead    int            // distance from a weight to the weight to prefetch
}

// streamArgs: one group of columns by units of 32 rows of e4m3 or e2m1 codes. Sums of e4m3 are added to memory, sums
// of e2m1 are written, with the lines of a tile contiguous.
type streamArgs struct {
	shapes tileShapes // first, because LDTILECFG reads it there
	w, x   unsafe.Pointer
	ldw    int
	nextW  int            // from the end of the first row of a unit to the next unit
	panel  unsafe.Pointer // [2, 2, 32, 64] bytes; see tileScratch
	sums   unsafe.Pointer // [units, rows / 16, tiles of columns, 16, columns] float32, or int32 of e2m1
	// e4m3: [units, blocks] streamScale, preceded by a placeholder; e2m1: windows of the first row
	scales unsafe.Pointer
	units  int // the kernel counts down
	blocks int // of 128 columns
	left   int // blocks of this unit; the kernel counts down, as what follows
	// leftSums is the number of blocks whose sums still have to be added to the sums of the unit, including the
	// placeholder before the first block.
	leftSums int

	// Windows of e2m1.
	ldScale    int // between rows
	nextScales int // as nextW
	//lint:ignore U1000 only the assembly uses it
	steps int // of a block that are left
	//lint:ignore U1000 only the assembly uses it
	halves uintptr // sum of the addresses of the halves of the panel

	// Rows whose windows the kernel finds for the next unit, as windowArgs. Addresses are advanced to the end of
	// their memory, which the caller keeps.
	findScales    uintptr
	findLd        int
	findWindows   uintptr
	findExponents uintptr
	findBelow     uintptr
	findTable     unsafe.Pointer
	findLeft      int    // rows; the kernel counts down
	findEach      int    // of a phase
	findRegisters int    // whole registers of scales of a row, without the last register
	findMask      uint64 // scales in the last register

	// What to prefetch, at eight cursors one after the other: runAhead contiguous bytes at each, then an advance by
	// jumpAhead.
	ahead     uintptr // may be out of range
	unitAhead int     // from the bytes prefetched with one unit to those of the next
	lastAhead uintptr // bytes prefetched with the last unit
	ldAhead   int     // from one cursor to the next
	backAhead int     // from the fifth cursor to the next line of the first
	leftAhead int     // of the run; the kernel counts down
	runAhead  int
	jumpAhead int

	aheadScales uintptr // scales of e2m1 to prefetch, one after the other
}

// rowArgs: a row of x by rows of e2m1 codes, which eight cursors read at once, each a run of rows.
type rowArgs struct {
	w, x       unsafe.Pointer
	run        int            // from the rows of one cursor to those of the next
	nextW      int            // from the end of a row to the next row
	windows    unsafe.Pointer // [rows, blocks, 4] bytes
	runWindows int            // as run
	rows       int            // of a run; the kernel counts down
	blocks     int            // of 128 columns
	sums       unsafe.Pointer // [8, rows, 2] int32: of the first cursor; the kernel advances it
	places     [8]int         // of each cursor's sums, from there

	// What to prefetch at eight cursors. None of the addresses needs to be in range.
	ahead       uintptr
	leftAhead   int     // lines to prefetch there at each cursor, before those from next on
	next        uintptr // what comes after this call's rows
	runNext     int     // as run, of next
	aheadScales uintptr // scales to prefetch, one after the other
}

// windowArgs: e8m0 scales of rows of e2m1 weights, to be brought into windows.
type windowArgs struct {
	scale     unsafe.Pointer
	ldScale   int
	rows      int
	count     int            // scales of a row
	table     unsafe.Pointer // [256] float32: exponent of a row by its largest scale
	largest   unsafe.Pointer // [rows] bytes: scales above it are not in the window
	first     int            // not zero where no scale is above it
	windows   unsafe.Pointer // out: [rows, count] bytes
	ldWindows int
	exponents unsafe.Pointer // out: [rows] float32
	below     unsafe.Pointer // out: [rows] bytes, 1 where a row has scales below its window
}

// streamScale is the scale of a block of 128 columns for a streaming kernel.
type streamScale struct {
	table unsafe.Pointer // as in fillArgs; with the scale in it where that is a power of two
	scale float32        // of sums, where it is not
}

// packArgs: rows of x into tiles of columns.
type packArgs struct {
	columns unsafe.Pointer
	rows    [GroupRows]unsafe.Pointer
	count   int // of rows
	steps   int
	mask    int // elements of the last step, or pair of steps
	rest    int // out, of groups of sixteen: not zero where a second part is not

	// Planes.
	elements    int                // of a row
	offset      int                // in bytes, of the first element to pack
	lanes, last [8]uint16          // which of each sixteen elements exist, in the current steps and in the last
	peaks       [GroupRows]uint32  // the largest magnitude of each row, as bits of float32
	scales      [GroupRows]float32 // exponent of each row
	//lint:ignore U1000 only the assembly uses it
	words [2 * partsF32 * halfRows * pairLanes]byte
}

// foldArgs: tiles of sums into rows of y.
type foldArgs struct {
	sums, y         unsafe.Pointer
	ldy             int
	nextSums, nextY int     // between tiles, or from the second of a pair to the next one
	lower           int     // from the first of a pair to the second
	line            int     // between lines of a tile, where they are not contiguous
	soon            uintptr // lines to prefetch, with the stride of y; may be out of range
	tiles           int     // or pairs
	rows            int     // of each tile's columns, how many exist
	mask            int     // of each tile's rows, which exist
	add             int     // to what y holds

	// Planes: exponents of rows of x and of weights, as float32.
	exponentsX, exponentsW unsafe.Pointer
}

const (
	tileSide  = 16            // rows and columns of a tile of sums
	tileBytes = 1024          // a whole tile
	stepDepth = 32            // weights of a row in a step
	blockW    = 2 * tileSide  // rows of weights in a block
	panelStep = 2 * tileBytes // a step of a block in a panel
	pairLanes = tileSide * 4  // bytes of a line of a tile
	tileW     = 4             // first tile of weights
	tileX     = 6             // first tile of columns
	tileK     = 512           // depth of a panel: 32 kB, most of the L1 cache
	tileSteps = tileK / stepDepth
)

// tileKernels is indexed by the number of tiles of weights minus one and of tiles of columns minus one.
var tileKernels = [2][2]func(*tileArgs){{tiles1x1, tiles1x2}, {tiles2x1, tiles2x2}}
