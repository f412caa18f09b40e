//go:build !purego

package vec

import "unsafe"

// The structs below are the arguments of kernels.

// fetchArgs: rows whose lines are fetched into the L2 cache, or rows to be checked.
type fetchArgs struct {
	memory, at  unsafe.Pointer
	rows, lines int
	nan         int // out: numbers that tiles do not hold
}

// entryArgs: one V4 entry to bfloat16.
type entryArgs struct {
	data, scales, row unsafe.Pointer
	nan               int // out: NaN codes were read
}

// attendQueryArgs: queries to tiles; results of a head from tiles.
type attendQueryArgs struct {
	q, tiles, between unsafe.Pointer
	ld, chunks        int     // distance of heads; chunks of 64 elements
	by                float32 // factor of results
}

// attendScoreArgs: groups of 64 rows by 16 heads. Rows are contiguous, or at the offsets in places. For coded rows
// exponents and marks are stored; the kernel advances their addresses. The rows at the offsets in fetch are
// prefetched, unless fetch is nil; the kernel advances it to the first row that was not prefetched.
type attendScoreArgs struct {
	rows, at, query, scores, shapes, tiles unsafe.Pointer
	exponents, pairExponents, marks        unsafe.Pointer
	memory, fetch                          unsafe.Pointer
	groups                                 int
	nan                                    int // out: not 0 where bfloat16 does not hold the rows
}

// attendSoftmaxArgs: scores to weights.
type attendSoftmaxArgs struct {
	scores, weights, between unsafe.Pointer
	keys, groups             int
	grew                     int // out: heads whose top changed
	scale                    float32
	top, sum                 [tileHeads]float32 // base of the weights, and their sum
	most                     [tileHeads]float32 // largest score
	keep                     [tileHeads]float32 // out: factor of the earlier sums
}

// attendValueArgs: weights by groups of 32 rows. Two rows of memory are prefetched for every group and block of
// columns, unless fetch is nil. Exponents are stored for pairs.
type attendValueArgs struct {
	rows, at, weights, out, keep, shapes, tiles unsafe.Pointer
	exponents, marks                            unsafe.Pointer
	memory, fetch                               unsafe.Pointer
	groups, first, columns                      int
}
