package vec

// Sizes of sparse attention over latent rows.
const (
	LatentRow = 576 // elements of a row, all of which a query is multiplied with
	LatentDim = 512 // leading elements of a row that are also its value
)

// RowFormat is how a latent row lies in memory.
type RowFormat int

const (
	RowBF16  RowFormat = iota // 576 bfloat16, 1152 bytes
	RowRaw                    // 576 e4m3
	RowBlock                  // 512 e4m3, four float32 scales of 128 each, 64 bfloat16: 656 bytes
	rowFormats
)

// rowBytes is the size of a row.
var rowBytes = [rowFormats]int{RowBF16: 1152, RowRaw: 576, RowBlock: 656}

// LatentAttend is attention of a query row's heads over chosen latent rows:
//
//	top[h] = max over rows of scale*q[h]·row, p = exp(scale*q[h]·row - top[h]),
//	sum[h] = Σ p, out[h] = Σ p*row[:512]
//
// Queries and weights take part as sums of two bfloat16, so their relative error
// is 2^-17. It holds several query rows at once, so that rows that read nearly the
// same memory can take turns. One goroutine uses it at a time.
type LatentAttend struct{ impl latentAttend }

// latentAttend is what a tier implements.
type latentAttend interface {
	query(i int, q []float32, heads int, scale float32)
	attend(i int, memory []byte, at, ahead []int, format RowFormat) bool
	result(out, top, sum []float32)
	narrow(dst []byte, src []float32) bool
	entry(dst, data, scales []byte) bool
}

// NewLatentAttend returns attention over latent rows, or nil for a tier without
// it.
func (t *Tier) NewLatentAttend() *LatentAttend {
	if t.ops.newLatentAttend == nil {
		return nil
	}
	return &LatentAttend{impl: t.ops.newLatentAttend()}
}

// Query makes [heads, 576] query row i, counted from zero; all that are held have as
// many heads and the same scale.
func (a *LatentAttend) Query(i int, q []float32, heads int, scale float32) {
	needMatrix("LatentAttend.Query", "q", len(q), heads, LatentRow, LatentRow)
	if heads < 1 || i < 0 {
		panic("vec: LatentAttend.Query: no heads, or a row before the first")
	}
	a.impl.query(i, q[:heads*LatentRow], heads, scale)
}

// Attend forgets what it gathered and gathers for query row i the rows that start at the
// given bytes of memory, at least one, in their order. It reports false, with nothing
// gathered, for rows that bfloat16 cannot hold: those in RowBlock with a scale that
// is not a power of two between 2^-100 and 2^100, or with a NaN code.
//
// Rows that the next call will ask for, of the same memory and format, may be named
// ahead: some of the first are fetched meanwhile.
func (a *LatentAttend) Attend(i int, memory []byte, at, ahead []int, format RowFormat) bool {
	const method = "LatentAttend.Attend"
	if format < 0 || format >= rowFormats {
		panic("vec: LatentAttend.Attend: unknown format of rows")
	}
	last := 0
	for _, p := range at {
		if p < 0 {
			panic("vec: LatentAttend.Attend: a row before the memory")
		}
		last = max(last, p)
	}
	needMatrix(method, "at", len(at), 1, 1, 1)
	needMatrix(method, "memory", len(memory)-last, 1, rowBytes[format], rowBytes[format])
	return a.impl.attend(i, memory, at, ahead, format)
}

// Result writes what the last Attend gathered: out [heads, 512], top and sum [heads].
func (a *LatentAttend) Result(out, top, sum []float32) {
	const method = "LatentAttend.Result"
	needMatrix(method, "out", len(out), len(top), LatentDim, LatentDim)
	needLen(method, "sum", len(sum), len(top))
	a.impl.result(out, top, sum)
}

// Narrow writes one row of up to 576 float32 to dst as a row in RowBF16, zeros behind
// what there is. It reports false for numbers that bfloat16 does not hold exactly.
func (a *LatentAttend) Narrow(dst []byte, src []float32) bool {
	const method = "LatentAttend.Narrow"
	needMatrix(method, "dst", len(dst), 1, rowBytes[RowBF16], rowBytes[RowBF16])
	needMatrix(method, "row", LatentRow, 1, len(src), len(src))
	clear(dst[2*len(src) : rowBytes[RowBF16]])
	return len(src) == 0 || a.impl.narrow(dst, src)
}

// Sizes of a packed V4 entry: 448 e4m3 in groups of 64 and 64 bfloat16, and an exponent
// (e8m0) for every group.
const (
	EntryData   = 448 + 2*64
	EntryScales = 7
)

// Entry writes one packed V4 entry to dst as a row in RowBF16, zeros behind its 512
// elements. It reports false for one that bfloat16 does not hold exactly: with a NaN
// code or an exponent near the ends of the range.
func (a *LatentAttend) Entry(dst, data, scales []byte) bool {
	const method = "LatentAttend.Entry"
	needMatrix(method, "dst", len(dst), 1, rowBytes[RowBF16], rowBytes[RowBF16])
	needMatrix(method, "data", len(data), 1, EntryData, EntryData)
	needMatrix(method, "scales", len(scales), 1, EntryScales, EntryScales)
	return a.impl.entry(dst, data, scales)
}
