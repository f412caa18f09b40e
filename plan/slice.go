package plan

import (
	"fmt"
	"math"
	"sort"
)

// scoreFloor is the number of score rows for which a launch reserves memory, if they fit in half of the memory limit
// that is left after the index keys.
const scoreFloor = 64

// slicer cuts the rows of a segment into launches within three limits: rows of a launch, keys of a dense call and
// temporary memory. Rows are independent, so cuts do not change results.
type slicer struct {
	w       *Builder
	s       *Segment
	held    held
	limit   int   // rows per launch
	keyCap  int   // keys per launch (Config.capsKeys)
	reserve int64 // bytes per launch, math.MaxInt64 for no bound
	grain   int   // launches start at row numbers that are multiples of grain
	chunk   int64 // maximum score rows at a time

	open launchLoad
}

type launchLoad struct {
	launch Launch
	load   load
}

// slice fills Launches, RowsPerLaunch, the chunks and TransientBytes.
func (w *Builder) slice(s *Segment) error {
	sl := &slicer{w: w, s: s, held: heldBy(w.cfg, w.cat.Entry(s.Kernel), s, w.plan.TablePages*w.cfg.Page), grain: 1,
		keyCap: math.MaxInt, reserve: math.MaxInt64}
	if s.Indexer.Kind == IndexerPagedNative {
		sl.grain = s.Indexer.NextN
	}
	if s.RowsPerLaunch == 0 {
		s.RowsPerLaunch = s.KernelRows
	}
	sl.limit = s.RowsPerLaunch / sl.grain * sl.grain
	if sl.limit < 1 {
		return &Error{Code: E24, Asked: fmt.Sprintf("launches of %d rows at a time with kernel %s", sl.grain, s.Kernel),
			Supported: fmt.Sprintf("%d rows: %s", s.RowsPerLaunch, s.Limit)}
	}
	if s.KernelRows > sl.limit && w.Whole {
		return &Error{Code: E24, Asked: fmt.Sprintf("%d rows in one launch of %s with slicing off", s.KernelRows,
			s.Kernel),
			Supported: fmt.Sprintf("%d rows per launch: %s", sl.limit, s.Limit), Try: "slicing on"}
	}
	s.RowsPerLaunch = sl.limit
	if w.cfg.capsKeys(s) {
		sl.keyCap = w.cfg.C
	}
	if w.cfg.MaxTransient > 0 {
		sl.reserve = w.cfg.MaxTransient
	}
	if s.Scores() {
		sl.chunk = int64(s.Indexer.RowsPerChunk)
	}
	if err := sl.run(); err != nil {
		return err
	}
	sl.finish()
	return nil
}

// run adds the rows of every span, then the padding, to launches. With context parallelism, a rank has rows of every
// request, so all spans are added as one.
func (sl *slicer) run() error {
	s := sl.s
	s.Launches = make([]Launch, 0, 1+s.KernelRows/sl.limit)
	switch {
	case s.KernelRows < s.Rows:
		if err := sl.take(0, len(s.Spans), s.KernelRows, s.Keys); err != nil {
			return err
		}
	case s.NextN > 0 && sl.reserve == math.MaxInt64:
		// Decode, verify and draft segments do not depend on lengths, so all requests are added at once.
		if err := sl.take(0, len(s.Spans), s.Rows, 0); err != nil {
			return err
		}
	default:
		for i := range s.Spans {
			keys := 0
			if s.NextN == 0 {
				keys = spanKeys(sl.w.cfg, sl.w.b, &s.Spans[i])
			}
			if err := sl.take(i, 1, s.Spans[i].Rows(), keys); err != nil {
				return err
			}
		}
	}
	if pad := s.KernelRows - s.Rows; pad > 0 {
		if err := sl.take(len(s.Spans), 0, pad, 0); err != nil {
			return err
		}
	}
	sl.close()
	return nil
}

// take adds rows of count spans, beginning with span first, to launches. The spans together have the given number of
// keys.
func (sl *slicer) take(first, count, rows, keys int) error {
	for done := 0; done < rows; {
		fit := sl.fit(rows-done, rows, keys)
		if fit == 0 {
			if sl.open.launch.Rows == 0 {
				return sl.refuse(rows, keys)
			}
			sl.close()
			continue
		}
		sl.add(first, count, fit, rows, keys)
		done += fit
	}
	return nil
}

// with returns the load of the open launch after n more rows of a span that has the given number of rows and keys.
// All keys of the span are counted, because a row may attend to any of them.
func (sl *slicer) with(n, rows, keys int) load {
	l := sl.open.load
	cfg := sl.w.cfg
	l.rows += int64(n)
	l.keys += int64(keys)
	l.indexKeys += int64(cfg.Model.IndexKeys(keys))
	if keys > 0 {
		l.gathered += gatheredRows(cfg, sl.s, rows, keys)
	}
	l.chunk = min(l.rows, sl.chunk, sl.floor(l))
	return l
}

// floor returns the number of score rows for which memory is reserved. It is smaller if rows of scores are wide, so
// that the launch need not have fewer rows because of them.
func (sl *slicer) floor(l load) int64 {
	if sl.held.scoreRow == 0 {
		return scoreFloor
	}
	half := (sl.reserve - sl.held.indexKey*l.indexKeys) / 2 / sl.held.scoreRow
	return min(scoreFloor, max(int64(sl.grain), half))
}

// fit returns the largest number of rows, up to want, that the open launch can include.
func (sl *slicer) fit(want, rows, keys int) int {
	room := min(want, sl.limit-sl.open.launch.Rows)
	if sl.open.launch.Keys+keys > sl.keyCap && sl.open.launch.Rows > 0 {
		return 0
	}
	if room <= 0 || sl.reserve == math.MaxInt64 {
		return max(0, room)
	}
	fits := func(n int) bool {
		l := sl.with(n, rows, keys)
		if sl.held.bytes(l) <= sl.reserve {
			return true
		}
		l.chunk = min(l.chunk, int64(sl.grain))
		return sl.open.launch.Rows == 0 && n <= sl.grain && sl.held.bytes(l) <= sl.reserve
	}
	steps := (room + sl.grain - 1) / sl.grain
	n := sort.Search(steps, func(i int) bool { return !fits(min(room, (i+1)*sl.grain)) })
	return min(room, n*sl.grain)
}

func (sl *slicer) add(first, count, n, rows, keys int) {
	o := &sl.open
	o.load = sl.with(n, rows, keys)
	if o.launch.Rows == 0 {
		o.launch.FirstSpan = first
	}
	o.launch.Rows += n
	o.launch.Keys += keys
	o.launch.Spans = first + count - o.launch.FirstSpan
}

func (sl *slicer) close() {
	o := &sl.open
	if o.launch.Rows == 0 {
		return
	}
	s := sl.s
	s.TransientBytes = max(s.TransientBytes, sl.held.bytes(sl.chunked(o.load)))
	if n := s.NextN; n > 0 {
		end := min(len(s.Spans), (o.launch.FirstRow+o.launch.Rows+n-1)/n)
		o.launch.FirstSpan = min(len(s.Spans), o.launch.FirstRow/n)
		o.launch.Spans = end - o.launch.FirstSpan
	}
	s.Launches = append(s.Launches, o.launch)
	next := o.launch.FirstRow + o.launch.Rows
	*o = launchLoad{launch: Launch{FirstRow: next}}
}

// chunked sets the number of score rows at a time to the maximum that scoreBudget and the memory limit allow. It lowers
// the segment's RowsPerChunk to this number.
func (sl *slicer) chunked(l load) load {
	l.chunk = min(l.rows, sl.chunk)
	if sl.chunk == 0 || sl.held.bytes(l) <= sl.reserve {
		return l
	}
	n := sort.Search(int(l.chunk), func(i int) bool {
		m := l
		m.chunk = int64(i + 1)
		return sl.held.bytes(m) > sl.reserve
	})
	l.chunk = int64(max(n/sl.grain*sl.grain, sl.grain))
	sl.chunk = l.chunk
	return l
}

// finish counts chunks and adds the reasons for cuts.
func (sl *slicer) finish() {
	s := sl.s
	if sl.chunk > 0 {
		longest := 0
		for _, l := range s.Launches {
			longest = max(longest, l.Rows)
		}
		s.Indexer.RowsPerChunk = min(int(sl.chunk), longest)
		for _, l := range s.Launches {
			s.Indexer.Chunks += (l.Rows + s.Indexer.RowsPerChunk - 1) / s.Indexer.RowsPerChunk
		}
	}
	if len(s.Launches) > 1 {
		s.Reason("dispatch 17", "%d rows in %d launches of at most %d rows (%s)", s.KernelRows,
			len(s.Launches), sl.limit, sl.causes())
	}
}

func (sl *slicer) causes() string {
	why := sl.s.Limit
	if sl.keyCap != math.MaxInt {
		why += fmt.Sprintf("; at most %d keys", sl.keyCap)
	}
	if sl.reserve != math.MaxInt64 {
		why += fmt.Sprintf("; at most %d bytes", sl.reserve)
	}
	return why
}

// refuse returns the error that a single row does not fit in the memory limit.
func (sl *slicer) refuse(rows, keys int) error {
	l := sl.with(sl.grain, rows, keys)
	l.chunk = min(l.chunk, int64(sl.grain))
	need := sl.held.bytes(l)
	return &Error{Code: E17,
		Asked: fmt.Sprintf("a row over %d keys with kernel %s, which needs %d bytes of the transient reserve of %d",
			keys, sl.s.Kernel, need, sl.reserve), Supported: fmt.Sprintf("a reserve of at least %d bytes", need),
		Try: fmt.Sprintf("--reserve %d, or a shorter context", need)}
}
