package step_test

import (
	"errors"
	"math"
	"slices"

	"sparrow/internal/model"
	"sparrow/kernel"
	"sparrow/plan"
)

// recordModel is a model whose passes are recorded. It must have been loaded on the recording device. It is Stateful
// and a Drafter; for models that are not, there is nothing to commit and the drafting layer is missing.
//
// Before every Prepare, the input block is filled with a number that no array contains: if it remains in an array, or
// is overwritten outside, that is a fault. When the operations are enqueued, which is right after the block was copied
// to the device, the block is overwritten.
type recordModel struct {
	model.Model
	dev    *recordDevice
	Passes []recordPass
	count  int32 // of blocks, each filled with a number of its own
}

// recordPass lists the operations that one pass enqueued.
type recordPass struct {
	Plan  *plan.Plan
	Calls []string
	Ops   []kernel.Op
	Block []int32 // its input block as it was filled
}

// Fail is called before every operation of a pass and decides whether it fails; nil lets all of them succeed.
func (m *recordModel) Fail(ask func(op string) error) { m.dev.fail = ask }

// Dry reports that operations are only recorded and not run: the operations of a pass do not depend on results.
func (m *recordModel) Dry(dry bool) { m.dev.dry = dry }

// Check fails a test for every broken rule.
func (m *recordModel) Check(t interface{ Error(...any) }) {
	for _, f := range m.dev.faults {
		t.Error(f)
	}
}

// Bind makes a workspace whose passes are recorded.
func (m *recordModel) Bind(a *kernel.Arena, rows int) model.Workspace {
	return recordWorkspace{m.Model.Bind(a, rows), m}
}

type recordWorkspace struct {
	model.Workspace
	m *recordModel
}

// Arrange lays out a pass that is recorded.
func (w recordWorkspace) Arrange(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (model.Pass, error) {
	inner, err := w.Workspace.Arrange(p, cfg, a)
	return &recordingPass{Pass: inner, m: w.m, plan: p}, err
}

// DraftHead reports whether there is a drafting layer.
func (m *recordModel) DraftHead() error {
	if d, ok := m.Model.(model.Drafter); ok {
		return d.DraftHead()
	}
	return errors.New("this family has no drafting layer")
}

// The runner uses these two interfaces where a model has them.
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

// NewState makes a state; it is nil for models that have none.
func (m *recordModel) NewState() (model.State, error) {
	if s, ok := m.Model.(model.Stateful); ok {
		return s.NewState()
	}
	return nil, nil
}

// Commit moves the states of a batch on.
func (m *recordModel) Commit(in *model.Input) {
	if s, ok := m.Model.(model.Stateful); ok {
		s.Commit(in)
	}
}

// recordingPass is one pass that is recorded.
type recordingPass struct {
	model.Pass
	m     *recordModel
	plan  *plan.Plan
	block []int32
	input []int32 // the same before it is overwritten
}

// Prepare fills the block and looks for words that it forgot.
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

// outside checks the words between arrays.
func (p *recordingPass) outside(words []int32, unset int32) {
	if slices.ContainsFunc(words, func(w int32) bool { return w != unset }) {
		p.m.dev.fault("%v: something was filled outside the plan's arrays", p.plan.Mode)
	}
}

// Program records the operations that are enqueued.
func (p *recordingPass) Program() (kernel.Program, error) {
	program, err := p.Pass.Program()
	return recordedProgram{program, p}, err
}

// recordedProgram is the program of a pass that is recorded as a whole.
type recordedProgram struct {
	kernel.Program
	p *recordingPass
}

// Run records the operations that are enqueued.
func (r recordedProgram) Run(from, to int) error {
	p := r.p
	for i := range p.block { // with other numbers for every pass, so that a branch on them shows
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
