package cuda

// ElementType is the type of a tensor whose kernel learns it at run time.
type ElementType int32

// The types.
const (
	ElementF32 ElementType = iota
	ElementBF16
	ElementF16
	ElementE4M3
)

// bytes returns the size of an element.
func (t ElementType) bytes() int {
	switch t {
	case ElementF32:
		return 4
	case ElementE4M3:
		return 1
	}
	return 2
}

// element checks memory of one of the types up to last, with rows a stride of elements apart.
func (c *checks) element(name string, p Ptr, t, last ElementType, stride int64, columns int32) {
	if t < ElementF32 || t > last {
		c.fail("%s has element type %d, want 0 to %d", name, t, last)
		return
	}
	c.memory(name, p, t.bytes())
	c.multiple(name+" stride", stride, 1, int64(columns))
}
