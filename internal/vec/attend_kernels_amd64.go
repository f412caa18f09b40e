//go:build !purego

package vec

import "unsafe"

// fetchArgs are the arguments of kernels that prefetch rows into the L2 cache, or check the values of rows.
type fetchArgs struct {
	memory, at  unsafe.Pointer
	rows, lines int
	nan         int // out: not 0 if rows have values that tiles cannot hold
}

// entryArgs are the arguments of the kernel that converts a V4 entry to bfloat16.
type entryArgs struct {
	data, scales, row unsafe.Pointer
	nan               int // out: not 0 if NaN codes were read
}

// attendQueryArgs are the arguments of kernels that copy queries into tiles, or results of a head out of tiles.
type attendQueryArgs struct {
	q, tiles, between unsafe.Pointer
	ld, chunks        int     // distance between heads; number of chunks of 64 elements
	by                float32 // factor that results are multiplied by
}

// attendScoreArgs are the arguments of kernels that compute the scores of groups of 64 rows for 16 heads. Rows are
// contiguous, or at the offsets in places. For coded rows the kernel writes exponents and marks, and advances their
// addresses. The rows at the offsets in fetch are prefetched, unless fetch is nil; the kernel advances it to the first
// row that was not prefetched.
type attendScoreArgs struct {
	rows, at, query, scores, shapes, tiles unsafe.Pointer
	exponents, pairExponents, marks        unsafe.Pointer
	memory, fetch                          unsafe.Pointer
	groups                                 int
	nan                                    int // out: not 0 if rows have values that bfloat16 cannot hold
}

// attendSoftmaxArgs are the arguments of kernels that convert scores to weights.
type attendSoftmaxArgs struct {
	scores, weights, between unsafe.Pointer
	keys, groups             int
	grew                     int // out: heads whose top changed
	scale                    float32
	top, sum                 [tileHeads]float32 // base of the weights, and their sum
	most                     [tileHeads]float32 // largest score
	keep                     [tileHeads]float32 // out: factor of the earlier sums
}

// attendValueArgs are the arguments of kernels that multiply weights by groups of 32 rows. Two rows of memory are
// prefetched for every group and block of columns, unless fetch is nil. Exponents are stored for pairs of rows.
type attendValueArgs struct {
	rows, at, weights, out, keep, shapes, tiles unsafe.Pointer
	exponents, marks                            unsafe.Pointer
	memory, fetch                               unsafe.Pointer
	groups, first, columns                      int
}
