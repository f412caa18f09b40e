package layout

import "fmt"

// Main is a byte layout of one latent row per token. A page of n tokens is n consecutive rows.
//
// Encode and Decode do not allocate. They panic if a slice is too short or slot is outside the page, because these are
// errors of the caller.
type Main interface {
	Kind() Kind
	// RowBytes returns the bytes of a token.
	RowBytes() int
	// PageBytes returns the bytes of a page of the given number of tokens.
	PageBytes(tokens int) int
	// Encode writes row as token slot of page. row has Width values: latent, then rope with interleaved pairs if the
	// layout has rope values.
	Encode(page []byte, slot int, row []float32)
	// Decode reads token slot of page into row, which has Width values.
	Decode(row []float32, page []byte, slot int)
}

// Index is a byte layout of indexer keys. A page may store its scales after its keys, so all methods need the number of
// tokens in the page. A buffer gathered for a batch is one page with all tokens of the batch.
//
// Encode and Decode do not allocate. They panic if a slice is too short or slot is outside the page.
type Index interface {
	Kind() Kind
	// TokenBytes returns the bytes of a token including its scale.
	TokenBytes() int
	// PageBytes returns the bytes of a page of the given number of tokens.
	PageBytes(tokens int) int
	// Encode writes key as token slot of a page of the given number of tokens. key has 128 values after LayerNorm,
	// rotary embedding and, in layouts that use it, Hadamard rotation.
	Encode(page []byte, tokens, slot int, key []float32)
	// Decode reads token slot of a page of the given number of tokens into key, 128 values.
	Decode(key []float32, page []byte, tokens, slot int)
}

// MainOf returns the layout of latent rows with a kind. FP8Row576 gets the scale 1.
func MainOf(k Kind) (Main, error) {
	switch k {
	case BF16Row1152:
		return BF16{}, nil
	case FP8Row656:
		return FP8Block{}, nil
	case FP8Row576:
		return FP8Raw{}, nil
	case F32Row2304:
		return F32{}, nil
	case FP8Row528:
		return NopeFP8{}, nil
	case BF16Row1024:
		return NopeBF16{}, nil
	case F32Row2048:
		return NopeF32{}, nil
	}
	return nil, fmt.Errorf("layout: %v holds no latent rows; want %v, %v, %v, %v, or without a rotated part %v, %v "+
		"or %v: %w", k, BF16Row1152, FP8Row656, FP8Row576, F32Row2304, FP8Row528, BF16Row1024, F32Row2048,
		ErrKind)
}

// IndexOf returns the layout of indexer keys with a kind. IndexPage132 gets power-of-two scales.
func IndexOf(k Kind) (Index, error) {
	switch k {
	case IndexPage132:
		return IndexFP8{}, nil
	case IndexPage68:
		return IndexFP4{}, nil
	case IndexF32Row512:
		return IndexF32{}, nil
	case V41Index68:
		return IndexV41{}, nil
	}
	return nil, fmt.Errorf("layout: %v holds no indexer keys; want %v, %v, %v or %v: %w",
		k, IndexPage132, IndexPage68, IndexF32Row512, V41Index68, ErrKind)
}

// EncodeRows writes rows [n, Width] as tokens first to first+n-1 of page.
func EncodeRows(l Main, page []byte, first int, rows []float32) {
	for slot := first; len(rows) > 0; slot++ {
		l.Encode(page, slot, rows)
		rows = rows[Width(l.Kind()):]
	}
}

// row returns the bytes of token slot in a page of consecutive rows. It panics if the slot is outside the page.
func row(k Kind, page []byte, slot, rowBytes int) []byte {
	if slot < 0 || slot >= len(page)/rowBytes {
		panicSlot(k, slot, len(page)/rowBytes, len(page))
	}
	return page[slot*rowBytes : (slot+1)*rowBytes : (slot+1)*rowBytes]
}

// values returns the first n values of v. It panics if v is shorter.
func values(k Kind, v []float32, n int) []float32 {
	if len(v) < n {
		panicValues(k, len(v), n)
	}
	return v[:n:n]
}

func panicSlot(k Kind, slot, tokens, bytes int) {
	panic(fmt.Sprintf("layout: %v: slot %d is outside a page of %d tokens (%d bytes)", k, slot, tokens, bytes))
}

func panicValues(k Kind, got, want int) {
	panic(fmt.Sprintf("layout: %v: the slice has %d values, want the %d values of a token", k, got, want))
}
