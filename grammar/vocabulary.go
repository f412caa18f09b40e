package grammar

import (
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"
)

// Vocabulary is the interface of a tokenizer to this package.
type Vocabulary interface {
	// Size returns the number of ids; they are 0 to Size-1.
	Size() int
	// Bytes returns the text of a token, which may begin or end inside a UTF-8 character. It is empty for ids without
	// text.
	Bytes(id int32) []byte
	// IsSpecial reports whether an id, such as a control token, must never be part of constrained text.
	IsSpecial(id int32) bool
	// EOS returns the ids that end a sequence. They are allowed when the document is complete.
	EOS() []int32
}

// Tokens is a vocabulary prepared for masking: a trie over the bytes of all tokens, and the masks that all grammars
// share. One Tokens per tokenizer is enough; it is safe for concurrent use.
type Tokens struct {
	size   int
	text   []byte  // bytes of all tokens
	offset []int32 // [size+1] offset of each token in text; special tokens have no bytes
	eos    []int32
	trie   trie
	shapes shapes
	broken trie // trie of the tokens that are not whole characters
	shared *maskCache

	explored explored

	mu          sync.Mutex
	families    map[string]uint32 // families of patterns, guarded by mu like the fields below
	familyBytes int               // bytes of the patterns' texts
	next        uint32
}

// NewTokens prepares a vocabulary. It takes a fraction of a second for 129k tokens.
//
// Every byte of JSON's syntax must be a token, so that every document can be completed. If the 64 continuation bytes of
// UTF-8 are not all tokens, tokens that end inside a character are excluded for the same reason.
func NewTokens(v Vocabulary) (*Tokens, error) {
	n := v.Size()
	if n < 1 || n > 1<<24 {
		return nil, fmt.Errorf("%w: %d tokens; between 1 and %d are supported", ErrVocabulary, n, 1<<24)
	}
	t := &Tokens{size: n, offset: make([]int32, n+1), shared: newMaskCache(maxMaskBytes),
		explored: explored{most: maxExplored}}
	var single [256]bool
	for id := range int32(n) {
		if !v.IsSpecial(id) {
			b := v.Bytes(id)
			if len(b) > maxTokenBytes {
				return nil, fmt.Errorf("%w: token %d has %d bytes; at most %d are supported", ErrVocabulary, id, len(b),
					maxTokenBytes)
			}
			t.text = append(t.text, b...)
			if len(b) == 1 {
				single[b[0]] = true
			}
		}
		t.offset[id+1] = int32(len(t.text))
	}
	for b := byte(0x20); b < 0x7f; b++ {
		if !single[b] {
			return nil, fmt.Errorf("%w: no token represents %q alone; every printable ASCII character needs one",
				ErrVocabulary, string(rune(b)))
		}
	}
	for _, id := range v.EOS() {
		if id < 0 || int(id) >= n {
			return nil, fmt.Errorf("%w: end-of-sequence id %d is outside the %d tokens", ErrVocabulary, id, n)
		}
		t.eos = append(t.eos, id)
	}
	bytewise := !slices.Contains(single[0x80:0xc0], false)
	ids := make([]int32, 0, n)
	for id := range int32(n) {
		b := t.bytes(id)
		if len(b) == 0 || slices.Contains(t.eos, id) || (!bytewise && !utf8.Valid(b)) {
			continue
		}
		ids = append(ids, id)
	}
	t.trie = newTrie(ids, t.bytes)
	t.broken = newTrie(slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return utf8.Valid(t.bytes(id)) }),
		t.bytes)
	t.shapes = newShapes(&t.trie, t.MaskWords())
	t.warm(&stringLeaf{0, noLimit}, &freeKey{})
	return t, nil
}

// warm computes the masks inside strings and property names before the first request, because they take the longest.
func (t *Tokens) warm(leaves ...leaf) {
	for _, l := range leaves {
		q, _ := l.step(l.start(), '"')
		t.shared.put(l.class(q, t.trie.deep), t.explore(l, q))
	}
}

// maxFamilyBytes is the maximum memory of stored patterns. Each takes its text and familyPlace more bytes.
const (
	maxFamilyBytes = 1 << 20
	familyPlace    = 96
)

// family returns the number of a pattern, by which all grammars of the vocabulary share its masks.
func (t *Tokens) family(pattern string) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, ok := t.families[pattern]
	if !ok {
		n := len(pattern)*9/8 + familyPlace
		if t.families == nil || t.familyBytes+n > maxFamilyBytes {
			t.families = map[string]uint32{} // numbers are not reused; unused masks become the oldest in the cache
			t.familyBytes = 0
		}
		t.familyBytes += n
		f = patternFamilies + t.next
		t.next++
		t.families[pattern] = f
	}
	return f
}

// Size returns the number of ids of the vocabulary.
func (t *Tokens) Size() int { return t.size }

// MaskWords returns the length of a mask: one bit per id.
func (t *Tokens) MaskWords() int { return (t.size + 63) / 64 }

func (t *Tokens) bytes(id int32) []byte { return t.text[t.offset[id]:t.offset[id+1]] }
