package host

import (
	"bytes"
	"testing"
	"unsafe"

	"sparrow/kernel"
)

// Packed weights have the same bytes as their source, are aligned to cache lines, share no byte with each other or with
// the source, and cannot be appended to.
func TestPackedWeightsAreAlignedCopies(t *testing.T) {
	m := Packed()
	source := make([]byte, packBlock)
	for i := range source {
		source[i] = byte(i>>7 + i)
	}
	var views [][]byte
	var wants [][]byte
	for _, n := range []int{0, 1, 63, 64, 65, 4097, packBlock / 4, packBlock/4 + 1, packBlock - 3, packBlock / 5,
		packBlock / 5, packBlock / 5, packBlock / 5, packBlock / 5, packBlock / 5} {
		from := source[len(source)-n:]
		got := Bytes(m.place(kernel.Tensor{Buf: kernel.HostBuffer(from), DType: kernel.E4M3, Rows: 1, Cols: n,
			Stride: n}))
		if len(got) != n || cap(got) != n {
			t.Fatalf("packed copy of %d bytes: length %d, capacity %d", n, len(got), cap(got))
		}
		if n > 0 && uintptr(unsafe.Pointer(&got[0]))%64 != 0 {
			t.Errorf("%d bytes do not begin on a cache line", n)
		}
		views, wants = append(views, got), append(wants, bytes.Clone(from))
	}
	clear(source)
	for i := range views {
		if !bytes.Equal(views[i], wants[i]) {
			t.Errorf("weight %d of %d bytes changed", i, len(wants[i]))
		}
	}
}
