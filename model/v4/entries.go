package v4

import "sparrow/model"

// heavyRatio is the compression of the stream that every query reads whole.
const heavyRatio = 128

// entryArrays list the groups of one ratio that close in a step, and where raw rows are kept for groups that close later.
type entryArrays struct {
	sources  []int32 // [entries, slots]: kernel.CompressArgs.Sources
	slots    []int32 // [entries]: where the entry is stored
	position []int32 // [entries]: first position of the group, at which the entry is rotated
	keep     []int32 // [rows]: the row's place in the rings, -1 for rows no later step needs
	tail     []int32 // [rows]: the row's place among the tails of window pages, -1 for rows a page does not end with; empty where no row is kept
	width    int     // slots of an entry
}

func (e *entryArrays) entries() int { return len(e.slots) }

// fill walks every request's new tokens; a token that ends a group closes it.
func (e *entryArrays) fill(h *hostArrays, in *model.Input, m *Model, ratio int) {
	e.sources, e.slots, e.position, e.keep, e.tail = e.sources[:0], e.slots[:0], e.position[:0], e.keep[:0], e.tail[:0]
	if !m.uses(ratio) {
		return
	}
	e.width = ratio
	if overlapped(ratio) {
		e.width *= 2
	}
	for range h.request {
		e.keep = append(e.keep, -1)
	}
	ring := ringOf(ratio)
	for r, tokens := range in.Tokens {
		st := m.step.states[r]
		first := st.len
		end := first + len(tokens)
		for p := max(first, end-ring); p < end; p++ {
			e.keep[h.rowAt[h.rowBase[r]+p-first]] = int32(st.slot*ring + p%ring)
		}
		for p := first/ratio*ratio + ratio - 1; p < end; p += ratio {
			e.slots = append(e.slots, h.place(in, r, p, ratio))
			e.position = append(e.position, int32(p+1-ratio))
			for q := p + 1 - e.width; q <= p; q++ {
				e.sources = append(e.sources, h.source(r, q, st, ring))
			}
		}
	}
}

// fillTails lists the rows that end a page, which another sequence needs to go on behind it.
func (e *entryArrays) fillTails(h *hostArrays, in *model.Input, m *Model) {
	if !m.uses(indexRatio) {
		return
	}
	for r, tokens := range in.Tokens {
		first := m.step.states[r].len
		end := first + len(tokens)
		for boundary := first/in.PageTokens*in.PageTokens + in.PageTokens; boundary-tailRows < end; boundary += in.PageTokens {
			for p := max(boundary-tailRows, first); p < min(boundary, end); p++ {
				if len(e.tail) == 0 {
					for range h.request {
						e.tail = append(e.tail, -1)
					}
				}
				page := h.windows[r*h.width+p/in.PageTokens]
				e.tail[h.rowAt[h.rowBase[r]+p-first]] = page*tailRows + int32(p+tailRows-boundary)
			}
		}
	}
}

// source names the raw row of position q of request r: a row of this step, one of the rings, or none before the sequence begins.
func (h *hostArrays) source(r, q int, st *State, ring int) int32 {
	switch {
	case q < 0:
		return -1
	case q < st.len:
		return int32(-2 - (st.slot*ring + q%ring))
	}
	return h.rowAt[h.rowBase[r]+q-st.len]
}
