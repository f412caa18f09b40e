package record

import (
	"errors"
	"math"
	"slices"

	"sparrow/internal/model"
	"sparrow/kernel"
	"sparrow/plan"
)

// Model is a model whose passes are recorded. It must have been loaded on the recording device. It is Stateful and a
// Drafter; for models that are not, there is nothing to commit and the drafting layer is missing.
//
// Before every Prepare, the input block is filled with a number that no array contains: if it remains in an array, or
// is overwritten outside, that is a fault. When the operations are enqueued, which is right after the block was copied
// to the device, the block is overwritten.
type Model struct {
	model.Model
	dev    *Device
	Passes []Pass
	count  int32 // of blocks, each filled with a number of its own
}

// Pass lists the operations that one pass enqueued.
type Pass struct {
	Plan  *plan.Plan
	Calls []string
	Ops   []kernel.Op
	Block []int32 // its input block as it was filled
}

// Fail is called before every operation of a pass and decides whether it fails; nil lets all of them succeed.
func (m *Model) Fail(ask func(op string) error) { m.dev.fail = ask }

// Dry reports that operations are only recorded and not run: the operations of a pass do not depend on results.
func (m *Model) Dry(dry bool) { m.dev.dry = dry }

// Wrap records the passes of a model on a device.
func Wrap(m model.Model, d *Device) *Model { return &Model{Model: m, dev: d} }

// Check fails a test for every broken rule.
func (m *Model) Check(t interface{ Error(...any) }) {
	for _, f := range m.dev.Faults {
		t.Error(f)
	}
}

// Bind makes a workspace whose passes are recorded.
func (m *Model) Bind(a *kernel.Arena, rows int) model.Workspace {
	return workspace{m.Model.Bind(a, rows), m}
}

type workspace struct {
	model.Workspace
	m *Model
}

// Arrange lays out a pass that is recorded.
func (w workspace) Arrange(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (model.Pass, error) {
	inner, err := w.Workspace.Arrange(p, cfg, a)
	return &pass{Pass: inner, m: w.m, plan: p}, err
}

// DraftHead reports whether there is a drafting layer.
func (m *Model) DraftHead() error {
	if d, ok := m.Model.(model.Drafter); ok {
		return d.DraftHead()
	}
	return errors.New("this family has no drafting layer")
}

// The runner uses these two interfaces where a model has them.
var (
	_ model.Stateful = (*Model)(nil)
	_ model.Drafter  = (*Model)(nil)
)

// Reserve allocates the memory of states.
func (m *Model) Reserve(states int) error {
	if s, ok := m.Model.(model.Stateful); ok {
		return s.Reserve(states)
	}
	return nil
}

// NewState makes a state; it is nil for models that have none.
func (m *Model) NewState() (model.State, error) {
	if s, ok := m.Model.(model.Stateful); ok {
		return s.NewState()
	}
	return nil, nil
}

// Commit moves the states of a batch on.
func (m *Model) Commit(in *model.Input) {
	if s, ok := m.Model.(model.Stateful); ok {
		s.Commit(in)
	}
}

// pass is one pass that is recorded.
type pass struct {
	model.Pass
	m     *Model
	plan  *plan.Plan
	block []int32
	input []int32 // the same before it is overwritten
}

// Prepare fills the block and looks for words that it forgot.
func (p *pass) Prepare(in *model.Input, block []int32) error {
	p.m.count++
	unset := math.MinInt32 + p.m.count
	for i := range block {
		block[i] = unset
	}
	p.block = block
	err := p.Pass.Prepare(in, block)
	if err != nil {
		return err
	}
	p.input = slices.Clone(block)
	end := 0
	for _, a := range p.plan.Inputs {
		p.outside(block[end:a.First], unset)
		end = a.First + a.Words()
		if i := slices.Index(block[a.First:end], unset); i >= 0 {
			p.m.dev.fault("%v: word %d of %v [%d, %d] was not filled", p.plan.Mode, i, a.Name, a.Rows, a.Cols)
		}
	}
	p.outside(block[end:], unset)
	return nil
}

// outside checks the words between arrays.
func (p *pass) outside(words []int32, unset int32) {
	if slices.ContainsFunc(words, func(w int32) bool { return w != unset }) {
		p.m.dev.fault("%v: something was filled outside the plan's arrays", p.plan.Mode)
	}
}

// Program records the operations that are enqueued.
func (p *pass) Program() (kernel.Program, error) {
	program, err := p.Pass.Program()
	return recorded{program, p}, err
}

// recorded is the program of a pass that is recorded as a whole.
type recorded struct {
	kernel.Program
	p *pass
}

// Run records the operations that are enqueued.
func (r recorded) Run(from, to int) error {
	p := r.p
	for i := range p.block { // with other numbers for every pass, so that a branch on them shows
		p.block[i] = (int32(i) + 7919*p.m.count) % 211
	}
	d := p.m.dev
	d.begin()
	d.note("inputs ", p.Inputs())
	d.note("outputs ", *p.Outputs())
	err := r.Program.Run(from, to)
	p.m.Passes = append(p.m.Passes, Pass{Plan: p.plan, Calls: d.end(), Ops: d.ops, Block: p.input})
	return err
}
