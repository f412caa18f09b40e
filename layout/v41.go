package layout

import (
	"math"

	"sparrow/internal/num"
)

// Bytes of the entries of DeepSeek-V4.1 (v41 spec, 4). All 512 values are quantised, including the rope values.
const (
	V41WindowGroup = 32 // values of a window entry per scale
	V41WindowBytes = V4Dim + V4Dim/V41WindowGroup
	V41EntryGroup  = 16 // values of a shared entry per scale
	v41Packed      = V4Dim / 2
	V41EntryBytes  = v41Packed + V4Dim/V41EntryGroup
)

// V41Window is the layout V41Window528: 512 e4m3 values, then 16 exponents, one per 32 values.
type V41Window struct{}

// Kind returns V41Window528.
func (V41Window) Kind() Kind { return V41Window528 }

// EntryBytes returns the size of an entry, 528 bytes.
func (V41Window) EntryBytes() int { return V41WindowBytes }

// PageBytes returns the size of a page, 528 bytes per entry.
func (V41Window) PageBytes(entries int) int { return entries * V41WindowBytes }

// Encode implements V4. It rounds the values to bf16 before it quantises them.
func (l V41Window) Encode(page []byte, entries, slot int, v []float32) {
	checkIndex(V41Window528, page, entries, slot, V41WindowBytes)
	v = values(V41Window528, v, V4Dim)
	data, scales := l.Row(page, slot)
	var group [V41WindowGroup]float32
	for g := range scales {
		top := roundGroup(group[:], v[g*V41WindowGroup:])
		const inverse = float32(1) / num.MaxE4M3
		scales[g] = num.E8M0(num.CeilPow2(max(top, 1e-4) * inverse))
		by := num.FromE8M0(254 - scales[g])
		for i, x := range group {
			data[g*V41WindowGroup+i] = num.E4M3(x * by)
		}
	}
}

// Decode implements V4 without rounding; bf16 can represent the values.
func (l V41Window) Decode(v []float32, page []byte, entries, slot int) {
	checkIndex(V41Window528, page, entries, slot, V41WindowBytes)
	v = values(V41Window528, v, V4Dim)
	data, scales := l.Row(page, slot)
	for g, e := range scales {
		at := g * V41WindowGroup
		num.DequantE4M3(v[at:at+V41WindowGroup], data[at:at+V41WindowGroup], num.FromE8M0(e))
	}
}

// Row returns an entry's values and exponents.
func (V41Window) Row(page []byte, slot int) (data, scales []byte) {
	row := page[slot*V41WindowBytes:][:V41WindowBytes]
	return row[:V4Dim], row[V4Dim:]
}

// V41Entry is the layout V41Row288: 512 e2m1 values in 256 bytes, the even element in the low nibble, then 32 e4m3
// scales, one per 16 values.
type V41Entry struct{}

// Kind returns V41Row288.
func (V41Entry) Kind() Kind { return V41Row288 }

// EntryBytes returns the size of an entry, 288 bytes.
func (V41Entry) EntryBytes() int { return V41EntryBytes }

// PageBytes returns the size of a page, 288 bytes per entry.
func (V41Entry) PageBytes(entries int) int { return entries * V41EntryBytes }

// Encode implements V4. It rounds the values to bf16 before it quantises them. It divides by the scale, because
// multiplying by the inverse may round differently at a tie.
func (l V41Entry) Encode(page []byte, entries, slot int, v []float32) {
	checkIndex(V41Row288, page, entries, slot, V41EntryBytes)
	v = values(V41Row288, v, V4Dim)
	data, scales := l.Row(page, slot)
	var group [V41EntryGroup]float32
	for g := range scales {
		top := roundGroup(group[:], v[g*V41EntryGroup:])
		scales[g] = num.E4M3(min(max(top/num.MaxE2M1, 0x1p-9), num.MaxE4M3))
		scale := num.FromE4M3(scales[g])
		for i := range V41EntryGroup / 2 {
			data[g*V41EntryGroup/2+i] = num.PackE2M1(num.E2M1(group[2*i]/scale), num.E2M1(group[2*i+1]/scale))
		}
	}
}

// Decode implements V4 without rounding; bf16 can represent the values.
func (l V41Entry) Decode(v []float32, page []byte, entries, slot int) {
	checkIndex(V41Row288, page, entries, slot, V41EntryBytes)
	v = values(V41Row288, v, V4Dim)
	data, scales := l.Row(page, slot)
	for g, s := range scales {
		scale := num.FromE4M3(s)
		for i, b := range data[g*V41EntryGroup/2:][:V41EntryGroup/2] {
			even, odd := num.UnpackE2M1(b)
			v[g*V41EntryGroup+2*i], v[g*V41EntryGroup+2*i+1] = num.FromE2M1(even)*scale, num.FromE2M1(odd)*scale
		}
	}
}

// Row returns an entry's packed values and scales.
func (V41Entry) Row(page []byte, slot int) (data, scales []byte) {
	row := page[slot*V41EntryBytes:][:V41EntryBytes]
	return row[:v41Packed], row[v41Packed:]
}

// roundGroup rounds the first len(to) values of v to bf16, stores them in to, and returns their largest magnitude.
func roundGroup(to, v []float32) float32 {
	top := float32(0)
	for i := range to {
		to[i] = num.RoundBF16(v[i])
		if a := float32(math.Abs(float64(to[i]))); a > top && !math.IsInf(float64(a), 0) {
			top = a
		}
	}
	return top
}

// IndexV41 is the layout V41Index68: [IndexFP4] for keys without Hadamard rotation. The smallest scale is 2^-126.
type IndexV41 struct{ IndexFP4 }

// Kind returns V41Index68.
func (IndexV41) Kind() Kind { return V41Index68 }

// Encode implements Index. It rounds the values to bf16 before it quantises them.
func (l IndexV41) Encode(page []byte, tokens, slot int, key []float32) {
	packed, scales := l.token(page, tokens, slot)
	key = values(V41Index68, key, IndexDim)
	var group [IndexFP4Group]float32
	for g := range scales {
		top := roundGroup(group[:], key[g*IndexFP4Group:])
		scales[g] = RoundV41(group[:], top)
		by := num.FromE8M0(scales[g])
		for i := range IndexFP4Group / 2 {
			packed[g*IndexFP4Group/2+i] = num.PackE2M1(num.E2M1(group[2*i]/by), num.E2M1(group[2*i+1]/by))
		}
	}
}

// RoundV41 rounds a group of an indexer key or query to values that e2m1 with a common scale can represent. top is the
// group's largest magnitude. It returns the exponent of the scale.
func RoundV41(group []float32, top float32) byte {
	const inverse = float32(1) / num.MaxE2M1
	e := num.E8M0(num.CeilPow2(max(top, 6*0x1p-126) * inverse))
	by := num.FromE8M0(e)
	for i, v := range group {
		group[i] = num.FromE2M1(num.E2M1(v/by)) * by
	}
	return e
}

// RoundV41Queries rounds indexer queries, in groups, as keys are rounded.
func RoundV41Queries(q []float32) {
	for ; len(q) >= IndexFP4Group; q = q[IndexFP4Group:] {
		RoundV41(q[:IndexFP4Group], roundGroup(q[:IndexFP4Group], q))
	}
}
