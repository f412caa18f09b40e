package kv

import "fmt"

// Window configures memory for the rows of sliding-window layers, in window pages. Every page inside a sequence's
// window has a window page, which is released when the window has moved past the page. The page itself stays allocated.
type Window struct {
	// Pages is the number of window pages; their numbers begin at First. 0 means that there are none, and that all
	// rows are kept until their page is released.
	Pages int
	// Tokens is the number of tokens in the window of a row, including its own.
	Tokens int
	// First is the lowest number of a window page; window pages with lower numbers belong to other pools.
	First int
	// Spacing, if not 0, means that a window page holds a snapshot of a state, which is as large as the rows of many
	// pages. Snapshots of a sequence are evicted first, except the last one, from which requests continue the sequence,
	// and one in every Spacing pages. These are evicted by age.
	Spacing int
}

// Load describes the sequences for which SizeWindow sizes a pool.
type Load struct {
	Pages, PageTokens int
	Window            int // tokens in the window of a row
	Running           int // maximum number of running sequences
	StepTokens        int // maximum number of new tokens in a step
	// Spacing is Window.Spacing. If it is not 0, window pages kept for reuse may use as much memory as the pages: Pages
	// * PageBytes bytes, in window pages of WindowBytes.
	Spacing                int
	PageBytes, WindowBytes int64
}

// keptShare determines the window pages that are kept for reuse: one per keptShare pages.
const keptShare = 8

// SizeWindow returns the Window for a pool. Its pages suffice for all running sequences, for the pages that a step
// writes before it releases any, and for some reuse. There is at most one window page per page, and at least as many as
// a single sequence needs.
func SizeWindow(l Load) Window {
	w := Window{Pages: 1, Tokens: l.Window, Spacing: l.Spacing}
	each := w.PerSequence(l.PageTokens)
	kept := l.Pages / keptShare
	if l.Spacing > 0 && l.WindowBytes > 0 {
		kept = min(int(int64(l.Pages)*l.PageBytes/l.WindowBytes), l.Pages/2)
	}
	want := l.Running*each + (l.StepTokens+l.PageTokens-1)/l.PageTokens + kept
	w.Pages = max(min(want, l.Pages), each)
	return w
}

// PerSequence returns the maximum number of window pages of a sequence between two decode steps.
func (w Window) PerSequence(pageTokens int) int {
	if w.Pages == 0 {
		return 0
	}
	return (w.Tokens-1+pageTokens-1)/pageTokens + 1
}

// first returns the index of the first page inside the window of the token after n others.
func (w Window) first(n, pageTokens int) int { return max(n-w.Tokens+1, 0) / pageTokens }

// windows is the state of all window pages. A window page is in use if its page is inside a sequence's window, idle if
// its page is only cached, and otherwise free. Idle window pages are kept until their memory is needed, so that a
// prompt can continue after the page.
type windows struct {
	of    []int32 // [Pages] window page of the page, or none
	pins  []int32 // [Pages] number of sequences whose window contains the page
	owner []Page  // [Window.Pages] page of the window page; valid unless it is free
	free  []int32

	// The idle window pages as a linked list, in the order in which they became idle.
	older, newer   []int32 // [Window.Pages] neighbours in the list
	oldest, newest int32
	idle           int
	evictions      int64
	leaving        func(Page, int32) // called before the window page of a page is reused for another page
}

// none is the number of no window page.
const none int32 = -1

func newWindows(c Config, leaving func(Page, int32)) *windows {
	n := c.Window.Pages
	if n == 0 {
		return nil
	}
	n += c.Window.First
	w := &windows{of: make([]int32, c.Pages), pins: make([]int32, c.Pages), owner: make([]Page, n),
		free: make([]int32, 0, n), older: make([]int32, n), newer: make([]int32, n), oldest: none, newest: none,
		leaving: leaving}
	for i := range w.of {
		w.of[i] = none
	}
	for i := n - 1; i >= c.Window.First; i-- {
		w.free = append(w.free, int32(i))
	}
	return w
}

// available returns the number of window pages that can be allocated.
func (w *windows) available() int { return len(w.free) + w.idle }

// ensure returns a *FullError unless n window pages can be allocated.
func (w *windows) ensure(n int) error {
	if w != nil && n > w.available() {
		return &FullError{Needed: n, Free: len(w.free), Evictable: w.idle, Window: true}
	}
	return nil
}

// take allocates a window page for a new page; the caller has checked with ensure that one is available.
func (w *windows) take(page Page) int32 {
	if w == nil {
		return none
	}
	if len(w.free) == 0 {
		if w.idle == 0 {
			panic("kv: a window page was allocated without ensure")
		}
		w.evictions++
		w.leaving(w.owner[w.oldest], w.oldest)
		w.drop(w.owner[w.oldest])
	}
	x := w.free[len(w.free)-1]
	w.free = w.free[:len(w.free)-1]
	w.of[page], w.owner[x], w.pins[page] = x, page, 1
	return x
}

// pin records that another window contains a page, and returns its window page.
func (w *windows) pin(page Page) int32 {
	x := w.of[page]
	if w.pins[page] == 0 {
		w.unlink(x)
	}
	w.pins[page]++
	return x
}

// unpin records that a window no longer contains a page. If no window contains it, the window page becomes idle if the
// page is stored in the prefix index, otherwise free.
func (w *windows) unpin(page Page, stored bool) {
	w.pins[page]--
	if w.pins[page] > 0 {
		return
	}
	w.link(w.of[page])
	if !stored {
		w.drop(page)
	}
}

// first moves an idle window page to the oldest end of the list, so that it is evicted next.
func (w *windows) first(page Page) {
	x := w.of[page]
	if x == none || w.pins[page] > 0 {
		return
	}
	w.unlink(x)
	w.older[x], w.newer[x] = none, w.oldest
	if w.oldest == none {
		w.newest = x
	} else {
		w.older[w.oldest] = x
	}
	w.oldest = x
	w.idle++
}

// drop frees the window page, if there is one, of a page that is in no window.
func (w *windows) drop(page Page) {
	if w == nil || w.of[page] == none {
		return
	}
	x := w.of[page]
	w.unlink(x)
	w.of[page] = none
	w.free = append(w.free, x)
}

// reaches reports whether the window rows that token n attends to are stored. table holds the pages of the tokens
// before it.
func (w *windows) reaches(table []int32, c *Config, n int) bool {
	for i := c.Window.first(n, c.PageTokens); i*c.PageTokens < n; i++ {
		if w.of[table[i]] == none {
			return false
		}
	}
	return true
}

// link adds a window page at the newest end of the idle list.
func (w *windows) link(x int32) {
	w.older[x], w.newer[x] = w.newest, none
	if w.newest == none {
		w.oldest = x
	} else {
		w.newer[w.newest] = x
	}
	w.newest = x
	w.idle++
}

// unlink removes a window page from the idle list.
func (w *windows) unlink(x int32) {
	if w.older[x] == none {
		w.oldest = w.newer[x]
	} else {
		w.newer[w.older[x]] = w.newer[x]
	}
	if w.newer[x] == none {
		w.newest = w.older[x]
	} else {
		w.older[w.newer[x]] = w.older[x]
	}
	w.idle--
}

// WindowsAvailable returns the number of window pages that Reserve can allocate: free and idle ones. It is 0 without
// window pages.
func (p *Pool) WindowsAvailable() int {
	if p.win == nil {
		return 0
	}
	return p.win.available()
}

// WindowsPerSequence returns Window.PerSequence for this pool.
func (p *Pool) WindowsPerSequence() int { return p.cfg.Window.PerSequence(p.cfg.PageTokens) }

// WindowsMissing returns how many window pages the sequence still needs for its maximum between decode steps.
func (s Sequence) WindowsMissing() int {
	q, err := s.live()
	if err != nil || q.pool.win == nil {
		return 0
	}
	return max(q.pool.WindowsPerSequence()-(len(q.table)-q.reached), 0)
}

// Windows returns the table of window pages: entry i is the window page of entry i of Pages, negative before the
// window. It is nil without window pages, and valid until the next call that changes the sequence.
func (s Sequence) Windows() []int32 {
	q, err := s.live()
	if err != nil || q.pool.win == nil {
		return nil
	}
	return q.windows
}

// advance releases the window pages that are before the window of the next token.
func (q *sequence) advance() {
	w := q.pool.win
	if w == nil {
		return
	}
	for first := q.pool.cfg.Window.first(q.length, q.pool.cfg.PageTokens); q.reached < first; q.reached++ {
		page := Page(q.table[q.reached])
		w.unpin(page, q.pool.index.Has(page))
		if n := q.pool.cfg.Window.Spacing; n > 0 && q.reached > 0 && q.reached%n != 0 {
			// Requests that continue the sequence need only the window rows of later pages.
			w.first(Page(q.table[q.reached-1]))
		}
		q.windows[q.reached] = none
	}
}

// retreat pins the window pages in the window of a sequence that is shortened to n tokens.
func (q *sequence) retreat(n int) error {
	w := q.pool.win
	if w == nil {
		return nil
	}
	first := q.pool.cfg.Window.first(n, q.pool.cfg.PageTokens)
	for i := first; i < q.reached; i++ {
		if w.of[q.table[i]] == none {
			return fmt.Errorf(
				"%w: cannot truncate to %d tokens: the window would include page %d, whose window rows were evicted",
				ErrArgument,
				n, i)
		}
	}
	for ; q.reached > first; q.reached-- {
		q.windows[q.reached-1] = w.pin(Page(q.table[q.reached-1]))
	}
	return nil
}

// adopt pins the window pages in the window of a sequence whose table was just set.
func (q *sequence) adopt() {
	w := q.pool.win
	if w == nil {
		return
	}
	q.reached = q.pool.cfg.Window.first(q.length, q.pool.cfg.PageTokens)
	for i, page := range q.table {
		x := none
		if i >= q.reached {
			x = w.pin(Page(page))
		}
		q.windows = append(q.windows, x)
	}
}
