package v4

import (
	"fmt"

	"sparrow/model"
	"sparrow/plan"
)

// hostArrays are a step's arrays before they are written to the device, reused from step to step. Rows are in step order: the rows of a
// segment are neighbours, and a request's rows may lie in two segments.
type hostArrays struct {
	request, position, token []int32 // one entry for each row
	slot                     []int32 // of the row's own window entry
	windowLen                []int32
	groups, kept             []int32 // of ratio 4: visible, and selected
	heavyLen                 []int32 // groups of ratio 128
	windowBase               []int32 // first row of the request in a launch's workspace
	groupBase, heavyBase     []int32 // the same of its groups, behind the window's rows
	groupStart               []int32 // first group of the request in what a launch gathers for the indexer
	window                   []int32 // [rows, windowWidth]: slots, or places in the request's part of the workspace
	heavy                    []int32 // [rows, heavyWidth]: all visible groups of ratio 128, in the same way

	windowWidth, heavyWidth int

	table   []int32 // [requests, width]
	windows []int32 // [requests, width]: window pages, negative where the window has moved on
	width   int

	rowAt   []int32 // row of each new token, request after request
	rowBase []int   // where each request's part of rowAt begins

	closing4, closing128 entryArrays // groups that close in this step, of ratio 4 and of ratio 128
	flat                 []int32     // slots to gather, launch after launch
	marks                []mark      // one for each launch
}

// mark is where a launch's share of flat lies.
type mark struct {
	window, windowEnd int
	groups, groupsEnd int // of ratio 4, for the workspace or the indexer
	heavy, heavyEnd   int
	longest           int // groups of ratio 4 of the longest row
}

func (h *hostArrays) reset(in *model.Input) {
	for _, v := range []*[]int32{&h.request, &h.position, &h.token, &h.slot, &h.windowLen, &h.groups, &h.kept, &h.heavyLen, &h.windowBase, &h.groupBase,
		&h.heavyBase, &h.groupStart, &h.window, &h.heavy, &h.table, &h.windows, &h.rowAt, &h.flat} {
		*v = (*v)[:0]
	}
	h.marks, h.rowBase = h.marks[:0], h.rowBase[:0]
	h.width = 1
	for _, t := range in.Tables {
		h.width = max(h.width, len(t))
	}
	for r, t := range in.Tables {
		h.table = append(h.table, t...)
		h.windows = append(h.windows, windowsOf(in, r)...)
		for range h.width - len(t) {
			h.table, h.windows = append(h.table, 0), append(h.windows, -1)
		}
	}
	for _, t := range in.Tokens {
		h.rowBase = append(h.rowBase, len(h.rowAt))
		for range t {
			h.rowAt = append(h.rowAt, -1)
		}
	}
}

// windowsOf are the window pages of request r, one for each of its pages.
func windowsOf(in *model.Input, r int) []int32 {
	if len(in.Windows) == 0 || in.Windows[r] == nil {
		return in.Tables[r]
	}
	return in.Windows[r]
}

// place is the slot of position p of request r in a pool with an entry for every ratio tokens.
func (h *hostArrays) place(in *model.Input, r, p, ratio int) int32 {
	page := h.table[r*h.width+p/in.PageTokens]
	return page*int32(in.PageTokens/ratio) + int32(p%in.PageTokens/ratio)
}

// windowPlace is the slot of position p of request r in the pool of window entries.
func (h *hostArrays) windowPlace(in *model.Input, r, p int) int32 {
	return h.windows[r*h.width+p/in.PageTokens]*int32(in.PageTokens) + int32(p%in.PageTokens)
}

// checkWindows: every position that the new rows of request r see has a window page.
func checkWindows(in *model.Input, r, first, last, window int) error {
	tables := windowsOf(in, r)
	if len(tables) != len(in.Tables[r]) {
		return &plan.Error{Code: plan.E22, Asked: fmt.Sprintf("request %d with %d window pages for %d pages", r, len(tables), len(in.Tables[r])), Supported: "a window page, or none, for each page"}
	}
	for i := max(first-window+1, 0) / in.PageTokens; i*in.PageTokens < last; i++ {
		if tables[i] < 0 {
			return &plan.Error{Code: plan.E22, Asked: fmt.Sprintf("request %d from position %d, whose window reaches page %d, which has no window page", r, first, i),
				Supported: "sequences that hold the window pages their new tokens see"}
		}
	}
	return nil
}

// fill computes every array of a step.
func (h *hostArrays) fill(in *model.Input, m *Model) error {
	h.reset(in)
	longest := 0
	for r, t := range in.Tokens {
		longest = max(longest, in.Batch.FirstPosition(in.Config, r)+len(t))
	}
	h.windowWidth = roundUp(m.config.Attention.Window, 64)
	h.heavyWidth = 0
	if m.uses(heavyRatio) {
		h.heavyWidth = roundUp(max(longest/heavyRatio, 1), 64)
	}
	for i := range in.Plan.Segments {
		s := &in.Plan.Segments[i]
		if len(h.request) != s.FirstRow {
			return &plan.Error{Code: plan.E26, Asked: fmt.Sprintf("segment %d at row %d after %d rows", i, s.FirstRow, len(h.request)), Supported: "segments that follow each other"}
		}
		if err := h.fillRows(in, m, s); err != nil {
			return err
		}
		for j := range s.Launches {
			h.fillLaunch(in, m, s, &s.Launches[j])
		}
	}
	h.closing4.fill(h, in, m, indexRatio)
	h.closing4.fillTails(h, in, m)
	h.closing128.fill(h, in, m, heavyRatio)
	return nil
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// fillRows lays out the rows of one segment.
func (h *hostArrays) fillRows(in *model.Input, m *Model, s *plan.Segment) error {
	for _, span := range s.Spans {
		r := span.Request
		p0 := in.Batch.FirstPosition(in.Config, r)
		if p0 < 0 {
			return &plan.Error{Code: plan.E22, Asked: fmt.Sprintf("request %d from position %d", r, p0), Supported: "sequences without padding in front"}
		}
		if need, have := (p0+span.To+in.PageTokens-1)/in.PageTokens, len(in.Tables[r]); need > have {
			return &plan.Error{Code: plan.E22, Asked: fmt.Sprintf("request %d, which needs %d pages, with %d", r, need, have), Supported: "a page for every 256 tokens"}
		}
		if err := checkWindows(in, r, p0+span.From, p0+span.To, m.config.Attention.Window); err != nil {
			return err
		}
		if span.To > len(in.Tokens[r]) {
			return fmt.Errorf("v4: forward: request %d has %d new tokens, the plan asks for number %d", r, len(in.Tokens[r]), span.To-1)
		}
		for t := span.From; t < span.To; t++ {
			p := p0 + t
			h.rowAt[h.rowBase[r]+t] = int32(len(h.request))
			h.request = append(h.request, int32(r))
			h.position = append(h.position, int32(p))
			h.token = append(h.token, in.Tokens[r][t])
			h.slot = append(h.slot, h.windowPlace(in, r, p))
			h.windowLen = append(h.windowLen, int32(min(p+1, m.config.Attention.Window)))
			groups := int32((p + 1) / indexRatio)
			h.groups = append(h.groups, groups)
			h.kept = append(h.kept, min(groups, int32(m.config.Indexer.TopK)))
			h.heavyLen = append(h.heavyLen, int32((p+1)/heavyRatio))
			h.windowBase, h.groupBase = append(h.windowBase, 0), append(h.groupBase, 0)
			h.heavyBase, h.groupStart = append(h.heavyBase, 0), append(h.groupStart, 0)
		}
	}
	if got := len(h.request) - s.FirstRow; got != s.Rows {
		return &plan.Error{Code: plan.E26, Asked: fmt.Sprintf("a segment of %d rows whose spans hold %d", s.Rows, got), Supported: "spans that cover the segment's rows"}
	}
	return nil
}

// fillLaunch lists what one launch reads: indices of the window and of the heavy stream for every row and, where it gathers a workspace or
// keys, their slots.
func (h *hostArrays) fillLaunch(in *model.Input, m *Model, s *plan.Segment, l *plan.Launch) {
	first := s.FirstRow + l.FirstRow
	last := min(first+l.Rows, s.FirstRow+s.Rows)
	flat := s.Form == plan.FormV4SparsePrefill
	var k mark
	for _, n := range h.groups[first:last] {
		k.longest = max(k.longest, int(n))
	}
	k.window = len(h.flat)
	if flat {
		h.gatherWindow(in, m, first, last)
	}
	k.windowEnd, k.groups = len(h.flat), len(h.flat)
	rows := int32(k.windowEnd - k.window)
	if m.uses(indexRatio) && (flat || s.Indexer.Kind == plan.IndexerRagged) {
		h.gatherGroups(in, first, last, indexRatio, h.groups, h.groupStart)
	}
	k.groupsEnd, k.heavy = len(h.flat), len(h.flat)
	if m.uses(heavyRatio) && flat {
		h.gatherGroups(in, first, last, heavyRatio, h.heavyLen, h.heavyBase)
	}
	k.heavyEnd = len(h.flat)
	for r := first; r < last; r++ {
		h.groupBase[r] = h.groupStart[r] + rows
		h.heavyBase[r] += rows
		h.fillIndices(in, r, flat)
	}
	h.marks = append(h.marks, k)
}

// fillIndices writes a row's window and heavy indices: slots of the pools, or for a workspace what was gathered for the row's request,
// counted from the start of its part.
func (h *hostArrays) fillIndices(in *model.Input, r int, flat bool) {
	q, p, n := int(h.request[r]), int(h.position[r]), int(h.windowLen[r])
	for i := range h.windowWidth {
		switch {
		case i >= n:
			h.window = append(h.window, -1)
		case flat:
			h.window = append(h.window, int32(p-n+1+i)) // windowBase makes up for the positions that were not gathered
		default:
			h.window = append(h.window, h.windowPlace(in, q, p-n+1+i))
		}
	}
	for g := range h.heavyWidth {
		switch {
		case g >= int(h.heavyLen[r]):
			h.heavy = append(h.heavy, -1)
		case flat:
			h.heavy = append(h.heavy, int32(g))
		default:
			h.heavy = append(h.heavy, h.place(in, q, g*heavyRatio, heavyRatio))
		}
	}
}

// gatherWindow appends the slots of every window entry that rows first to last see, request by request. Rows of one request are neighbours
// in ascending order.
func (h *hostArrays) gatherWindow(in *model.Input, m *Model, first, last int) {
	base := len(h.flat)
	for r := first; r < last; {
		end := h.requestEnd(r, last)
		from := int(h.position[r]) + 1 - int(h.windowLen[r])
		at := int32(len(h.flat) - base - from)
		for p := from; p <= int(h.position[end-1]); p++ {
			h.flat = append(h.flat, h.windowPlace(in, int(h.request[r]), p))
		}
		for ; r < end; r++ {
			h.windowBase[r] = at
		}
	}
}

// gatherGroups appends the slots of every group that rows first to last see, and notes in start where each row's request begins. The last
// row of a request sees the most.
func (h *hostArrays) gatherGroups(in *model.Input, first, last, ratio int, lens, start []int32) {
	base := len(h.flat)
	for r := first; r < last; {
		end := h.requestEnd(r, last)
		at := int32(len(h.flat) - base)
		for g := range int(lens[end-1]) {
			h.flat = append(h.flat, h.place(in, int(h.request[r]), g*ratio, ratio))
		}
		for ; r < end; r++ {
			start[r] = at
		}
	}
}

// requestEnd is one more than the last row, before last, of the request of row r.
func (h *hostArrays) requestEnd(r, last int) int {
	end := r + 1
	for end < last && h.request[end] == h.request[r] {
		end++
	}
	return end
}
