package kernel

import "math"

// Arena allocates the tensors of a forward pass from one buffer of fixed size. To find the size of a pass, a caller
// takes its tensors from an arena without memory (MeasureArena) and reads High. The result of Take depends only on the
// calls since the last Reset, so that equal passes have their tensors at equal addresses.
type Arena struct {
	buf      Buffer
	at, high int64
}

// arenaAlign is the alignment of tensors in bytes: enough for every GPU access, and a multiple of a cache line.
const arenaAlign = 256

// NewArena allocates an arena with a buffer of the given size in bytes.
func NewArena(mem Memory, bytes int64) (*Arena, error) {
	b, err := mem.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	return &Arena{buf: b}, nil
}

// MeasureArena makes an arena without memory: its tensors have offsets and shapes, but no operation may use them.
func MeasureArena() *Arena { return &Arena{buf: unbacked{}} }

// unbacked is the buffer of an arena that measures.
type unbacked struct{}

func (unbacked) Len() int64 { return math.MaxInt64 }

// Bytes returns the size of the arena.
func (a *Arena) Bytes() int64 { return a.buf.Len() }

// High returns the maximum number of bytes that were taken at the same time. If it is above Bytes, tensors beyond the
// end of the buffer must not be used.
func (a *Arena) High() int64 { return a.high }

// Fits reports whether all tensors taken since the last Forget are inside the arena's buffer.
func (a *Arena) Fits() bool { return a.high <= a.Bytes() }

// Take returns a contiguous tensor. Its contents are undefined.
func (a *Arena) Take(d DType, rows, cols int) Tensor {
	t := Tensor{Buf: a.buf, Off: a.at, DType: d, Rows: rows, Cols: cols, Stride: cols}
	n := int64(rows) * int64(cols) * int64(d.Size())
	a.at += (n + arenaAlign - 1) / arenaAlign * arenaAlign
	a.high = max(a.high, a.at)
	return t
}

// Buffer returns the memory of the arena.
func (a *Arena) Buffer() Buffer { return a.buf }

// Over returns an arena in the same state over another buffer of the same size: tensors taken from it have the same
// offsets.
func (a *Arena) Over(b Buffer) *Arena {
	c := *a
	c.buf = b
	return &c
}

// Follow sets the position of the arena to that of an arena that Over returned.
func (a *Arena) Follow(b *Arena) { a.at, a.high = b.at, max(a.high, b.high) }

// Mark returns the current position, for Reset.
func (a *Arena) Mark() int64 { return a.at }

// Reset frees the tensors taken since a mark: their memory is used again by later calls of Take.
func (a *Arena) Reset(mark int64) { a.at = mark }

// Forget resets the high mark to the current position, after a pass that did not fit.
func (a *Arena) Forget() { a.high = a.at }

// Free returns the memory to its device.
func (a *Arena) Free(mem Memory) {
	if a.buf != nil {
		mem.Free(a.buf)
		a.buf = nil
	}
}
