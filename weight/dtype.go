package weight

import (
	"fmt"

	"sparrow/internal/block"
)

// DType is the element type of a tensor.
type DType uint8

// The zero DType is invalid, so that a field that was not set is not mistaken for a type.
const (
	Invalid DType = iota
	Bool
	U8
	I8
	U16
	I16
	U32
	I32
	U64
	I64
	F64
	F32
	F16
	BF16
	F8E4M3
	F8E5M2
	// F8E8M0 is an exponent without mantissa: byte b means 2^(b-127), and 0xFF is NaN.
	F8E8M0
	// F4E2M1x2 packs two e2m1 values per byte, the earlier one in the low nibble. Shapes count values, not bytes, as
	// the format has it; checkpoints that store the same bytes as I8 or U8 count bytes (Matrix distinguishes the two).
	F4E2M1x2
)

// U4x2 packs two codes of 4 bits per byte, the earlier one in the low nibble. No header names it: integers of packed
// matrices are read as this type.
const U4x2 DType = firstBlock - 1

// firstBlock is the first of the types that are block formats of GGUF files ([Blocks]).
const firstBlock = 128

// Blocks returns the type of values in a block format. Shapes count values; rows are whole blocks.
func Blocks(f block.Format) DType { return firstBlock + DType(f) }

// Block returns the block format of a type, or false for types without blocks.
func (d DType) Block() (block.Format, bool) {
	f := block.Format(d - firstBlock)
	return f, d > firstBlock && f.Valid()
}

// dtypes has, for each DType, its spelling in the file format and the bits of one element.
var dtypes = [...]struct {
	name string
	bits int
}{
	Invalid:  {"invalid", 0},
	Bool:     {"BOOL", 8},
	U8:       {"U8", 8},
	I8:       {"I8", 8},
	U16:      {"U16", 16},
	I16:      {"I16", 16},
	U32:      {"U32", 32},
	I32:      {"I32", 32},
	U64:      {"U64", 64},
	I64:      {"I64", 64},
	F64:      {"F64", 64},
	F32:      {"F32", 32},
	F16:      {"F16", 16},
	BF16:     {"BF16", 16},
	F8E4M3:   {"F8_E4M3", 8},
	F8E5M2:   {"F8_E5M2", 8},
	F8E8M0:   {"F8_E8M0", 8},
	F4E2M1x2: {"F4", 4},
}

// dtypeList lists the supported types, for errors.
const dtypeList = "BOOL U8 I8 U16 I16 U32 I32 U64 I64 F64 F32 F16 BF16 F8_E4M3 F8_E5M2 F8_E8M0 F4"

// String returns the spelling used in a safetensors header, or the name of a block format.
func (d DType) String() string {
	if f, ok := d.Block(); ok {
		return f.String()
	}
	switch {
	case int(d) < len(dtypes):
		return dtypes[d].name
	case d == U4x2:
		return "int4"
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// Bits returns the size of one element in bits: 4 for F4E2M1x2, a multiple of 8 for every other type, 0 for an invalid
// one and for block formats, whose values share scales.
func (d DType) Bits() int {
	if int(d) < len(dtypes) {
		return dtypes[d].bits
	}
	return 0
}

// Size returns the size in bytes of the smallest addressable unit: one element or, for F4E2M1x2, the pair of elements
// that shares a byte (so Size is 1, and bytes = elements * Bits() / 8 holds for every type).
func (d DType) Size() int { return (d.Bits() + 7) / 8 }

// dtypeNamed returns the type of a safetensors spelling, or Invalid if the spelling is unknown.
func dtypeNamed(s []byte) DType {
	for d := Bool; int(d) < len(dtypes); d++ {
		if dtypes[d].name == string(s) {
			return d
		}
	}
	return Invalid
}
