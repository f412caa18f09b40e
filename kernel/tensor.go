package kernel

import (
	"fmt"
	"strings"

	"sparrow/internal/block"
)

// DType is the type of a tensor's elements.
type DType uint8

// The element types of operations.
const (
	F32    DType = iota + 1 // IEEE float32
	BF16                    // upper half of a float32
	F16                     // IEEE half
	E4M3                    // FP8 e4m3fn, for weights and caches
	E8M0                    // power-of-two scale
	E2M1x2                  // two FP4 values in a byte, low nibble first
	I32                     // int32: lengths, positions, page tables, selections
	U8                      // bytes of a cache layout; in weights: codes with a zero point
	U4x2                    // two 4-bit codes in a byte, low nibble first, with a zero point
	I8                      // integer values of weights
)

var dtypeNames = [...]string{F32: "f32", BF16: "bf16", F16: "f16", E4M3: "e4m3", E8M0: "e8m0", E2M1x2: "e2m1x2",
	I32: "i32", U8: "u8", U4x2: "u4x2", I8: "i8"}

// firstBlock is the number after which the types begin whose elements are blocks of values with shared scales
// ([Blocks]).
const firstBlock = 128

// Blocks returns the type whose elements are blocks of a format: the columns of such a tensor count blocks, not values.
func Blocks(f block.Format) DType { return firstBlock + DType(f) }

// Block returns the block format of a type made by [Blocks], and false for other types.
func (d DType) Block() (block.Format, bool) {
	f := block.Format(d - firstBlock)
	return f, d > firstBlock && f.Valid()
}

// Values returns the number of values of one element: 2 for E2M1x2 and U4x2, the block size for a block format,
// otherwise 1.
func (d DType) Values() int {
	if f, ok := d.Block(); ok {
		return f.Values()
	}
	if d == E2M1x2 || d == U4x2 {
		return 2
	}
	return 1
}

func (d DType) String() string {
	if f, ok := d.Block(); ok {
		return strings.ToLower(f.String())
	}
	if int(d) < len(dtypeNames) && dtypeNames[d] != "" {
		return dtypeNames[d]
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Size returns the number of bytes of one element. An element is a pair of values for E2M1x2 and U4x2, and a block for
// a block format.
func (d DType) Size() int {
	if f, ok := d.Block(); ok {
		return f.Bytes()
	}
	switch d {
	case F32, I32:
		return 4
	case BF16, F16:
		return 2
	default:
		return 1
	}
}

// Align returns the required alignment in bytes: for scalar types the element size; for block formats 1, because blocks
// are read byte by byte.
func (d DType) Align() int {
	if _, ok := d.Block(); ok {
		return 1
	}
	return d.Size()
}

// Buffer is a piece of one device's memory. Only its device can read its bytes.
type Buffer interface {
	// Len returns the size in bytes.
	Len() int64
}

// Tensor is a matrix view of a buffer: Rows rows of Cols elements, with a row stride of Stride elements. Columns may
// consist of several dimensions (heads, head size); the operation that reads the tensor defines them. The zero Tensor
// means "not given".
type Tensor struct {
	Buf    Buffer
	Off    int64 // bytes from the start of Buf to element (0,0)
	DType  DType
	Rows   int
	Cols   int
	Stride int // elements between the starts of two rows, at least Cols
}

// Given reports whether the tensor is set.
func (t Tensor) Given() bool { return t.Buf != nil }

// Slice returns rows [from, to).
func (t Tensor) Slice(from, to int) Tensor {
	t.Off += int64(from) * int64(t.Stride) * int64(t.DType.Size())
	t.Rows = to - from
	return t
}

// Columns returns columns [from, to) of every row.
func (t Tensor) Columns(from, to int) Tensor {
	t.Off += int64(from) * int64(t.DType.Size())
	t.Cols = to - from
	return t
}

// As returns the start of a contiguous tensor's memory in another shape, with the same element type.
func (t Tensor) As(rows, cols int) Tensor {
	t.Rows, t.Cols, t.Stride = rows, cols, cols
	return t
}

// Extent returns the number of bytes from element (0,0) to the end of the last row.
func (t Tensor) Extent() int64 {
	if t.Rows == 0 {
		return 0
	}
	return (int64(t.Rows-1)*int64(t.Stride) + int64(t.Cols)) * int64(t.DType.Size())
}

func (t Tensor) String() string {
	if !t.Given() {
		return "none"
	}
	return fmt.Sprintf("%s[%d,%d]", t.DType, t.Rows, t.Cols)
}
