package event

import (
	"testing"
	"time"
)

// Pages of a prompt that are stored one after the other in one tier are one event, and so are pages of one tier that
// are removed one after the other. Anything else begins another event.
func TestChangesThatAreOneEvent(t *testing.T) {
	page := func(id, parent uint64, salt string) *page {
		return &page{id: id, parent: parent, salt: salt, tokens: []int32{int32(id)}}
	}
	first := page(1, 0, "")
	first.first = true
	for _, c := range []struct {
		name string
		do   func(e *encoder)
		want int
	}{
		{"nothing", func(*encoder) {}, 0},
		{"a page", func(e *encoder) { e.stored(GPU, first) }, 1},
		{"a page and the next", func(e *encoder) { e.stored(GPU, first); e.stored(GPU, page(2, 1, "")) }, 1},
		{"three pages", func(e *encoder) {
			e.stored(GPU, first)
			e.stored(GPU, page(2, 1, ""))
			e.stored(GPU, page(3, 2, ""))
		}, 1},
		{"a page of another prompt", func(e *encoder) { e.stored(GPU, page(2, 1, "")); e.stored(GPU, first) }, 2},
		{"a page that follows another", func(e *encoder) {
			e.stored(GPU, first)
			e.stored(GPU, page(2, 1, ""))
			e.stored(GPU, page(3, 1, ""))
		}, 2},
		{"another tier", func(e *encoder) { e.stored(GPU, first); e.stored(CPU, page(2, 1, "")) }, 2},
		{"another salt", func(e *encoder) { e.stored(GPU, first); e.stored(GPU, page(2, 1, "x")) }, 2},
		{"the same page", func(e *encoder) { e.stored(GPU, page(1, 1, "")); e.stored(GPU, page(1, 1, "")) }, 2},
		{"two removed", func(e *encoder) { e.removed(GPU, 1); e.removed(GPU, 2) }, 1},
		{"removed from two tiers", func(e *encoder) { e.removed(GPU, 1); e.removed(CPU, 2) }, 2},
		{"removed after stored", func(e *encoder) { e.stored(GPU, first); e.removed(GPU, 2) }, 2},
		{"stored after removed", func(e *encoder) { e.removed(GPU, 2); e.stored(GPU, first) }, 2},
		{"removed, stored, removed", func(e *encoder) {
			e.removed(GPU, 2)
			e.stored(GPU, first)
			e.removed(GPU, 3)
		}, 3},
		{"cleared between", func(e *encoder) { e.removed(GPU, 1); e.cleared(); e.removed(GPU, 2) }, 3},
	} {
		var e encoder
		c.do(&e)
		if e.flush(); e.count != c.want {
			t.Errorf("%s: %d events, want %d", c.name, e.count, c.want)
		}
		if b := e.batch(time.Unix(1, 0)); (b == nil) != (c.want == 0) || b != nil && int(b[10]) != 0x90+c.want {
			t.Errorf("%s: batch %x, want one of %d events", c.name, b, c.want)
		}
		if b := e.batch(time.Unix(1, 0)); b != nil {
			t.Errorf("%s: the events are sent again: %x", c.name, b)
		}
	}
}
