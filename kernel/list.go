package kernel

import "fmt"

// List holds the operations of a pass, in order.
type List []Step

// Step is an operation with its position in a pass: a stage of a layer, or a stage outside the layers if Layer is
// negative.
type Step struct {
	Op    Op
	Stage string
	Layer int
	mark  Mark // mark of the stage
}

// failed adds the stage and layer of the step to an error.
func (s *Step) failed(err error) error {
	switch {
	case s.Stage == "":
		return err
	case s.Layer < 0:
		return fmt.Errorf("%s: %w", s.Stage, err)
	}
	return fmt.Errorf("%s of layer %d: %w", s.Stage, s.Layer, err)
}

// Program is a list of operations that was compiled for a device. It can run repeatedly, on the same memory.
type Program interface {
	// Len returns the number of parts of the program.
	Len() int
	// Run enqueues the parts from up to, but not including, to, in order. It reads no host data, allocates nothing and
	// does not wait, so that it can be captured. Between two calls other programs may run if they do not write memory
	// that this program reads.
	Run(from, to int) error
}

// Builder makes lists of operations for one device. It keeps the first error, so the code of a pass checks for errors
// only once, at its end. One goroutine uses it; only Place may be called by other goroutines.
type Builder struct {
	dev   Device
	ranks Member
	place progress
	list  List
	at    Step // stage and layer of the operations that are added
	err   error
}

// NewBuilder makes a builder for a device with the given index among the ranks. Lists of a device that runs alone
// contain no collective operations.
func NewBuilder(dev Device, ranks Member) *Builder {
	b := &Builder{dev: dev, ranks: ranks}
	b.place.mark, _ = dev.(Marker)
	b.At("", -1)
	return b
}

// Ranks returns the device's index among the ranks.
func (b *Builder) Ranks() Member { return b.ranks }

// First reports whether the device is the first rank, or runs alone. Before an all-reduce, rows that all ranks have
// must enter the sum once: the first rank adds its part of the sum to them, and the other ranks overwrite them with
// their parts.
func (b *Builder) First() bool { return b.ranks.Rank == 0 }

// At sets the stage of the following operations: a stage of a layer, or a stage outside the layers if layer is
// negative.
func (b *Builder) At(stage string, layer int) {
	b.at = Step{Stage: stage, Layer: layer, mark: b.place.number(stage, layer)}
}

// Add appends an operation. It skips operations of several ranks on a device that runs alone, and PostArgs on a device
// that is not an ExpertPoster.
func (b *Builder) Add(op Op) {
	switch op.(type) {
	case shared:
		if b.ranks.Count() == 1 {
			return
		}
	case PostArgs:
		if _, ok := b.dev.(ExpertPoster); !ok {
			return
		}
	}
	if b.err != nil {
		return
	}
	b.Fail(op.Check())
	step := b.at
	step.Op = op
	b.list = append(b.list, step)
	b.place.has(step.mark, op)
}

// Fail records an error for the current list, unless one is recorded already.
func (b *Builder) Fail(err error) {
	if b.err == nil && err != nil {
		b.err = b.at.failed(err)
	}
}

// List returns the added operations, or the first error, and begins the next list.
func (b *Builder) List() (List, error) {
	list, err := b.list, b.err
	b.list, b.err = nil, nil
	b.At("", -1)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Compile makes a program of the added operations, and begins the next list.
func (b *Builder) Compile() (Program, error) {
	list, err := b.List()
	if err != nil {
		return nil, err
	}
	return &interpreter{b, list}, nil
}

// Run compiles and runs the operations that were added.
func (b *Builder) Run() error {
	p, err := b.Compile()
	if err != nil {
		return err
	}
	return p.Run(0, p.Len())
}

// interpreter is the Program that runs a list operation by operation.
type interpreter struct {
	of   *Builder
	list List
}

func (p *interpreter) Len() int { return len(p.list) }

// Run enqueues the operations from up to, but not including, to.
func (p *interpreter) Run(from, to int) error {
	for i := range p.list[from:to] {
		s := &p.list[from+i]
		err := p.of.begin(s)
		if err == nil {
			err = p.of.carryOut(s.Op)
		}
		if err != nil {
			return s.failed(err)
		}
	}
	return nil
}

// begin records that an operation is about to be enqueued.
func (b *Builder) begin(s *Step) error {
	if b.ranks.Beats != nil {
		b.ranks.Beats.Add(1)
	}
	return b.place.begin(s)
}

// carryOut enqueues an operation on the device or, for an operation of several ranks, on its Collective.
func (b *Builder) carryOut(op Op) error {
	if c, ok := op.(shared); ok {
		return c.among(b.ranks.Comm)
	}
	return b.dev.Do(op)
}
