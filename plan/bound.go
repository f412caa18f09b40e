package plan

import "slices"

// Most holds the limits of passes of one kind.
type Most struct {
	Pass     Pass
	Rows     int // maximum new tokens
	Requests int
	Prompts  int // maximum prompts among Requests; 0 if all requests decode, verify or draft
	Context  int // maximum tokens of a sequence
	Width    int // maximum rows of a request that is not a prompt
	Logits   int
	Whole    int // maximum rows of logits that are returned whole
	Draws    bool
	Record   Record
	Recorded int
	Replay   Replay
	Replayed int
	// Joint means that passes compute the indexer queries of all rows together (Plan.JointQueries).
	Joint bool
}

// Bound returns a plan whose every count is at least that of any pass within the limits m, so memory laid out for it is
// large enough for all these passes. The plan has no batch: it has a segment for every kind of rows, each with all rows
// in one launch, so its segments overlap.
//
// Each count grows with rows and keys, and the memory of a launch grows with its counts, with one exception: with
// more keys, fewer score rows are computed at a time. Between the two extremes of this trade-off (all rows at a time,
// and all keys) the memory is a convex function of the keys, so segments at the two extremes bound all cases between
// them.
func Bound(cfg Config, m Most) *Plan {
	p := &Plan{Runnable: cfg.Runnable, Collectives: cfg.joins(ModeExtend), Pass: m.Pass, Rows: m.Rows,
		Requests: m.Requests,
		Logits:   m.Logits, WholeLogits: m.Whole, Draws: m.Draws, Record: m.Record, Recorded: m.Recorded,
		Replay: m.Replay, Replayed: m.Replayed, JointQueries: m.Joint}
	longest := NewBatch(ModeDecode, DecodeRequest(m.Context))
	w := &bounder{Builder: Builder{cfg: &cfg, cat: &sparrowCatalogue, b: &longest, plan: p}, m: m}
	p.TablePages, _ = longest.tablePages(&cfg) // there is no error, because TablePages is not set
	ranks := 1
	if cfg.Model.ByRequests() {
		ranks = cfg.Model.Ranks
	}
	for rank := range ranks {
		w.rank = rank
		w.segments()
	}
	w.rank = 0
	if !p.Selects() {
		p.Record.Selections, p.Record.Scores, p.Replay.Selections = false, false, false
	}
	w.boundInputs()
	return p
}

// bounder holds the state of one call of Bound.
type bounder struct {
	Builder
	m    Most
	rank int
	sum  gathered
}

// segments adds a segment for every kind of rows that the pass can have.
func (w *bounder) segments() {
	cfg, m := w.cfg, &w.m
	v4 := cfg.Model.V4()
	if v4 && m.Pass != PassTarget {
		w.add(RowDraft, max(m.Width, 1), m.Rows, m.Context)
		return
	}
	if m.Prompts > 0 {
		short := min(cfg.Model.ShortKeys(), m.Context)
		dense := 0
		if cfg.DenseOK {
			dense = min(cfg.T, m.Context)
			w.add(RowDensePrefill, 0, m.Rows, dense)
		}
		if short > dense {
			w.add(cfg.Model.shortRow(), 0, m.Rows, short)
		}
		if m.Context > max(short, dense) {
			w.add(RowSparsePrefill, 0, m.Rows, m.Context)
		}
	}
	if m.Pass != PassTarget {
		w.add(RowDraft, 1, min(m.Rows, m.Requests*m.Width), m.Context)
		return
	}
	w.add(RowDecode, 1, min(m.Rows, m.Requests), m.Context)
	for n := 2; n <= min(m.Width, m.Rows); n++ {
		w.add(RowVerify, n, min(m.Rows, m.Requests*n)/n*n, m.Context)
	}
}

// add adds a segment of one kind of rows, whose requests have at most the given number of keys.
func (w *bounder) add(row RowKind, nextN, rows, keys int) {
	s := Segment{Row: row, NextN: nextN, Rank: w.rank, Rows: rows, KernelRows: rows, Requests: w.m.Requests,
		Layout: w.cfg.Layout, Spans: []Span{{To: max(nextN, 1)}}}
	w.shapeRow(&s)
	w.rowIndexer(&s)
	if s.Indexer.Kind != IndexerNone {
		s.Indexer.Heads = paddedIndexHeads(w.cfg.Hardware.Arch, w.cfg.Model.IndexHeads)
	}
	most := rows // maximum rows of a launch
	if s.RowsPerLaunch > 0 {
		most = min(most, s.RowsPerLaunch)
	}
	if n := s.Indexer.NextN; n > 1 {
		most = most / n * n
	}
	w.list(&s, most, keys)
	if !s.Scores() {
		w.launch(s, most, keys, keys)
		return
	}
	if nextN > 0 {
		s.Indexer.ScoreWidth, s.Indexer.RowsPerChunk = w.scoreWidth(w.plan.TablePages*w.cfg.Page), most
		w.launch(s, most, keys, keys)
		return
	}
	if s.Indexer.Kind != IndexerRagged { // scores of pages that are read in place have the width of the page table
		keys = w.plan.TablePages * w.cfg.Page
	}
	// The maximum number of scores at a time is the largest of three: the size below which no check is made, the
	// budget, and one row.
	width := w.scoreWidth(keys)
	scores := max(smallScores+4*rows, int(scoreBudget(w.cfg, w.b)/4), width)
	s.Indexer.ScoreWidth, s.Indexer.RowsPerChunk = width, clamp(scores/width, 1, most)
	w.launch(s, most, keys, keys)
	if s.Indexer.RowsPerChunk == most {
		return
	}
	// A launch that scores all rows at a time, with as many keys as the maximum number of scores allows (see Bound).
	fewer := roundUp(scores/most+1, 4)
	s.Indexer.ScoreWidth, s.Indexer.RowsPerChunk = fewer, most
	w.launch(s, most, keys, min(keys, w.tokensOf(fewer)))
}

// scoreWidth returns the width of a matrix of scores over the given number of tokens.
func (w *bounder) scoreWidth(tokens int) int {
	n := max(1, w.cfg.Model.IndexKeys(tokens))
	if w.cfg.Hardware.Arch.CUDA() {
		n = roundUp(n, 4)
	}
	return n
}

// tokensOf returns how many tokens have at most the given number of indexer keys.
func (w *bounder) tokensOf(indexKeys int) int {
	if w.cfg.Model.Pooled() {
		return indexKeys*poolTokens + poolTokens - 1
	}
	if w.cfg.Model.V4() {
		return indexKeys*w.cfg.Model.indexRatio() + w.cfg.Model.indexRatio() - 1
	}
	return indexKeys
}

// list counts the entries that the launches of a segment list. Each launch has at most the given number of rows,
// whose requests have at most the given number of keys. A launch lists all keys of its requests; if a launch ends
// inside the rows of a request, the next launch lists its keys again.
func (w *bounder) list(s *Segment, rows, keys int) {
	cfg, m, n := w.cfg, &w.cfg.Model, &w.sum
	if s.NextN > 0 {
		return
	}
	lists := w.prompts() + (w.m.Rows-1)/rows
	if cfg.MaxTransient > 0 { // a launch may have one row
		lists = w.prompts() + w.m.Rows - 1
	}
	if m.V41() {
		return // every entry is read in place, so no launch lists any
	}
	if m.V4() {
		n.window += w.m.Rows + lists*(m.Window-1)
		n.groups += lists * (keys / ratio4)
		n.heavy += lists * (keys / ratio128)
		return
	}
	if m.Pooled() {
		n.groups += lists * (keys / poolTokens)
		if s.Convert.Gathers() {
			n.rows += lists * keys
		}
		return
	}
	switch {
	case s.Convert.Gathers():
		n.rows += lists * keys
	case s.Convert == ConvertRawToBlock:
		n.pages += lists * pagesOf(keys, cfg.Page)
		n.tables += lists * w.m.Requests
	}
	if s.Indexer.Kind == IndexerRagged {
		n.keys += lists * keys
	}
}

// prompts returns how many requests have rows of prompts.
func (w *bounder) prompts() int { return min(w.m.Prompts, w.m.Requests) }

// launch adds a segment with one launch of the given number of rows. Its requests have at most the given number of
// keys, and at most index indexer keys.
func (w *bounder) launch(s Segment, rows, keys, index int) {
	cfg, m := w.cfg, &w.cfg.Model
	l := Launch{Rows: rows, Spans: len(s.Spans)}
	all := w.prompts() // requests of the launch
	switch flat := s.Form == FormV4SparsePrefill; {
	case s.NextN > 0 || m.V41():
	case m.V4():
		if flat {
			l.Gather.Count = min(all*keys, rows+all*(m.Window-1))
			l.Heavy.Count = all * (keys / ratio128)
		}
		if flat || s.Indexer.Kind == IndexerRagged {
			// The list Groups has one entry for each group that is scored.
			l.Groups.Count = all * (index / ratio4)
			l.Index = l.Groups
		}
	case cfg.capsKeys(&s):
		// Requests share a launch while the sum of their keys is at most the chunk capacity.
		l.Gather.Count = min(all*keys, max(cfg.C, keys))
	case s.Convert.Gathers():
		l.Gather.Count = all * keys
	case s.Convert == ConvertRawToBlock:
		l.Pages.Count, l.Tables.Count = all*pagesOf(keys, cfg.Page), w.m.Requests
	}
	if s.NextN == 0 && !m.V4() && s.Indexer.Kind == IndexerRagged {
		l.Index.Count = all * m.IndexKeys(index)
	}
	s.Launches = []Launch{l}
	w.plan.Segments = append(w.plan.Segments, s)
}

// boundInputs lays out the input block, in which every rank has all rows.
func (w *bounder) boundInputs() {
	p, m := w.plan, &w.cfg.Model
	p.Inputs = make([]Array, 0, arrayCount)
	closes := func(ratio int) int { // a request completes at most one group more than its rows fill
		return min(p.Rows, p.Rows/ratio+p.Requests)
	}
	switch {
	case m.Pooled():
		w.sum.light = closes(poolTokens)
		w.pooledArrays(&w.sum)
	case !m.V4():
		w.latentArrays(&w.sum)
	case p.Pass == PassBlock:
		w.blockArrays(p.Rows)
	case m.V41():
		w.sharedArrays(closes(m.lightRatio()))
	case p.Pass != PassTarget:
		w.windowArrays(min(p.Rows, p.Requests*m.Window))
	default:
		w.sum.light, w.sum.closes = closes(ratio4), closes(ratio128)
		w.dualArrays(&w.sum)
	}
	w.commonArrays()
	if !m.ByRequests() {
		return
	}
	all := p.Share(0)
	p.Shares = slices.Repeat([]Share{all}, m.Ranks)
	p.RowBounds, p.DraftBounds = make([]int, m.Ranks+1), make([]int, m.Ranks+1)
	for r := range m.Ranks {
		p.RowBounds[r+1], p.DraftBounds[r+1] = all.Rows, all.Drafted.Count
	}
}
