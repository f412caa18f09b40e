package cuda

// ElementType is the type of a tensor's elements, for kernels that support several types.
type ElementType int32

const (
	ElementF32 ElementType = iota
	ElementBF16
	ElementF16
	ElementE4M3
)

func (t ElementType) bytes() int {
	switch t {
	case ElementF32:
		return 4
	case ElementE4M3:
		return 1
	}
	return 2
}

// element checks memory whose elements have type t, which must not be after last in the list of types, in rows that are
// stride elements apart.
func (c *checks) element(name string, p Ptr, t, last ElementType, stride int64, columns int32) {
	if t < ElementF32 || t > last {
		c.fail("%s has element type %d, want 0 to %d", name, t, last)
		return
	}
	c.memory(name, p, t.bytes())
	c.multiple(name+" stride", stride, 1, int64(columns))
}
