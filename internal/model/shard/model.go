// Package shard combines the parts of a model on several ranks to one model.
//
// The inputs are models of the same checkpoint, each loaded with the shards of one rank; the output is a model.Model
// whose passes run on all ranks in parallel. Pages and states have the same numbers on all ranks.
package shard

import (
	"fmt"
	"slices"
	"strings"

	"sparrow/internal/device/group"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/usage"
	"sparrow/kernel"
	"sparrow/plan"
)

// part is the interface of a rank's model, in every family.
type part interface {
	model.Model
	model.Drafter
	model.Placer
	model.Paged
	model.ExpertCounter
	Pools() [][]kernel.Pool
}

// ranks holds the parts of a model.
type ranks struct {
	group *group.Group
	parts []part
	// Numbers of pages and window pages of each rank, if ranks divide attention by requests: rank r has the pages from
	// r*pages on, and the window pages from r*windows on. Otherwise all ranks have all pages.
	pages, windows int
}

// byRequests reports whether each rank has its own pages.
func (m *ranks) byRequests() bool {
	facts := m.parts[0].Facts()
	return facts.ByRequests()
}

// New returns the model with the given parts, one for each rank of a group.
func New(g *group.Group, list []model.Model) (model.Model, error) {
	m := ranks{group: g}
	for i, x := range list {
		p, ok := x.(part)
		if !ok {
			return nil, fmt.Errorf("shard: models of family %s are not supported on several ranks; use "+
				"one", x.Config().Family)
		}
		m.parts = append(m.parts, p)
		if got := p.Facts().Ranks; got != len(list) || len(list) != g.Ranks() {
			return nil, fmt.Errorf("shard: part %d was loaded for %d ranks, but there are %d parts and %d ranks", i,
				got, len(list), g.Ranks())
		}
	}
	if _, ok := list[0].(model.Windowed); ok {
		return &windowed{ranks: m}, nil
	}
	if _, ok := list[0].(model.SelfTester); ok {
		return &tested{m}, nil
	}
	return &m, nil
}

func (m *ranks) Config() *config.Config { return m.parts[0].Config() }

// Facts returns the properties of a rank's part that plans depend on.
func (m *ranks) Facts() plan.Model { return m.parts[0].Facts() }

func (m *ranks) Device() kernel.Machine { return m.group.Machine() }

// Allocate makes the cache of every rank, each with the given number of pages.
func (m *ranks) Allocate(cfg *plan.Config, pages int) error {
	m.pages, m.windows = pages, pages
	return m.each(func(p part) error { return p.Allocate(cfg, pages) })
}

// each calls f with every part, up to the first error.
func (m *ranks) each(f func(part) error) error {
	for i, p := range m.parts {
		if err := f(p); err != nil {
			return fmt.Errorf("rank %d of %d: %w", i, len(m.parts), err)
		}
	}
	return nil
}

// PageBytes returns the size in bytes of a page on each rank.
func (m *ranks) PageBytes(cfg *plan.Config) int64 { return m.parts[0].PageBytes(cfg) }

// Bind allocates memory on every rank, at the same offsets.
func (m *ranks) Bind(a *kernel.Arena, rows int) model.Workspace {
	w := &workspace{m: m}
	begin := *a
	for i, p := range m.parts {
		own := begin.Over(group.Of(a.Buffer(), i))
		w.parts = append(w.parts, p.Bind(own, rows))
		a.Follow(own)
	}
	return w
}

// workspace holds a workspace for every rank.
type workspace struct {
	m     *ranks
	parts []model.Workspace
}

// DraftHead returns nil if the checkpoint has a drafting layer.
func (m *ranks) DraftHead() error { return m.parts[0].DraftHead() }

// CountExperts enables counting on the first rank, because every rank chooses the same experts.
func (m *ranks) CountExperts() error { return m.parts[0].CountExperts() }

// ReadExperts adds the counts of the first rank since the previous call.
func (m *ranks) ReadExperts(to *usage.Table) error { return m.parts[0].ReadExperts(to) }

// Place returns the current operation of the pass in progress on every rank.
func (m *ranks) Place() string {
	var list []string
	for i, p := range m.parts {
		list = append(list, fmt.Sprintf("rank %d: %s", i, p.Place()))
	}
	return strings.Join(list, "; ")
}

// PageParts appends the tensors of a page: those of all ranks, or of the rank that has the page.
func (m *ranks) PageParts(parts []kernel.Tensor, page int) []kernel.Tensor {
	if m.byRequests() {
		return m.alone(parts, page/m.pages, m.parts[page/m.pages].PageParts(nil, page%m.pages))
	}
	return m.joined(parts, func(p part) []kernel.Tensor { return p.PageParts(nil, page) })
}

// WindowParts appends the tensors of a window page: those of all ranks, or of the rank that has the page.
func (m *ranks) WindowParts(parts []kernel.Tensor, window int) []kernel.Tensor {
	if m.byRequests() {
		return m.alone(parts, window/m.windows, m.parts[window/m.windows].WindowParts(nil, window%m.windows))
	}
	return m.joined(parts, func(p part) []kernel.Tensor { return p.WindowParts(nil, window) })
}

// alone appends tensors that only one rank has.
func (m *ranks) alone(to []kernel.Tensor, rank int, list []kernel.Tensor) []kernel.Tensor {
	for _, t := range list {
		t.Buf = group.Alone(rank, t.Buf)
		to = append(to, t)
	}
	return to
}

// joined appends tensors that every rank has at the same offsets.
func (m *ranks) joined(to []kernel.Tensor, of func(part) []kernel.Tensor) []kernel.Tensor {
	lists := make([][]kernel.Tensor, len(m.parts))
	for i, p := range m.parts {
		lists[i] = of(p)
	}
	for i, t := range lists[0] {
		all := make([]kernel.Buffer, len(lists))
		for r := range lists {
			all[r] = lists[r][i].Buf
		}
		t.Buf = group.Join(all)
		to = append(to, t)
	}
	return to
}

// Pools returns the pools of every layer, each as a tensor of all ranks.
func (m *ranks) Pools() [][]kernel.Pool {
	all := make([][][]kernel.Pool, len(m.parts))
	for i, p := range m.parts {
		all[i] = p.Pools()
	}
	for l, pools := range all[0] {
		for i := range pools {
			list := make([]kernel.Buffer, len(all))
			for r := range all {
				list[r] = all[r][l][i].Mem.Buf
			}
			pools[i].Mem.Buf = group.Join(list)
		}
	}
	return all[0]
}

// tested is a model whose parts can test themselves.
type tested struct{ ranks }

// SelfTest runs the self-tests of all parts in parallel.
func (m *tested) SelfTest(cfg *plan.Config) error {
	return m.group.Do(func(rank int) error { return m.parts[rank].(model.SelfTester).SelfTest(cfg) })
}

// pass holds a pass for every rank.
type pass struct {
	m        *ranks
	parts    []model.Pass
	inputs   kernel.Tensor
	outputs  model.Outputs
	programs []kernel.Program
	execute  func(rank int) error
	block    []int32 // input block that ranks other than the first fill
	in       model.Input
	local    local
}

// local holds the page tables of a batch with page numbers relative to the first page of the request's rank.
type local struct {
	input           model.Input
	tables, windows [][]int32
	memory          []int32
}

// of converts the page numbers in tables to numbers relative to the first page of each request's rank, r*each for rank
// r.
func (l *local) of(to, tables [][]int32, b *plan.Batch, each int) [][]int32 {
	to = to[:0]
	for i, t := range tables {
		if t == nil || i >= len(b.Requests) || b.Requests[i].Rank == 0 {
			to = append(to, t)
			continue
		}
		first, at := int32(b.Requests[i].Rank*each), len(l.memory)
		for _, page := range t {
			if page >= 0 { // negative means none
				page -= first
			}
			l.memory = append(l.memory, page)
		}
		to = append(to, l.memory[at:len(l.memory):len(l.memory)])
	}
	return to
}

// Arrange takes the tensors of a pass from the arena of every rank, at the same offsets.
func (w *workspace) Arrange(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (model.Pass, error) {
	out := &pass{m: w.m, block: make([]int32, p.InputWords), programs: make([]kernel.Program, len(w.parts))}
	out.execute = func(rank int) error {
		program := out.programs[rank]
		return program.Run(0, program.Len())
	}
	begin := *a
	for i, part := range w.parts {
		own := begin.Over(group.Of(a.Buffer(), i))
		x, err := part.Arrange(p, cfg, own)
		if err != nil {
			return nil, err
		}
		a.Follow(own)
		out.parts = append(out.parts, x)
	}
	out.inputs, out.outputs = out.parts[0].Inputs(), *out.parts[0].Outputs()
	out.inputs.Buf = a.Buffer()
	o := &out.outputs
	list := []*kernel.Tensor{&o.Block, &o.Logits, &o.Best.Values, &o.Best.IDs, &o.Best.LogSum, &o.Rows}
	o.Recorded = slices.Clone(o.Recorded)
	for i := range o.Recorded {
		r := &o.Recorded[i]
		list = append(list, &r.Hidden, &r.Selected, &r.Scores, &r.Blocks, &r.Experts, &r.Weights)
	}
	for _, t := range list {
		if t.Given() {
			t.Buf = a.Buffer()
		}
	}
	return out, nil
}

// Inputs returns the tensor of the input block, on all ranks.
func (p *pass) Inputs() kernel.Tensor { return p.inputs }

func (p *pass) Outputs() *model.Outputs { return &p.outputs }

// Prepare calls Prepare of every rank. All ranks fill the block with the same words, so one copy is written to all of
// them.
func (p *pass) Prepare(in *model.Input, block []int32) error {
	if in.Config.Model.ByRequests() {
		in = p.localise(in)
	}
	for r, part := range p.parts {
		words := block
		if r > 0 {
			words = p.block[:len(block)]
			copy(words, block) // words outside of arrays are not written by Prepare
		}
		if err := part.Prepare(p.m.input(&p.in, in, r), words); err != nil {
			return err
		}
		if !slices.Equal(words, block) {
			return fmt.Errorf("%w: the input block of rank %d differs from that of rank 0", kernel.ErrLost, r)
		}
	}
	return nil
}

// localise returns the batch with page numbers relative to the first page of each request's rank. A page of another
// rank gets an invalid number, for which models return an error.
func (p *pass) localise(in *model.Input) *model.Input {
	l := &p.local
	l.memory = l.memory[:0]
	l.tables = l.of(l.tables, in.Tables, in.Batch.Batch, p.m.pages)
	l.windows = l.of(l.windows, in.Windows, in.Batch.Batch, p.m.windows)
	l.input = *in
	l.input.Tables, l.input.Windows = l.tables, l.windows
	return &l.input
}

// input returns a copy of the batch with the states of the given rank.
func (m *ranks) input(to, in *model.Input, rank int) *model.Input {
	states := to.States[:0]
	*to = *in
	to.States = nil
	for _, s := range in.States {
		if x, ok := s.(*state); ok && x != nil {
			s = x.parts[rank]
		}
		states = append(states, s)
	}
	to.States = states
	return to
}

// Program returns the programs of all ranks as one program with a single part, because ranks may have different numbers
// of operations.
func (p *pass) Program() (kernel.Program, error) {
	for i, part := range p.parts {
		var err error
		if p.programs[i], err = part.Program(); err != nil {
			return nil, fmt.Errorf("rank %d of %d: %w", i, len(p.parts), err)
		}
	}
	return p, nil
}

// Len returns 1, because the programs of all ranks run as one part.
func (p *pass) Len() int { return 1 }

func (p *pass) Run(from, to int) error {
	if from == to {
		return nil
	}
	if err := p.m.group.Do(p.execute); err != nil || !p.m.group.Compares() {
		return err
	}
	return p.compare()
}

// compare returns an error if results differ between ranks. It does not compare selections, which are undefined for
// rows in the dense form.
func (p *pass) compare() error {
	best := &p.outputs.Best
	if err := p.same("", []kernel.Tensor{p.outputs.Logits, best.Values, best.IDs, best.LogSum},
		"logits", "best logits", "best tokens", "log-sum-exp of logits"); err != nil {
		return err
	}
	for l, r := range p.outputs.Recorded {
		if err := p.same(fmt.Sprintf("layer %d: ", l), []kernel.Tensor{r.Hidden, r.Experts, r.Weights},
			"hidden states", "experts", "weights of experts"); err != nil {
			return err
		}
	}
	return nil
}

// same returns an error that starts with where and the tensor's name if the bytes of a tensor differ between ranks.
func (p *pass) same(where string, list []kernel.Tensor, names ...string) error {
	for i, t := range list {
		if err := p.m.group.Same(t); err != nil {
			return fmt.Errorf("%s%s: %w", where, names[i], err)
		}
	}
	return nil
}

// Ended calls Ended of the passes of all ranks.
func (p *pass) Ended(err error) {
	for _, x := range p.parts {
		x.Ended(err)
	}
}
