package kernel

import "fmt"

// List is the operations of a pass, in order. Equal passes have equal lists, for any batch.
type List []Step

// Step is an operation with its position in a pass: a stage of a layer, or of no layer if Layer is negative.
type Step struct {
	Op    Op
	Stage string
	Layer int
	mark  Mark // of its stage
}

// failed states where in a pass an error happened.
func (s *Step) failed(err error) error {
	switch {
	case s.Stage == "":
		return err
	case s.Layer < 0:
		return fmt.Errorf("%s: %w", s.Stage, err)
	}
	return fmt.Errorf("%s of layer %d: %w", s.Stage, s.Layer, err)
}

// Program is a list that a device has made ready: it runs again and again over the same memory.
type Program interface {
	// Len returns the number of its parts.
	Len() int
	// Run enqueues the parts from to to, half open, in their order; none where they are equal. Running reads no host
	// data, allocates nothing and does not wait, so that it can be captured. Between two calls other programs may run
	// that do not write memory that this one reads.
	Run(from, to int) error
}

// Builder makes lists of operations for one device and keeps the first error, so that the code of a pass checks for
// an error only once, at its end. One goroutine uses it; only Place may be called by others.
type Builder struct {
	dev   Device
	ranks Member
	place progress
	list  List
	at    Step // stage and layer of the operations that are added
	err   error
}

// NewBuilder makes a builder of lists for a device, and its index among ranks: lists of a device that runs alone have
// no operations of several ranks.
func NewBuilder(dev Device, ranks Member) *Builder {
	b := &Builder{dev: dev, ranks: ranks}
	b.place.mark, _ = dev.(Marker)
	b.At("", -1)
	return b
}

// Ranks returns the device's index among the ranks.
func (b *Builder) Ranks() Member { return b.ranks }

// First reports whether the device is the first rank, or runs alone: before AllReduceArgs the first adds its part of a
// sum to rows that all ranks hold, and the others overwrite the rows with theirs.
func (b *Builder) First() bool { return b.ranks.Rank == 0 }

// At sets the stage of the following operations: a stage of a layer, or of no layer where layer is negative.
func (b *Builder) At(stage string, layer int) {
	b.at = Step{Stage: stage, Layer: layer, mark: b.place.number(stage, layer)}
}

// Add appends an operation. Operations of several ranks are skipped on a device that runs alone, and the beginning of
// experts where the device has none in host memory.
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

// Fail stops the list with an error of the caller.
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

// interpreter runs a list operation by operation.
type interpreter struct {
	of   *Builder
	list List
}

// Len returns the number of operations.
func (p *interpreter) Len() int { return len(p.list) }

// Run carries out operations.
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

// begin notes that an operation is enqueued.
func (b *Builder) begin(s *Step) error {
	if b.ranks.Beats != nil {
		b.ranks.Beats.Add(1)
	}
	return b.place.begin(s)
}

// carryOut enqueues an operation, of the device or of all ranks.
func (b *Builder) carryOut(op Op) error {
	if c, ok := op.(shared); ok {
		return c.among(b.ranks.Comm)
	}
	return b.dev.Do(op)
}
