package formula

import (
	"fmt"
	"time"

	"sparrow/internal/attn"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/kernel"
	"sparrow/plan"
)

// Sizes of a Windowed model, as in DeepSeek-V4.
const (
	window = 128 // tokens in the sliding window of a row
	group  = 4   // tokens of a compressed entry, which also depends on the previous group
	ring   = 16  // marks in a state: two groups, and as many again so that tokens can be truncated
)

// Windowed has the structure of DeepSeek-V4: a row attends to a sliding window of marks, in window pages, and to a
// compressed entry for each group of earlier tokens. Entries are computed from marks in the sequence's state.
type Windowed struct {
	dev    *Device
	config config.Config
	facts  plan.Model

	pageTokens, pages int
	marks             []uint64 // [slots of window pages] marks of rows
	entries           []uint64 // [pages * groups per page] compressed entries
	// tails is [window pages, group]: the last marks of each window page, from which a state is restored.
	tails  [][]uint64
	held   int // number of states that were not released
	logits []float32
}

var _ model.Windowed = (*Windowed)(nil)

// newWindowed returns a model with a drafting block.
func newWindowed(s Shape, dev *Device) *Windowed {
	return &Windowed{dev: dev, logits: make([]float32, s.Vocab),
		config: config.Config{Family: config.DeepseekV4, Vocab: s.Vocab, Hidden: 1, Layers: 1, NextN: 1,
			MaxPositions: s.Context, Indexer: config.Indexer{Heads: 64, Dim: 128, TopK: topK}},
		facts: plan.Model{Family: plan.DeepSeekV4, Heads: 64, K: topK, IndexHeads: 64, QKDim: 512, VDim: 512, Layers: 1,
			NextN: 1, Context: s.Context, Window: window, Ratios: []int{group}}}
}

// Config returns the description of the model.
func (m *Windowed) Config() *config.Config { return &m.config }

// Facts returns the properties that the planner reads.
func (m *Windowed) Facts() plan.Model { return m.facts }

// Device returns the device of the model.
func (m *Windowed) Device() kernel.Machine { return m.dev }

// DraftHead returns nil, because the model has a drafting block.
func (m *Windowed) DraftHead() error { return nil }

// Allocate allocates the cache with one window page per page.
func (m *Windowed) Allocate(cfg *plan.Config, pages int) error {
	return m.AllocateWindows(cfg, pages, pages)
}

// AllocateWindows allocates the cache with the given number of window pages.
func (m *Windowed) AllocateWindows(cfg *plan.Config, pages, windows int) error {
	m.pageTokens, m.pages = cfg.Page, pages
	m.marks, m.entries = make([]uint64, windows*cfg.Page), make([]uint64, pages*cfg.Page/group)
	m.tails = make([][]uint64, windows)
	for i := range m.tails {
		m.tails[i] = make([]uint64, group)
	}
	return nil
}

// PageBytes returns the bytes of a page and its window page.
func (m *Windowed) PageBytes(cfg *plan.Config) int64 { return int64(cfg.Page) * (8 + 8/group) }

// WindowBytes returns the bytes of a window page.
func (m *Windowed) WindowBytes(cfg *plan.Config) int64 { return int64(cfg.Page) * 8 }

// Window returns the number of tokens in the sliding window.
func (m *Windowed) Window() int { return window }

// StateBytes returns the bytes of a state.
func (m *Windowed) StateBytes(*plan.Config) int64 { return 8 * ring }

// States returns the number of states that were not released.
func (m *Windowed) States() int { return m.held }

// windowSpace is the workspace of a Windowed model.
type windowSpace struct {
	m       *Windowed
	hash    []uint64 // hash after every row of the last target pass
	rows    int      // number of rows of the last target pass; 0 if they are not valid
	drafted int      // number of rows of the last pass of the drafting block; 0 if they are not valid
}

// Bind allocates a workspace.
func (m *Windowed) Bind(_ *kernel.Arena, rows int) model.Workspace {
	return &windowSpace{m: m, hash: make([]uint64, rows)}
}

// Arrange prepares the passes of a plan.
func (w *windowSpace) Arrange(p *plan.Plan, _ *plan.Config, a *kernel.Arena) (model.Pass, error) {
	m := w.m
	if err := m.dev.try(OpArrange); err != nil {
		return nil, err
	}
	if p.Rows > len(w.hash) {
		return nil, fmt.Errorf("formula: workspace holds %d rows, pass has %d", len(w.hash), p.Rows)
	}
	s := &windowPass{m: m, work: w}
	s.take(&m.config, p, a)
	return s, nil
}

// Reserve does nothing, because states are allocated one by one.
func (m *Windowed) Reserve(int) error { return nil }

// NewState returns the state of an empty sequence.
func (m *Windowed) NewState() (model.State, error) {
	if err := m.dev.try(OpState); err != nil {
		return nil, err
	}
	m.held++
	return &state{m: m}, nil
}

// Restore returns the state after n tokens, from the marks in window pages.
func (m *Windowed) Restore(n int, windows []int32) (model.State, error) {
	given, err := m.NewState()
	if err != nil {
		return nil, err
	}
	s, last := given.(*state), n/m.pageTokens-1
	if n%m.pageTokens != 0 || last < 0 || last >= len(windows) || windows[last] < 0 {
		s.Release()
		return nil, fmt.Errorf("formula: a state after %d tokens cannot be restored from %d window pages", n,
			len(windows))
	}
	for i, mark := range m.tails[windows[last]] {
		s.ring[(n-group+i)%ring] = mark
	}
	s.len, s.low, s.high = n, n-group, n
	return s, nil
}

// Commit advances the states of a batch by the tokens of the pass.
func (m *Windowed) Commit(in *model.Input) {
	for r, s := range in.States {
		s.(*state).len += len(in.Tokens[r])
	}
}

// state holds the last marks of a sequence; the mark of position p is at index p mod ring.
type state struct {
	m        *Windowed
	ring     [ring]uint64
	len      int
	low      int // first position whose mark is stored
	high     int // position after the last one that was written
	released bool
}

// Len returns the number of tokens of the sequence.
func (s *state) Len() int { return s.len }

// Clone returns a copy of the state.
func (s *state) Clone() (model.State, error) {
	out := *s
	s.m.held++
	return &out, nil
}

// Truncate removes the tokens from n on. It fails if marks that the next group needs are no longer stored.
func (s *state) Truncate(n int) error {
	if n < 0 || n > s.len {
		return fmt.Errorf("formula: a state of %d tokens cannot be truncated to %d", s.len, n)
	}
	if n == 0 {
		s.len, s.low, s.high = 0, 0, 0
		return nil
	}
	if err := s.holds(n); err != nil {
		return err
	}
	s.len = n
	return nil
}

// holds returns an error unless the state has the marks that are needed to continue after n tokens.
func (s *state) holds(n int) error {
	if first, held := max(n/group*group-group, 0), max(s.low, s.high-ring); first < held {
		return fmt.Errorf("formula: to continue after %d tokens, position %d is needed, but the state begins at "+
			"position %d", n, first, held)
	}
	return nil
}

// Release ends the use of the state; a second call panics.
func (s *state) Release() {
	if s.released {
		panic("formula: a state was released twice")
	}
	s.released = true
	s.m.held--
}

// check returns an error unless the state can continue at position first.
func (m *Windowed) check(given model.State, first int) (*state, error) {
	s, ok := given.(*state)
	switch {
	case !ok || s == nil || s.m != m || s.released:
		return nil, fmt.Errorf("formula: the sequence has no state of this model")
	case s.len != first:
		return nil, fmt.Errorf("formula: the sequence continues at position %d, but its state covers %d tokens", first,
			s.len)
	}
	return s, s.holds(first)
}

// places returns the window pages of request r, or its pages if there are no window pages.
func places(in *model.Input, r int) []int32 {
	if len(in.Windows) == 0 || in.Windows[r] == nil {
		return in.Tables[r]
	}
	return in.Windows[r]
}

// windowPass is a pass of Windowed or of its drafting block.
type windowPass struct {
	blocks
	m      *Windowed
	work   *windowSpace
	states []*state
	tails  []int32 // [rows] window page whose last marks include the row's mark, or -1

	program divided
}

// Prepare fills the input block.
func (s *windowPass) Prepare(in *model.Input, words []int32) error {
	if err := s.m.dev.try(OpPrepare); err != nil {
		return err
	}
	block := attn.NewBlock(s.plan, words)
	if s.plan.Pass != plan.PassTarget {
		return s.prepareDraft(in, block)
	}
	m := s.m
	s.work.rows, s.states = 0, s.states[:0]
	if err := in.Batch.CheckPages(m.pages); err != nil {
		return err
	}
	if err := in.FillTokens(block.Array(plan.TokenIDs), m.config.Vocab); err != nil {
		return err
	}
	for r := range in.Tokens {
		st, err := m.check(in.States[r], in.Batch.Batch.FirstPosition(in.Config, r))
		if err != nil {
			return err
		}
		s.states = append(s.states, st)
	}
	in.FillTable(block.Array(plan.PageTable), in.Tables, 0)
	position, slots, request := block.Array(plan.Positions), block.Array(plan.Slots), block.Array(plan.RowRequests)
	seen, width := block.Array(plan.WindowIndices), s.plan.Input(plan.WindowIndices).Cols
	lens := block.Array(plan.WindowLengths)
	s.tails = append(s.tails[:0], make([]int32, s.plan.Rows)...)
	err := in.Rows(func(r attn.Row) error {
		pages, size := places(in, r.Request), m.pageTokens
		n := min(r.Position+1, window)
		for i := range n {
			p := r.Position - n + 1 + i
			page := pages[p/size]
			if page < 0 || int(page)*size >= len(m.marks) {
				return fmt.Errorf("formula: request %d at position %d attends to position %d, whose window page %d "+
					"does not exist", r.Request, r.Position, p, page)
			}
			seen[r.Index*width+i] = page*int32(size) + int32(p%size)
		}
		request[r.Index], position[r.Index], lens[r.Index] = int32(r.Request), int32(r.Position), int32(n)
		slots[r.Index] = seen[r.Index*width+n-1]
		if s.tails[r.Index] = -1; r.Position%size >= size-group {
			s.tails[r.Index] = pages[r.Position/size]
		}
		return nil
	})
	if err != nil {
		return err
	}
	for r, st := range s.states {
		st.high = max(st.high, st.len+len(in.Tokens[r])) // a failed pass may have written some of these marks
	}
	return block.FillLogits(&in.Batch)
}

// prepareDraft fills the input block of a draft pass, which computes only the last rows of a prompt.
func (s *windowPass) prepareDraft(in *model.Input, block attn.Block) error {
	from, i, wanted := s.work.rows, 0, 0
	if s.plan.Pass == plan.PassChain {
		from = s.work.drafted
	}
	if err := block.FillSampling(&in.Batch); err != nil {
		return err
	}
	tokens, position := block.Array(plan.TokenIDs), block.Array(plan.Positions)
	hidden, logits := block.Array(plan.HiddenRows), block.Array(plan.LogitRows)
	for r := range in.Tokens {
		first, n := in.Batch.Batch.FirstPosition(in.Config, r), in.Batch.Batch.Rows(in.Config, r)
		for t := max(n-window, 0); t < n; t++ {
			var err error
			tokens[i], position[i] = in.Tokens[r][t], int32(first+t)
			if hidden[i], err = in.HiddenRow(r, t, from); err != nil {
				return err
			}
			if t == n-1 && in.Batch.Batch.Requests[r].Logits > 0 {
				logits[wanted] = int32(i)
				wanted++
			}
			i++
		}
	}
	s.work.drafted = 0
	return nil
}

// Program returns the program that stores rows and entries and computes logits. After a fault, some rows are stored
// with wrong contents.
func (s *windowPass) Program() (kernel.Program, error) {
	if s.program.dev == nil {
		s.program = divided{dev: s.m.dev, begin: s.begin, end: s.end, whole: s.plan.Pass != plan.PassTarget}
	}
	return &s.program, nil
}

// begin injects the fault of the pass, if there is one, and returns the time of the pass.
func (s *windowPass) begin() (time.Duration, error) {
	m, position := s.m, s.array(plan.Positions)
	if s.plan.Pass != plan.PassTarget {
		return m.dev.cost.of(len(position), len(position), 0) / draftCost, m.dev.try(OpExecute)
	}
	slots, request := s.array(plan.Slots), s.array(plan.RowRequests)
	for i, slot := range slots {
		if m.marks[slot] = ^uint64(0); i < len(slots)/2 {
			continue
		}
		if err := m.dev.try(OpExecute); err != nil {
			for j, p := range position {
				s.states[request[j]].ring[p%ring] = ^uint64(0)
			}
			return 0, err
		}
		break
	}
	keys := 0
	for i, n := range s.array(plan.WindowLengths) {
		keys += (int(position[i])+1)/group + int(n)
	}
	return m.dev.cost.of(s.plan.Rows, s.decodes(), keys), nil
}

// end computes the results.
func (s *windowPass) end() error {
	m, tokens, position := s.m, s.array(plan.TokenIDs), s.array(plan.Positions)
	if s.plan.Pass != plan.PassTarget {
		s.fillOutputs(m.logits, m.dev, func(r int32, to []float32) {
			h := mark(tokens[r], int(position[r])+1)
			fillLogits(to, h)
			to[easy(h)] += lead
		})
		return nil
	}
	s.compute(tokens, position, s.array(plan.Slots), s.array(plan.RowRequests))
	s.fillOutputs(m.logits, m.dev, func(r int32, to []float32) {
		fillLogits(to, s.work.hash[r])
		if h := mark(tokens[r], int(position[r])); h%3 > 0 {
			to[easy(h)] += lead
		}
	})
	return nil
}

// compute stores marks and entries, and computes the hash of the data that each row attends to. The rows of a request
// are computed in ascending order of positions, even if the plan has another order.
func (s *windowPass) compute(tokens, position, slots, request []int32) {
	m := s.m
	table, seen := s.array(plan.PageTable), s.array(plan.WindowIndices)
	lens, width := s.array(plan.WindowLengths), s.plan.Input(plan.WindowIndices).Cols
	for i, slot := range slots {
		m.marks[slot] = mark(tokens[i], int(position[i]))
	}
	for i := range slots {
		p, st := int(position[i]), s.states[request[i]]
		st.ring[p%ring] = m.marks[slots[i]]
		if page := s.tails[i]; page >= 0 {
			m.tails[page][p%group] = m.marks[slots[i]]
		}
		entry := func(g int) *uint64 {
			page := table[int(request[i])*s.plan.TablePages+g*group/m.pageTokens]
			return &m.entries[int(page)*m.pageTokens/group+g%(m.pageTokens/group)]
		}
		groups := (p + 1) / group
		if (p+1)%group == 0 {
			h := uint64(0)
			for q := max(p+1-2*group, 0); q <= p; q++ {
				h = after(h, st.ring[q%ring])
			}
			*entry(groups - 1) = h
		}
		h := uint64(0)
		for g := range groups {
			h = after(h, *entry(g))
		}
		for _, slot := range seen[i*width : i*width+int(lens[i])] {
			h = after(h, m.marks[slot])
		}
		s.work.hash[i] = h
	}
}

// lead is the logit of an easy token minus the logits of others.
const lead = 6

// easy returns the token that depends only on the mark h; drafts of it are correct.
func easy(h uint64) int { return int(mix(h+1) % 32) }

// Ended makes the rows of this pass available to draft passes, unless it has failed.
func (s *windowPass) Ended(err error) {
	if err != nil {
		return
	}
	if s.plan.Pass == plan.PassTarget {
		s.work.rows = s.plan.Rows
	} else {
		s.work.drafted = s.plan.Rows
	}
}
