package block

import (
	"encoding/binary"
	"math"
	"slices"
)

// This file encodes the formats of three and four bits whose groups of values share one signed scale: Q3_K, with codes
// -4 to 3, and IQ4_NL and IQ4_XS, with codes from a table.

// scaleTrials is the number of initial scales that searches without lanes try.
const scaleTrials = 15

// thirds holds the values of the codes of Q3_K.
var thirds = [8]float32{-4, -3, -2, -1, 0, 1, 2, 3}

// closest returns the index of the value of an ascending table that is closest to v, the lower one on a tie.
func closest(table []float32, v float32) int {
	i, _ := slices.BinarySearch(table, v)
	switch {
	case i == 0:
		return 0
	case i == len(table), v-table[i-1] <= table[i]-v:
		return i - 1
	}
	return i
}

// weigh writes the weight of the squared error of each value to w: large values weigh more, because they affect
// products more, and so do values whose inputs are large. importance holds the mean square of the input of each value;
// nil means that all are equal.
func weigh(w, x, importance []float32) {
	square := float32(0)
	for _, v := range x {
		square += float32(v * v)
	}
	mean := float32(math.Sqrt(float64(square / float32(len(x)))))
	for i, v := range x {
		if w[i] = mean + abs(v); importance != nil {
			w[i] *= importance[i]
		}
	}
}

// tableScale finds a scale so that scale times values of the table approximates x with weights w. Each trial maps the
// value with the largest magnitude near the first value of the table, chooses codes, and fits the scale to the codes by
// least squares.
func tableScale(x, w, table []float32) (scale float32) {
	most := furthest(x)
	if most == 0 {
		return 0
	}
	best := float32(0)
	for t := range scaleTrials {
		first := table[0] * (1 + float32(0.03*float32(t-scaleTrials/2))) / most
		wqx, wqq := float32(0), float32(0)
		for i, v := range x {
			q := table[closest(table, first*v)]
			wqx, wqq = wqx+float32(w[i]*q*v), wqq+float32(w[i]*q*q)
		}
		if wqq > 0 && float32(wqx*wqx) > float32(best*wqq) { // the error falls as wqx*wqx/wqq rises
			best, scale = float32(wqx*wqx)/wqq, wqx/wqq
		}
	}
	return scale
}

// tableScales returns the scales of groups of equal length.
func tableScales(scales, x, importance, table []float32) {
	n := len(x) / len(scales)
	w := make([]float32, n)
	for j := range scales {
		weigh(w, x[j*n:][:n], part(importance, j*n, n))
		scales[j] = tableScale(x[j*n:][:n], w, table)
	}
}

// sixBits divides signed scales by a common factor d, and returns each quotient as a number from -32 to 31.
func sixBits(scales []float32, store func(d float32) float32) (d float32, codes []int) {
	d = store(furthest(scales) / -32)
	codes = make([]int, len(scales))
	for j, s := range scales {
		codes[j] = nearest(s*inverse(d), -32, 31)
	}
	return d, codes
}

func encodeQ3K(dst []byte, src, importance []float32) {
	var scales [16]float32
	tableScales(scales[:], src, importance, thirds[:])
	clear(dst)
	third, values, packed := dst[:32], dst[32:96], dst[96:108]
	d, codes := sixBits(scales[:], func(d float32) float32 { putHalf(dst[108:], d); return half(dst[108:]) })
	for run, s := range codes {
		bits := byte(s + 32)
		packed[run%8] |= bits & 15 << (4 * (run / 8))
		packed[8+run%4] |= bits >> 4 << (2 * (run / 4))
		group, part, inv := run/8, run%8, inverse(d*float32(s))
		for l := range 16 {
			q := nearest(src[16*run+l]*inv, -4, 3) + 4
			at := 16*(part%2) + l
			values[32*group+at] |= byte(q&3) << (2 * (part / 2))
			if q > 3 {
				third[at] |= 1 << (4*group + part/2)
			}
		}
	}
}

// putLookUp writes the codes of 32 values, the first sixteen to lower halves of bytes.
func putLookUp(dst []byte, src []float32, scale float32) {
	inv := inverse(scale)
	for j := range 16 {
		dst[j] = byte(closest(nonlinear[:], src[j]*inv)) | byte(closest(nonlinear[:], src[j+16]*inv))<<4
	}
}

func encodeIQ4NL(dst []byte, src, importance []float32) {
	var scale [1]float32
	tableScales(scale[:], src, importance, nonlinear[:])
	putHalf(dst, scale[0])
	putLookUp(dst[2:], src, half(dst))
}

func encodeIQ4XS(dst []byte, src, importance []float32) {
	var scales [8]float32
	tableScales(scales[:], src, importance, nonlinear[:])
	clear(dst)
	d, codes := sixBits(scales[:], func(d float32) float32 { putHalf(dst, d); return half(dst) })
	upper := uint16(0)
	for j, s := range codes {
		bits := byte(s + 32)
		dst[4+j/2] |= bits & 15 << (4 * (j % 2))
		upper |= uint16(bits>>4) << (2 * j)
		putLookUp(dst[8+16*j:], src[32*j:], d*float32(s))
	}
	binary.LittleEndian.PutUint16(dst[2:], upper)
}
