//go:build !purego

package vec

import "unsafe"

// The structs below are the arguments of the tile kernels. Distances are in
// bytes. The assembly reads the fields by their generated offsets.

// tileArgs are the arguments of kernels that multiply groups of tiles of columns by one block of up to 32 weight rows.
type tileArgs struct {
	shapes       tileShapes // first field, because LDTILECFG reads it there
	w, x         unsafe.Pointer
	sums         unsafe.Pointer // [groups, tiles of rows, tiles of columns, 16, 16]
	nextW, nextX int            // bytes from one tile of a step to the other
	ldw, ldx     int            // bytes between rows of a tile
	stepW        int            // bytes between steps of 32 along k
	stepX        int            // bytes between steps of 32 along k
	groupX       int            // bytes between groups of columns
	offsetX      int            // offset of the current group in bytes; the kernel advances it
	groupW       int            // bytes between the weights of two groups; 0 if the groups share them
	offsetW      int            // offset of the current weights in bytes; the kernel advances it
	groups       int
	steps        int
	fresh        int // 1 if sums begin at zero instead of with the values in memory
	// 0: sums are not scaled; 1: sums of a block are multiplied by its scale and added to memory; 2: like 1, and the
	// first block overwrites memory.
	scaled      int
	scales      unsafe.Pointer // [blocks along k]
	offsetScale int            // offset of the scale of the current block in bytes
	endScale    int            // offset of the end of scales: four bytes for every block
	block       unsafe.Pointer // [4, 16, 16] scratch memory for sums that are scaled
	ahead       uintptr        // address to prefetch, or 0; may be out of range
	ldAhead     int            // bytes between rows; a line of each row is prefetched at every step
	stepAhead   int            // bytes from the end of the last row to the next step's first line
	soon        uintptr        // address to prefetch further ahead: a line of four rows, ldAhead apart, at every step
	soonRows    int            // rows to prefetch from soon on; every group takes the next four
}

// fillArgs are the arguments of kernels that widen weight rows into a panel.
type fillArgs struct {
	panel, w unsafe.Pointer
	ldw      int
	rows     int
	steps    int            // whole steps
	mask     int            // elements or bytes of an additional, partial step that exist
	table    unsafe.Pointer // e4m3: [2, 128] low and high bytes
	ahead    int            // bytes from a weight to the weight to prefetch
}

// streamArgs are the arguments of kernels that multiply one group of columns by units of 32 rows of e4m3 or e2m1 codes.
// Sums of e4m3 are added to memory; sums of e2m1 are written to memory, with the lines of a tile contiguous.
type streamArgs struct {
	shapes tileShapes // first field, because LDTILECFG reads it there
	w, x   unsafe.Pointer
	ldw    int
	nextW  int            // bytes from the end of the first row of a unit to the next unit
	panel  unsafe.Pointer // [2, 2, 32, 64] bytes; see tileScratch
	sums   unsafe.Pointer // [units, rows / 16, tiles of columns, 16, columns] float32, or int32 for e2m1
	// e4m3: [units, blocks] streamScale, preceded by a placeholder; e2m1: windows of the first row
	scales unsafe.Pointer
	units  int // units left; the kernel counts it down
	blocks int // blocks of 128 columns
	left   int // blocks of this unit that are left; the kernel counts it down, as it does the next field
	// leftSums is the number of blocks whose sums are not yet added to the sums of the unit, including the placeholder
	// before the first block.
	leftSums int

	// Windows of e2m1 weights.
	ldScale    int // bytes between rows of scales
	nextScales int // bytes from the end of the scales of a unit's first row to the next unit
	//lint:ignore U1000 only the assembly uses it
	steps int // steps of a block that are left
	//lint:ignore U1000 only the assembly uses it
	halves uintptr // sum of the addresses of the halves of the panel

	// Rows whose windows the kernel finds for the next unit; the fields are those of windowArgs. The kernel advances
	// the addresses up to the end of their memory, which the caller keeps alive.
	findScales    uintptr
	findLd        int
	findWindows   uintptr
	findExponents uintptr
	findBelow     uintptr
	findTable     unsafe.Pointer
	findLeft      int    // rows left; the kernel counts it down
	findEach      int    // rows of a phase
	findRegisters int    // whole registers of scales of a row, without the last register
	findMask      uint64 // bit mask of scales in the last register

	// Memory to prefetch at eight cursors, one after the other: runAhead contiguous bytes at each cursor, then an
	// advance by jumpAhead.
	ahead     uintptr // address; may be out of range
	unitAhead int     // bytes from the memory prefetched with one unit to that prefetched with the next
	lastAhead uintptr // address of the memory prefetched with the last unit
	ldAhead   int     // bytes from one cursor to the next
	backAhead int     // bytes from the fifth cursor to the next line of the first
	leftAhead int     // bytes of the run that are left; the kernel counts it down
	runAhead  int
	jumpAhead int

	aheadScales uintptr // address of e2m1 scales to prefetch, one line after the other
}

// rowArgs are the arguments of the kernel that multiplies a row of x by rows of e2m1 codes. Eight cursors read the
// codes at one time, each a run of rows.
type rowArgs struct {
	w, x       unsafe.Pointer
	run        int            // bytes from the rows of one cursor to those of the next
	nextW      int            // bytes from the end of a row to the next row
	windows    unsafe.Pointer // [rows, blocks, 4] bytes
	runWindows int            // bytes from the windows of one cursor to those of the next
	rows       int            // rows of a run; the kernel counts it down
	blocks     int            // blocks of 128 columns
	sums       unsafe.Pointer // [8, rows, 2] int32: sums of the first cursor; the kernel advances it
	places     [8]int         // offset of the sums of each cursor from sums

	// Memory to prefetch at eight cursors. None of the addresses needs to be in range.
	ahead       uintptr
	leftAhead   int     // lines to prefetch at each cursor from ahead on, before the lines from next on
	next        uintptr // address of the memory that is read after this call's rows
	runNext     int     // bytes from one cursor to the next in the memory at next
	aheadScales uintptr // address of scales to prefetch, one line after the other
}

// windowArgs are the arguments of kernels that find the windows of e8m0 scales of e2m1 weight rows.
type windowArgs struct {
	scale     unsafe.Pointer
	ldScale   int
	rows      int
	count     int            // scales of a row
	table     unsafe.Pointer // [256] float32, indexed by the largest scale of a row: exponent of the row
	largest   unsafe.Pointer // [rows] bytes: scales above it are not in the window
	first     int            // flag 0 or 1: 1 finds the first window of each row, which has no scale above it
	windows   unsafe.Pointer // output: [rows, count] bytes
	ldWindows int
	exponents unsafe.Pointer // output: [rows] float32
	below     unsafe.Pointer // output: [rows] bytes, 1 if a row has scales below its window
}

// streamScale is the scale of a block of 128 columns for a streaming kernel.
type streamScale struct {
	table unsafe.Pointer // table of fillArgs, including the scale if that is a power of two
	scale float32        // factor of sums, if the scale is not a power of two
}

// packArgs are the arguments of kernels that pack rows of x into tiles of columns.
type packArgs struct {
	columns unsafe.Pointer
	rows    [GroupRows]unsafe.Pointer
	count   int // number of rows
	steps   int
	mask    int // bit mask of elements of the last step, or pair of steps
	rest    int // output, for groups of sixteen: not zero if a second part is not zero

	// Fields for planes.
	elements    int                // elements of a row
	offset      int                // bytes to the first element to pack
	lanes, last [8]uint16          // masks of existing elements in each sixteen, in the current steps and in the last
	peaks       [GroupRows]uint32  // largest magnitude of each row, as bits of float32
	scales      [GroupRows]float32 // exponent of each row
	//lint:ignore U1000 only the assembly uses it
	words [2 * partsF32 * halfRows * pairLanes]byte
}

// foldArgs are the arguments of kernels that write tiles of sums to rows of y.
type foldArgs struct {
	sums, y         unsafe.Pointer
	ldy             int
	nextSums, nextY int     // bytes between tiles, or from the second tile of a pair to the next pair
	lower           int     // bytes from the first tile of a pair to the second
	line            int     // bytes between lines of a tile, if they are not contiguous
	soon            uintptr // address of lines to prefetch, with the stride of y; may be out of range
	tiles           int     // number of tiles, or of pairs
	rows            int     // number of rows of x in a tile
	mask            int     // bit mask of weight rows in a tile
	add             int     // 1 to add to the values of y

	// Planes: exponents of rows of x and of weight rows, as float32.
	exponentsX, exponentsW unsafe.Pointer
}

const (
	tileSide  = 16            // rows and columns of a tile of sums
	tileBytes = 1024          // bytes of a whole tile
	stepDepth = 32            // weights of a row in a step
	blockW    = 2 * tileSide  // rows of weights in a block
	panelStep = 2 * tileBytes // bytes of a step of a block in a panel
	pairLanes = tileSide * 4  // bytes of a line of a tile
	tileW     = 4             // number of the first tile register of weights
	tileX     = 6             // number of the first tile register of columns
	tileK     = 512           // depth of a panel: 32 kB, most of the L1 cache
	tileSteps = tileK / stepDepth
)

// tileKernels is indexed by the number of tiles of weights minus one and of tiles of columns minus one.
var tileKernels = [2][2]func(*tileArgs){{tiles1x1, tiles1x2}, {tiles2x1, tiles2x2}}
