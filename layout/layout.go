package layout

import "fmt"

// Main is a byte layout of one latent row per token. A page of n tokens is n consecutive rows.
//
// Encode and Decode never allocate. If a slice is too short or slot is outside the page, they panic with the layout and
// the sizes: both are errors of the caller, not of the data.
type Main interface {
	Kind() Kind
	// RowBytes returns the size of one token in bytes.
	RowBytes() int
	// PageBytes returns the size in bytes of a page of the given number of tokens.
	PageBytes(tokens int) int
	// Encode writes row, which has Width values (latent, then rope in kernel order if the layout has it), as token slot
	// of page.
	Encode(page []byte, slot int, row []float32)
	// Decode reads token slot of page into row, which has Width values.
	Decode(row []float32, page []byte, slot int)
}

// Index is a byte layout of indexer keys. A page may store its scales after its keys, so every access needs the page's
// size in tokens. A buffer gathered for a batch is one page with all tokens of the batch.
//
// Encode and Decode never allocate, and panic for the errors for which those of Main panic.
type Index interface {
	Kind() Kind
	// TokenBytes returns the size of one token in bytes, including its scale.
	TokenBytes() int
	// PageBytes returns the size in bytes of a page of the given number of tokens.
	PageBytes(tokens int) int
	// Encode writes key as token slot of a page of the given number of tokens. key has 128 values after LayerNorm, RoPE
	// and, if the layout rounds, the caller's Hadamard rotation.
	Encode(page []byte, tokens, slot int, key []float32)
	// Decode reads token slot of a page of the given number of tokens into key, 128 values.
	Decode(key []float32, page []byte, tokens, slot int)
}

// MainOf returns the main layout of a kind; FP8Row576 has scale 1.
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

// IndexOf returns the index layout of a kind; IndexPage132 has power-of-two scales.
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

// EncodeRows writes rows, [n, Width], as tokens first..first+n-1 of page.
func EncodeRows(l Main, page []byte, first int, rows []float32) {
	for slot := first; len(rows) > 0; slot++ {
		l.Encode(page, slot, rows)
		rows = rows[Width(l.Kind()):]
	}
}

// row returns the bytes of token slot of a page of rows.
func row(k Kind, page []byte, slot, rowBytes int) []byte {
	if slot < 0 || slot >= len(page)/rowBytes {
		panicSlot(k, slot, len(page)/rowBytes, len(page))
	}
	return page[slot*rowBytes : (slot+1)*rowBytes : (slot+1)*rowBytes]
}

// values returns the first n values of a caller's slice; a token has n values.
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
