package kv

// Copy is a page the model must copy, in every layer and stream, before it runs either sequence again. Whole pages
// may be copied; the first Rows rows matter.
type Copy struct {
	From, To Page
	// WindowFrom and WindowTo are their window pages, where there are some.
	WindowFrom, WindowTo int32
	// Rows is 0 when there is nothing to copy.
	Rows int
}

// Fork starts a sequence with the same committed tokens. Full pages are shared. The page being filled cannot be: the
// new sequence gets one of its own, and the Copy says how to fill it. Rows reserved by s are not shared. Fails with a
// *FullError like Reserve.
func (s Sequence) Fork() (Sequence, Copy, error) {
	q, err := s.live()
	if err != nil {
		return Sequence{}, Copy{}, err
	}
	p, size := q.pool, q.pool.cfg.PageTokens
	full, rows := q.length/size, q.length%size
	if rows > 0 {
		if err := p.ensure(1); err != nil {
			return Sequence{}, Copy{}, err
		}
	}
	f := p.newSequence()
	f.root, f.publish, f.length, f.reused = q.root, q.publish, q.length, q.reused
	f.table = append(f.table, q.table[:full]...)
	for _, page := range f.table {
		p.hold(Page(page))
	}
	f.adopt()
	c := Copy{Rows: rows}
	if rows > 0 {
		c.From, c.To = Page(q.table[full]), f.extend()
		f.tail = append(f.tail, q.tail...)
		if p.win != nil {
			c.WindowFrom, c.WindowTo = q.windows[full], f.windows[full]
		}
	}
	return Sequence{q: f, generation: f.generation}, c, nil
}
