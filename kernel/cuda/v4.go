package cuda

// Sizes of a V4 cache entry: 448 e4m3 and 64 bf16 values in a data row, 7 scale bytes and a zero in a scale row.
const (
	V4Dim        = 512
	V4DataBytes  = 448 + 64*2
	V4ScaleBytes = 8
	// The width of combined row lists is a multiple of CombineWidth.
	CombineWidth = 128
)

// V4PageBytes returns the distance between pages of a V4 pool: data rows, then scale rows, rounded up to a multiple of
// 576.
func V4PageBytes(tokens int) int64 {
	n := int64(tokens) * (V4DataBytes + V4ScaleBytes)
	return (n + V4DataBytes - 1) / V4DataBytes * V4DataBytes
}

// WriteV4Args are the arguments of the V4 page writer.
type WriteV4Args struct {
	Pool      PoolView // pages of PageTokens data rows, then PageTokens scale rows
	Rotary    RotaryView
	Rows      Ptr     // bf16 [Tokens, 512]; the kernel rotates the last 64, pairs (2i, 2i+1)
	Positions Ptr     // i32 [Tokens]: a token's own position, or the first position of a compressed entry's group
	Slots     Ptr     // i32 [Tokens]; negative: do not write
	Faults    Ptr     // one u32 of fault bits, or zero
	Norm      Ptr     // f32 or bf16 [512]: weights of the rows' norm; zero: the rows are already normalised
	Epsilon   float64 // added to the mean of squares; used if Norm is given
	RowStride int64   // elements between tokens, multiple of 8
	Tokens    int32
	NormBF16  int32 // 1: Norm is bf16
}

// CombineV4Args are the arguments of the index combiner.
type CombineV4Args struct {
	Window       Ptr // i32 [Tokens, WindowStride]: rows of window entries
	WindowLength Ptr // i32 [Tokens]: number of valid entries of a row of Window
	Extra        Ptr // i32 [Tokens, ExtraStride]; zero if ExtraWidth is 0
	ExtraLength  Ptr // i32 [Tokens]; zero if ExtraWidth is 0
	WindowBase   Ptr // i32 [Tokens]: added to window rows; a zero pointer adds nothing
	ExtraBase    Ptr // i32 [Tokens]: added to extra rows; a zero pointer adds WindowRows
	Rows         Ptr // i32 [Tokens, Width]
	Lengths      Ptr // i32 [Tokens]
	WindowStride int64
	ExtraStride  int64
	Tokens       int32
	WindowWidth  int32 // entries of a window row
	ExtraWidth   int32 // entries of an extra row
	Width        int32 // width of a row list: a multiple of 128 that holds both lists; 0 means CombinedWidth
	WindowRows   int32 // rows of the window part of the concatenated keys: the offset of the extra part
	Reserved     int32
}

// CombinedWidth returns the width of a combined row list.
func CombinedWidth(window, extra int32) int32 {
	return (window + extra + CombineWidth - 1) / CombineWidth * CombineWidth
}

// WriteV4 rotates and quantises one entry per token and stores it in its page. If Norm is given, it normalises the
// entry first.
func WriteV4(k *Kernels, s *Stream, a *WriteV4Args) error {
	c := checks{kernel: "write_v4"}
	a.check(&c)
	return runRows(k, s, &c, a.Tokens, longRows, a)
}

func (a *WriteV4Args) check(c *checks) { a.checkRows(c, V4DataBytes+V4ScaleBytes) }

// checkRows checks the arguments of a writer of rows of the given size in bytes.
func (a *WriteV4Args) checkRows(c *checks, rowBytes int64) {
	c.pool(a.Pool, rowBytes)
	c.rotary(a.Rotary)
	c.memory("rows", a.Rows, 16)
	c.memory("positions", a.Positions, 4)
	c.memory("slots", a.Slots, 4)
	c.multiple("row stride", a.RowStride, 8, V4Dim)
	c.count("tokens", a.Tokens)
	c.flag("weights of the norm in bf16", a.NormBF16)
}

// GatherV4Slots copies the listed entries to consecutive bf16 rows of 512 values, dequantised; KScale is not used.
func GatherV4Slots(k *Kernels, s *Stream, a *GatherSlotsArgs) error {
	c := checks{kernel: "gather_slots_v4"}
	c.gatheredV4(a.Pool, a.Rows, a.RowBytes, a.Count)
	c.memory("slots", a.Source.Slots, 4)
	return runRows(k, s, &c, a.Count, longRows, a)
}

// gatherV4Pages copies all entries of the listed requests to consecutive dequantised bf16 rows of 512 values; KScale
// is not used. A whole pool is one request whose page table counts from 0.
func gatherV4Pages(k *Kernels, s *Stream, a *GatherPagesArgs) error {
	c := checks{kernel: "gather_pages_v4"}
	c.gatheredV4(a.Pool, a.Rows, a.RowBytes, a.Count)
	c.pages(a.Source)
	return runRows(k, s, &c, a.Count, longRows, a)
}

// gatheredV4 checks the arguments that are common to V4 gathers by slots and by pages.
func (c *checks) gatheredV4(pool PoolView, rows Ptr, rowBytes int64, count int32) {
	c.pool(pool, V4DataBytes+V4ScaleBytes)
	c.memory("rows", rows, 16)
	c.multiple("row bytes", rowBytes, 16, V4Dim*2)
	c.count("count", count)
}

// CombineV4 concatenates a token's window entries and its selected compressed entries to one list of rows. An entry
// below zero stays -1.
func CombineV4(k *Kernels, s *Stream, a *CombineV4Args) error {
	c := checks{kernel: "combine_v4"}
	c.memory("window", a.Window, 4)
	c.memory("window length", a.WindowLength, 4)
	if a.ExtraWidth > 0 {
		c.memory("extra", a.Extra, 4)
		c.memory("extra length", a.ExtraLength, 4)
	}
	c.memory("rows", a.Rows, 4)
	c.memory("lengths", a.Lengths, 4)
	c.count("tokens", a.Tokens)
	c.count("window width", a.WindowWidth)
	c.count("extra width", a.ExtraWidth)
	c.count("window rows", a.WindowRows)
	c.multiple("window stride", a.WindowStride, 1, int64(a.WindowWidth))
	c.multiple("extra stride", a.ExtraStride, 1, int64(a.ExtraWidth))
	if int64(a.WindowWidth)+int64(a.ExtraWidth) > 1<<30 {
		c.fail("widths %d and %d are too large", a.WindowWidth, a.ExtraWidth)
	}
	if a.Width == 0 {
		a.Width = CombinedWidth(a.WindowWidth, a.ExtraWidth)
	}
	c.multiple("width", int64(a.Width), CombineWidth, int64(a.WindowWidth)+int64(a.ExtraWidth))
	return runRows(k, s, &c, a.Tokens, longRows, a)
}
