package kv

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/testkit/heap"
)

// The stored salts stay within their memory bound, however many salts there are and however long they are.
func TestSaltsAreBoundedInBytes(t *testing.T) {
	for _, length := range []int{1, 300, 20_000} {
		grown := heap.Kept(func() any {
			s := &saltMemory{}
			for i := range uint64(20_000) {
				var root prefix.Hash
				binary.LittleEndian.PutUint64(root[:], i)
				s.note(root, bytes.Repeat([]byte{1}, length))
			}
			return s
		})
		if grown > maxSaltBytes*5/4 {
			t.Errorf("salts of %d bytes take %d bytes of the heap, want at most %d", length, grown, maxSaltBytes)
		}
	}
}

// salted records the salts of stored pages.
type salted []string

func (l *salted) Stored(s prefix.Stored) { *l = append(*l, string(s.Salt)) }
func (l *salted) Removed(prefix.Hash)    {}
func (l *salted) Cleared()               {}

// Listeners receive the salt of the sequence with each stored page.
func TestEventsHaveTheSaltOfTheirSequence(t *testing.T) {
	var got salted
	p := newPool(t, Config{Pages: 8, PageTokens: 4, Reuse: true, Listener: &got})
	for _, salt := range []string{"a", "", "b"} {
		s, _ := fill(t, p, tokens(0, 8), OpenOptions{Salt: []byte(salt)})
		ok(t, s.Close())
	}
	if want := []string{"a", "a", "", "", "b", "b"}; !slices.Equal(got, want) {
		t.Errorf("pages were stored with the salts %q, want %q", got, want)
	}
}
