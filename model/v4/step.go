package v4

import (
	"fmt"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/model"
	"sparrow/plan"
)

// step is one batch in the device's memory. Arrays over rows are in step order.
type step struct {
	host   hostArrays
	states []*State

	tokens, request, slots  kernel.Tensor // i32 [T, 1]
	windowLen, groups, kept kernel.Tensor // i32 [T, 1]
	heavyLen                kernel.Tensor // i32 [T, 1]
	windowBase, groupBase   kernel.Tensor // i32 [T, 1]
	heavyBase, groupStart   kernel.Tensor // i32 [T, 1]
	window                  kernel.Tensor // i32 [T, windowWidth]
	heavy                   kernel.Tensor // i32 [T, heavyWidth]
	table                   kernel.Tensor // i32 [requests, pages]
	selected                kernel.Tensor // i32 [T, K]: groups of ratio 4, as the last indexer chose them
	mainAngles, farAngles   kernel.Tensor // f32 [T, 64]
	closing4, closing128    entryTensors
	segments                []segment
	launches                []launch
	mem                     [arrayCount]kernel.Scratch
	angleMem                [4]kernel.Scratch
	selectedMem             kernel.Scratch
}

// entryTensors are entryArrays on the device.
type entryTensors struct {
	n       int
	sources kernel.Tensor // i32 [n, width]
	slots   kernel.Tensor // i32 [n, 1]
	angles  kernel.Tensor // f32 [n, 64]
	keep    kernel.Tensor // i32 [T, 1]
	tail    kernel.Tensor // i32 [T, 1], or no rows where nothing is kept
}

// segment is one segment of the plan.
type segment struct {
	plan     *plan.Segment
	launches []launch
}

// launch is one launch of a segment: step rows first to last, and what it gathers.
type launch struct {
	first, last           int
	window, groups, heavy kernel.Tensor // i32 [n, 1]: slots
	longest               int           // groups of ratio 4 of the longest row
}

// arrayCount is how many arrays begin writes.
const arrayCount = 26

func newStep(mem kernel.Memory) step {
	var s step
	for i := range s.mem {
		s.mem[i] = kernel.NewScratch(mem)
	}
	for i := range s.angleMem {
		s.angleMem[i] = kernel.NewScratch(mem)
	}
	s.selectedMem = kernel.NewScratch(mem)
	return s
}

// writer copies arrays to the device, each into scratch memory of its own, and keeps the first error.
type writer struct {
	m    *Model
	next int
	err  error
}

func (w *writer) ints(v []int32, cols int) kernel.Tensor {
	s := &w.m.step.mem[w.next]
	w.next++
	if w.err != nil {
		return kernel.Tensor{}
	}
	var t kernel.Tensor
	if t, w.err = s.Take(kernel.I32, len(v)/max(cols, 1), cols); w.err == nil {
		w.err = kernel.WriteI32(w.m.dev, t, v)
	}
	return t
}

// begin prepares a step: it lays the rows out in plan order and writes every array that no layer changes.
func (m *Model) begin(in *model.Input) (attn.Rows, error) {
	if len(in.Tables) != len(in.Batch.Requests) {
		return attn.Rows{}, plan.ErrLength("tables", len(in.Tables), len(in.Batch.Requests))
	}
	states, err := m.statesOf(in)
	if err != nil {
		return attn.Rows{}, err
	}
	st := &m.step
	h := &st.host
	if err := h.fill(in, m); err != nil {
		return attn.Rows{}, err
	}
	w := writer{m: m}
	st.tokens, st.request, st.slots = w.ints(h.token, 1), w.ints(h.request, 1), w.ints(h.slot, 1)
	st.windowLen, st.groups, st.kept, st.heavyLen = w.ints(h.windowLen, 1), w.ints(h.groups, 1), w.ints(h.kept, 1), w.ints(h.heavyLen, 1)
	st.windowBase, st.groupBase = w.ints(h.windowBase, 1), w.ints(h.groupBase, 1)
	st.heavyBase, st.groupStart = w.ints(h.heavyBase, 1), w.ints(h.groupStart, 1)
	st.window, st.heavy, st.table = w.ints(h.window, h.windowWidth), w.ints(h.heavy, h.heavyWidth), w.ints(h.table, h.width)
	place, flat := w.ints(h.position, 1), w.ints(h.flat, 1)
	st.closing4, st.closing128 = w.entries(&h.closing4, 2), w.entries(&h.closing128, 3)
	st.mainAngles = w.angles(&st.angleMem[0], place, m.freq.main)
	st.farAngles = w.angles(&st.angleMem[1], place, m.freq.far)
	if w.err == nil {
		st.selected, w.err = st.selectedMem.Take(kernel.I32, len(h.request), m.config.Indexer.TopK)
	}
	if w.err != nil {
		return attn.Rows{}, fmt.Errorf("v4: begin: %w", w.err)
	}
	m.segments(in.Plan, flat)
	// From here on rows are written: a state that fails on the way must know that its rings may hold them.
	for r, s := range states {
		s.high = max(s.high, s.len+len(in.Tokens[r]))
	}
	return attn.Rows{Request: h.request, Position: h.position}, nil
}

func (w *writer) entries(e *entryArrays, angles int) entryTensors {
	out := entryTensors{n: e.entries(), sources: w.ints(e.sources, e.width), slots: w.ints(e.slots, 1), keep: w.ints(e.keep, 1), tail: w.ints(e.tail, 1)}
	place := w.ints(e.position, 1)
	if out.n > 0 {
		out.angles = w.angles(&w.m.step.angleMem[angles], place, w.m.freq.far)
	}
	return out
}

// angles computes the rotation of each position.
func (w *writer) angles(s *kernel.Scratch, positions, freq kernel.Tensor) kernel.Tensor {
	if w.err != nil {
		return kernel.Tensor{}
	}
	var t kernel.Tensor
	if t, w.err = s.Take(kernel.F32, positions.Rows, 2*freq.Cols); w.err == nil {
		w.err = w.m.dev.Angles(kernel.AngleArgs{Out: t, Positions: positions, InvFreq: freq, Scale: 1})
	}
	return t
}

// segments cuts the gathered slots into the parts of each launch.
func (m *Model) segments(p *plan.Plan, flat kernel.Tensor) {
	st := &m.step
	st.segments, st.launches = st.segments[:0], st.launches[:0]
	for i := range st.host.marks {
		k := &st.host.marks[i]
		st.launches = append(st.launches, launch{window: flat.Slice(k.window, k.windowEnd), groups: flat.Slice(k.groups, k.groupsEnd),
			heavy: flat.Slice(k.heavy, k.heavyEnd), longest: k.longest})
	}
	at := 0
	for i := range p.Segments {
		s := &p.Segments[i]
		n := len(s.Launches)
		seg := segment{plan: s, launches: st.launches[at : at+n]}
		for j := range seg.launches {
			l := &seg.launches[j]
			l.first = s.FirstRow + s.Launches[j].FirstRow
			l.last = min(l.first+s.Launches[j].Rows, s.FirstRow+s.Rows)
		}
		st.segments = append(st.segments, seg)
		at += n
	}
}

// commit moves every state on: its sequence's rows are computed and stored.
func (m *Model) commit(in *model.Input) {
	for r, s := range m.step.states {
		s.len += len(in.Tokens[r])
	}
}
