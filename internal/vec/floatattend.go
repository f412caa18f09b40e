package vec

// FloatAttend is [LatentAttend] in float32, for tiers with vectors and without tiles: no row is refused. Rows have
// LatentRow elements, or LatentDim, which are all value. One goroutine uses it at a time.
type FloatAttend struct {
	width int
	impl  floatAttend
}

// floatAttend is the interface that a tier implements for attention over latent rows in float32.
type floatAttend interface {
	query(i int, q []float32, heads int, scale float32)
	attend(i int, memory []byte, at, ahead []int, format RowFormat)
	result(out, top, sum []float32)
}

// NewFloatAttend returns attention over rows of LatentRow or LatentDim elements, or nil for a tier without it.
func NewFloatAttend(t *Tier, width int) *FloatAttend {
	if width != LatentRow && width != LatentDim {
		panic("vec: NewFloatAttend: the rows have an unsupported width")
	}
	if t.ops.newFloatAttend == nil {
		return nil
	}
	return &FloatAttend{width: width, impl: t.ops.newFloatAttend(width)}
}

// Query sets query row i, counted from zero, to q [heads, width]. All query rows have the same number of heads and the
// same scale.
func (a *FloatAttend) Query(i int, q []float32, heads int, scale float32) {
	needMatrix("FloatAttend.Query", "q", len(q), heads, a.width, a.width)
	if heads < 1 || i < 0 {
		panic("vec: FloatAttend.Query: there are no heads, or the row is negative")
	}
	a.impl.query(i, q[:heads*a.width], heads, scale)
}

// Attend starts a new softmax and attends with query row i over the rows at the given byte offsets in memory, at least
// one, in this order. The first rows of ahead, those of the next call in the same memory and format, are prefetched.
func (a *FloatAttend) Attend(i int, memory []byte, at, ahead []int, format RowFormat) {
	const method = "FloatAttend.Attend"
	if format < 0 || format >= floatFormats {
		panic("vec: FloatAttend.Attend: the format of rows is unknown")
	}
	needMatrix(method, "at", len(at), 1, 1, 1)
	needRows(method, memory, at, rowSize(format, a.width))
	a.impl.attend(i, memory, at, ahead, format)
}

// Result writes the result of the last Attend: out [heads, 512], top and sum [heads].
func (a *FloatAttend) Result(out, top, sum []float32) {
	const method = "FloatAttend.Result"
	needMatrix(method, "out", len(out), len(top), LatentDim, LatentDim)
	needLen(method, "sum", len(sum), len(top))
	a.impl.result(out, top, sum)
}
