package testkit

import "sparrow/kernel"

// side is one device of a pair: the reference or the device under test.
type side struct {
	kernel.Device
	dev bool
}

func (s side) of(b both) kernel.Tensor {
	if s.dev {
		return b.dev
	}
	return b.ref
}

func (s side) pool(p pools) kernel.Pool {
	if s.dev {
		return p.dev
	}
	return p.ref
}

func (s side) weight(w weights) kernel.Matrix {
	if s.dev {
		return w.dev
	}
	return w.ref
}

// each runs an operation on the reference and then on the device under test.
func (p *pair) each(do func(s side) error) {
	p.Helper()
	p.must(do(side{p.ref, false}))
	p.must(do(side{p.dev, true}))
}

// target returns only the device under test.
func (p *pair) target() side { return side{p.dev, true} }

// exactly checks that an int tensor of the device under test has the given values.
func (p *pair) exactly(what string, t kernel.Tensor, want []int32) {
	p.Helper()
	for i, got := range p.readInts(p.dev, t) {
		if got != want[i] {
			p.Fatalf("%s: element %d,%d: got %d, want %d", what, i/t.Cols, i%t.Cols, got, want[i])
		}
	}
}
