package kv

import (
	"bytes"
	"encoding/binary"
	"testing"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/testkit/heap"
)

// However many salts come, and however long they are, those that are remembered take no more than their bound.
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
			t.Errorf("salts of %d bytes take %d bytes of the heap, at most %d are meant", length, grown, maxSaltBytes)
		}
	}
}
