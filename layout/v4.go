package layout

import "fmt"

// Sizes of a V4 entry, in values. An entry is both key and value.
const (
	V4Dim      = 512                   // values of an entry
	V4NopeDim  = V4Dim - RopeDim       // 448 quantised values without rope
	V4TileDim  = 64                    // values without rope per scale
	V4Tiles    = V4NopeDim / V4TileDim // 7
	V4PageSize = 256                   // tokens of a page: 256 window entries, 64 entries of ratio 4, or 2 of ratio 128
)

// V4 is a byte layout of DeepSeek-V4 entries of 512 values each, for window rows and for compressed rows. A page may
// store its scales after its values, so all methods need the number of entries in the page.
//
// Encode and Decode do not allocate. They panic if a slice is too short or slot is outside the page.
type V4 interface {
	Kind() Kind
	// EntryBytes returns the bytes of an entry including its scales, without padding of the page.
	EntryBytes() int
	// PageBytes returns the bytes of a page of the given number of entries, including padding.
	PageBytes(entries int) int
	// Encode writes v as entry slot of a page of the given number of entries. v has 512 values, of which the last 64
	// have rotary embedding.
	Encode(page []byte, entries, slot int, v []float32)
	// Decode reads entry slot of a page of the given number of entries into v, which has 512 values.
	Decode(v []float32, page []byte, entries, slot int)
}

// V4Of returns the layout of V4 entries with a kind.
func V4Of(k Kind) (V4, error) {
	switch k {
	case V4Row584:
		return V4Packed{}, nil
	case V4F32Row2048:
		return V4F32{}, nil
	case V41Row288:
		return V41Entry{}, nil
	case V41Window528:
		return V41Window{}, nil
	}
	return nil, fmt.Errorf("layout: %v holds no V4 entries; want %v, %v, %v or %v: %w", k, V4Row584,
		V4F32Row2048, V41Row288, V41Window528, ErrKind)
}

// V4F32RowBytes is the size of a V4F32Row2048 entry in bytes: 512*4 = 2048.
const V4F32RowBytes = V4Dim * 4

// V4F32 is the layout V4F32Row2048: 512 float32 values per entry. It is exact, for verification.
type V4F32 struct{}

// Kind returns V4F32Row2048.
func (V4F32) Kind() Kind { return V4F32Row2048 }

// EntryBytes returns the size of an entry, 2048 bytes.
func (V4F32) EntryBytes() int { return V4F32RowBytes }

// PageBytes returns the size of a page, 2048 bytes per entry.
func (V4F32) PageBytes(entries int) int { return entries * V4F32RowBytes }

// Encode implements V4 without rounding.
func (V4F32) Encode(page []byte, entries, slot int, v []float32) {
	checkIndex(V4F32Row2048, page, entries, slot, V4F32RowBytes)
	putF32(page[slot*V4F32RowBytes:], values(V4F32Row2048, v, V4Dim))
}

// Decode implements V4 without rounding.
func (V4F32) Decode(v []float32, page []byte, entries, slot int) {
	checkIndex(V4F32Row2048, page, entries, slot, V4F32RowBytes)
	getF32(values(V4F32Row2048, v, V4Dim), page[slot*V4F32RowBytes:])
}
