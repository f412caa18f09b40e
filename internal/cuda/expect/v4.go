package expect

import (
	"encoding/binary"
	"math"

	"sparrow/internal/num"
)

// Sizes of a V4 entry: 448 e4m3 values in groups of 64, 64 bf16 values, 8 scale bytes at the end of the page.
const (
	v4Quantised  = 448
	v4Group      = 64
	v4DataBytes  = v4Quantised + 2*RotaryDim
	v4ScaleBytes = 8
)

// V4Row returns the 512 values of an entry, with rotary embedding applied to the last 64.
func V4Row(values []uint16, angles []float32) []float32 {
	v := Widen(values)
	RotateInterleaved(v[v4Quantised:], angles)
	return v
}

// EncodeV4 stores an entry in a page that has space for the given number of entries (tokens). The scale of a group is
// the power of two at or above max(amax, 1e-4)/448.
func EncodeV4(page []byte, tokens, row int, v []float32) {
	data, scales := page[row*v4DataBytes:], page[tokens*v4DataBytes+row*v4ScaleBytes:]
	for g := range v4Quantised / v4Group {
		group := v[g*v4Group : (g+1)*v4Group]
		var amax float32
		for _, x := range group {
			if a := float32(math.Abs(float64(x))); a > amax {
				amax = a
			}
		}
		bits := math.Float32bits(max(amax, 1e-4) / num.MaxE4M3)
		e := bits >> 23
		if bits&0x7FFFFF != 0 {
			e++
		}
		scales[g] = byte(e)
		inverse := math.Float32frombits((254 - e) << 23)
		for i, x := range group {
			data[g*v4Group+i] = num.E4M3(x * inverse)
		}
	}
	scales[7] = 0
	for i, x := range v[v4Quantised:] {
		binary.LittleEndian.PutUint16(data[v4Quantised+2*i:], num.BF16(x))
	}
}

// DecodeV4 returns the bf16 row of 512 values of an entry: value times scale in float32, rounded to bf16. The rotated
// part is returned as stored.
func DecodeV4(page []byte, tokens, row int) []byte {
	data, scales := page[row*v4DataBytes:], page[tokens*v4DataBytes+row*v4ScaleBytes:]
	out := make([]byte, 2*(v4Quantised+RotaryDim))
	for i := range v4Quantised {
		binary.LittleEndian.PutUint16(out[2*i:], num.BF16(num.FromE4M3(data[i])*num.FromE8M0(scales[i/v4Group])))
	}
	copy(out[2*v4Quantised:], data[v4Quantised:v4DataBytes])
	return out
}

// Combine returns one token's window and extra selections in one list. Extra rows are increased by shift, rows below
// zero stay -1, and -1 fills the rest of the width.
func Combine(window, extra []int32, shift, width int) []int32 {
	row := append(make([]int32, 0, width), window...)
	for _, e := range extra {
		if e >= 0 {
			e += int32(shift)
		}
		row = append(row, e)
	}
	for len(row) < width {
		row = append(row, -1)
	}
	return row
}
