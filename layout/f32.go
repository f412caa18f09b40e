package layout

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// F32RowBytes is the size of an F32Row2304 row in bytes: 576*4 = 2304.
const F32RowBytes = RowDim * 4

// F32 is the layout F32Row2304: 576 float32 values, latent then rope. It is exact, for verification.
type F32 struct{}

// Kind returns F32Row2304.
func (F32) Kind() Kind { return F32Row2304 }

// RowBytes returns the size of a row, 2304 bytes.
func (F32) RowBytes() int { return F32RowBytes }

// PageBytes returns the size of a page, 2304 bytes per token.
func (F32) PageBytes(tokens int) int { return tokens * F32RowBytes }

// Encode implements Main without rounding.
func (F32) Encode(page []byte, slot int, v []float32) {
	putF32(row(F32Row2304, page, slot, F32RowBytes), values(F32Row2304, v, RowDim))
}

// Decode implements Main without rounding.
func (F32) Decode(v []float32, page []byte, slot int) {
	getF32(values(F32Row2304, v, RowDim), row(F32Row2304, page, slot, F32RowBytes))
}

// littleEndian reports whether the machine has the byte order of rows, so that rows can be copied. Copies are faster,
// which matters because the reference backend decodes every row for every query.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// putF32 writes v to dst.
func putF32(dst []byte, v []float32) {
	dst = dst[:len(v)*4]
	if littleEndian {
		copy(dst, bytesOf(v))
		return
	}
	for i, f := range v {
		binary.LittleEndian.PutUint32(dst[i*4:], math.Float32bits(f))
	}
}

// getF32 reads len(v) float32 values from src.
func getF32(v []float32, src []byte) {
	src = src[:len(v)*4]
	if littleEndian {
		copy(bytesOf(v), src)
		return
	}
	for i := range v {
		v[i] = loadF32(src[i*4:])
	}
}

// bytesOf returns the memory of v as bytes, 4*len(v) of them. Bytes need no alignment.
func bytesOf(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

func loadF32(src []byte) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(src))
}

func storeF32(dst []byte, f float32) {
	binary.LittleEndian.PutUint32(dst, math.Float32bits(f))
}
