package layout

import "sparrow/internal/num"

// Bytes of a V4Row584 entry: a data row of 448 e4m3 and 64 bf16 values, and a scale row of 7 exponents and a zero.
const (
	V4RopeOffset = V4NopeDim                  // byte offset in the data row, 448
	V4DataBytes  = V4RopeOffset + RopeDim*2   // 448 + 128 = 576
	V4ScaleBytes = V4Tiles + 1                // 7 + 1 = 8
	V4EntryBytes = V4DataBytes + V4ScaleBytes // 576 + 8 = 584
)

// V4Packed is the layout V4Row584. A page of n entries is n data rows of 576 bytes, then n scale rows of 8 bytes,
// padded to a multiple of 576. An entry is therefore not contiguous.
//
// Encode quantises groups of 64 values, with a power-of-two scale computed from the group's largest magnitude or 1e-4,
// whichever is larger.
type V4Packed struct{}

// Kind returns V4Row584.
func (V4Packed) Kind() Kind { return V4Row584 }

// EntryBytes returns the size of an entry, 584 bytes.
func (V4Packed) EntryBytes() int { return V4EntryBytes }

// PageBytes returns the bytes of a page: 584 per entry, rounded up to a multiple of 576, as TMA descriptors require.
func (V4Packed) PageBytes(entries int) int {
	return (entries*V4EntryBytes + V4DataBytes - 1) / V4DataBytes * V4DataBytes
}

// Encode implements V4. A NaN is encoded as NaN and does not affect the scale of its group.
func (l V4Packed) Encode(page []byte, entries, slot int, v []float32) {
	checkIndex(V4Row584, page, entries, slot, V4EntryBytes)
	v = values(V4Row584, v, V4Dim)
	data, scales := l.Data(page, slot), l.Scales(page, entries, slot)
	for t := range V4Tiles {
		scales[t] = num.E8M0(num.QuantE4M3(data[t*V4TileDim:], v[t*V4TileDim:][:V4TileDim], num.ScalePow2))
	}
	scales[V4Tiles] = 0
	putBF16(data[V4RopeOffset:], v[V4NopeDim:])
}

// Decode implements V4: the e4m3 value times the power of two of its group's exponent. If the product is a normal
// number, it is exact, even in bf16. Exponent 255 gives NaN.
func (l V4Packed) Decode(v []float32, page []byte, entries, slot int) {
	checkIndex(V4Row584, page, entries, slot, V4EntryBytes)
	v = values(V4Row584, v, V4Dim)
	data, scales := l.Data(page, slot), l.Scales(page, entries, slot)
	for t := range V4Tiles {
		num.DequantE4M3(v[t*V4TileDim:], data[t*V4TileDim:][:V4TileDim], num.FromE8M0(scales[t]))
	}
	getBF16(v[V4NopeDim:], data[V4RopeOffset:])
}

// Data returns the 576 bytes of an entry's data row: 448 e4m3 values, then 64 bf16 values.
func (V4Packed) Data(page []byte, slot int) []byte {
	return page[slot*V4DataBytes : (slot+1)*V4DataBytes : (slot+1)*V4DataBytes]
}

// Scales returns the 8 bytes of an entry's scale row: 7 exponents, then a zero.
func (V4Packed) Scales(page []byte, entries, slot int) []byte {
	at := entries*V4DataBytes + slot*V4ScaleBytes
	return page[at : at+V4ScaleBytes : at+V4ScaleBytes]
}

// DataOffset returns the byte offset of the data row at location loc in a pool whose pages have the given number of
// entries.
func (l V4Packed) DataOffset(entries, loc int) int64 {
	return int64(loc/entries)*int64(l.PageBytes(entries)) + int64(loc%entries)*V4DataBytes
}

// ScaleOffset returns the byte offset of the scale row at location loc in a pool whose pages have the given number of
// entries.
func (l V4Packed) ScaleOffset(entries, loc int) int64 {
	return int64(loc/entries)*int64(l.PageBytes(entries)) + int64(entries)*V4DataBytes + int64(loc%entries)*V4ScaleBytes
}
