package block

import (
	"encoding/binary"
	"math"
	"slices"

	"sparrow/internal/num"
)

// encoders are the formats that values can be written in.
var encoders = map[Format]func(dst []byte, src []float32){
	Q4_0: encodeQ4_0, Q5_0: encodeQ5_0, Q8_0: encodeQ8_0, Q4_K: encodeQ4K, Q6_K: encodeQ6K,
}

// CanEncode reports whether Encode knows the format.
func (f Format) CanEncode() bool { return encoders[f] != nil }

// Encode writes values as whole blocks: len(src) is a multiple of Values, and dst has space for as many blocks. Q4_0,
// Q5_0 and Q8_0 give the bytes of ggml's encoders; K formats search for scales in a way of their own.
func (f Format) Encode(dst []byte, src []float32) {
	encode := encoders[f]
	for n, size := f.Values(), f.Bytes(); len(src) >= n; dst, src = dst[size:], src[n:] {
		encode(dst[:size], src[:n])
	}
}

func putHalf(b []byte, v float32) { binary.LittleEndian.PutUint16(b, num.F16(v)) }

// inverse is 1/v, or 0 for 0: a block of zeros has scale 0.
func inverse(v float32) float32 {
	if v == 0 {
		return 0
	}
	return 1 / v
}

// furthest is the value with the largest magnitude, with its sign; the first of several.
func furthest(src []float32) (most float32) {
	for _, v := range src {
		if abs(v) > abs(most) {
			most = v
		}
	}
	return most
}

func abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

func encodeQ8_0(dst []byte, src []float32) {
	d := abs(furthest(src)) / 127
	inv := inverse(d)
	putHalf(dst, d)
	for i, v := range src {
		dst[2+i] = byte(int8(math.Round(float64(v * inv)))) // halves away from zero
	}
}

func encodeQ4_0(dst []byte, src []float32) {
	d := furthest(src) / -8
	inv := inverse(d)
	putHalf(dst, d)
	code := func(v float32) byte { return min(15, byte(int8(float32(v*inv)+8.5))) }
	for j := range 16 {
		dst[2+j] = code(src[j]) | code(src[j+16])<<4
	}
}

func encodeQ5_0(dst []byte, src []float32) {
	d := furthest(src) / -16
	inv := inverse(d)
	putHalf(dst, d)
	code := func(v float32) byte { return min(31, byte(int8(float32(v*inv)+16.5))) }
	high := uint32(0)
	for j := range 16 {
		a, b := code(src[j]), code(src[j+16])
		dst[6+j] = a&15 | b&15<<4
		high |= uint32(a>>4)<<j | uint32(b>>4)<<(j+16)
	}
	binary.LittleEndian.PutUint32(dst[2:], high)
}

// nearest is v rounded to a whole number of [low, high], halves to even.
func nearest(v float32, low, high int) int {
	return int(min(max(math.RoundToEven(float64(v)), float64(low)), float64(high)))
}

// trials is how many first scales a search tries.
const trials = 21

// wholeAt is added to and taken from a float32 from 0 to 2^22 to round it to a whole number, halves to even.
const wholeAt = 3 << 22

// affine finds scale and minimum so that scale*q - least comes near 32 values x, for q in 0..top and least >= 0. Each
// trial rounds with a first scale and then fits scale and minimum to the codes by least squares. Large values count
// more: they move products more. Products are rounded before they are added, on every processor.
func affine(x []float32, top int) (scale, least float32) {
	x = x[:32]
	low, high := min(slices.Min(x), 0), slices.Max(x)
	most := float32(top)
	var mean float32
	for _, v := range x {
		mean += float32(v * v)
	}
	mean = float32(math.Sqrt(float64(mean / 32)))
	switch {
	case high == low || (most+1)/(high-low) > math.MaxFloat32: // a smaller range is no half-precision number
		return 0, -low
	case !(mean <= math.MaxFloat32):
		return 0, 0
	}
	var weights, above, codes [32]float32
	var w, wx float32
	for i, v := range x {
		weights[i], above[i], codes[i] = mean+abs(v), v-low, -1
		w, wx = w+weights[i], wx+float32(weights[i]*v)
	}
	best := float32(math.Inf(1))
	for t := range trials {
		first := (most - 1 + float32(0.1*float32(t))) / (high - low) // from top-1 to top+1
		var wq, wqq, wqx float32
		var changed uint32
		for i, v := range x {
			q := float32(float32(first*above[i])+wholeAt) - wholeAt
			if q > most {
				q = most
			}
			changed |= math.Float32bits(q) ^ math.Float32bits(codes[i])
			codes[i] = q
			u := weights[i] * q
			wq += u
			wqq += float32(u * q)
			wqx += float32(u * v)
		}
		det := float32(w*wqq) - float32(wq*wq)
		if changed == 0 || det <= 0 { // the codes of the trial before, or one code for all
			continue
		}
		s, m := (float32(w*wqx)-float32(wq*wx))/det, (float32(wqq*wx)-float32(wq*wqx))/det
		if m > 0 { // only minimums below zero can be stored
			s, m = wqx/wqq, 0
		}
		if e := affineError(x, &codes, &weights, s, m, best); e < best {
			best, scale, least = e, s, -m
		}
	}
	return scale, least
}

// affineError is the weighted squared error of the codes that a trial found, or a part of it that is not below best.
func affineError(x []float32, codes, weights *[32]float32, s, m, best float32) (e float32) {
	for from := 0; from < 32 && !(e >= best); from += 8 {
		for i := from; i < from+8; i++ {
			d := float32(s*codes[i]) + m - x[i]
			e += float32(float32(weights[i]*d) * d)
		}
	}
	return e
}

func encodeQ4K(dst []byte, src []float32) {
	var scales, leasts [8]float32
	for j := range 8 {
		scales[j], leasts[j] = affine(src[32*j:32*j+32], 15)
	}
	d, low := slices.Max(scales[:])/63, slices.Max(leasts[:])/63
	putHalf(dst, d)
	putHalf(dst[2:], low)
	d, low = half(dst), half(dst[2:])
	packed, values := dst[4:16], dst[16:144]
	clear(dst[4:])
	for j := range 8 {
		s, m := byte(nearest(scales[j]*inverse(d), 0, 63)), byte(nearest(leasts[j]*inverse(low), 0, 63))
		if j < 4 {
			packed[j] |= s
			packed[j+4] |= m
		} else {
			packed[j+4] |= s&15 | m&15<<4
			packed[j-4] |= s >> 4 << 6
			packed[j] |= m >> 4 << 6
		}
		scale, least := d*float32(s), low*float32(m)
		inv := inverse(scale)
		for l := range 32 {
			values[32*(j/2)+l] |= byte(nearest((src[32*j+l]+least)*inv, 0, 15)) << (4 * (j % 2))
		}
	}
}

// symmetric finds a scale so that scale*q comes near x for q in -32..31.
func symmetric(x []float32) (scale float32) {
	most := furthest(x)
	if most == 0 {
		return 0
	}
	best := float32(-1)
	for t := range trials {
		first := -(31 + float32(0.1*float32(t))) / most // the furthest value becomes about -32
		var wqx, wqq float32
		for _, v := range x {
			// Within -33..33, unless first is no number.
			q := float32(float32(first*v)+wholeAt) - wholeAt
			if q > 31 {
				q = 31
			}
			if q < -32 {
				q = -32
			}
			u := float32(v*v) * q
			wqx, wqq = wqx+float32(u*v), wqq+float32(u*q)
		}
		if wqq > 0 && float32(wqx*wqx) > float32(best*wqq) { // the error falls as this rises
			best, scale = float32(wqx*wqx)/wqq, wqx/wqq
		}
	}
	return scale
}

func encodeQ6K(dst []byte, src []float32) {
	var scales [16]float32
	for j := range 16 {
		scales[j] = symmetric(src[16*j : 16*j+16])
	}
	d := furthest(scales[:]) / -128
	lows, highs, packed := dst[:128], dst[128:192], dst[192:208]
	clear(dst)
	putHalf(dst[208:], d)
	d = half(dst[208:])
	var inverses [16]float32
	for j := range inverses {
		s := nearest(scales[j]*inverse(d), -128, 127)
		packed[j], inverses[j] = byte(int8(s)), inverse(d*float32(s))
	}
	for run := range 8 {
		group, part := run/4, run%4
		for l := range 32 {
			q := byte(nearest(src[32*run+l]*inverses[2*run+l/16], -32, 31) + 32)
			lows[64*group+32*(part%2)+l] |= q & 15 << (4 * (part / 2))
			highs[32*group+l] |= q >> 4 << (2 * part)
		}
	}
}
