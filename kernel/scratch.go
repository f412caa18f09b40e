package kernel

// Scratch is a tensor that grows to the largest size asked of it and is reused from then on, so that steps after the first few allocate
// nothing. Its contents do not survive growth.
type Scratch struct {
	mem Memory
	buf Buffer
}

// NewScratch makes an empty scratch tensor in a device's memory.
func NewScratch(mem Memory) Scratch { return Scratch{mem: mem} }

// Take returns a contiguous tensor of the wanted shape. What it returned before is no longer valid.
func (s *Scratch) Take(d DType, rows, cols int) (Tensor, error) {
	need := int64(rows) * int64(cols) * int64(d.Size())
	if s.buf == nil || s.buf.Len() < need {
		if s.buf != nil {
			s.mem.Free(s.buf)
			s.buf = nil
			need += need / 2 // what grew once, such as scores over a growing context, grows again
		}
		b, err := s.mem.Alloc(need)
		if err != nil {
			return Tensor{}, err
		}
		s.buf = b
	}
	return Tensor{Buf: s.buf, DType: d, Rows: rows, Cols: cols, Stride: cols}, nil
}
