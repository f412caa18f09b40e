package layout

import (
	"fmt"
	"math"

	"sparrow/internal/num"
)

// Rows is a run of latent rows in one layout: as many tokens as Bytes holds.
type Rows struct {
	Layout Main
	Bytes  []byte
}

// scaled is a layout whose values depend on a scale kept outside its bytes.
type scaled interface{ KScale() float32 }

// Loss says what a conversion does to the values of a row, a value being what Decode returns.
type Loss uint8

const (
	// Exact keeps every value.
	Exact Loss = iota
	// ByScale keeps every value where the source's own scales are powers of two in the usual range, which Convert checks
	// row by row.
	ByScale
	// Lossy rounds or clips.
	Lossy
)

// String names the loss for explanations.
func (l Loss) String() string {
	switch l {
	case Exact:
		return "exact"
	case ByScale:
		return "exact for power-of-two scales"
	case Lossy:
		return "lossy"
	}
	return fmt.Sprintf("Loss(%d)", uint8(l))
}

// LossOf classifies a conversion before any byte is seen.
func LossOf(from, to Main) Loss {
	raw, isRaw := from.(scaled)
	switch {
	case sameLayout(from, to), to.Kind() == F32Row2304:
		return Exact
	case isRaw && to.Kind() != FP8Row576 && exactScale(raw.KScale()):
		return Exact
	case from.Kind() == FP8Row656 && to.Kind() == BF16Row1152:
		return ByScale
	}
	return Lossy
}

// Convert rewrites every row of src in dst's layout. Both must hold the same number of rows and must not overlap.
// A conversion that would change a value is refused with ErrLossy unless lossy is true; what dst then holds is
// unspecified. Rows keep their bytes when the layouts are the same.
func Convert(dst, src Rows, lossy bool) error {
	tokens, err := checkRows(dst, src)
	if err != nil {
		return err
	}
	switch loss := LossOf(src.Layout, dst.Layout); {
	case lossy || loss == Exact:
	case loss == ByScale:
		if err := checkScales(src.Bytes, tokens); err != nil {
			return fmt.Errorf("layout: convert %v to %v: %w", src.Layout.Kind(), dst.Layout.Kind(), err)
		}
	default:
		return lossError(src.Layout.Kind(), dst.Layout.Kind())
	}
	if sameLayout(src.Layout, dst.Layout) {
		copy(dst.Bytes, src.Bytes)
		return nil
	}
	convertRow := rowConverter(dst.Layout, src.Layout)
	d, s := dst.Layout.RowBytes(), src.Layout.RowBytes()
	for t := range tokens {
		convertRow(dst.Bytes[t*d:(t+1)*d], src.Bytes[t*s:(t+1)*s])
	}
	return nil
}

// rowConverter picks how one row is rewritten: the byte-preserving way where there is one, otherwise decode and encode.
func rowConverter(dst, src Main) func(dst, src []byte) {
	type pair struct{ from, to Kind }
	switch (pair{src.Kind(), dst.Kind()}) {
	case pair{FP8Row576, FP8Row656}:
		kScale := src.(scaled).KScale()
		return func(d, s []byte) { RawToBlock(d, s, kScale) }
	case pair{BF16Row1152, FP8Row656}:
		return BF16ToBlock
	case pair{FP8Row656, BF16Row1152}:
		return BlockToBF16
	}
	v := make([]float32, RowDim)
	return func(d, s []byte) {
		src.Decode(v, s, 0)
		dst.Encode(d, 0, v)
	}
}

// checkRows reports how many tokens both buffers hold, or what is wrong with them.
func checkRows(dst, src Rows) (tokens int, err error) {
	for _, r := range []Rows{dst, src} {
		if r.Layout == nil {
			return 0, fmt.Errorf("layout: convert: a buffer of %d bytes names no layout: %w", len(r.Bytes), ErrKind)
		}
		if n := r.Layout.RowBytes(); len(r.Bytes)%n != 0 {
			return 0, fmt.Errorf("layout: convert: %d bytes are no whole number of %v rows of %d: %w",
				len(r.Bytes), r.Layout.Kind(), n, ErrSize)
		}
		if raw, ok := r.Layout.(scaled); ok {
			if err := checkKScale(raw.KScale()); err != nil {
				return 0, err
			}
		}
	}
	to, from := len(dst.Bytes)/dst.Layout.RowBytes(), len(src.Bytes)/src.Layout.RowBytes()
	if to != from {
		return 0, fmt.Errorf("layout: convert: %d rows of %v into %d rows of %v: %w",
			from, src.Layout.Kind(), to, dst.Layout.Kind(), ErrSize)
	}
	return from, nil
}

// checkScales looks for a scale of an FP8Row656 row that would make bf16 round.
func checkScales(rows []byte, tokens int) error {
	for t := range tokens {
		for j, s := range (FP8Block{}).Scales(rows[t*BlockRowBytes:]) {
			if !exactScale(s) {
				return fmt.Errorf("row %d tile %d has scale %g, not a power of two; allow loss to convert: %w", t, j, s, ErrLossy)
			}
		}
	}
	return nil
}

// exactScale reports whether every e4m3 value times s is a normal bf16: the smallest is 2^-9, the largest 1.75*2^8.
func exactScale(s float32) bool {
	return num.IsPow2(s) && s >= 0x1p-117 && s <= 0x1p119
}

// sameLayout reports whether the same bytes have the same values in both.
func sameLayout(a, b Main) bool {
	sa, okA := a.(scaled)
	sb, okB := b.(scaled)
	if okA && okB && sa.KScale() != sb.KScale() {
		return false
	}
	return a.Kind() == b.Kind()
}

func checkKScale(s float32) error {
	if !(s > 0) || math.IsInf(float64(s), 0) {
		return fmt.Errorf("layout: %v with scale %g: %w", FP8Row576, s, ErrScale)
	}
	return nil
}

func lossError(from, to Kind) error {
	return fmt.Errorf("layout: convert %v to %v: allow loss to convert: %w", from, to, ErrLossy)
}
