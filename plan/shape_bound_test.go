package plan

import (
	"encoding/binary"
	"testing"

	"sparrow/internal/testkit/heap"
)

// The stored shapes of batches with many prompts of different lengths stay within their limit in bytes.
func TestKeptShapesAreBoundedInBytes(t *testing.T) {
	for _, length := range []int{8, 1000, 30_000} {
		grown := heap.Kept(func() any {
			s := &Shaper{}
			for i := range uint64(20_000) {
				s.buf = append(s.buf[:0], make([]byte, length)...)
				binary.LittleEndian.PutUint64(s.buf, i)
				s.keep()
			}
			s.buf = nil
			return s
		})
		if grown > mostKept*5/4 {
			t.Errorf("shapes of %d bytes take %d bytes of the heap, at most %d are meant", length, grown, mostKept)
		}
	}
}
