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

// Fingerprint is a hash that identifies weights.
type Fingerprint [sha256.Size]byte

// Weights holds identities of an engine's weights. The digest may be computed while the engine runs, because reading
// all weights takes long.
type Weights struct {
	// Sampled is a hash of names, shapes and some bytes of tensors. It is part of the hash of every page.
	Sampled Fingerprint
	// Local is a hash of Sampled and of the sizes and times of the weight files. It suffices on this machine, because
	// editing a file changes its time.
	Local Fingerprint
	// Whole is the digest of all bytes, or nil if it is not known. Pages leave the machine only with this identity.
	Whole *Fingerprint
	// Read computes Whole if Whole is nil, which may take long. Read may be nil.
	Read func(context.Context) (Fingerprint, error)
}

// Spec holds the properties that all pages of an engine share.
type Spec struct {
	Model   string // name of the model, for logs only; Weights identifies the model
	Weights Fingerprint
	// Whole reports whether Weights is the digest of all bytes, so that pages may leave the machine.
	Whole bool
	// Local is the identity of the same weights that earlier processes on this machine may have used; zero means none.
	Local Fingerprint
	// Layout identifies everything else on which the bytes of a page depend: row layouts, drafting and arithmetic.
	Layout     string
	PageTokens int
	Bytes      int // bytes of the rows of a page and of its window page
}

// Errors of pages that an engine cannot use.
var (
	// ErrDamaged means that a page is incomplete or its checksum differs.
	ErrDamaged = errors.New("damaged")
	// ErrOther means that a page is complete, but has another version, model, weights, layout or prompt.
	ErrOther = errors.New("the page belongs to another engine, model or prompt")
)

// Offsets in the header of a page, see docs/format/page.md. All numbers are little-endian.
const (
	magic        = "SPARROWP"
	atVersion    = 8
	atHeader     = 12 // offset of the header's size in bytes
	atBytes      = 16 // offset of the number of bytes after the header
	atWeights    = 24
	atRoot       = 56
	atParent     = 88
	atHash       = 120
	atChecksum   = 152
	atTokens     = 184 // offset of the number of tokens
	atModelLen   = 188
	atLayoutLen  = 190
	atText       = 192 // offset of the names of model and layout; the tokens follow
	maxNameBytes = 512
)

// Validate returns an error if a field of the spec is out of range.
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

// HeaderBytes returns the bytes of a page's header, which is the same for all pages.
func (s *Spec) HeaderBytes() int { return atText + len(s.Model) + len(s.Layout) + 4*s.PageTokens }

// Size returns the bytes of a page including its header.
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

// checksum returns SHA-256 over a header, in which the checksum is replaced by zeros, and the data.
func checksum(header, data []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(header[:atChecksum])
	h.Write(sum[:])
	h.Write(header[atChecksum+len(sum):])
	h.Write(data)
	h.Sum(sum[:0])
	return sum
}

// CheckHeader returns the fields of a header, or an error if this engine cannot use the page. size is the size of the
// whole page. CheckRows checks the rows.
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

// CheckRows compares the checksum of a page with its header, which CheckHeader has checked, and its rows.
func (s *Spec) CheckRows(header, data []byte) error {
	sum := checksum(header[:s.HeaderBytes()], data)
	if !slices.Equal(sum[:], header[atChecksum:atTokens]) {
		return fmt.Errorf("%w: the checksum of its bytes differs from the stored one", ErrDamaged)
	}
	return nil
}
