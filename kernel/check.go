package kernel

import "fmt"

// checker keeps the first error in an operation's arguments, with the name of the argument. Without an error it
// allocates nothing, because operations are checked many times in a step.
type checker struct {
	op  string
	of  string // name of the weight or pool whose part is being checked
	err error
}

func (c *checker) fail(format string, args ...any) {
	if c.err == nil {
		if c.of != "" {
			format = c.of + " " + format
		}
		c.err = fmt.Errorf("%w: %s: %s", ErrArgument, c.op, fmt.Sprintf(format, args...))
	}
}

// tensor checks presence, type, exact columns, at least rows rows, and that the view is inside its buffer. cols -1
// accepts any width.
func (c *checker) tensor(name string, t Tensor, d DType, rows, cols int) {
	if c.err != nil {
		return
	}
	switch {
	case !t.Given():
		c.fail("%s is missing", name)
	case t.DType != d:
		c.fail("%s has type %s, want %s", name, t.DType, d)
	default:
		c.shape(name, t, rows, cols)
	}
}

func (c *checker) shape(name string, t Tensor, rows, cols int) {
	if c.err != nil {
		return
	}
	switch {
	case !t.Given():
		c.fail("%s is missing", name)
	case t.Rows < rows:
		c.fail("%s has %d rows, want %d", name, t.Rows, rows)
	case cols != -1 && t.Cols != cols:
		c.fail("%s has %d columns, want %d", name, t.Cols, cols)
	case t.Cols < 0 || t.Rows < 0 || (t.Rows > 1 && t.Stride < t.Cols):
		c.fail("%s has stride %d, want at least its %d columns", name, t.Stride, t.Cols)
	case t.Off < 0 || t.Off+t.Extent() > t.Buf.Len():
		c.fail("%s %v at byte %d ends %d bytes beyond its buffer", name, t, t.Off, t.Off+t.Extent()-t.Buf.Len())
	}
}

// float checks a tensor of activations, f32 or bf16.
func (c *checker) float(name string, t Tensor, rows, cols int) {
	if c.err == nil && t.Given() && t.DType != F32 && t.DType != BF16 {
		c.fail("%s has type %s, want f32 or bf16", name, t.DType)
	}
	c.shape(name, t, rows, cols)
}

// movable checks a tensor to or from which rows of type from are copied: i32 for i32, otherwise any float type.
func (c *checker) movable(name string, t Tensor, from DType, rows, cols int) {
	if from == I32 {
		c.tensor(name, t, I32, rows, cols)
		return
	}
	c.float(name, t, rows, cols)
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
