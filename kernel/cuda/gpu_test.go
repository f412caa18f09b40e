package cuda

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"testing"
	"unsafe"

	"sparrow/internal/num"
	"sparrow/kernel"
)

// rig holds a device with its kernels and a stream; its allocations are freed when the test ends.
type rig struct {
	t testing.TB
	d *Device
	k *Kernels
	s *Stream
}

// portableTier runs the tests with the portable kernels, on any GPU that supports them; smallCard also limits the GPU
// to the resources of a card of 24 GB.
var (
	portableTier = flag.Bool("portable", false, "run tests on a GPU with the portable kernels")
	smallCard    = flag.Bool("small", false, "limit the GPU to 22 GiB and 99 KiB of shared memory a block")
)

// onGPU opens the first device, or skips the test with one line.
func onGPU(t testing.TB) *rig {
	t.Helper()
	ready := Available
	if *portableTier {
		ready = PortableAvailable
	}
	var limits kernel.Limits
	if *smallCard {
		limits = kernel.Limits{Memory: 22 << 30, Shared: 99 << 10}
	}
	if err := ready(); err != nil {
		t.Skipf("needs a GPU: %v", err)
	}
	d, err := OpenLimited(0, *portableTier, limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, d.Close()) })
	k, err := d.LoadKernels()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, k.Close()) })
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, s.Close()) })
	return &rig{t, d, k, s}
}

// onHopper is like onGPU, for kernels that exist only for Hopper.
func onHopper(t testing.TB) *rig {
	t.Helper()
	if *portableTier {
		t.Skip("the portable kernels do not include these kernels")
	}
	return onGPU(t)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bytesOf returns the memory of a slice of numbers as bytes.
func bytesOf[T uint16 | int32 | uint32 | float32 | byte](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	// The result covers exactly the memory of v's elements.
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}

// upload copies host values to new device memory.
func upload[T uint16 | int32 | uint32 | float32 | byte](r *rig, v []T) Ptr {
	r.t.Helper()
	b := bytesOf(v)
	p := r.alloc(int64(len(b)))
	check(r.t, r.s.CopyToDevice(p, b))
	return p
}

func (r *rig) alloc(n int64) Ptr {
	r.t.Helper()
	b, err := r.d.Alloc(max(n, 1))
	check(r.t, err)
	r.t.Cleanup(func() { check(r.t, b.Free()) })
	return b.Ptr()
}

// poisoned returns n bytes of device memory filled with a pattern that no result contains by chance.
func (r *rig) poisoned(n int64) Ptr {
	r.t.Helper()
	p := r.alloc(n)
	check(r.t, r.s.Fill(p, poison, n))
	return p
}

const poison = 0xAB

// download waits for the stream and returns n bytes of device memory.
func (r *rig) download(p Ptr, n int64) []byte {
	r.t.Helper()
	b := make([]byte, n)
	check(r.t, r.s.CopyToHost(b, p))
	check(r.t, r.s.Sync())
	return b
}

// faultWord returns a zeroed fault word.
func (r *rig) faultWord() Ptr { return upload(r, []uint32{0}) }

func (r *rig) faults(p Ptr) uint32 { return binary.LittleEndian.Uint32(r.download(p, 4)) }

// sameBytes checks that two buffers are equal and reports the first difference.
func sameBytes(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d bytes, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: byte %d is %#02x, want %#02x", what, i, got[i], want[i])
			return
		}
	}
}

// sameBF16 checks that bf16 values are equal bit for bit, except that all NaNs are equal.
func sameBF16(t testing.TB, what string, got, want []byte) {
	t.Helper()
	for i := 0; i+1 < len(want); i += 2 {
		g, w := binary.LittleEndian.Uint16(got[i:]), binary.LittleEndian.Uint16(want[i:])
		nan := func(b uint16) bool { return b&0x7FFF > 0x7F80 }
		if g != w && !(nan(g) && nan(w)) {
			t.Errorf("%s: value %d is %#04x (%g), want %#04x (%g)", what, i/2, g, num.FromBF16(g), w, num.FromBF16(w))
			return
		}
	}
}

// randomBF16 returns n values of very different magnitudes: a few zeros, mostly normal values, some tiny and some
// large.
func randomBF16(rng *rand.Rand, n int) []uint16 {
	v := make([]uint16, n)
	for i := range v {
		f := float32(rng.NormFloat64())
		switch rng.IntN(16) {
		case 0:
			f = 0
		case 1:
			f *= 1e-5
		case 2:
			f *= 300
		}
		v[i] = num.BF16(f)
	}
	return v
}

// scatter returns n distinct slots below limit in random order; about one in nine is replaced by -1.
func scatter(rng *rand.Rand, n, limit int) []int32 {
	perm := rng.Perm(limit)[:n]
	slots := make([]int32, n)
	for i, p := range perm {
		slots[i] = int32(p)
		if rng.IntN(9) == 0 {
			slots[i] = -1
		}
	}
	return slots
}

// positionsBelow returns n random positions below limit.
func positionsBelow(rng *rand.Rand, n, limit int) []int32 {
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(rng.IntN(limit))
	}
	return v
}
