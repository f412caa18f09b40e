package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"sparrow/internal/num"
	"sparrow/kernel/cuda"
)

// holder owns the device memory of a set.
type holder struct {
	rig     *Rig
	rng     *rand.Rand
	buffers []*cuda.Buffer
	outputs []span
	err     error // first failed allocation or copy; later calls do nothing
}

// span is a range of device memory.
type span struct {
	ptr   cuda.Ptr
	bytes int
}

func newHolder(r *Rig) *holder { return &holder{rig: r, rng: rand.New(rand.NewPCG(r.Seed, 1))} }

// alloc allocates n bytes, which are freed with the set.
func (h *holder) alloc(n int) cuda.Ptr {
	if h.err != nil {
		return 0
	}
	b, err := h.rig.Device.Alloc(int64(max(n, 16)))
	if err != nil {
		h.err = err
		return 0
	}
	h.buffers = append(h.buffers, b)
	return b.Ptr()
}

// output allocates n bytes that poison fills before a check.
func (h *holder) output(n int) cuda.Ptr {
	p := h.alloc(n)
	h.outputs = append(h.outputs, span{p, n})
	return p
}

// put allocates device memory and copies b to it.
func (h *holder) put(b []byte) cuda.Ptr { return h.repeat(b, len(b)) }

// repeat allocates n bytes of device memory and fills them with copies of a pattern.
func (h *holder) repeat(pattern []byte, n int) cuda.Ptr {
	p := h.alloc(n)
	done := min(len(pattern), n)
	if h.err == nil {
		h.err = h.rig.Stream.CopyToDevice(p, pattern[:done])
	}
	for h.err == nil && done < n {
		step := min(done, n-done)
		h.err = h.rig.Stream.CopyOnDevice(p.Add(int64(done)), p, int64(step))
		done += step
	}
	return p
}

// poisoned is the byte with which outputs are filled.
const poisoned = 0xAB

// poison enqueues writes that fill every output with the byte poisoned.
func (h *holder) poison(s *cuda.Stream) error {
	var errs []error
	for _, o := range h.outputs {
		errs = append(errs, s.Fill(o.ptr, poisoned, int64(o.bytes)))
	}
	return errors.Join(errs...)
}

// free frees the device memory of the set.
func (h *holder) free() error {
	var errs []error
	for _, b := range h.buffers {
		errs = append(errs, b.Free())
	}
	h.buffers = nil
	return errors.Join(errs...)
}

// ready waits for the copies, and returns the first error.
func (h *holder) ready() error {
	if h.err == nil {
		h.err = h.rig.Stream.Sync()
	}
	return h.err
}

// reader copies device memory to the host. It stores the first error; later reads return zeros.
type reader struct {
	stream *cuda.Stream
	err    error
}

func (r *reader) bytes(p cuda.Ptr, n int) []byte {
	b := make([]byte, n)
	if r.err == nil {
		r.err = r.stream.CopyToHost(b, p)
	}
	if r.err == nil {
		r.err = r.stream.Sync()
	}
	return b
}

// f32 reads one float32 value.
func (r *reader) f32(p cuda.Ptr) float64 { return float64(f32At(r.bytes(p, 4), 0)) }

// f32s reads n float32 values.
func (r *reader) f32s(p cuda.Ptr, n int) []float32 {
	v, b := make([]float32, n), r.bytes(p, 4*n)
	for i := range v {
		v[i] = f32At(b, i)
	}
	return v
}

// bf16s reads n bf16 values.
func (r *reader) bf16s(p cuda.Ptr, n int) []float32 {
	v := make([]float32, n)
	widen(v, r.bytes(p, 2*n))
	return v
}

// same checks that the output at p equals want; what names it in the error.
func (r *reader) same(what string, p cuda.Ptr, want []byte) error {
	got := r.bytes(p, len(want))
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("%s: byte %d is %#02x, want %#02x", what, i, got[i], want[i])
		}
	}
	return nil
}

// random returns n random values: draw applied to standard normal numbers.
func random[T any](h *holder, n int, draw func(float64) T) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = draw(h.rng.NormFloat64())
	}
	return v
}

// bf16s returns n random bf16 values.
func (h *holder) bf16s(n int) []uint16 {
	return random(h, n, func(v float64) uint16 { return num.BF16(float32(v)) })
}

// codes returns n random e4m3 codes without NaN.
func (h *holder) codes(n int) []byte {
	return random(h, n, func(v float64) byte { return num.E4M3(float32(v * 60)) })
}

// floats returns n random float32 values with mean shift and standard deviation size.
func (h *holder) floats(n int, size, shift float64) []float32 {
	return random(h, n, func(v float64) float32 { return float32(v*size + shift) })
}

// permutation returns the numbers 0 to n-1 in random order.
func (h *holder) permutation(n int) []int32 {
	v := make([]int32, n)
	for i, p := range h.rng.Perm(n) {
		v[i] = int32(p)
	}
	return v
}

// raw returns values as little-endian bytes.
func raw[T uint16 | int32 | float32](v []T) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic(err) // cannot fail: the types have a fixed size
	}
	return b
}

// ints allocates device memory with n copies of the integer v.
func (h *holder) ints(v, n int) cuda.Ptr { return putAll(h, slices.Repeat([]int32{int32(v)}, n)) }

// putAll allocates device memory and copies values to it.
func putAll[T uint16 | int32 | float32](h *holder, v []T) cuda.Ptr { return h.put(raw(v)) }

// f32At returns the i-th float32 of a buffer.
func f32At(b []byte, i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])) }
