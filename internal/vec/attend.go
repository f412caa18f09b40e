package vec

// Sizes of sparse attention over latent rows.
const (
	LatentRow = 576 // elements of a row, all of which a query is multiplied with
	LatentDim = 512 // leading elements of a row that are also its value
)

// RowFormat is the memory format of a latent row.
type RowFormat int

const (
	RowBF16  RowFormat = iota // bfloat16: 1152 bytes, or 1024 where rows have 512 elements
	RowRaw                    // 576 e4m3
	RowBlock                  // 512 e4m3, four float32 scales of 128 each, 64 bfloat16: 656 bytes, or 528
	rowFormats
	RowF32       = rowFormats // 2304 or 2048 bytes, only for FloatAttend
	floatFormats = RowF32 + 1
)

// rowBytes is the size of a row of 576 elements.
var rowBytes = [floatFormats]int{RowBF16: 1152, RowRaw: 576, RowBlock: 656, RowF32: 2304}

// rowSize returns the size of a row of the given number of elements: LatentRow or, without the rotated part, LatentDim.
func rowSize(format RowFormat, width int) int {
	size := rowBytes[format]
	if width == LatentRow {
		return size
	}
	switch format {
	case RowRaw:
		return size - (LatentRow - LatentDim)
	case RowF32:
		return size - 4*(LatentRow-LatentDim)
	}
	return size - 2*(LatentRow-LatentDim)
}

// LatentAttend is attention of a query row's heads over chosen latent rows:
//
//	top[h] = max over rows of scale*q[h]·row, p = exp(scale*q[h]·row - top[h]),
//	sum[h] = Σ p, out[h] = Σ p*row[:512]
//
// Queries and weights are represented as sums of two bfloat16, with a relative
// error of 2^-17. Several query rows are held at once, so that rows that read nearly
// the same memory can alternate. Rows of 512 elements, which are all value, must be
// bfloat16. One goroutine uses it at a time.
type LatentAttend struct {
	width int
	impl  latentAttend
}

// latentAttend is the interface that a tier implements for attention over latent rows.
type latentAttend interface {
	query(i int, q []float32, heads int, scale float32, format RowFormat)
	attend(i int, memory []byte, at, ahead []int, format RowFormat) bool
	result(out, top, sum []float32)
	holds(memory []byte, at []int) bool
	narrow(dst []byte, src []float32) bool
	entry(dst, data, scales []byte) bool
}

// AttendsOnTiles reports whether NewLatentAttend uses AMX tiles.
func (t *Tier) AttendsOnTiles() bool { return t.ops.newLatentAttend != nil }

// NewLatentAttend returns attention over rows of LatentRow or LatentDim elements, or
// nil for a tier without it.
func NewLatentAttend(t *Tier, width int) *LatentAttend {
	if width != LatentRow && width != LatentDim {
		panic("vec: NewLatentAttend: the rows have an unsupported width")
	}
	if t.ops.newLatentAttend == nil {
		return nil
	}
	return &LatentAttend{width: width, impl: t.ops.newLatentAttend(width)}
}

// Query sets query row i, counted from zero, to q [heads, width], for rows of a format. All query rows have the same
// number of heads and the same scale.
func (a *LatentAttend) Query(i int, q []float32, heads int, scale float32, format RowFormat) {
	needMatrix("LatentAttend.Query", "q", len(q), heads, a.width, a.width)
	if heads < 1 || i < 0 {
		panic("vec: LatentAttend.Query: there are no heads, or the row is negative")
	}
	a.impl.query(i, q[:heads*a.width], heads, scale, format)
}

// Attend starts a new softmax and attends with query row i, which was set for this format, over the rows at the given
// byte offsets in memory, at least one, in this order. It returns false, and computes no result, for rows that
// bfloat16 cannot represent: rows in RowBlock with a scale that is not a power of two between 2^-100 and 2^100, or
// with a NaN code.
//
// ahead lists the rows of the next call, of the same memory and format: some of the first are prefetched.
func (a *LatentAttend) Attend(i int, memory []byte, at, ahead []int, format RowFormat) bool {
	const method = "LatentAttend.Attend"
	if format < 0 || format >= rowFormats || format != RowBF16 && a.width != LatentRow {
		panic("vec: LatentAttend.Attend: the format of rows is unknown")
	}
	needMatrix(method, "at", len(at), 1, 1, 1)
	needRows(method, memory, at, rowSize(format, a.width))
	return a.impl.attend(i, memory, at, ahead, format)
}

// needRows panics unless rows of the given number of bytes are in memory.
func needRows(method string, memory []byte, at []int, size int) {
	last := 0
	for _, p := range at {
		if p < 0 {
			panic("vec: " + method + ": a row is negative")
		}
		last = max(last, p)
	}
	needMatrix(method, "memory", len(memory)-last, 1, size, size)
}

// Holds reports whether tiles hold the rows of 512 bfloat16 at the given bytes of memory
// exactly: tiles treat subnormal numbers as zero.
func (a *LatentAttend) Holds(memory []byte, at []int) bool {
	needRows("LatentAttend.Holds", memory, at, 2*LatentDim)
	return len(at) == 0 || a.impl.holds(memory, at)
}

// Result writes the result of the last Attend: out [heads, 512], top and sum [heads].
func (a *LatentAttend) Result(out, top, sum []float32) {
	const method = "LatentAttend.Result"
	needMatrix(method, "out", len(out), len(top), LatentDim, LatentDim)
	needLen(method, "sum", len(sum), len(top))
	a.impl.result(out, top, sum)
}

// Narrow writes float32 to dst as bfloat16. It reports false for numbers that tiles do not represent exactly.
func (a *LatentAttend) Narrow(dst []byte, src []float32) bool {
	needMatrix("LatentAttend.Narrow", "dst", len(dst), 1, 2*len(src), 2*len(src))
	return len(src) == 0 || a.impl.narrow(dst, src)
}

// Sizes of a packed V4 entry: 448 e4m3 in groups of 64 and 64 bfloat16, and an exponent
// (e8m0) for every group.
const (
	EntryData   = 448 + 2*64
	EntryScales = 7
)

// Entry writes one packed V4 entry to dst as 512 bfloat16. It reports false for one that
// bfloat16 does not hold exactly: with a NaN code or an exponent near the ends of the
// range.
func (a *LatentAttend) Entry(dst, data, scales []byte) bool {
	const method = "LatentAttend.Entry"
	needMatrix(method, "dst", len(dst), 1, 2*LatentDim, 2*LatentDim)
	needMatrix(method, "data", len(data), 1, EntryData, EntryData)
	needMatrix(method, "scales", len(scales), 1, EntryScales, EntryScales)
	return a.impl.entry(dst, data, scales)
}
