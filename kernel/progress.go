package kernel

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Mark is a position in a pass: a stage of a layer. Only the builder that made it can decode it.
type Mark uint32

// MarkReplay is the position of a captured pass. Stages of a captured pass are not marked, because writing a mark takes
// longer than the time between two of its operations.
const MarkReplay Mark = 1<<32 - 1

// Marker is a device that records its progress. Such a device is asynchronous, so a hanging operation is not the one
// that was enqueued last.
type Marker interface {
	// Mark enqueues a record that all earlier operations have run and that this stage begins. It is called before every
	// operation; a mark equal to the previous one need not be recorded again.
	Mark(Mark) error
	// Reached returns the latest stage that has begun on the device, 0 before the first stage. Any goroutine may call
	// it, even while the device does not respond.
	Reached() Mark
}

// progress holds the position that was enqueued last. One goroutine writes it, and any goroutine may read it.
type progress struct {
	mark   Marker // nil if the device records no marks
	now    atomic.Pointer[Step]
	mu     sync.Mutex // guards stages
	stages []stageOps // index: stage number minus one
}

// stageOps holds the name of a stage and the names of its operations so far.
type stageOps struct {
	name string
	ops  []string
}

// number returns the mark of a stage of a layer: the stage number in the lower and the layer number in the upper 16
// bits, both counted from 1; 0 means none.
func (p *progress) number(stage string, layer int) Mark {
	if stage == "" {
		return 0
	}
	n := slices.IndexFunc(p.stages, func(s stageOps) bool { return s.name == stage })
	if n < 0 {
		n = len(p.stages)
		p.mu.Lock()
		p.stages = append(p.stages, stageOps{name: stage})
		p.mu.Unlock()
	}
	return Mark(n+1) | Mark(layer+1)<<16
}

// has adds the name of an operation to its stage.
func (p *progress) has(m Mark, op Op) {
	if m == 0 {
		return
	}
	if s := &p.stages[m&0xFFFF-1]; !slices.Contains(s.ops, op.Name()) {
		p.mu.Lock()
		defer p.mu.Unlock()
		s.ops = append(s.ops, op.Name())
	}
}

// begin records that an operation is being enqueued, and marks its stage on the device.
func (p *progress) begin(s *Step) error {
	p.now.Store(s)
	if p.mark == nil {
		return nil
	}
	return p.mark.Mark(s.mark)
}

// last describes the operation that was enqueued last, for example "norm in attention of layer 3".
func (p *progress) last() string {
	s := p.now.Load()
	switch {
	case s == nil:
		return "no operation"
	case s.Stage == "":
		return s.Op.Name()
	}
	return s.Op.Name() + " in " + p.where(s.mark)
}

// where returns a mark as text, for example "attention of layer 3".
func (p *progress) where(m Mark) string {
	name := p.stages[m&0xFFFF-1].name
	if layer := int(m >> 16); layer > 0 {
		name += fmt.Sprintf(" of layer %d", layer-1)
	}
	return name
}

// reached describes a mark and the operations of its stage, for example "attention of layer 3, one of norm, project".
func (p *progress) reached(m Mark) string {
	if m == MarkReplay {
		return "a captured pass, whose operations are not recorded (--no-graphs runs passes without capturing them)"
	}
	n := int(m & 0xFFFF)
	if n < 1 || n > len(p.stages) {
		return "no operation"
	}
	return p.where(m) + ", one of " + strings.Join(p.stages[n-1].ops, ", ")
}

// Place describes the progress of a pass: the operation that was enqueued last and, if the device records marks, the
// stage that it began last. Any goroutine may call it.
func (b *Builder) Place() string {
	p := &b.place
	p.mu.Lock()
	defer p.mu.Unlock()
	last := "enqueued last: " + p.last()
	if p.mark == nil {
		return last
	}
	return fmt.Sprintf("the device is in %s; %s", p.reached(p.mark.Reached()), last)
}
