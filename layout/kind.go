package layout

import (
	"fmt"
	"strings"
)

// Kind identifies a byte layout by its content and its bytes per token.
type Kind uint8

const (
	None           Kind = iota // the layer has no cache of this use
	BF16Row1152                // 576 bf16 values
	FP8Row656                  // 512 e4m3 values, 4 float32 scales, 64 bf16 rope values
	FP8Row576                  // 576 e4m3 values; the scale is not in the cache
	F32Row2304                 // 576 float32 values
	IndexPage132               // indexer keys: 128 e4m3 values per token; after them, the float32 scales of the page
	IndexF32Row512             // indexer keys: 128 float32 values
	V4Row584                   // DeepSeek-V4: 448 e4m3 and 64 bf16 values; apart from them, 7 exponents and a zero
	V4F32Row2048               // DeepSeek-V4: 512 float32 values
	// IndexPage68 is for indexer keys of DeepSeek-V4: 128 e2m1 values per token, then the exponents of the page, one
	// per 32 values.
	IndexPage68
	FP8Row528    // rows without rope values: 512 e4m3 values, 4 float32 scales
	BF16Row1024  // rows without rope values: 512 bf16 values
	F32Row2048   // rows without rope values: 512 float32 values
	V41Row288    // shared entries of DeepSeek-V4.1: 512 e2m1 values, 32 e4m3 scales
	V41Window528 // window entries of V4.1: 512 e4m3 values, 16 exponents
	V41Index68   // indexer keys of V4.1: IndexPage68 without Hadamard rotation, with scales down to 2^-126
	kindCount
)

// kindNames has the name of each kind and the name that other engines use, if there is one.
var kindNames = [kindCount]struct{ name, alias string }{
	None:           {"none", ""},
	BF16Row1152:    {"bf16-1152", "BF16_576"},
	FP8Row656:      {"fp8-656", "FP8_BLOCK_656"},
	FP8Row576:      {"fp8-576", "FP8_RAW_576"},
	F32Row2304:     {"f32-2304", ""},
	IndexPage132:   {"index-fp8-132", "INDEX_132"},
	IndexF32Row512: {"index-f32-512", ""},
	V4Row584:       {"v4-584", "V4_PACKED_584"},
	V4F32Row2048:   {"v4-f32-2048", ""},
	IndexPage68:    {"index-fp4-68", ""},
	FP8Row528:      {"fp8-528", ""},
	BF16Row1024:    {"bf16-1024", ""},
	F32Row2048:     {"f32-2048", ""},
	V41Row288:      {"v41-288", ""},
	V41Window528:   {"v41-window-528", ""},
	V41Index68:     {"v41-index-68", ""},
}

// String returns the name that ParseKind accepts.
func (k Kind) String() string {
	if k < kindCount {
		return kindNames[k].name
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// MarshalText returns the name, so that JSON contains names instead of numbers.
func (k Kind) MarshalText() ([]byte, error) {
	if k >= kindCount {
		return nil, fmt.Errorf("layout: kind %d has no name: %w", uint8(k), ErrKind)
	}
	return []byte(k.String()), nil
}

// UnmarshalText parses a name as ParseKind does.
func (k *Kind) UnmarshalText(text []byte) error {
	parsed, err := ParseKind(string(text))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}

// ParseKind returns the kind with the given name or alias, ignoring case.
func ParseKind(s string) (Kind, error) {
	for k := range kindCount {
		n := kindNames[k]
		if strings.EqualFold(s, n.name) || n.alias != "" && strings.EqualFold(s, n.alias) {
			return k, nil
		}
	}
	return None, fmt.Errorf("layout: unknown layout %q, want one of %s: %w", s, supported(), ErrKind)
}

// supported returns all names with their aliases, for error messages.
func supported() string {
	var b strings.Builder
	for k, n := range kindNames {
		if k > 0 {
			b.WriteString(", ")
		}
		b.WriteString(n.name)
		if n.alias != "" {
			fmt.Fprintf(&b, " (%s)", n.alias)
		}
	}
	return b.String()
}
