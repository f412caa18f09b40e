package cuda

import (
	"fmt"
	"math"
)

// This file has products with weights that are stored packed in device memory and decoded in the kernel
// (src/sm90/packed, src/sm80/packed). The names of kernels contain the name of the packed format.

// PackedArgs are the arguments of products with packed weights.
type PackedArgs struct {
	Weights   Ptr
	Factors   Ptr
	X         Ptr
	Out       Ptr
	Order     Ptr
	List      Ptr
	Totals    Ptr
	Sums      Ptr
	Arrived   Ptr
	XPitch    int64
	OutStride int64
	XBytes    int32
	Rows      int32
	Top       int32
	Tiles     int32
	Units     int32
	Parts     int32
	Columns   int32
	Gated     int32
	FromPairs int32
	OutF32    int32
	Limit     float32
	Reserved  int32
}

// PackPackedArgs are the arguments of the kernels that pack a matrix, or gate and up.
type PackPackedArgs struct {
	First        Ptr
	Second       Ptr // the up matrix, or zero
	FirstScales  Ptr // zero if the codes contain the scales
	SecondScales Ptr
	FirstZeros   Ptr // u8 zero points, or zero
	SecondZeros  Ptr
	To           Ptr   // memory of PackedFormat.Bytes bytes
	Stride       int64 // bytes between rows of codes
	ScaleStride  int64 // scales between rows of scales
	Rows         int32
	Columns      int32
	Tiles        int32 // set by PackWeight, as is UnitBytes
	Units        int32
	BlockRows    int32 // rows of a block that shares a scale
	BlockColumns int32
	SkipRows     int32
	Source       int32 // value of PackSources
	ScaleType    int32 // an ElementType, or "e8m0" of PackSources
	Middle       int32 // zero point of all codes if FirstZeros is zero
}

// PackSources are the values of PackPackedArgs.Source, by the name of the storage format (enum Source of pack.cuh), and
// the value "e8m0" of ScaleType.
var PackSources = map[string]int32{"nibbles": 0, "bytes": 1, "offset": 2, "q4_0": 3, "q8_0": 4, "mxfp4": 5, "blocks": 6,
	"e8m0": 4}

// PackedFormat is the name of a form of packed weights.
type PackedFormat string

// packedShape describes a unit of a format: 64 rows by a number of columns, and the exponent of the power of two by
// which sums must be multiplied.
type packedShape struct {
	columns  int32
	bytes    int64
	exponent int
}

const (
	packedRows = 256 // rows of a tile
	packedSMs  = 132 // SMs of an H200

	long, short    = 256, 128 // columns of a unit
	codes4, codes8 = 64 * long / 2, 64 * short
)

// Names with g128 and g32 have a scale for 128 or 32 columns of a row. A scale has 2 bytes; in formats "any", 4 bytes
// and a byte for a zero point.
var packedFormats = map[PackedFormat]packedShape{
	"nvfp4":         {long, codes4 + 64*16, 10},
	"mxfp4":         {long, codes4 + 64*8, 40},
	"u4_g128":       {long, codes4 + 64*2*2, 30},
	"u4_g32":        {long, codes4 + 64*8*2, 30},
	"u4_g128_any":   {long, codes4 + 64*2*5, 30}, // scales multiply the sums
	"u4_g32_any":    {long, codes4 + 64*8*5, 30},
	"i8_g128":       {short, codes8 + 64*2, 30},
	"i8_g32":        {short, codes8 + 64*4*2, 30},
	"i8_g128_any":   {short, codes8 + 64*5, 30},
	"i8_g32_any":    {short, codes8 + 64*4*5, 30},
	"e4m3_g32":      {short, codes8 + 64*4*2, 20},
	"e4m3_g128_any": {short, codes8 + 64*5, 20},
	"e4m3_g32_any":  {short, codes8 + 64*4*5, 20},
	"q4_k":          {long, 64 * 144, 30},
	"q2_k":          {long, 64 * 88, 28},  // d and dmin are two numbers each
	"q3_k":          {long, 64 * 128, 30}, // bf16 scales for 16 values each, as in q6_k
	"q5_k":          {long, 64 * 176, 30},
	"q6_k":          {long, 64 * 224, 30},
	"iq2_xxs":       {long, 64 * 72, 30}, // stores all eight signs of eight values, like the other iq formats
	"iq2_xs":        {long, 64 * 84, 30},
	"iq2_s":         {long, 64 * 84, 30},
	"iq3_xxs":       {long, 64 * 104, 30},
	"iq3_s":         {long, 64 * 112, 30},
	"iq4":           {long, 64 * 144, 0}, // for IQ4_NL and IQ4_XS
}

// Bytes returns the device memory in bytes of a matrix [rows, columns].
func (f PackedFormat) Bytes(rows, columns int32) int64 {
	s := packedFormats[f]
	return int64(ceilDiv(rows, packedRows)) * int64(ceilDiv(columns, s.columns)) * 4 * s.bytes
}

// Factor returns the factor by which sums of a matrix are multiplied: the matrix's own factor (0 means 1) times the
// power of two that the format omits.
func (f PackedFormat) Factor(own float32) float32 {
	if own == 0 {
		own = 1
	}
	return float32(math.Ldexp(float64(own), packedFormats[f].exponent))
}

// check checks that the format has kernels.
func (f PackedFormat) check(c *checks) {
	if _, ok := packedFormats[f]; !ok {
		c.fail("there are no kernels for packed weights of the format %q", string(f))
	}
}

// PackWeight packs a matrix, or gate and up, each of Rows x Columns.
func PackWeight(k *Kernels, s *Stream, f PackedFormat, a *PackPackedArgs) error {
	c := checks{kernel: "sparrow_packed_pack_" + string(f)}
	f.check(&c)
	c.positive("rows", a.Rows)
	c.positive("columns", a.Columns)
	c.positive("block rows", a.BlockRows)
	c.positive("block columns", a.BlockColumns)
	c.memory("codes", a.First, 1)
	c.memory("packed", a.To, 16)
	if c.err != nil {
		return c.err
	}
	a.Tiles, a.Units = ceilDiv(a.Rows, packedRows), ceilDiv(a.Columns, packedFormats[f].columns)
	if a.Second != 0 {
		a.Tiles = ceilDiv(a.Rows, packedRows/2)
	}
	if a.Tiles > maxGridY {
		c.fail("the matrix has %d rows, want at most %d", a.Rows, maxGridY*packedRows/2)
	}
	if k.device.portable { // products may be captured later, when no image can be loaded
		if _, err := k.Function(f.portable(packedFew16)); err != nil {
			return err
		}
	}
	return runGrid(k, s, &c, Dim{X: uint32(a.Units), Y: uint32(a.Tiles)}, a)
}

// PackedProduct is a product with a packed matrix: Out [Rows, Columns] = X [Rows, K] * weight transposed. The result of
// a row depends only on the row and the weight.
type PackedProduct struct {
	Format    PackedFormat
	Weight    Ptr // Format.Bytes(Columns, K), multiple of 16
	Factors   Ptr // f32 [2], both Format.Factor
	X         Ptr // bf16, rows XStride apart; multiple of 16
	Out       Ptr // bf16 or f32, rows OutStride apart
	XStride   int64
	OutStride int64
	Rows      int32
	Columns   int32
	K         int32 // multiple of 8
	OutF32    bool
	Sums      Ptr // memory of SumBytes bytes, multiple of 16
	Arrived   Ptr // u32 [PackedSlots]: zero before and after the launch
}

// PackedSlots is the number of words of PackedProduct.Arrived.
const PackedSlots = 1 << 14

// Numbers of tokens of the kernels for few rows, and the maximum number of rows for which packedFew64 is used. A tile
// of up to 16 rows uses one word of PackedProduct.Arrived for each warp.
const (
	packedFew8, packedFew16, packedFew64 = 8, 16, 64 // portable: only packedFew16
	packedMany, packedWide               = 128, 256  // portable: only packedMany
	packedMostFew                        = 128
	packedWarps                          = 16
	packedThird                          = 288 // maximum threads of a block that shares an SM with two others
	packedFine                           = 1   // used instead of a number of tokens: the kernel for few experts
	packedFineListed                     = 64
	packedPair                           = 2 // used instead of a number of tokens: pairs of blocks for 256 tokens
	packedFewExperts                     = 3 // used instead of a number of tokens: few of experts with many tiles
	packedFewMatrix                      = 4 // used instead of a number of tokens: few of a matrix with many tiles

	portablePackedBlocks = 2             // blocks of portable kernels per SM
	packedFewExpertTiles = 4 * packedSMs // minimum number of tiles for packedFewExperts
	packedStripe         = 64            // rows of a stripe of a tile
	packedMatrixStripes  = 6             // maximum number of stripes of a block of packedFewMatrix at a time
)

// PackedPairArgs are the arguments of products by pairs of blocks.
type PackedPairArgs struct {
	XMap TensorMap // bf16 [1, Rows, K]
	Base PackedArgs
	_    [56]byte // padding to the map's alignment of 64 bytes
}

// packedFormatsWide lists the formats with kernels for groups of 256 rows: products by pairs of blocks, and experts.
var packedFormatsWide = map[PackedFormat]bool{"nvfp4": true, "mxfp4": true, "u4_g128": true, "u4_g32": true,
	"u4_g128_any": true, "u4_g32_any": true, "i8_g128": true, "i8_g32": true, "i8_g128_any": true, "i8_g32_any": true,
	"e4m3_g32": true, "e4m3_g128_any": true, "e4m3_g32_any": true, "q4_k": true, "q6_k": true}

// packedParts returns the number of parts into which k is divided: enough to balance the work of an H200's SMs for few
// rows. It depends only on the shape of the weight, because it determines the order of summation.
func packedParts(tiles, units int32) int32 {
	const leastUnits = 4
	best, parts := 0.0, int32(1)
	for p := int32(1); p <= 8; p *= 2 {
		each := ceilDiv(units, p)
		if p > 1 && (each < leastUnits || (p-1)*each >= units) {
			break
		}
		items := tiles * p
		if use := float64(items)/float64(ceilDiv(items, packedSMs)*packedSMs) - 0.02*math.Log2(float64(p)); use > best {
			best, parts = use, p
		}
	}
	return parts
}

// size returns the numbers of tiles and units of the weight and of parts of k.
func (x *PackedProduct) size() (tiles, units, parts int32) {
	tiles, units = ceilDiv(x.Columns, packedRows), ceilDiv(x.K, packedFormats[x.Format].columns)
	return tiles, units, packedParts(tiles, units)
}

// tokens returns the number of tokens that a block processes, or the constant of a kernel that is used instead.
func (x *PackedProduct) tokens() int32 {
	tiles, _, parts := x.size()
	switch {
	case x.Rows <= packedFew16 && packedFormatsFewMatrix[x.Format] && packedFewMatrixFits(x.Columns, parts):
		return packedFewMatrix
	case x.Rows <= packedFew8:
		return packedFew8
	case x.Rows <= packedFew16:
		return packedFew16
	case x.Rows <= packedMostFew:
		return packedFew64
	}
	// A block computes half of a tile of columns. A group of 256 rows takes about 1.7 times as long as a group of 128
	// rows.
	rounds := func(tokens int32) int64 {
		return (2*int64(tiles)*int64(ceilDiv(x.Rows, tokens)) + packedSMs - 1) / packedSMs
	}
	if packedFormatsWide[x.Format] && 17*rounds(packedWide) <= 10*rounds(packedMany) {
		return packedPair
	}
	return packedMany
}

// packedFewMatrixFits reports whether packedFewMatrix is used for a product with the given numbers of columns and of
// parts of k. Its blocks process up to six stripes of 64 columns at a time, one such block per SM; the other kernels
// for few rows process four. As packedFewMatrix is faster for the same work, its SMs may have up to a fifth more of it.
func packedFewMatrixFits(columns, parts int32) bool {
	rounds := ceilDiv(ceilDiv(columns, packedMatrixStripes*packedStripe)*parts, packedSMs)
	return 5*rounds <= 4*ceilDiv(ceilDiv(columns, packedRows)*parts, packedSMs)
}

// portableTokens returns the number of tokens that a block of the portable kernels processes. If there are few tiles of
// many tokens, more blocks with fewer tokens occupy more SMs.
func (x *PackedProduct) portableTokens(sms int) int32 {
	tiles, _, _ := x.size()
	if x.Rows <= packedFew16 || x.Rows <= packedFew64 && 4*int(tiles) <= sms {
		return packedFew16
	}
	return packedMany
}

// SumBytes returns the bytes of memory for the sums of parts of k.
func (x *PackedProduct) SumBytes(d *Device) int64 {
	if !d.portable {
		return x.sumBytes(x.tokens())
	}
	if n := x.portableTokens(d.props.SMs); n != packedMany {
		return x.sumBytes(n)
	}
	return x.manySums(d.props.SMs)
}

// manySums is SumBytes for the portable kernel for many tokens, whose blocks have their own sums.
func (x *PackedProduct) manySums(sms int) int64 {
	tiles, _, parts := x.size()
	if parts == 1 {
		return 0
	}
	blocks := min(2*int64(tiles)*int64(ceilDiv(x.Rows, packedMany)), portablePackedBlocks*int64(sms))
	return blocks * packedRows / 2 * packedMany * 4
}

// sumBytes is SumBytes for the kernel for groups of n rows.
func (x *PackedProduct) sumBytes(n int32) int64 {
	tiles, _, parts := x.size()
	switch {
	case parts == 1 || n == packedMany:
		return 0
	case n == packedPair: // each block has its own sums
		return packedSMs * packedRows / 2 * packedWide * 4
	case n == packedFewMatrix && x.Rows <= packedFew8:
		n = packedFew8
	case n == packedFewMatrix:
		n = packedFew16
	}
	return int64(tiles) * int64(ceilDiv(x.Rows, n)) * int64(parts) * packedRows * int64(n) * 4
}

// MultiplyPacked launches a product with a packed matrix.
func MultiplyPacked(k *Kernels, s *Stream, x *PackedProduct) error {
	if k.device.portable {
		return multiplyPackedBy(k, s, x, x.portableTokens(k.device.props.SMs))
	}
	return multiplyPackedBy(k, s, x, x.tokens())
}

// args returns the kernel's arguments.
func (x *PackedProduct) args() PackedArgs {
	tiles, units, parts := x.size()
	a := PackedArgs{Weights: x.Weight, Factors: x.Factors, X: x.X, Out: x.Out, XPitch: 2 * x.XStride,
		OutStride: x.OutStride, XBytes: 2 * x.K, Rows: x.Rows, Tiles: tiles, Units: units, Parts: parts,
		Columns: x.Columns, Sums: x.Sums, Arrived: x.Arrived}
	if x.OutF32 {
		a.OutF32 = 1
	}
	return a
}

// multiplyPackedBy launches the kernel for groups of n rows.
func multiplyPackedBy(k *Kernels, s *Stream, x *PackedProduct, n int32) error {
	c := checks{kernel: "packed product"}
	x.Format.check(&c)
	c.positive("rows", x.Rows)
	c.positive("columns", x.Columns)
	c.multiple("k", int64(x.K), 8, 8)
	c.memory("weight", x.Weight, 16)
	c.memory("factors", x.Factors, 4)
	c.memory("x", x.X, 16)
	c.multiple("x stride", x.XStride, 8, int64(x.K))
	c.multiple("out stride", x.OutStride, 1, int64(x.Columns))
	c.memory("out", x.Out, 2)
	if c.err != nil {
		return c.err
	}
	tiles, _, parts := x.size()
	a := x.args()
	group := n
	if n == packedFewMatrix {
		group = packedFew16
		if x.Rows > packedFew16 {
			c.fail("%d rows, want at most %d", x.Rows, packedFew16)
		}
	}
	items := int64(tiles) * int64(ceilDiv(x.Rows, group))
	switch {
	case parts == 1 || n == packedMany && !k.device.portable:
	case n == packedPair || n == packedMany:
		c.memory("sums", x.Sums, 16)
	default:
		c.memory("sums", x.Sums, 16)
		c.memory("arrived", x.Arrived, 4)
		most := int64(PackedSlots)
		if n <= packedFew16 {
			most /= packedWarps
		}
		if items > most {
			c.fail("%d x %d results have %d tiles, want at most %d", x.Rows, x.Columns, items, most)
		}
		items *= int64(parts)
	}
	if c.err != nil {
		return c.err
	}
	if k.device.portable {
		return runPersistent(k, s, x.Format.portable(n), portableItems(n, items), portablePackedBlocks, &a)
	}
	switch n {
	case packedPair:
		return runPair(k, s, x, &a)
	case packedFewMatrix:
		return runPersistent(k, s, x.Format.kernel(n), ceilDiv(x.Columns, packedStripe)*parts, 1, &a)
	}
	return runPacked(k, s, x.Format.kernel(n), 2*items, &a)
}

// runPair launches a product by pairs of blocks, with at most one pair for two SMs.
func runPair(k *Kernels, s *Stream, x *PackedProduct, a *PackedArgs) error {
	fn, err := k.Function(x.Format.kernel(packedPair))
	if err != nil {
		return err
	}
	p := PackedPairArgs{Base: *a}
	spec := MapSpec{Type: MapBF16, Base: x.X, Dims: []uint64{uint64(x.K), uint64(x.Rows), 1},
		Strides: []uint64{uint64(2 * x.XStride), uint64(2 * x.XStride)}, Box: []uint32{64, 128, 1}, Swizzle: Swizzle128,
		L2: 3}
	if err := encodeMaps(k.device, nil, []mapTarget{{&p.XMap, spec}}); err != nil {
		return err
	}
	pairs := min(int64(a.Tiles)*int64(ceilDiv(x.Rows, packedWide)), int64(min(k.device.props.SMs, packedSMs)/2))
	return Run(s, fn, Launch{Grid: Dim{X: 2 * uint32(pairs)}, Block: Dim{X: uint32(fn.attrs.MaxThreads)},
		Shared: fn.dynamic, Overlap: s.overlap, Cluster: Dim{X: 2}}, &p)
}

// packedFormatsFine lists the formats with kernels for few experts: formats of large models in GGUF files whose lookup
// tables in shared memory allow three blocks per SM.
var packedFormatsFine = map[PackedFormat]bool{"iq2_xxs": true, "iq3_xxs": true, "iq3_s": true, "q2_k": true,
	"q3_k": true, "q4_k": true}

// packedFormatsFewExperts lists the formats with kernels for many tiles of experts with few rows each, whose warps have
// twice as many weight rows, with the number of their blocks per SM.
var packedFormatsFewExperts = map[PackedFormat]int32{"nvfp4": 2, "mxfp4": 2, "q3_k": 2, "q2_k": 1, "iq2_xxs": 1,
	"iq3_xxs": 1}

// packedFormatsFewMatrix lists the formats with kernels for up to 16 rows of matrices with many tiles.
var packedFormatsFewMatrix = map[PackedFormat]bool{"nvfp4": true, "mxfp4": true, "u4_g128": true, "u4_g32": true,
	"u4_g128_any": true, "u4_g32_any": true, "q2_k": true, "q3_k": true, "iq2_xxs": true, "iq3_xxs": true}

// kernel returns the product kernel for groups of the given number of tokens.
func (f PackedFormat) kernel(tokens int32) string {
	suffix := map[int32]string{packedFine: "fine", packedFew8: "few8", packedFew16: "few16", packedFew64: "few64",
		packedMany: "many", packedWide: "wide", packedPair: "pair", packedFewExperts: "few_experts",
		packedFewMatrix: "few_matrix"}[tokens]
	return fmt.Sprintf("sparrow_packed_%s_%s", string(f), suffix)
}

// portable returns the portable product kernel for groups of the given number of tokens.
func (f PackedFormat) portable(tokens int32) string {
	if tokens == packedFew16 {
		return fmt.Sprintf("portable_packed_%s_few", string(f))
	}
	return fmt.Sprintf("portable_packed_%s_many", string(f))
}

// portableItems returns the number of items of the portable product kernel, or an upper bound. items is the number of
// tiles of 256 weight rows; an item has 128 rows, or 64 if the format's table takes much of the shared memory.
func portableItems(tokens int32, items int64) int32 {
	each := int64(2)
	if tokens == packedFew16 {
		each = 4
	}
	return int32(min(each*items, math.MaxInt32))
}

// portablePackedGroup returns the number of pairs of an expert that a block of the portable kernels processes, from the
// number for the kernels for Hopper.
func portablePackedGroup(group int32) int32 {
	if group == packedFew16 {
		return packedFew16
	}
	return packedMany
}

// packedGroup returns the number of pairs of an expert that a block processes: groups are narrow if there are few
// rows, or few per expert.
func packedGroup(e ExpertShape, rows, top int32) int32 {
	switch mean := int64(rows) * int64(top) / int64(e.Experts); {
	case rows <= packedFew16 || mean <= packedFew16:
		return packedFew16
	case rows <= packedFew64 || mean <= packedFew64:
		return packedFew64
	case mean > packedWideMean && packedFormatsWide[e.Packed] && packedFormatsWide[e.PackedDown]:
		return packedWide
	}
	return packedMany
}

// packedWideMean is the mean number of pairs of an expert above which groups are wide.
const packedWideMean = 192

// multiplyPacked runs gate and up, or down, of packed experts.
func multiplyPacked(k *Kernels, s *Stream, e ExpertShape, a *ExpertsArgs, down bool) error {
	p := PackedArgs{Weights: a.GateUp, Factors: a.GateUpScales, X: a.X, Out: a.Inner, Order: a.Order, List: a.List,
		Totals: a.Totals, XPitch: 2 * a.XStride, OutStride: int64(a.InnerPitch) / 2, XBytes: 2 * a.Hidden, Top: a.Top,
		Tiles: a.InnerTiles, Units: ceilDiv(a.Hidden, packedFormats[e.Packed].columns), Parts: 1,
		Columns: a.InnerPitch / 2, Gated: 1, Limit: a.Limit}
	f := e.Packed
	if down {
		f = e.PackedDown
		p = PackedArgs{Weights: a.Down, Factors: a.DownScales, X: a.Inner, Out: a.Results, Order: a.Order, List: a.List,
			Totals: a.Totals, XPitch: int64(a.InnerPitch), OutStride: int64(a.Hidden), XBytes: a.InnerPitch, Top: a.Top,
			Tiles: a.HiddenTiles, Units: ceilDiv(a.InnerColumns, packedFormats[f].columns), Parts: 1,
			Columns: a.Hidden, FromPairs: 1}
	}
	items, tokens := int64(a.Rows)*int64(a.Top)*int64(p.Tiles), a.GroupRows // an upper bound: every pair may be a group
	if k.device.portable {
		return runPersistent(k, s, f.portable(portablePackedGroup(tokens)), portableItems(tokens, items),
			portablePackedBlocks, &p)
	}
	if packedFormatsFine[f] && tokens == packedFew16 && a.Rows*a.Top <= packedFineListed && items <= 2*packedSMs {
		return runPacked(k, s, f.kernel(packedFine), 4*items, &p)
	}
	chosen, blocks := min(int64(a.Rows)*int64(a.Top), int64(a.Experts)), packedFormatsFewExperts[f]
	if blocks > 0 && tokens == packedFew16 && chosen*int64(p.Tiles) >= packedFewExpertTiles {
		return runPersistent(k, s, f.kernel(packedFewExperts), int32(min(items, math.MaxInt32)), blocks, &p)
	}
	return runPacked(k, s, f.kernel(tokens), 2*items, &p)
}

// runPacked launches a product. items is the number of items of work; a tile has one, two or four of them.
func runPacked(k *Kernels, s *Stream, kernel string, items int64, a *PackedArgs) error {
	perSM := int32(1)
	if fn, err := k.Function(kernel); err == nil && fn.attrs.MaxThreads <= packedThird {
		perSM = 3
	}
	return runPersistent(k, s, kernel, int32(min(items, math.MaxInt32)), perSM, a)
}
