package weight

import (
	"fmt"

	"sparrow/internal/block"
)

// DType is the element type of a tensor.
type DType uint8

// The zero DType is invalid, to detect fields that were not set.
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
	// F4E2M1x2 is two e2m1 values per byte, the first one in the low nibble. Shapes count values. In checkpoints that
	// store the same bytes as I8 or U8, shapes count bytes; Matrix handles both.
	F4E2M1x2
)

// U4x2 is two 4-bit codes per byte, the first one in the low nibble. It does not occur in headers; packed integers are
// read as this type.
const U4x2 DType = firstBlock - 1

// firstBlock is the first DType of the block formats of GGUF files ([Blocks]).
const firstBlock = 128

// Blocks returns the DType of a block format. Shapes count values; a row is a whole number of blocks.
func Blocks(f block.Format) DType { return firstBlock + DType(f) }

// Block returns the block format of a DType; ok is false for types without blocks.
func (d DType) Block() (block.Format, bool) {
	f := block.Format(d - firstBlock)
	return f, d > firstBlock && f.Valid()
}

// dtypes holds the name of each DType in the file format, and the bits of an element.
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

// dtypeList lists the supported types, for error messages.
const dtypeList = "BOOL U8 I8 U16 I16 U32 I32 U64 I64 F64 F32 F16 BF16 F8_E4M3 F8_E5M2 F8_E8M0 F4"

// String returns the name in safetensors headers, or the name of a block format.
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

// Bits returns the bits of an element: 4 for F4E2M1x2, 0 for Invalid and for block formats, whose values share scales,
// otherwise a multiple of 8.
func (d DType) Bits() int {
	if int(d) < len(dtypes) {
		return dtypes[d].bits
	}
	return 0
}

// Size returns the bytes of an element; for F4E2M1x2 it is 1, the size of two elements.
func (d DType) Size() int { return (d.Bits() + 7) / 8 }

// dtypeNamed returns the DType with a name of the file format, or Invalid if there is none.
func dtypeNamed(s []byte) DType {
	for d := Bool; int(d) < len(dtypes); d++ {
		if dtypes[d].name == string(s) {
			return d
		}
	}
	return Invalid
}
