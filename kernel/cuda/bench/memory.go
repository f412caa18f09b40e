package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"sparrow/internal/num"
	"sparrow/kernel/cuda"
)

// holder owns the device memory of a set.
type holder struct {
	rig     *Rig
	rng     *rand.Rand
	buffers []*cuda.Buffer
	outputs []span
	err     error // the first failed allocation or copy: later calls do nothing
}

// span is a piece of device memory.
type span struct {
	ptr   cuda.Ptr
	bytes int64
}

func newHolder(r *Rig) *holder { return &holder{rig: r, rng: rand.New(rand.NewPCG(r.Seed, 1))} }

// alloc takes memory that is freed with the set.
func (h *holder) alloc(n int64) cuda.Ptr {
	if h.err != nil {
		return 0
	}
	b, err := h.rig.Device.Alloc(max(n, 16))
	if err != nil {
		h.err = err
		return 0
	}
	h.buffers = append(h.buffers, b)
	return b.Ptr()
}

// output takes memory that is poisoned before a check.
func (h *holder) output(n int64) cuda.Ptr {
	p := h.alloc(n)
	h.outputs = append(h.outputs, span{p, n})
	return p
}

// put copies bytes to fresh memory.
func (h *holder) put(b []byte) cuda.Ptr {
	p := h.alloc(int64(len(b)))
	if h.err == nil {
		h.err = h.rig.Stream.CopyToDevice(p, b)
	}
	return p
}

// repeat fills fresh memory of n bytes with copies of a pattern.
func (h *holder) repeat(pattern []byte, n int64) cuda.Ptr {
	p := h.alloc(n)
	first := pattern[:min(int64(len(pattern)), n)]
	if h.err == nil {
		h.err = h.rig.Stream.CopyToDevice(p, first)
	}
	for done := int64(len(first)); h.err == nil && done < n; {
		step := min(done, n-done)
		h.err = h.rig.Stream.CopyOnDevice(p.Add(done), p, step)
		done += step
	}
	return p
}

// Poison fills the outputs.
func (h *holder) Poison(s *cuda.Stream) error {
	var errs []error
	for _, o := range h.outputs {
		errs = append(errs, s.Fill(o.ptr, 0xAB, o.bytes))
	}
	return errors.Join(errs...)
}

// Close frees the memory.
func (h *holder) Close() error {
	var errs []error
	for _, b := range h.buffers {
		errs = append(errs, b.Free())
	}
	h.buffers = nil
	return errors.Join(errs...)
}

// ready finishes a set: it waits for the copies and frees the memory if anything failed.
func (h *holder) ready(s Set) (Set, error) {
	if h.err == nil {
		h.err = h.rig.Stream.Sync()
	}
	if h.err != nil {
		return nil, errors.Join(h.err, h.Close())
	}
	return s, nil
}

// read copies device memory to the host.
func read(s *cuda.Stream, p cuda.Ptr, n int64) ([]byte, error) {
	b := make([]byte, n)
	if err := s.CopyToHost(b, p); err != nil {
		return nil, err
	}
	return b, s.Sync()
}

// same compares an output with what the host expects.
func same(s *cuda.Stream, what string, p cuda.Ptr, want []byte) error {
	got, err := read(s, p, int64(len(want)))
	if err != nil {
		return err
	}
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("%s: byte %d is %#02x, want %#02x", what, i, got[i], want[i])
		}
	}
	return nil
}

// bf16s are random bf16 values.
func (h *holder) bf16s(n int) []uint16 {
	v := make([]uint16, n)
	for i := range v {
		v[i] = num.BF16(float32(h.rng.NormFloat64()))
	}
	return v
}

// codes are random e4m3 codes without NaN.
func (h *holder) codes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = num.E4M3(float32(h.rng.NormFloat64() * 60))
	}
	return b
}

// floats are random float32 values.
func (h *holder) floats(n int, size, shift float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(h.rng.NormFloat64()*size + shift)
	}
	return v
}

// permutation is the numbers below n in random order.
func (h *holder) permutation(n int) []int32 {
	v := make([]int32, n)
	for i, p := range h.rng.Perm(n) {
		v[i] = int32(p)
	}
	return v
}

// raw16 is the little-endian bytes of 16-bit values.
func raw16(v []uint16) []byte {
	b := make([]byte, 0, 2*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint16(b, x)
	}
	return b
}

// rawI32 is the little-endian bytes of integers.
func rawI32(v []int32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return b
}

// rawF32 is the little-endian bytes of floats.
func rawF32(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// f32At reads one float of a buffer.
func f32At(b []byte, i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])) }

// constant is n times the same integer.
func constant(v int32, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = v
	}
	return out
}
