package attn

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/plan"
)

// hostArrays are a step's arrays before they are written to the device, reused from step to step.
type hostArrays struct {
	request, position, slots, lens, kept []int32 // one entry for each row
	token                                []int32 // the row's place among its request's new tokens
	start, indexStart                    []int32

	table []int32 // [requests, width]
	width int

	flat   []int32 // slots to gather, launch after launch: rows, then indexer keys
	pages  []int32 // pages to convert
	tables []int32 // page tables over converted pages
	marks  []mark  // one for each launch
	place  map[int32]int32
}

// mark is where a launch's share of flat, pages and tables lies.
type mark struct {
	flat, flatEnd   int // rows to gather
	index, indexEnd int // indexer keys to gather, also in flat
	pages, pagesEnd int
	table           int // first row of tables, or -1
	width           int // keys of the longest row
}

// tensors are the device's copies of the arrays that marks cut up.
type tensors struct{ flat, pages, tables kernel.Tensor }

func (h *hostArrays) rows() int { return len(h.request) }

// fill computes every array of a step.
func (h *hostArrays) fill(in Step, topK int) error {
	h.request, h.position, h.slots, h.lens, h.kept = h.request[:0], h.position[:0], h.slots[:0], h.lens[:0], h.kept[:0]
	h.start, h.indexStart, h.token = h.start[:0], h.indexStart[:0], h.token[:0]
	h.flat, h.pages, h.tables, h.marks = h.flat[:0], h.pages[:0], h.tables[:0], h.marks[:0]
	h.fillTable(in)
	for i := range in.Plan.Segments {
		s := &in.Plan.Segments[i]
		if len(h.request) != s.FirstRow {
			return &plan.Error{Code: plan.E26, Asked: fmt.Sprintf("segment %d at row %d after %d rows", i, s.FirstRow, len(h.request)), Supported: "segments that follow each other"}
		}
		if err := h.fillRows(in, s, topK); err != nil {
			return err
		}
		for j := range s.Launches {
			h.fillLaunch(in, s, &s.Launches[j])
		}
	}
	return nil
}

// fillTable copies the page tables into one rectangle.
func (h *hostArrays) fillTable(in Step) {
	h.width, h.table = 1, h.table[:0]
	for _, t := range in.Tables {
		h.width = max(h.width, len(t))
	}
	for _, t := range in.Tables {
		h.table = append(h.table, t...)
		for range h.width - len(t) {
			h.table = append(h.table, 0)
		}
	}
}

// slot is where position p of request r lies.
func (h *hostArrays) slot(in *Step, r, p int) int32 {
	return h.table[r*h.width+p/in.PageTokens]*int32(in.PageTokens) + int32(p%in.PageTokens)
}

// fillRows lays out the rows of one segment.
func (h *hostArrays) fillRows(in Step, s *plan.Segment, topK int) error {
	for _, span := range s.Spans {
		p0 := in.Batch.FirstPosition(in.Config, span.Request)
		if need, have := ceilDiv(p0+span.To, in.PageTokens), len(in.Tables[span.Request]); need > have {
			return &plan.Error{Code: plan.E22, Asked: fmt.Sprintf("request %d, which needs %d pages, with %d", span.Request, need, have), Supported: "a page for every token"}
		}
		for t := span.From; t < span.To; t++ {
			p := p0 + t
			h.request = append(h.request, int32(span.Request))
			h.position = append(h.position, int32(max(p, 0)))
			h.token = append(h.token, int32(t))
			n := int32(max(p+1, 0)) // a padded request may lie before position 0
			slot := int32(-1)
			if n > 0 {
				slot = h.slot(&in, span.Request, p)
			}
			h.slots = append(h.slots, slot)
			h.lens = append(h.lens, n)
			h.kept = append(h.kept, min(n, int32(topK)))
			h.start = append(h.start, 0)
			h.indexStart = append(h.indexStart, 0)
		}
	}
	if got := len(h.request) - s.FirstRow; got != s.Rows {
		return &plan.Error{Code: plan.E26, Asked: fmt.Sprintf("a segment of %d rows whose spans hold %d", s.Rows, got), Supported: "spans that cover the segment's rows"}
	}
	return nil
}

// launchRows are the step rows of a launch, without the padding that only a captured graph has.
func launchRows(s *plan.Segment, l *plan.Launch) (first, last int) {
	end := s.FirstRow + s.Rows
	return min(s.FirstRow+l.FirstRow, end), min(s.FirstRow+l.FirstRow+l.Rows, end)
}

// fillLaunch lists what one launch gathers or converts.
func (h *hostArrays) fillLaunch(in Step, s *plan.Segment, l *plan.Launch) {
	m := mark{flat: len(h.flat), pages: len(h.pages), table: -1}
	first, last := launchRows(s, l)
	switch {
	case s.Convert.Gathers():
		h.gather(in, first, last, h.start, m.flat)
	case s.Convert == plan.ConvertRawToBlock:
		m.table = h.convert(in, first, last)
	}
	m.flatEnd, m.pagesEnd = len(h.flat), len(h.pages)
	m.index = len(h.flat)
	if s.Indexer.Kind == plan.IndexerRagged {
		h.gather(in, first, last, h.indexStart, m.index)
	}
	m.indexEnd = len(h.flat)
	for _, n := range h.lens[first:last] {
		m.width = max(m.width, int(n))
	}
	h.marks = append(h.marks, m)
}

// gather appends the slots of every key that rows first to last see, request by request, and notes in start where each row's request begins.
// Rows of one request are neighbours in ascending order, so the last one sees the most.
func (h *hostArrays) gather(in Step, first, last int, start []int32, base int) {
	for r := first; r < last; {
		end := r + 1
		for end < last && h.request[end] == h.request[r] {
			end++
		}
		at := int32(len(h.flat) - base)
		for p := range int(h.lens[end-1]) {
			h.flat = append(h.flat, h.slot(&in, int(h.request[r]), p))
		}
		for ; r < end; r++ {
			start[r] = at
		}
	}
}

// convert lists the pages that rows first to last see, each once although requests may share it, and appends a table over the converted
// pages.
func (h *hostArrays) convert(in Step, first, last int) int {
	if h.place == nil {
		h.place = map[int32]int32{}
	}
	clear(h.place)
	base := len(h.pages)
	at := len(h.tables) / h.width
	h.tables = append(h.tables, make([]int32, len(in.Tables)*h.width)...)
	for r := first; r < last; r++ {
		q := int(h.request[r])
		if r+1 < last && int(h.request[r+1]) == q {
			continue // the request's last row sees the most
		}
		for i := range ceilDiv(int(h.lens[r]), in.PageTokens) {
			page := h.table[q*h.width+i]
			to, ok := h.place[page]
			if !ok {
				to = int32(len(h.pages) - base)
				h.place[page] = to
				h.pages = append(h.pages, page)
			}
			h.tables[(at+q)*h.width+i] = to
		}
	}
	return at
}

// segments cuts the device's arrays into the parts of each segment and launch.
func (h *hostArrays) segments(out []segment, in Step, t tensors) []segment {
	marks := h.marks
	for i := range in.Plan.Segments {
		s := &in.Plan.Segments[i]
		if len(out) < cap(out) {
			out = out[:len(out)+1]
		} else {
			out = append(out, segment{})
		}
		seg := &out[len(out)-1]
		*seg = segment{plan: s, first: s.FirstRow, launches: seg.launches[:0]}
		for j := range s.Launches {
			m := marks[0]
			marks = marks[1:]
			l := launch{keys: m.flatEnd - m.flat}
			if l.first, l.last = launchRows(s, &s.Launches[j]); l.first == l.last {
				continue // no kernel runs for padding alone
			}
			l.flat = t.flat.Slice(m.flat, m.flatEnd)
			l.pages = t.pages.Slice(m.pages, m.pagesEnd)
			if m.table >= 0 {
				l.table = t.tables.Slice(m.table, m.table+len(in.Tables))
			}
			l.indexFlat, l.scoreWidth = t.flat.Slice(m.index, m.indexEnd), m.width
			seg.launches = append(seg.launches, l)
		}
	}
	return out
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
