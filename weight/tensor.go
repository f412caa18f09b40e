package weight

import "math/bits"

// Tensor is a named array of a checkpoint, row-major and little-endian.
type Tensor struct {
	Name  string
	DType DType
	Shape []int  // outermost dimension first; empty for a scalar
	Data  []byte // slice of the mapped file or of embedded bytes: read-only, valid until Checkpoint.Close

	File   string // path of the file, or the name passed to FromBytes
	Offset int64  // offset of Data in File, in bytes

	Drawn *Distribution // distribution of random values; nil if there is Data
}

// Distribution describes random values, which are approximately normally distributed.
type Distribution struct {
	Seed         uint64
	Mean, Spread float32 // mean and standard deviation
}

// Elements returns the number of values, the product of Shape (1 for a scalar).
func (t *Tensor) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Bytes returns the bytes of the data, also for random values.
func (t *Tensor) Bytes() int64 {
	if t.Drawn == nil {
		return int64(len(t.Data))
	}
	n, _ := dataBytes(t.DType, t.Shape) // valid: FromShapes has checked it
	return n
}

// dataBytes returns the bytes of a tensor with this type and shape. ok is false if a dimension is negative, if the
// number exceeds int64, or if the values are not whole bytes or, in a row, not whole blocks.
func dataBytes(d DType, shape []int) (n int64, ok bool) {
	elements := uint64(1)
	empty := false
	for _, dim := range shape {
		if dim < 0 {
			return 0, false
		}
		empty = empty || dim == 0
	}
	if empty { // the number of values is 0 regardless of other dimensions
		return 0, true
	}
	for _, dim := range shape {
		hi, lo := bits.Mul64(elements, uint64(dim))
		if hi != 0 {
			return 0, false
		}
		elements = lo
	}
	each, unit := uint64(1), uint64(d.Bits())
	if f, ok := d.Block(); ok {
		each, unit = uint64(f.Values()), 8*uint64(f.Bytes())
		if len(shape) == 0 || uint64(shape[len(shape)-1])%each != 0 {
			return 0, false
		}
	}
	hi, total := bits.Mul64(elements/each, unit)
	if hi != 0 || total%8 != 0 {
		return 0, false
	}
	return int64(total / 8), true // less than 2^61
}
