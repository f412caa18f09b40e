package tier

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"sparrow/internal/kv/prefix"
)

// Version is the version of the page format.
const Version = 1

// Fingerprint identifies weights.
type Fingerprint [sha256.Size]byte

// Weights holds the identities of the weights that an engine computes pages with. Reading all weights takes long, so
// the digest may become known while the engine runs.
type Weights struct {
	// Sampled covers names, shapes and some bytes of tensors. It is part of the hash of every page, on every machine.
	Sampled Fingerprint
	// Local covers Sampled and the sizes and times of the weight files. It is sufficient on this machine, because an
	// edit changes the time of a file.
	Local Fingerprint
	// Whole covers every byte; nil while the digest is not known. Pages leave the machine only with this identity.
	Whole *Fingerprint
	// Read computes Whole if Whole is nil; this may take long. Read may be nil.
	Read func(context.Context) (Fingerprint, error)
}

// Spec holds the properties that all pages of one engine have in common.
type Spec struct {
	Model   string // name of the model for logs and people; Weights identifies the model
	Weights Fingerprint
	// Whole reports whether Weights cover every byte, so that pages may leave the machine.
	Whole bool
	// Local is the identity that an earlier process of this machine may have used for the same weights; zero means that
	// there is none.
	Local Fingerprint
	// Layout identifies everything else that the bytes of a page depend on: layouts of rows, drafting and arithmetic.
	Layout     string
	PageTokens int
	Bytes      int // size of the rows of a page and of its window page, in bytes
}

// Errors of pages that cannot be used.
var (
	// ErrDamaged means that bytes of a page are missing or wrong.
	ErrDamaged = errors.New("damaged")
	// ErrOther means that the page is complete, but belongs to another version, model, weights, layout or prompt.
	ErrOther = errors.New("the page belongs to another engine, model or prompt")
)

// Offsets in the header of a page, which docs/format/page.md draws. All numbers are little-endian.
const (
	magic        = "SPARROWP"
	atVersion    = 8
	atHeader     = 12 // size of the header in bytes
	atBytes      = 16 // number of bytes after the header
	atWeights    = 24
	atRoot       = 56
	atParent     = 88
	atHash       = 120
	atChecksum   = 152
	atTokens     = 184 // number of tokens
	atModelLen   = 188
	atLayoutLen  = 190
	atText       = 192 // names of model and layout, then tokens
	maxNameBytes = 512
)

// Validate returns an error for a spec that no page can have.
func (s *Spec) Validate() error {
	if len(s.Model) > maxNameBytes || len(s.Layout) > maxNameBytes {
		return fmt.Errorf("tier: the names of model and layout have %d and %d bytes, want at most %d each",
			len(s.Model),
			len(s.Layout), maxNameBytes)
	}
	if s.PageTokens < 1 || s.Bytes < 1 || int64(s.Bytes) > math.MaxInt32 {
		return fmt.Errorf("tier: a page has %d tokens and %d bytes, want at least 1 token and 1 byte and at most %d "+
			"bytes",
			s.PageTokens,
			s.Bytes, math.MaxInt32)
	}
	return nil
}

// HeaderBytes returns the size of the header of every page.
func (s *Spec) HeaderBytes() int { return atText + len(s.Model) + len(s.Layout) + 4*s.PageTokens }

// Size returns the size of every page with its header.
func (s *Spec) Size() int { return s.HeaderBytes() + s.Bytes }

// AppendHeader appends the header of a page.
func (s *Spec) AppendHeader(to []byte, p *Page) []byte {
	first := len(to)
	to = append(to, make([]byte, atText)...)
	h := to[first:]
	copy(h, magic)
	binary.LittleEndian.PutUint32(h[atVersion:], Version)
	binary.LittleEndian.PutUint32(h[atHeader:], uint32(s.HeaderBytes()))
	binary.LittleEndian.PutUint64(h[atBytes:], uint64(len(p.Data)))
	copy(h[atWeights:], s.Weights[:])
	copy(h[atRoot:], p.Root[:])
	copy(h[atParent:], p.Parent[:])
	copy(h[atHash:], p.Hash[:])
	binary.LittleEndian.PutUint32(h[atTokens:], uint32(len(p.Tokens)))
	binary.LittleEndian.PutUint16(h[atModelLen:], uint16(len(s.Model)))
	binary.LittleEndian.PutUint16(h[atLayoutLen:], uint16(len(s.Layout)))
	to = append(append(to, s.Model...), s.Layout...)
	for _, t := range p.Tokens {
		to = binary.LittleEndian.AppendUint32(to, uint32(t))
	}
	h = to[first:]
	sum := checksum(h, p.Data)
	copy(h[atChecksum:], sum[:])
	return to
}

// checksum returns SHA-256 over a header, with zeros in place of the checksum, and the data after it.
func checksum(header, data []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(header[:atChecksum])
	h.Write(sum[:])
	h.Write(header[atChecksum+len(sum):])
	h.Write(data)
	h.Sum(sum[:0])
	return sum
}

// CheckHeader returns the fields of a header, or an error that states why the page cannot be used by this engine. size
// is the size of the whole page. It does not check the rows: CheckRows does.
func (s *Spec) CheckHeader(header []byte, size int64) (prefix.Stored, error) {
	var none prefix.Stored
	if len(header) < atText || string(header[:len(magic)]) != magic {
		return none, fmt.Errorf("%w: the %d bytes do not begin with a page header", ErrDamaged, len(header))
	}
	if v := binary.LittleEndian.Uint32(header[atVersion:]); v != Version {
		return none, fmt.Errorf("%w: the format version is %d, want %d", ErrOther, v, Version)
	}
	want := s.HeaderBytes()
	if n := binary.LittleEndian.Uint32(header[atHeader:]); int64(n) != int64(want) {
		return none, fmt.Errorf("%w: the header has %d bytes, want %d", ErrOther, n, want)
	}
	if n := binary.LittleEndian.Uint64(header[atBytes:]); n != uint64(s.Bytes) {
		return none, fmt.Errorf("%w: the rows have %d bytes, want %d", ErrOther, n, s.Bytes)
	}
	if size != int64(s.Size()) || len(header) < want {
		return none, fmt.Errorf("%w: the page has %d bytes, want %d", ErrDamaged, size, s.Size())
	}
	if w := Fingerprint(header[atWeights:atRoot]); w != s.Weights && (w != s.Local || s.Local == Fingerprint{}) {
		return none, fmt.Errorf("%w: the page was computed with other weights", ErrOther)
	}
	model, layout := int(binary.LittleEndian.Uint16(header[atModelLen:])),
		int(binary.LittleEndian.Uint16(header[atLayoutLen:]))
	tokens := binary.LittleEndian.Uint32(header[atTokens:])
	if int(tokens) != s.PageTokens || model != len(s.Model) || layout != len(s.Layout) ||
		string(header[atText:atText+model]) != s.Model ||
		string(header[atText+model:atText+model+layout]) != s.Layout {
		return none, fmt.Errorf("%w: the page belongs to another model or layout", ErrOther)
	}
	found := prefix.Stored{Root: prefix.Hash(header[atRoot:atParent]), Parent: prefix.Hash(header[atParent:atHash]),
		Hash: prefix.Hash(header[atHash:atChecksum]), Tokens: make([]int32, s.PageTokens)}
	for i := range found.Tokens {
		found.Tokens[i] = int32(binary.LittleEndian.Uint32(header[atText+model+layout+4*i:]))
	}
	if prefix.PageHash(found.Parent, found.Tokens) != found.Hash {
		return none, fmt.Errorf("%w: the hash of its tokens differs from the stored hash", ErrDamaged)
	}
	return found, nil
}

// CheckRows compares a page, whose header was checked, with its checksum.
func (s *Spec) CheckRows(header, data []byte) error {
	sum := checksum(header[:s.HeaderBytes()], data)
	if !slices.Equal(sum[:], header[atChecksum:atTokens]) {
		return fmt.Errorf("%w: the checksum of its bytes differs from the stored one", ErrDamaged)
	}
	return nil
}
