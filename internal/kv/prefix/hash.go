package prefix

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Hash identifies a page by its content, everything before it, the layout and the salt. It is the same in every
// process.
type Hash [sha256.Size]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// domain distinguishes root hashes from page hashes and other uses of SHA-256. Its number must change if the
// computation of hashes changes.
const domain = "sparrow/kv/prefix/1"

// hasher computes chained hashes; it reuses one buffer.
type hasher struct {
	sum func([]byte) [sha256.Size]byte // replaced in tests to force collisions
	buf []byte
}

// root returns the hash before the first page: SHA-256 over domain, identity and salt, each preceded by its length in 8
// bytes, so that different pairs give different bytes.
func (h *hasher) root(identity string, salt []byte) Hash {
	b := h.buf[:0]
	b = binary.LittleEndian.AppendUint64(b, uint64(len(domain)))
	b = append(b, domain...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(identity)))
	b = append(b, identity...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(salt)))
	b = append(b, salt...)
	h.buf = b
	return h.sum(b)
}

// PageHash returns the hash of a page of tokens that follows the page, or the root, with the hash parent.
func PageHash(parent Hash, tokens []int32) Hash {
	h := hasher{sum: sha256.Sum256}
	return h.page(parent, tokens)
}

// Chain appends the hashes of the first full pages of a prompt to chain, at most limit of them.
func (ix *Index) Chain(root Hash, prompt []int32, limit int, chain []Hash) []Hash {
	size := ix.cfg.PageTokens
	for before, i := root, 0; i < min(limit, len(prompt)/size); i++ {
		before = ix.hash.page(before, prompt[i*size:(i+1)*size])
		chain = append(chain, before)
	}
	return chain
}

// page returns SHA-256 over the parent's hash (32 bytes) and the tokens (4 little-endian bytes each).
func (h *hasher) page(parent Hash, tokens []int32) Hash {
	b := append(h.buf[:0], parent[:]...)
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	h.buf = b
	return h.sum(b)
}
