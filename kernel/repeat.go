package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"

	"sparrow/internal/num"
)

// Repeated represents bytes that are generated instead of read from a file: a pattern that is repeated, starting at an
// offset. Generating many gigabytes of weights for benchmarks is then as fast as copying memory.
type Repeated struct {
	Pattern []byte
	First   int64 // offset of the first byte in the pattern
	Bytes   int64 // size in bytes of the tensor that is filled
}

// patternBytes is the size of the pattern that Pattern makes. It is larger than a core's L2 cache, and not a multiple
// of common row sizes, so that adjacent rows differ.
const patternBytes = 8<<20 + 4096 + 64

// Pattern makes a pattern for tensors of type t: random pairs of codes for e2m1x2 and u4x2, scales that all equal the
// mean for e8m0 and bf16, or random whole blocks for a block format.
func Pattern(t DType, d Drawn) ([]byte, error) {
	if f, ok := t.Block(); ok {
		out := make([]byte, patternBytes/f.Bytes()*f.Bytes())
		if err := f.Draw(out, rand.New(rand.NewPCG(d.Seed, uint64(f))), d.Spread); err != nil {
			return nil, fmt.Errorf("%w: draw: %w", ErrArgument, err)
		}
		return out, nil
	}
	switch t {
	case E8M0:
		code := num.E8M0(d.Mean)
		out := make([]byte, patternBytes)
		for i := range out {
			out[i] = code
		}
		return out, nil
	case E2M1x2:
		out := make([]byte, patternBytes)
		for i := range out {
			out[i] = num.PackE2M1(num.E2M1(d.Value(int64(2*i))), num.E2M1(d.Value(int64(2*i+1))))
		}
		return out, nil
	case U4x2:
		const zero = 8 // e2m1 code of the value 0
		code := func(i int) byte {
			n := math.RoundToEven(float64(d.Value(int64(i))))
			return byte(zero + int(max(min(n, zero-1), -zero)))
		}
		out := make([]byte, patternBytes)
		for i := range out {
			out[i] = code(2*i) | code(2*i+1)<<4
		}
		return out, nil
	case BF16:
		out := make([]byte, 0, patternBytes)
		for len(out) < patternBytes {
			out = binary.NativeEndian.AppendUint16(out, num.BF16(d.Mean))
		}
		return out, nil
	}
	return nil, fmt.Errorf("%w: draw: a pattern of type %v is not supported, want e2m1x2, u4x2, e8m0, bf16 or blocks",
		ErrArgument, t)
}

// From returns a buffer of the given size that repeats a pattern; the seed determines the offset in the pattern of the
// first byte.
func From(pattern []byte, t DType, seed uint64, bytes int64) Repeated {
	line := 64 // bytes of a cache line: copies begin aligned
	if f, ok := t.Block(); ok {
		line = f.Bytes()
	}
	lines := uint64(len(pattern) / line)
	return Repeated{Pattern: pattern, First: int64(seed*0x9E3779B97F4A7C15>>32%lines) * int64(line), Bytes: bytes}
}

// Len returns the size in bytes. Repeated is a Buffer, so that tensors of weights for a [Preparer] that is a [Drawer]
// can have it as their memory.
func (r Repeated) Len() int64 { return r.Bytes }

// Pieces returns the bytes in order, as a sequence of slices of the pattern.
func (r Repeated) Pieces() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for at, left := r.First, r.Bytes; left > 0; at = 0 {
			n := min(int64(len(r.Pattern))-at, left)
			if !yield(r.Pattern[at : at+n]) {
				return
			}
			left -= n
		}
	}
}

// Fill writes the bytes to dst.
func (r Repeated) Fill(dst []byte) {
	for piece := range r.Pieces() {
		dst = dst[copy(dst, piece):]
	}
}

// OnHost copies matrices whose buffers are Drawn or Repeated to host memory, using all cores, for devices that read
// experts there. It replaces their tensors in w. alloc allocates the memory of each tensor, for example page-locked
// memory: for one expert after the other gate, up and down, for each of them values, scales and zero points.
func (w *ExpertWeights) OnHost(alloc func(bytes int64) (HostBuffer, error)) error {
	fills := make(chan func() error)
	errs := make([]error, runtime.GOMAXPROCS(0)+1)
	var wait sync.WaitGroup
	for i := range errs[1:] {
		wait.Go(func() {
			for fill := range fills {
				if errs[i+1] == nil {
					errs[i+1] = fill()
				}
			}
		})
	}
	for e := range w.Gate {
		for _, m := range []*Weight{&w.Gate[e], &w.Up[e], &w.Down[e]} {
			for _, t := range []*Tensor{&m.Data, &m.Scale, &m.Zero} {
				fill := t.filler()
				if fill == nil || errs[0] != nil {
					continue
				}
				var b HostBuffer
				if b, errs[0] = alloc(t.Extent()); errs[0] == nil {
					t.Buf, t.Off = b, 0
					fills <- func() error { return fill(b) }
				}
			}
		}
	}
	close(fills)
	wait.Wait()
	return errors.Join(errs...)
}

// filler returns the function that writes the values of a Drawn or Repeated buffer to memory; nil for other buffers.
func (t *Tensor) filler() func([]byte) error {
	switch x := t.Buf.(type) {
	case Drawn:
		d, first := t.DType, t.Off/int64(t.DType.Size())
		return func(b []byte) error { return x.Fill(b, d, first) }
	case Repeated:
		return func(b []byte) error { x.Fill(b); return nil }
	}
	return nil
}

// onHost replaces a Drawn or Repeated buffer by host memory with the same values.
func (t *Tensor) onHost(alloc func(bytes int64) (HostBuffer, error)) error {
	fill := t.filler()
	if fill == nil {
		return nil
	}
	b, err := alloc(t.Extent())
	if err != nil {
		return err
	}
	t.Buf, t.Off = b, 0
	return fill(b)
}
