package kv

import (
	"errors"
	"strings"
	"testing"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/testkit/table"
)

// TestCheckFindsEveryBrokenRule breaks one rule at a time and checks that Check reports it. The pool has shared pages,
// open pages, reserved pages, cached pages, free pages and a closed sequence.
func TestCheckFindsEveryBrokenRule(t *testing.T) {
	type state struct {
		*Pool
		a, b *sequence // a and b share their first page; page 2 of a is open, page 3 of a is reserved
	}
	build := func(t *testing.T) state {
		p := newPool(t, Config{Pages: 16, FirstPage: 1, PageTokens: 2, Reuse: true})
		cached, _ := fill(t, p, tokens(50, 4), OpenOptions{})
		a, _ := fill(t, p, tokens(0, 5), OpenOptions{})
		ok(t, a.Reserve(3))
		b, _ := fill(t, p, append(tokens(0, 2), tokens(20, 3)...), OpenOptions{})
		ok(t, cached.Close())
		ok(t, p.Check())
		return state{p, a.q, b.q}
	}
	var lines []string // whole messages
	for _, c := range []struct {
		name string
		hurt func(s state)
		want string
	}{
		{"a sequence in the wrong place", func(s state) { s.a.slot++ }, "is stored with index"},
		{"a closed sequence with a page", func(s state) { s.closed[0].table = append(s.closed[0].table, 3) },
			"closed sequence 0 still has 1 pages"},
		{"more tokens than room", func(s state) { s.a.length = 9; s.a.tail = s.a.tail[:1] }, "9 tokens"},
		{"a negative length", func(s state) { s.a.length = -1 }, "-1 tokens"},
		{"a tail that does not fit the length", func(s state) { s.a.tail = s.a.tail[:0] },
			"0 after the last full page"},
		{"more tokens reused than there are", func(s state) { s.a.reused = 6 }, "6 reused"},
		{"the reserved page in a table", func(s state) { s.a.table[3] = 0 }, "entry 3 of the page table is page 0"},
		{"a page past the end in a table", func(s state) { s.a.table[3] = 16 }, "entry 3 of the page table is page 16"},
		{"a page twice in a table", func(s state) { s.a.table[3] = s.a.table[2] },
			"at index 2 of one page table and at index 3"},
		{"a page at two places of two tables", func(s state) { s.b.table[2] = s.a.table[3] },
			"at index 2 of one page table and at index 3"},
		{"an open page in two tables", func(s state) { s.b.table[2] = s.a.table[2]; s.refs[s.a.table[2]]++ },
			"is not full, but it is stored"},
		{"an open page that is stored", func(s state) { s.a.length -= 2 }, "is not full, but it is stored"},
		{"a full page that is not stored", func(s state) { s.index.Clear(nil) }, "is full but not stored"},
		{"a stored page in a sequence of another salt", func(s state) { s.a.root = prefix.Hash{} },
			"is stored, but not as a successor of page -1"},
		{"a stored page behind another than its parent", func(s state) {
			s.b.table[1] = s.a.table[1]
			s.b.table[0] = s.closedPage(t, 0)
		}, "is stored, but not as a successor"},
		{"a page free twice", func(s state) { s.free = append(s.free, s.free[0]) }, "free twice"},
		{"the reserved page free", func(s state) { s.free = append(s.free, 0) }, "page 0 is free twice or outside"},
		{"a page past the end free", func(s state) { s.free = append(s.free, 16) }, "page 16 is free twice or outside"},
		{"a page in use and free", func(s state) { s.free = append(s.free, Page(s.a.table[3])) },
			"free true, in 1 page tables"},
		{"a cached page and free", func(s state) { s.free = append(s.free, Page(s.closedPage(t, 0))) },
			"free true, in 0 page tables, cached true"},
		{"a page lost", func(s state) { s.free = s.free[1:] }, "free false, in 0 page tables, cached false"},
		{"a cached page in use", func(s state) { s.index.Drop(Page(s.a.table[1])) }, "cached true"},
		{"a reference too many", func(s state) { s.refs[s.a.table[1]]++ }, "has 2 references and is in 1"},
		{"a reference too few", func(s state) { s.refs[s.a.table[0]]-- }, "has 1 references and is in 2"},
		{"a reference to the reserved page", func(s state) { s.refs[0]++ }, "page 0 has 1 references"},
		{"a free page that is stored", func(s state) { s.index.Add(s.shared, prefix.None, s.free[0], tokens(70, 2)) },
			"stored, but neither"},
		{"a broken index", func(s state) { s.index.Drop(Page(s.a.table[0])) }, prefix.ErrCorrupt.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := build(t)
			c.hurt(s)
			err := s.Check()
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, prefix.ErrCorrupt) ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			} else {
				lines = append(lines, c.name+": "+err.Error())
			}
		})
	}
	table.Check(t, "damages.txt", lines)
}

// Check finds every broken rule of window pages. In this test some window pages are in use, some idle and some free,
// and the first window page of the pool is not number 0.
func TestCheckFindsEveryBrokenRuleOfWindows(t *testing.T) {
	type state struct {
		*windows
		a, b *sequence // the window of a includes the last two pages of a, that of b the only page of b
	}
	var lines []string // whole messages
	for _, c := range []struct {
		name string
		hurt func(s state)
		want string
	}{
		{"a window that reaches too far", func(s state) { s.a.reached-- }, "begins at page"},
		{"a table of window pages that is too long", func(s state) { s.a.windows = append(s.a.windows, none) },
			"4 window pages for 3 pages"},
		{"a window page of another page", func(s state) { s.a.windows[2] = s.b.windows[0] }, "has window page"},
		{"a page in reach without a window page", func(s state) { s.a.windows[2], s.of[s.a.table[2]] = none, none },
			"has window page -1 at index 2"},
		{"a window page that is not released", func(s state) { s.a.windows[0] = s.of[s.a.table[0]] },
			"at index 0, but page"},
		{"a window page free twice", func(s state) { s.free = append(s.free, s.free[0]) }, "is in 2 states"},
		{"a window page lost", func(s state) { s.free = s.free[1:] }, "is in 0 states"},
		{"another pool's window page", func(s state) { s.free = append(s.free, 1) }, "window page 1 is in 1 states"},
		{"an idle window page that was given to another", func(s state) { s.owner[s.oldest] = Page(s.b.table[0]) },
			"idle window page"},
		{"an idle window page that is reached", func(s state) { s.pins[s.owner[s.oldest]]++ }, "idle window page"},
		{"an idle window page of a page that no lookup finds", func(s state) { s.a.pool.index.Clear(nil) },
			"and stored false"},
		{"a pin too many", func(s state) { s.pins[s.b.table[0]]++ }, "and 2 pins, but 1 windows include it"},
		{"an owner that does not own", func(s state) { s.owner[s.b.windows[0]] = Page(s.a.table[1]) },
			"1 windows include it"},
		{"idle window pages that are counted twice", func(s state) { s.idle++ },
			"there are 1 idle window pages, the counter is 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPool(t, Config{Pages: 16, PageTokens: 4, Reuse: true,
				Window: Window{Pages: 6, Tokens: 4, First: 2}})
			a, _ := fill(t, p, tokens(0, 10), OpenOptions{})
			b, _ := fill(t, p, tokens(50, 3), OpenOptions{})
			c.hurt(state{p.win, a.q, b.q})
			err := (&checker{Pool: p}).windowStates()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			} else {
				lines = append(lines, c.name+": "+err.Error())
			}
		})
	}
	table.Check(t, "windows.txt", lines)
}

// closedPage returns the i-th page of the cached prompt.
func (p *Pool) closedPage(t *testing.T, i int) int32 {
	t.Helper()
	pages, _ := p.index.Lookup(p.shared, tokens(50, 5), 1, nil)
	return pages[i]
}
