package formula

import (
	"fmt"
	"math"
	"time"

	"sparrow/internal/attn"
	"sparrow/internal/attn/mla"
	"sparrow/internal/device/host"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/sample"
)

// blocks holds the inputs and outputs of a pass.
type blocks struct {
	plan *plan.Plan
	in   attn.Inputs
	out  *model.Outputs
}

func (b *blocks) take(c *config.Config, p *plan.Plan, a *kernel.Arena) {
	b.plan, b.in = p, attn.TakeInputs(p, a)
	b.out = model.TakeOutputs(p, a, b.in, kernel.F32, model.Widths{Vocab: c.Vocab, Hidden: c.Hidden})
}

// Inputs returns the input block.
func (b *blocks) Inputs() kernel.Tensor { return b.in.Block }

// Outputs returns the output block.
func (b *blocks) Outputs() *model.Outputs { return b.out }

// array returns a named array of the input block.
func (b *blocks) array(name plan.ArrayName) []int32 { return host.I32(b.in.Array(name)) }

// decodes returns the number of rows that decode or verify drafts.
func (b *blocks) decodes() (n int) {
	for i := range b.plan.Segments {
		if s := &b.plan.Segments[i]; s.Row.DecodeLike() {
			n += s.Rows
		}
	}
	return n
}

// fillOutputs writes the results of the requested rows. fill computes the logits of row r; row is a buffer for them.
func (b *blocks) fillOutputs(row []float32, dev *Device, fill func(r int32, to []float32)) {
	whole, at := host.F32(b.out.Logits), 0
	var values, sums []float32
	var ids []int32
	if b.out.Best.Values.Given() {
		values, ids, sums = host.F32(b.out.Best.Values), host.I32(b.out.Best.IDs), host.F32(b.out.Best.LogSum)
	}
	wanted, draws := b.array(plan.WholeRows), b.array(plan.Draws)
	for i, r := range b.array(plan.LogitRows) {
		fill(r, row)
		if dev.nan {
			for v := range row {
				row[v] = float32(math.NaN())
			}
		}
		if values != nil {
			ids[i], values[i], sums[i] = best(row)
			if len(draws) > 0 {
				ids[i] = dev.sampler(len(row)).Choose(row, ids[i], sample.Drawn(draws[i*sample.DrawWords:]))
			}
		}
		if values == nil || at < len(wanted) && int(wanted[at]) == i {
			copy(whole[at*len(row):], row)
			at++
		}
	}
}

// pass is a pass of Model or of its drafting layer.
type pass struct {
	blocks
	m    *Model
	work *workspace
	attn *mla.Pass
	walk []walk    // [requests] rows read so far
	slot [][]int32 // [requests] slots of the rows read so far, if there is a script
	hash []uint64  // hashes after the rows of a draft pass

	program divided
}

// walk is the state of reading the rows of a request.
type walk struct {
	next int // next position to read
	hash uint64
}

// Prepare fills the input block as package dsa does.
func (s *pass) Prepare(in *model.Input, words []int32) error {
	m := s.m
	if err := m.dev.try(OpPrepare); err != nil {
		return err
	}
	block := attn.NewBlock(s.plan, words)
	if err := in.Batch.CheckPages(m.pages); err != nil {
		return err
	}
	if err := in.FillTokens(block.Array(plan.TokenIDs), m.config.Vocab); err != nil {
		return err
	}
	if err := s.attn.Prepare(&in.Batch, block); err != nil {
		return err
	}
	if s.plan.Pass == plan.PassTarget {
		s.work.target.rows = 0
	} else if err := fillHidden(in, block, s.source().rows); err != nil {
		return err
	}
	return block.FillLogits(&in.Batch)
}

// fillHidden writes the rows whose hidden states a draft pass continues from.
func fillHidden(in *model.Input, block attn.Block, rows int) error {
	to := block.Array(plan.HiddenRows)
	return in.Rows(func(r attn.Row) (err error) {
		to[r.Index], err = in.HiddenRow(r.Request, r.Token, rows)
		return err
	})
}

// source returns the hashes that a draft pass continues from.
func (s *pass) source() *residual {
	if s.plan.Pass == plan.PassDraft {
		return &s.work.target
	}
	return &s.work.chain
}

// Program returns the program that stores rows and computes hashes and logits. After a fault, some rows are stored with
// wrong contents.
func (s *pass) Program() (kernel.Program, error) {
	if s.program.dev == nil {
		s.program = divided{dev: s.m.dev, begin: s.store, end: s.compute, whole: s.plan.Pass != plan.PassTarget}
	}
	return &s.program, nil
}

// store stores marks and returns the time of the pass.
func (s *pass) store() (time.Duration, error) {
	m := s.m
	tokens, slots, positions := s.array(plan.TokenIDs), s.array(plan.Slots), s.array(plan.Positions)
	to := m.marks
	switch s.plan.Pass {
	case plan.PassTarget:
	case plan.PassPick: // the previous pass has stored the rows
		slots = nil
		if err := m.dev.try(OpExecute); err != nil {
			return 0, err
		}
	default:
		to = m.draftMarks
	}
	for i, slot := range slots {
		to[slot] = ^uint64(0)
		if i == len(slots)/2 {
			if err := m.dev.try(OpExecute); err != nil {
				return 0, err
			}
		}
	}
	for i, slot := range slots {
		to[slot] = mark(tokens[i], int(positions[i]))
		if m.script != nil && s.plan.Pass == plan.PassTarget {
			m.tokens[slot] = tokens[i]
		}
	}
	if s.plan.Pass != plan.PassTarget {
		n := len(s.array(plan.HiddenRows))
		return m.dev.cost.of(n, n, 0) / draftCost, nil
	}
	keys := 0
	for _, n := range s.array(plan.Lengths) {
		keys += int(n)
	}
	return m.dev.cost.of(s.plan.Rows, s.decodes(), keys), nil
}

// compute computes the results of the requested rows.
func (s *pass) compute() error {
	m, hash := s.m, s.work.target.hash
	if s.plan.Pass != plan.PassTarget {
		s.draft(s.array(plan.TokenIDs), s.array(plan.Positions))
		hash = s.work.chain.hash
	} else if err := s.read(); err != nil {
		return err
	}
	s.fillOutputs(m.logits, m.dev, func(r int32, to []float32) {
		h := hash[r]
		if s.plan.Pass != plan.PassTarget {
			h = doubt(h)
		}
		if m.script != nil {
			fillOne(to, m.script(h, func() []int32 { return s.sequence(r) }))
			return
		}
		fillLogits(to, h)
	})
	return nil
}

// sequence returns the tokens up to row r, as stored in the cache.
func (s *pass) sequence(r int32) []int32 {
	slots := s.slot[s.array(plan.RowRequests)[r]][:s.array(plan.Lengths)[r]]
	list := make([]int32, len(slots))
	for i, slot := range slots {
		list[i] = s.m.tokens[slot]
	}
	return list
}

// draft computes, for every row, the prediction of the next token.
func (s *pass) draft(tokens, positions []int32) {
	from, rows := s.source().hash, s.array(plan.HiddenRows)
	s.hash = s.hash[:0] // in a chain from is this memory, and each hash is replaced after it was read
	for i, r := range rows {
		h := from[r]
		if s.plan.Pass != plan.PassPick {
			h = after(h, mark(tokens[i], int(positions[i])+1))
		}
		s.hash = append(s.hash, h)
	}
	copy(s.work.chain.hash, s.hash)
}

// draftCost is the ratio of the cost of a target pass to that of a draft pass.
const draftCost = 8

// doubt returns h, or for a third of all values another hash, so that a third of the drafts is wrong.
func doubt(h uint64) uint64 {
	if mix(h)%3 == 0 {
		return ^h
	}
	return h
}

// read computes the hash after every row from the marks in the cache.
func (s *pass) read() error {
	lens, requests := s.array(plan.Lengths), s.array(plan.RowRequests)
	start, gather := s.array(plan.GatherStart), s.array(plan.GatherSlots)
	table := s.array(plan.PageTable)
	s.walk = append(s.walk[:0], make([]walk, s.plan.Requests)...)
	s.slot = append(s.slot[:0], make([][]int32, s.plan.Requests)...)
	for i := range s.plan.Segments {
		g := &s.plan.Segments[i]
		for j := range g.Launches {
			l := &g.Launches[j]
			first, last := attn.LaunchRows(g, l)
			for r := first; r < last; r++ {
				q := int(requests[r])
				place := func(p int) int32 {
					return table[q*s.plan.TablePages+p/s.m.pageTokens]*int32(s.m.pageTokens) + int32(p%s.m.pageTokens)
				}
				if g.Form == plan.FormDenseMHA {
					list := gather[l.Gather.First:l.Gather.End()]
					place = func(p int) int32 { return list[int(start[r])+p] }
				}
				n := int(lens[r])
				w := &s.walk[q]
				if s.m.plain {
					*w = walk{next: n - 1}
				} else if w.next > n {
					*w, s.slot[q] = walk{}, s.slot[q][:0]
				}
				for ; w.next < n; w.next++ {
					slot := place(w.next)
					if slot < 0 || int(slot) >= len(s.m.marks) {
						return fmt.Errorf("%w: slot %d is outside the %d slots", kernel.ErrArgument, slot,
							len(s.m.marks))
					}
					w.hash = after(w.hash, s.m.marks[slot])
					if s.m.script != nil {
						s.slot[q] = append(s.slot[q], slot)
					}
				}
				s.work.target.hash[r] = w.hash
			}
		}
	}
	return nil
}

// Ended makes the rows of this pass available to draft passes, unless it has failed.
func (s *pass) Ended(err error) {
	if err != nil {
		return
	}
	if s.plan.Pass == plan.PassTarget {
		s.work.target.rows = s.plan.Rows
	} else {
		s.work.chain.rows = s.plan.Rows
	}
}
