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

// MarkReplay is the position of a captured pass, whose stages are not marked, because a mark takes longer than the
// gap between two of its operations.
const MarkReplay Mark = 1<<32 - 1

// Marker is a device that records its progress. Its operations run later than they are enqueued, so the last enqueued
// operation does not show where a device hangs.
type Marker interface {
	// Mark enqueues a note that everything before it has run and that this stage begins. It is called before every
	// operation; an equal mark need not be noted again.
	Mark(Mark) error
	// Reached returns the latest stage that began, 0 before the first. It may be called from any goroutine, also
	// while the device does not respond.
	Reached() Mark
}

// progress is the position that was enqueued last. One goroutine writes it and any may read it.
type progress struct {
	mark   Marker // nil where the device takes no marks
	now    atomic.Pointer[Step]
	mu     sync.Mutex // guards stages
	stages []stageOps // by stage number minus one
}

// stageOps is a stage and the names of its operations so far.
type stageOps struct {
	name string
	ops  []string
}

// number returns the mark of a stage of a layer: 16 bits for the number of the stage and 16 for the layer, counted from
// 1; 0 means none.
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

// has notes an operation of a stage.
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

// begin notes that an operation is enqueued.
func (p *progress) begin(s *Step) error {
	p.now.Store(s)
	if p.mark == nil {
		return nil
	}
	return p.mark.Mark(s.mark)
}

// last describes the operation that was enqueued last: "norm in attention of layer 3".
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

// where returns a mark as text: "attention of layer 3".
func (p *progress) where(m Mark) string {
	name := p.stages[m&0xFFFF-1].name
	if layer := int(m >> 16); layer > 0 {
		name += fmt.Sprintf(" of layer %d", layer-1)
	}
	return name
}

// reached describes how far the device is: "attention of layer 3, one of norm, project".
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

// Place returns, from any goroutine, the progress of a pass: the operation that was enqueued last and, if the device
// records it, the stage that it began last.
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
