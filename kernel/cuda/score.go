package cuda

import (
	"math"

	"sparrow/layout"
)

// IndexRaggedArgs are the arguments of the ragged index-score kernels.
type IndexRaggedArgs struct {
	QueryMap  TensorMap // e4m3 [rows, heads, 128]
	KeysMap   TensorMap // e4m3 [keys, 128]
	ScalesMap TensorMap // f32 [keys]
	Weights   Ptr       // f32 [rows, heads], multiple of 16
	KeyStart  Ptr       // i32 [rows]: first key of a row
	KeyEnd    Ptr       // i32 [rows]: one past the last key, or with Lengths the number of keys
	Scores    Ptr       // f32 [rows, Stride]; only columns of keys in [KeyStart, KeyEnd) are written
	Stride    int64     // floats between rows of scores
	Rows      int32
	Keys      int32
	Relative  int32 // 1: column c holds key KeyStart + c; 0: column c holds key c
	Lengths   int32 // 1: KeyEnd holds numbers of keys
	Skip      int32 // rows with at most this many keys are skipped
	Reserved  int32
}

// IndexPagedArgs are the arguments of the paged index-score kernels.
type IndexPagedArgs struct {
	QueryMap       TensorMap // e4m3 [requests, next_n, heads, 128]
	KeysMap        TensorMap // u8 [pages, 8448]: the key bytes of every page
	ScalesMap      TensorMap // f32 [pages, 64]: the scales of every page
	Weights        Ptr       // f32 [requests * next_n, heads], multiple of 16
	ContextLengths Ptr       // i32 [requests, next_n]: keys visible to each row
	BlockTable     Ptr       // i32 [tables, TableStride]: physical page of each logical page
	// i32 [requests, next_n]: row of BlockTable of each query row; only the first of a request is read; or zero
	TableRows   Ptr
	Scores      Ptr   // f32 [requests * next_n, Stride]; column = logical position
	Stride      int64 // floats between rows of scores
	TableStride int64 // entries between rows of BlockTable
	Requests    int32
	NextN       int32
	MaxContext  int32 // columns of scores: lengths are clipped to this number
	MaxBlocks   int32 // entries of a row of BlockTable: lengths are clipped to 64 times this number
	Skip        int32 // rows with at most this many keys are skipped
	Reserved    int32
	_           [48]byte // padding to the maps' alignment of 64 bytes
}

// IndexRagged describes the memory of ragged scores: each query row has its own range of contiguous keys.
type IndexRagged struct {
	Queries  Ptr   // e4m3 [Rows, Heads, 128], multiple of 16
	Keys     Ptr   // e4m3 [KeyCount, 128], multiple of 16
	Scales   Ptr   // f32 [KeyCount], multiple of 16
	Weights  Ptr   // f32 [Rows, Heads], multiple of 16
	KeyStart Ptr   // i32 [Rows]
	KeyEnd   Ptr   // i32 [Rows]: one past the last key, or with Lengths the number of keys
	Scores   Ptr   // f32 [Rows, Stride]
	Stride   int64 // floats between rows
	Rows     int32
	KeyCount int32
	Heads    int32 // 32 or 64
	Relative bool  // column c holds key KeyStart + c, else key c
	Lengths  bool
	Skip     int32 // rows with at most this many keys are skipped
}

// IndexPaged describes the memory of paged scores: up to four query rows of each request, scored against the keys in
// the request's pages.
type IndexPaged struct {
	Queries        Ptr   // e4m3 [Requests, NextN, Heads, 128], multiple of 16
	Cache          Ptr   // pages of 64 keys and 64 scales, multiple of 16
	PageBytes      int64 // bytes between pages, multiple of 16
	Pages          int64 // pages of the cache
	Weights        Ptr   // f32 [Requests*NextN, Heads], multiple of 16
	ContextLengths Ptr   // i32 [Requests, NextN]
	BlockTable     Ptr   // i32 [tables, TableStride]
	// i32 [Requests, NextN]: row of BlockTable of each query row; only the first of a request is read. Zero: request r
	// has row r.
	TableRows   Ptr
	Scores      Ptr   // f32 [Requests*NextN, Stride]
	Stride      int64 // floats between rows
	TableStride int64 // entries between rows
	Requests    int32
	NextN       int32 // 1 to 4
	Heads       int32 // 32 or 64
	MaxContext  int32 // columns of scores
	MaxBlocks   int32 // entries of a row of BlockTable
	Skip        int32 // rows with at most this many keys are skipped
}

// heads checks that there is a score kernel for the number of heads.
func (c *checks) heads(n int32) {
	if n != 32 && n != 64 {
		c.fail("there are %d heads, want 32 or 64: pad with heads of weight zero", n)
	}
}

// Encode checks the memory and builds the kernel's arguments with their tensor maps. They are valid as long as the
// memory is allocated.
func (x *IndexRagged) Encode(d *Device) (IndexRaggedArgs, error) {
	c := checks{kernel: "index scores, ragged"}
	c.heads(x.Heads)
	c.memory("queries", x.Queries, 16)
	c.memory("keys", x.Keys, 16)
	c.memory("scales", x.Scales, 16)
	c.memory("weights", x.Weights, 16)
	c.memory("key start", x.KeyStart, 4)
	c.memory("key end", x.KeyEnd, 4)
	c.memory("scores", x.Scores, 4)
	c.positive("rows", x.Rows)
	c.positive("keys", x.KeyCount)
	c.multiple("stride", x.Stride, 1, 1)
	a := IndexRaggedArgs{
		Weights: x.Weights, KeyStart: x.KeyStart, KeyEnd: x.KeyEnd, Scores: x.Scores, Stride: x.Stride, Rows: x.Rows,
		Keys: x.KeyCount, Skip: x.Skip,
	}
	if x.Relative {
		a.Relative = 1
	}
	if x.Lengths {
		a.Lengths = 1
	}
	const queryColumns, tileKeys = 256, 64 // query heads of the rows of one item, and keys of one copy
	err := encodeMaps(d, c.err, []mapTarget{
		{&a.QueryMap, MapSpec{Type: MapU8, Base: x.Queries,
			Dims: []uint64{layout.IndexDim, uint64(x.Rows) * uint64(x.Heads)}, Strides: []uint64{layout.IndexDim},
			Box: []uint32{layout.IndexDim, queryColumns}, Swizzle: Swizzle128, L2: 3}},
		{&a.KeysMap, MapSpec{Type: MapU8, Base: x.Keys, Dims: []uint64{layout.IndexDim, uint64(x.KeyCount)},
			Strides: []uint64{layout.IndexDim}, Box: []uint32{layout.IndexDim, tileKeys}, Swizzle: Swizzle128, L2: 3}},
		{&a.ScalesMap, MapSpec{Type: MapF32, Base: x.Scales, Dims: []uint64{uint64(x.KeyCount)},
			Box: []uint32{tileKeys}, L2: 3}},
	})
	return a, err
}

// Encode checks the memory and builds the kernel's arguments with their tensor maps. They are valid as long as the
// memory is allocated.
func (x *IndexPaged) Encode(d *Device) (IndexPagedArgs, error) {
	c := checks{kernel: "index scores, paged"}
	c.heads(x.Heads)
	if x.NextN < 1 || x.NextN > 4 {
		c.fail("there are %d query rows per request, want 1 to 4: split the requests", x.NextN)
	}
	c.memory("queries", x.Queries, 16)
	c.memory("cache", x.Cache, 16)
	c.multiple("page bytes", x.PageBytes, 16, layout.IndexPageBytes)
	c.multiple("pages", x.Pages, 1, 1)
	c.memory("weights", x.Weights, 16)
	c.memory("context lengths", x.ContextLengths, 4)
	c.memory("block table", x.BlockTable, 4)
	c.memory("scores", x.Scores, 4)
	c.positive("requests", x.Requests)
	c.count("columns", x.MaxContext)
	c.count("blocks", x.MaxBlocks)
	c.multiple("stride", x.Stride, 1, int64(x.MaxContext))
	c.multiple("table stride", x.TableStride, 1, int64(x.MaxBlocks))
	if x.Pages > math.MaxInt32 {
		c.fail("there are %d pages, want at most %d", x.Pages, math.MaxInt32)
	}
	a := IndexPagedArgs{
		Weights: x.Weights, ContextLengths: x.ContextLengths, BlockTable: x.BlockTable, TableRows: x.TableRows,
		Scores: x.Scores, Stride: x.Stride, TableStride: x.TableStride, Requests: x.Requests, NextN: x.NextN,
		MaxContext: x.MaxContext, MaxBlocks: x.MaxBlocks, Skip: x.Skip,
	}
	columns := uint64(x.NextN) * uint64(x.Heads)
	// Every page is read once, as a whole. L2 promotion to 256 bytes would only add traffic between the two halves of
	// L2.
	err := encodeMaps(d, c.err, []mapTarget{
		{&a.QueryMap, MapSpec{Type: MapU8, Base: x.Queries,
			Dims: []uint64{layout.IndexDim, uint64(x.Requests) * columns}, Strides: []uint64{layout.IndexDim},
			Box: []uint32{layout.IndexDim, uint32(columns)}, Swizzle: Swizzle128, L2: 3}},
		{&a.KeysMap, MapSpec{Type: MapU8, Base: x.Cache,
			Dims:    []uint64{layout.IndexDim, layout.PageTokens, uint64(x.Pages)},
			Strides: []uint64{layout.IndexDim, uint64(x.PageBytes)},
			Box:     []uint32{layout.IndexDim, layout.PageTokens, 1}, Swizzle: Swizzle128, L2: 1}},
		{&a.ScalesMap, MapSpec{Type: MapF32, Base: x.Cache.Add(layout.PageTokens * layout.IndexDim),
			Dims: []uint64{layout.PageTokens, uint64(x.Pages)}, Strides: []uint64{uint64(x.PageBytes)},
			Box: []uint32{layout.PageTokens, 1}, L2: 1}},
	})
	return a, err
}

// mapTarget is a tensor map to build and its destination.
type mapTarget struct {
	dst  *TensorMap
	spec MapSpec
}

// encodeMaps builds the maps, unless an earlier check failed.
func encodeMaps(d *Device, failed error, list []mapTarget) error {
	if failed != nil {
		return failed
	}
	for _, m := range list {
		tm, err := d.encodeTensorMap(m.spec)
		if err != nil {
			return err
		}
		*m.dst = tm
	}
	return nil
}

// ScoreRagged computes ragged index scores with the kernel for a head count.
func ScoreRagged(k *Kernels, s *Stream, heads int32, a *IndexRaggedArgs) error {
	if k.device.portable {
		const rows = 4 // query rows of an item
		return portableScores(k, s, "portable_index_ragged", heads, scoreGrid(k, ceilDiv(a.Rows, rows), a.Keys), a)
	}
	name := "sparrow_index_ragged_h64"
	if heads == 32 {
		name = "sparrow_index_ragged_h32"
	}
	return runPersistent(k, s, name, math.MaxInt32, 1, a)
}

// pagedKernels are the paged score kernels by the number of heads and the maximum number of query rows per request.
var pagedKernels = map[[2]int32]string{
	{32, 1}: "sparrow_index_paged_h32_n1", {32, 2}: "sparrow_index_paged_h32_n2", {32, 4}: "sparrow_index_paged_h32_n4",
	{64, 1}: "sparrow_index_paged_h64_n1", {64, 2}: "sparrow_index_paged_h64_n2", {64, 4}: "sparrow_index_paged_h64_n4",
}

// ScorePaged computes paged index scores with the smallest kernel for the query rows of a request; 3 rows use the
// kernel for 4.
func ScorePaged(k *Kernels, s *Stream, heads int32, a *IndexPagedArgs) error {
	if k.device.portable {
		keys := min(int64(a.MaxContext), int64(a.MaxBlocks)*layout.PageTokens)
		return portableScores(k, s, "portable_index_paged", heads, scoreGrid(k, a.Requests, int32(keys)), a)
	}
	rows := a.NextN
	if rows == 3 {
		rows = 4
	}
	name, ok := pagedKernels[[2]int32{heads, rows}]
	if !ok {
		return argumentError("paged index scores: %d heads with %d query rows have no kernel", heads, a.NextN)
	}
	return runPersistent(k, s, name, math.MaxInt32, 1, a)
}
