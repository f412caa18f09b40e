package step_test

import (
	"errors"
	"math"
	"slices"

	"sparrow/internal/model"
	"sparrow/kernel"
	"sparrow/plan"
)

// recordModel is a model whose passes are recorded. It must have been loaded on the recording device. It implements
// Stateful and Drafter. For a model without states Commit does nothing, and for a model without a drafting layer
// DraftHead returns an error.
//
// Before every Prepare, the input block is filled with a number that no array contains: a fault is recorded if the
// number remains in an array or is overwritten outside of all arrays. The block is overwritten when the operations are
// enqueued, right after it was copied to the device.
type recordModel struct {
	model.Model
	dev    *recordDevice
	Passes []recordPass
	count  int32 // number of input blocks so far; each block is filled with its own number
}

// recordPass lists the operations that one pass enqueued.
type recordPass struct {
	Plan  *plan.Plan
	Calls []string
	Ops   []kernel.Op
	Block []int32 // input block as Prepare filled it
}

// Fail sets the function that is called before every operation of a pass and decides whether the operation fails. If it
// is nil, all operations succeed.
func (m *recordModel) Fail(ask func(op string) error) { m.dev.fail = ask }

// Dry makes passes only record operations and not run them, with text or without. The operations of a pass do not
// depend on results.
func (m *recordModel) Dry(text bool) { m.dev.dry, m.dev.mute = true, !text }

// Check fails the test with each recorded fault.
func (m *recordModel) Check(t interface{ Error(...any) }) {
	for _, f := range m.dev.faults {
		t.Error(f)
	}
}

// Bind returns a workspace whose passes are recorded.
func (m *recordModel) Bind(a *kernel.Arena, rows int) model.Workspace {
	return recordWorkspace{m.Model.Bind(a, rows), m}
}

type recordWorkspace struct {
	model.Workspace
	m *recordModel
}

// Arrange returns a pass whose operations are recorded.
func (w recordWorkspace) Arrange(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (model.Pass, error) {
	inner, err := w.Workspace.Arrange(p, cfg, a)
	return &recordingPass{Pass: inner, m: w.m, plan: p}, err
}

// DraftHead returns an error if the model has no drafting layer.
func (m *recordModel) DraftHead() error {
	if d, ok := m.Model.(model.Drafter); ok {
		return d.DraftHead()
	}
	return errors.New("this family has no drafting layer")
}

// The runner checks whether a model implements these two interfaces.
var (
	_ model.Stateful = (*recordModel)(nil)
	_ model.Drafter  = (*recordModel)(nil)
)

// Reserve allocates the memory of states.
func (m *recordModel) Reserve(states int) error {
	if s, ok := m.Model.(model.Stateful); ok {
		return s.Reserve(states)
	}
	return nil
}

// NewState returns a new state, or nil if the model has no states.
func (m *recordModel) NewState() (model.State, error) {
	if s, ok := m.Model.(model.Stateful); ok {
		return s.NewState()
	}
	return nil, nil
}

// Commit advances the states of a batch.
func (m *recordModel) Commit(in *model.Input) {
	if s, ok := m.Model.(model.Stateful); ok {
		s.Commit(in)
	}
}

// recordingPass records the operations of one pass.
type recordingPass struct {
	model.Pass
	m     *recordModel
	plan  *plan.Plan
	block []int32
	input []int32 // copy of the input block before it is overwritten
}

// Prepare fills the input block and records a fault if a word of an array is not set.
func (p *recordingPass) Prepare(in *model.Input, block []int32) error {
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

// outside records a fault if a word between arrays was written.
func (p *recordingPass) outside(words []int32, unset int32) {
	if slices.ContainsFunc(words, func(w int32) bool { return w != unset }) {
		p.m.dev.fault("%v: a word outside the plan's arrays was written", p.plan.Mode)
	}
}

// Program returns the program of the pass, whose operations are recorded.
func (p *recordingPass) Program() (kernel.Program, error) {
	program, err := p.Pass.Program()
	return recordedProgram{program, p}, err
}

// recordedProgram records all operations of the program of a pass.
type recordedProgram struct {
	kernel.Program
	p *recordingPass
}

// Run enqueues a part of the program and records its operations.
func (r recordedProgram) Run(from, to int) error {
	p := r.p
	// Every pass overwrites the block with other numbers, so that a branch that reads it gives different operations.
	for i := range p.block {
		p.block[i] = (int32(i) + 7919*p.m.count) % 211
	}
	d := p.m.dev
	d.begin()
	d.note("inputs ", p.Inputs())
	d.note("outputs ", *p.Outputs())
	err := r.Program.Run(from, to)
	p.m.Passes = append(p.m.Passes, recordPass{Plan: p.plan, Calls: d.end(), Ops: d.ops, Block: p.input})
	return err
}
