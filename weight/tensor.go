package weight

import "math/bits"

// Tensor is one named array of a checkpoint, in row-major order and little endian.
type Tensor struct {
	Name  string
	DType DType
	Shape []int  // outermost first; empty for a scalar
	Data  []byte // zero-copy view of the mapped file or the embedded bytes: read-only, valid until Checkpoint.Close

	File   string // path of the file, or the name given to FromBytes
	Offset int64  // byte of File at which Data begins

	Drawn *Distribution // distribution of the values of a tensor without data; nil if there is Data
}

// Distribution is the distribution of random values, close to a normal one.
type Distribution struct {
	Seed         uint64
	Mean, Spread float32 // Spread is the standard deviation
}

// Elements returns the number of values, the product of Shape (1 for a scalar). Two values of F4E2M1x2 share a byte.
func (t *Tensor) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Bytes returns the size of the data, including random data.
func (t *Tensor) Bytes() int64 {
	if t.Drawn == nil {
		return int64(len(t.Data))
	}
	n, _ := dataBytes(t.DType, t.Shape) // FromShapes has computed it
	return n
}

// dataBytes returns how many bytes a tensor of this type and shape takes. ok is false when a dimension is negative,
// when the number does not fit an int64, or when the values do not fill whole bytes or, in a row, whole blocks.
func dataBytes(d DType, shape []int) (n int64, ok bool) {
	elements := uint64(1)
	empty := false
	for _, dim := range shape {
		if dim < 0 {
			return 0, false
		}
		empty = empty || dim == 0
	}
	if empty { // the number of values is 0 regardless of the other dimensions
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
