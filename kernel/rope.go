package kernel

import "fmt"

// Pairing selects which two elements of a rotated vector form a pair.
type Pairing uint8

// The two pairings in use (v32 spec, 2.4).
const (
	Interleaved Pairing = iota + 1 // (2i, 2i+1)
	HalfSplit                      // (i, i + d/2)
)

func (p Pairing) String() string {
	switch p {
	case Interleaved:
		return "interleaved"
	case HalfSplit:
		return "half-split"
	}
	return fmt.Sprintf("pairing(%d)", uint8(p))
}

// AngleArgs computes the rotation angles of every row once per step; all layers read them. Out[t] = cos(p*f_0..),
// sin(p*f_0..), times Scale, with p = Positions[t]; the product p*f is rounded to float32 first.
type AngleArgs struct {
	Out       Tensor // f32 [T, 2*len(f)]: cosines, then sines
	Positions Tensor // i32 [T, 1]
	InvFreq   Tensor // f32 [1, rope/2]
	Scale     float32
}

// Name returns the name of the operation.
func (AngleArgs) Name() string { return "angles" }

// Check validates the arguments.
func (a AngleArgs) Check() error {
	c := checker{op: a.Name()}
	c.tensor("out", a.Out, F32, a.Out.Rows, 2*a.InvFreq.Cols)
	c.tensor("positions", a.Positions, I32, a.Out.Rows, 1)
	c.tensor("invfreq", a.InvFreq, F32, 1, -1)
	return c.err
}

// RotateArgs applies rotary embedding to a part of every head in place: X[t, h, Offset : Offset+rope]. With Inverse it
// rotates by the negative angles.
type RotateArgs struct {
	X       Tensor // activation [T, Heads*HeadDim]
	Angles  Tensor // f32 [T, rope]
	Heads   int
	HeadDim int
	Offset  int
	Pairing Pairing
	Inverse bool
}

// Name returns the name of the operation.
func (RotateArgs) Name() string { return "rotate" }

// Check validates the arguments.
func (a RotateArgs) Check() error {
	c := checker{op: a.Name()}
	c.float("x", a.X, a.X.Rows, a.Heads*a.HeadDim)
	c.tensor("angles", a.Angles, F32, a.X.Rows, -1)
	if a.Offset < 0 || a.Offset+a.Angles.Cols > a.HeadDim {
		c.fail("offset %d + rope %d exceeds head size %d", a.Offset, a.Angles.Cols, a.HeadDim)
	}
	if a.Pairing != Interleaved && a.Pairing != HalfSplit {
		c.fail("unknown %v", a.Pairing)
	}
	return c.err
}
