package plan

// DType is the element type of the cache or of an array.
type DType uint8

// The element types in plans.
const (
	DTypeUnset DType = iota
	BF16
	FP8E4M3
	F32
	I32
)

var dtypes = enum[DType]{"dtype", []string{"", "bf16", "fp8_e4m3", "f32", "i32"}}

func (d DType) String() string                { return dtypes.text(d) }
func (d DType) MarshalText() ([]byte, error)  { return dtypes.marshal(d) }
func (d *DType) UnmarshalText(t []byte) error { return dtypes.unmarshal(d, t) }

// Bytes returns the size of one element.
func (d DType) Bytes() int {
	switch d {
	case FP8E4M3:
		return 1
	case BF16:
		return 2
	case F32, I32:
		return 4
	case DTypeUnset:
		return 0
	}
	return 0
}

// Layout is the byte layout of one cached token. The text of each value is
// the text of the same layout in package layout.
type Layout uint8

// The layouts of dispatch section 9, the float32 layouts, which store rows without rounding, and the layouts of indexer
// keys.
const (
	LayoutNone     Layout = iota
	BF16Row1152           // 576 bf16: latent, rope
	FP8Row656             // 512 e4m3 + 4 f32 group scales + 64 bf16 rope
	FP8Row576             // 576 e4m3, one scale for the tensor
	F32Row2304            // 576 f32
	V4Row584              // 448 e4m3 + 64 bf16 + 7 ue8m0 scales + 1 pad; a page stores all scales after all values
	V4F32Row2048          // V4: 512 f32
	IndexPage132          // 128 e4m3 + 1 f32 scale; a page stores all scales after all values
	IndexF32Row512        // 128 f32
	IndexPage68           // V4: 128 e2m1 + 4 ue8m0 scales; a page stores all scales after all values
	FP8Row528             // no rope: 512 e4m3 + 4 f32 group scales
	BF16Row1024           // no rope: 512 bf16
	F32Row2048            // no rope: 512 f32
	V41Row288             // V4.1: 512 e2m1 + 32 e4m3 scales; window entries are 512 e4m3 + 16 ue8m0 scales
	V41Index68            // V4.1: 128 e2m1 + 4 ue8m0 scales, not rotated; a page stores all scales after all values
)

var layouts = enum[Layout]{"layout",
	[]string{"none", "bf16-1152", "fp8-656", "fp8-576", "f32-2304", "v4-584", "v4-f32-2048", "index-fp8-132",
		"index-f32-512", "index-fp4-68", "fp8-528", "bf16-1024", "f32-2048", "v41-288", "v41-index-68"}}

// layoutAliases are the spellings of the dispatch spec.
var layoutAliases = map[string]Layout{
	"bf16-576":      BF16Row1152,
	"fp8-block-656": FP8Row656,
	"fp8-raw-576":   FP8Row576,
	"v4-packed-584": V4Row584,
	"index-132":     IndexPage132,
}

func (l Layout) String() string               { return layouts.text(l) }
func (l Layout) MarshalText() ([]byte, error) { return layouts.marshal(l) }

// UnmarshalText accepts the names above and the spellings of the dispatch spec
// (BF16_576, FP8_BLOCK_656, FP8_RAW_576, V4_PACKED_584, INDEX_132).
func (l *Layout) UnmarshalText(t []byte) error {
	if alias, ok := layoutAliases[fold(string(t))]; ok {
		*l = alias
		return nil
	}
	return layouts.unmarshal(l, t)
}

// BytesPerToken returns the size of one token's record, without page padding.
func (l Layout) BytesPerToken() int {
	switch l {
	case BF16Row1152:
		return (latentDim + ropeDim) * 2
	case FP8Row656:
		return latentDim + latentDim/quantGroup*4 + ropeDim*2
	case FP8Row576:
		return latentDim + ropeDim
	case F32Row2304:
		return (latentDim + ropeDim) * 4
	case V4Row584:
		return v4NopeDim + ropeDim*2 + v4NopeDim/64 + 1
	case V4F32Row2048:
		return (v4NopeDim + ropeDim) * 4
	case IndexPage132:
		return indexDim + 4
	case IndexF32Row512:
		return indexDim * 4
	case IndexPage68, V41Index68:
		return indexDim/2 + indexDim/32
	case V41Row288:
		return (v4NopeDim + ropeDim) * 9 / 16
	case FP8Row528:
		return latentDim + latentDim/quantGroup*4
	case BF16Row1024:
		return latentDim * 2
	case F32Row2048:
		return latentDim * 4
	case LayoutNone:
		return 0
	}
	return 0
}

// Vector dimensions, in elements, of every supported model.
const (
	latentDim  = 512 // compressed latent, and d_v of the absorbed form
	ropeDim    = 64
	v4NopeDim  = 448 // V4: 448 nope + 64 rope = 512
	indexDim   = 128
	quantGroup = 128
)
