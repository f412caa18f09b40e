package plan

import (
	"slices"

	"sparrow/sample"
)

// ArrayName names an array of the input block.
type ArrayName uint8

// Shapes: R rows of the pass, B requests, W pages of a page table, L rows of logits. Rows are in plan order: the rows
// of a segment are consecutive. In lists of gathered or converted entries, the entries of each launch follow those of
// the previous launch (Launch.Gather, Launch.Index and so on). "Entry of ratio r" is a compressed entry of V4 that
// covers r tokens.
const (
	ArrayUnset    ArrayName = iota
	TokenIDs                // [R] token of the row; in a drafting pass, the token after it
	Positions               // [R] position of the row in its sequence
	RowRequests             // [R] index of the row's request, which is also its row in PageTable
	Slots                   // [R] cache slot in which the row's key is stored, -1: not stored
	Lengths                 // [R] keys that the row may attend to
	Kept                    // [R] number of keys that the row attends to, at most Lengths
	PageTable               // [B, W] physical page of each logical page of the request
	GatherSlots             // [n] slots of the rows that launches gather
	GatherStart             // [R] index of the first entry of the row's request in its launch's part of GatherSlots
	IndexSlots              // [n] slots of the indexer keys that launches gather
	IndexStart              // [R] index of the first entry of the row's request in its launch's part of IndexSlots
	ConvertPages            // [n] pages that launches convert
	ConvertTables           // [launches * B, W] page tables that refer to the converted pages
	LogitRows               // [L] rows whose logits are computed
	WholeRows               // [w] rows of logits that are returned whole; only if some rows are not
	Draws                   // [L, 10] sampling parameters of each row of logits; only if the device samples tokens
	HiddenRows              // [R] drafting: index of the row's hidden state among the rows of the previous pass

	WindowLengths  // [R] V4: window entries that the row attends to
	WindowIndices  // [R, w] V4: slots of the window entries, or indices among the request's gathered entries
	WindowStart    // [R] V4: number to add to an index within the row's request, to get a row of the workspace
	Groups         // [R] V4: entries of ratio 4 that the row may select
	GroupSlots     // [n] V4: cache slots of the entries of ratio 4 that launches gather
	GroupStart     // [R] V4: index of the first entry of the row's request in its launch's part of GroupSlots
	GroupBase      // [R] V4: workspace row of the first entry of ratio 4 of the row's request
	HeavyLengths   // [R] V4: entries of ratio 128 that the row attends to
	HeavyIndices   // [R, w] V4: slots of the entries of ratio 128, or indices among the request's gathered entries
	HeavySlots     // [n] V4: cache slots of the entries of ratio 128 that launches gather
	HeavyBase      // [R] V4: workspace row of the first entry of ratio 128 of the row's request
	CloseSources   // [n, 8] V4: raw rows that are compressed to an entry of ratio 4
	CloseSlots     // [n] V4: cache slot in which the entry of ratio 4 is stored, -1: not stored
	ClosePositions // [n] V4: position of the first token of the entry of ratio 4
	KeepRows       // [R] V4: the row's index in the rings of ratio 4, -1: none
	TailRows       // [R] V4: the row's index among the last rows of a window page, -1: none
	HeavySources   // [n, 128] V4: raw rows that are compressed to an entry of ratio 128
	HeavyCloses    // [n] V4: cache slot in which the entry of ratio 128 is stored, -1: not stored
	HeavyPositions // [n] V4: position of the first token of the entry of ratio 128
	HeavyKeeps     // [R] V4: the row's index in the rings of ratio 128, -1: none
	DraftRows      // [R] V4 drafting: row of the plan that each computed row is
	BlockLengths   // [R] V4 block drafting: number of entries of the row's own block that it attends to
	BlockIndices   // [R, w] V4 block drafting: cache slots of the entries of the row's own block

	StateRows  // [R] linear attention: rows of the pass, sorted by request, then by position
	StateSpans // [B, 6] linear attention: the request's part of StateRows, its state slot and flags (StateSpanWords)
	Snapshots  // [R] linear attention: window page in which the state after the row is stored, -1: none
	StateFirst // [B] linear attention: position of the request's first row; only if prompts are computed in groups

	Entries         // [R] V4.1: entries of ratio 1 that the row may select
	EntriesKept     // [R] V4.1: number of entries that the row attends to, at most Entries
	EntrySlots      // [R] V4.1: cache slot of the row's own entry, -1: none
	BlockCounts     // [R] V4.1: number of blocks among which the row selects candidates, in layer Sharing.Candidates
	CandidateCounts // [R] V4.1: number of entries in the candidate blocks of the row
	RowNumbers      // [R] V4.1: the number of the row, which is its row in the list of candidate blocks
	TableRows       // [R, w] V4.1: rows of the n-gram tables that are read for the token, sorted by table

	RecordRows       // [c] rows whose recorded choices are returned
	ReplayRows       // [p] rows whose selections are replayed, -1: none
	ReplaySelections // [p, layers that select * index_topk] replayed selections
	ReplayMixed      // [p] rows whose experts are replayed, -1: none
	ReplayExperts    // [p, layers with experts * experts of a row] replayed experts
	ReplayWeights    // [p, layers with experts * experts of a row] float32 bits of their routing weights
	arrayCount
)

var arrayNames = enum[ArrayName]{"array", []string{"",
	"token_ids", "positions", "row_requests", "slots", "lengths", "kept", "page_table", "gather_slots", "gather_start",
	"index_slots", "index_start", "convert_pages", "convert_tables", "logit_rows", "whole_rows", "draws",
	"hidden_rows",
	"window_lengths", "window_indices", "window_start", "groups", "group_slots", "group_start", "group_base",
	"heavy_lengths", "heavy_indices", "heavy_slots", "heavy_base", "close_sources", "close_slots", "close_positions",
	"keep_rows", "tail_rows", "heavy_sources", "heavy_closes", "heavy_positions", "heavy_keeps", "draft_rows",
	"block_lengths", "block_indices", "state_rows", "state_spans", "snapshots", "state_first",
	"entries", "entries_kept", "entry_slots", "block_counts", "candidate_counts", "row_numbers", "table_rows",
	"record_rows", "replay_rows", "replay_selections", "replay_mixed", "replay_experts", "replay_weights",
}}

func (a ArrayName) String() string                { return arrayNames.text(a) }
func (a ArrayName) MarshalText() ([]byte, error)  { return arrayNames.marshal(a) }
func (a *ArrayName) UnmarshalText(t []byte) error { return arrayNames.unmarshal(a, t) }

// Array is one array of the input block: int32 [Rows, Cols] from word First on.
type Array struct {
	Name  ArrayName `json:"name"`
	Rows  int       `json:"rows"`
	Cols  int       `json:"cols"`
	First int       `json:"first"`
}

// Words returns the size of the array.
func (a Array) Words() int { return a.Rows * a.Cols }

// Input returns the array of that name. It has no rows if the pass does not have the array.
func (p *Plan) Input(name ArrayName) Array {
	for _, a := range p.Inputs {
		if a.Name == name {
			return a
		}
	}
	return Array{Name: name}
}

// PromptRows returns the number of rows that belong to prompts: the first rows, because segments of prompts come
// before all others.
func (p *Plan) PromptRows() int {
	n := 0
	for i := range p.Segments {
		if s := &p.Segments[i]; !s.Row.DecodeLike() {
			n += s.Rows
		}
	}
	return min(n, p.Rows) // segments of a Bound plan overlap
}

// Selects reports whether any row attends to a selection of keys.
func (p *Plan) Selects() bool {
	for i := range p.Segments {
		if f := p.Segments[i].Form; !f.EveryKey() && f != FormEmpty {
			return true
		}
	}
	return false
}

// ReadsPages reports whether attention of any row reads pages in place.
func (p *Plan) ReadsPages() bool {
	for i := range p.Segments {
		if f := p.Segments[i].Form; f != FormDenseMHA && f != FormEmpty {
			return true
		}
	}
	return false
}

// DenseRow reports whether row i of the pass attends to every key without a
// selection.
func (p *Plan) DenseRow(i int) bool {
	for j := range p.Segments {
		if s := &p.Segments[j]; i >= s.FirstRow && i < s.FirstRow+s.Rows {
			return s.Form.EveryKey()
		}
	}
	return false
}

// arrayWords is the alignment of arrays: 256 bytes, the alignment with which GPUs read fastest.
const arrayWords = 64

func (p *Plan) array(name ArrayName, rows, cols int) {
	if rows == 0 || cols == 0 {
		return
	}
	p.Inputs = append(p.Inputs, Array{Name: name, Rows: rows, Cols: cols, First: p.InputWords})
	p.InputWords = roundUp(p.InputWords+rows*cols, arrayWords)
}

// each adds, for every name, an array with one word per row of the pass.
func (p *Plan) each(names ...ArrayName) {
	for _, name := range names {
		p.array(name, p.Rows, 1)
	}
}

// inputs lays out the input block of a pass of the catalogue sparrow and assigns each launch its part of the gathered
// lists.
func (w *Builder) inputs() {
	p := w.plan
	p.Inputs = make([]Array, 0, arrayCount)
	switch {
	case w.cfg.Model.Pooled():
		w.pooledInputs()
	case !w.cfg.Model.V4():
		w.latentInputs()
	case p.Pass == PassBlock:
		w.blockArrays(p.Rows)
	case w.cfg.Model.V41():
		w.sharedInputs()
	case p.Pass != PassTarget:
		w.windowInputs()
	default:
		w.dualInputs()
	}
	w.commonArrays()
}

// commonArrays adds the arrays of any pass, if it needs them: rows whose logits are computed, sampling parameters, and
// recorded and replayed choices.
func (w *Builder) commonArrays() {
	p := w.plan
	p.array(LogitRows, p.Logits, 1)
	if p.WholeLogits < p.Logits {
		p.array(WholeRows, p.WholeLogits, 1)
	}
	if p.Draws {
		p.array(Draws, p.Logits, sample.DrawWords)
	}
	w.choiceInputs()
}

// choiceInputs adds the arrays of rows that record or replay their choices.
func (w *Builder) choiceInputs() {
	p := w.plan
	p.array(RecordRows, p.Recorded, 1)
	if p.Replayed == 0 {
		return
	}
	s := w.cfg.Model.Choices()
	if p.Replay.Selections {
		p.array(ReplayRows, p.Replayed, 1)
		p.array(ReplaySelections, p.Replayed, s.Selecting()*s.TopK)
	}
	if p.Replay.Experts {
		p.array(ReplayMixed, p.Replayed, 1)
		p.array(ReplayExperts, p.Replayed, s.Mixing()*s.Chosen)
		p.array(ReplayWeights, p.Replayed, s.Mixing()*s.Chosen)
	}
}

// gathered holds the lengths of the lists in which each launch has a part, and of V4's lists of completed entries.
type gathered struct {
	rows, keys, pages, tables int
	window, groups, heavy     int
	light, closes             int // completed entries of ratio 4 (light) and 128 (closes)
}

// latentInputs adds the arrays of MLA.
func (w *Builder) latentInputs() {
	var n gathered
	w.eachLaunch(func(s *Segment, l *Launch, r launchReach) {
		switch {
		case s.Convert.Gathers():
			l.Gather = next(&n.rows, r.keys)
		case s.Convert == ConvertRawToBlock:
			l.Pages, l.Tables = next(&n.pages, r.pages), next(&n.tables, w.plan.Requests)
		}
		if s.Indexer.Kind == IndexerRagged {
			l.Index = next(&n.keys, r.keys)
		}
	})
	w.latentArrays(&n)
}

func (w *Builder) latentArrays(n *gathered) {
	p := w.plan
	p.each(TokenIDs, Positions, RowRequests, Slots, Lengths)
	if p.Pass != PassTarget {
		p.each(HiddenRows)
	}
	if p.Selects() {
		p.each(Kept)
	}
	if p.ReadsPages() { // dense rows read only gathered keys, not pages
		p.array(PageTable, p.Requests, p.TablePages)
	}
	p.array(GatherSlots, n.rows, 1)
	if n.rows > 0 {
		p.each(GatherStart)
	}
	p.array(IndexSlots, n.keys, 1)
	if n.keys > 0 {
		p.each(IndexStart)
	}
	p.array(ConvertPages, n.pages, 1)
	p.array(ConvertTables, n.tables, p.TablePages)
}

// windowInputs adds the arrays of V4's drafting block. For a prompt, only the rows of the last window are computed,
// because later rows attend only to them.
func (w *Builder) windowInputs() {
	rows := 0
	for i := range w.b.Requests {
		rows += min(w.b.Rows(w.cfg, i), w.cfg.Model.Window)
	}
	w.windowArrays(rows)
}

func (w *Builder) windowArrays(rows int) {
	for _, name := range []ArrayName{TokenIDs, Positions, Slots, WindowLengths, HiddenRows, DraftRows} {
		w.plan.array(name, rows, 1)
	}
	w.plan.array(WindowIndices, rows, w.cfg.Model.windowWidth())
}

// blockArrays adds the arrays of V4's drafting stages: every row of a block attends to the window before the block,
// which passes of the target have stored, and to all rows of the block.
func (w *Builder) blockArrays(rows int) {
	for _, name := range []ArrayName{TokenIDs, Positions, Slots, WindowLengths, BlockLengths, DraftRows} {
		w.plan.array(name, rows, 1)
	}
	w.plan.array(WindowIndices, rows, w.cfg.Model.windowWidth())
	w.plan.array(BlockIndices, rows, roundUp(w.cfg.Model.Block, blockGrain))
}

// blockGrain is the number of indices to a multiple of which GPU kernels require index rows to be padded.
const blockGrain = 64

// dualInputs adds the arrays of V4's attention over two streams.
func (w *Builder) dualInputs() {
	m := &w.cfg.Model
	light, heavy := slices.Contains(m.Ratios, ratio4), slices.Contains(m.Ratios, ratio128)
	n := gathered{light: closingPairs(w, ratio4), closes: closingPairs(w, ratio128)}
	w.eachLaunch(func(s *Segment, l *Launch, r launchReach) {
		flat := s.Form == FormV4SparsePrefill
		if flat {
			l.Gather = next(&n.window, r.window)
		}
		if light && (flat || s.Indexer.Kind == IndexerRagged) {
			l.Groups = next(&n.groups, r.groups)
			l.Index = l.Groups
		}
		if heavy && flat {
			l.Heavy = next(&n.heavy, r.heavy)
		}
	})
	w.dualArrays(&n)
}

func (w *Builder) dualArrays(n *gathered) {
	p, m := w.plan, &w.cfg.Model
	p.each(TokenIDs, Positions, RowRequests, Slots, WindowLengths)
	p.array(WindowIndices, p.Rows, m.windowWidth())
	p.array(PageTable, p.Requests, p.TablePages)
	p.array(GatherSlots, n.window, 1)
	if n.window > 0 {
		p.each(WindowStart)
	}
	if slices.Contains(m.Ratios, ratio4) {
		p.each(Groups, Kept, GroupStart, GroupBase, KeepRows, TailRows)
		p.array(GroupSlots, n.groups, 1)
		p.array(CloseSources, n.light, 2*ratio4)
		p.array(CloseSlots, n.light, 1)
		p.array(ClosePositions, n.light, 1)
	}
	if slices.Contains(m.Ratios, ratio128) {
		p.each(HeavyLengths, HeavyBase, HeavyKeeps)
		p.array(HeavyIndices, p.Rows, m.heavyWidth(p.TablePages*w.cfg.Page))
		p.array(HeavySlots, n.heavy, 1)
		p.array(HeavySources, n.closes, ratio128)
		p.array(HeavyCloses, n.closes, 1)
		p.array(HeavyPositions, n.closes, 1)
	}
}

// next returns the part of a list that the next n entries occupy, and advances used.
func next(used *int, n int) Run {
	r := Run{First: *used, Count: n}
	*used += n
	return r
}

// closingPairs returns how many entries of a ratio the pass completes. For decode, verify and draft requests it returns
// the maximum, because plans do not depend on their lengths; unused entries are padding.
func closingPairs(w *Builder, ratio int) int {
	n := 0
	for i := range w.b.Requests {
		n += w.b.Closing(w.cfg, i, ratio)
	}
	return n
}

// Closing returns how many entries of a ratio request i completes in a pass. If the plan does not depend on the
// request's length, it returns the maximum that its rows can complete.
func (b *Batch) Closing(cfg *Config, i, ratio int) int {
	rows := b.Rows(cfg, i)
	if b.KindOf(i).DecodeLike() {
		return (rows + ratio - 1) / ratio
	}
	first := b.firstPosition(i, rows)
	return (first+rows)/ratio - first/ratio
}

// launchReach is the number of entries that the rows of a launch attend to, summed over its requests: keys, their
// pages, V4's window entries, and V4's entries of ratio 4 (groups) and 128 (heavy).
type launchReach struct{ keys, pages, window, groups, heavy int }

// eachLaunch calls visit for each launch of a prompt segment, with its reach. Launches of other segments gather
// nothing.
func (w *Builder) eachLaunch(visit func(*Segment, *Launch, launchReach)) {
	for i := range w.plan.Segments {
		s := &w.plan.Segments[i]
		if s.NextN > 0 {
			continue
		}
		for j := range s.Launches {
			l := &s.Launches[j]
			var r launchReach
			for _, sp := range s.Spans {
				from, to := max(l.FirstRow, sp.FirstRow), min(l.FirstRow+l.Rows, sp.FirstRow+sp.Rows())
				if from >= to {
					continue
				}
				// the position that row 0 of the segment would have if it were in this span
				first := w.b.FirstPosition(w.cfg, sp.Request) + sp.From - sp.FirstRow
				r.add(w.cfg, first+from, first+to)
			}
			visit(s, l, r)
		}
	}
}

// add counts rows of one request at positions first to end.
func (r *launchReach) add(cfg *Config, first, end int) {
	r.keys += max(end, 0)
	r.pages += pagesOf(max(end, 0), cfg.Page)
	r.window += end - max(first+1-cfg.Model.Window, 0)
	r.groups += end / ratio4
	r.heavy += end / ratio128
}
