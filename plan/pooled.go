package plan

import "fmt"

// A pooled model (GLM-5.3-Flash) has two kinds of layers. Layers of linear attention have a state for each sequence and
// no cached rows. The other layers have MLA without rotary embedding, and an indexer with one key for each pool of four
// tokens: a row attends to the tokens of the K complete pools with the highest scores, and to the tokens after the last
// complete pool.

// poolTokens is the number of tokens of a pool: index_kpool of every released model.
const poolTokens = 4

// Pooled reports whether models of the family select pools of tokens.
func (f Family) Pooled() bool { return f == GLM5Next }

// Pooled reports whether the model selects pools of tokens.
func (m *Model) Pooled() bool { return m.Family.Pooled() }

// PoolTokens returns the number of tokens of a pool, or 0 if the model does not select pools.
func (m *Model) PoolTokens() int {
	if !m.Pooled() {
		return 0
	}
	return poolTokens
}

// LinearAt reports whether layer l has linear attention. Drafting layers do not have it.
func (m *Model) LinearAt(l int) bool { return l < len(m.Linear) && m.Linear[l] }

// PoolWidth returns the maximum number of tokens that a row of a pooled model attends to: the tokens of K complete
// pools and of the incomplete pool.
func (m *Model) PoolWidth() int { return poolTokens*m.K + poolTokens - 1 }

// linearGroup is the number of positions that linear attention of a prompt computes together on a GPU. Pages hold a
// multiple of it, so a prompt that continues after cached pages begins with a whole group.
const linearGroup = 16

// everyFourth returns, for each layer, whether it has linear attention in released models: all except every fourth
// layer.
func everyFourth(layers int) []bool {
	linear := make([]bool, layers)
	for i := range linear {
		linear[i] = i%4 != 3
	}
	return linear
}

// pooled adds the reasons that state how many layers have linear attention, and how many select pools.
func (r *resolver) pooled() {
	linear := 0
	for l := range r.model.Layers {
		if r.model.LinearAt(l) {
			linear++
		}
	}
	r.linear(linear)
	r.Because("dispatch 6", "%d layers select: there is one index key for each %d tokens; a row attends to the "+
		"tokens of the best %d complete keys, and to the tokens after the last complete key; up to %d tokens, every "+
		"key is selected without scores",
		r.model.Layers-linear, poolTokens, r.model.K, r.model.ShortKeys())
}

// linear sets Config.LinearGroup and adds the reason for it. layers is the number of layers with linear attention.
func (r *resolver) linear(layers int) {
	r.cfg.LinearGroup = 0
	if layers == 0 {
		return
	}
	how := "in the recurrent form for prompts and decodes alike, so that bits depend neither on chunks nor on batches"
	switch {
	case !r.hw.Arch.CUDA():
	case r.policy.Deterministic:
		how += " (--deterministic)"
	case !r.model.LinearGroups:
		how += "; decays of this checkpoint may be too small for groups of positions"
	default:
		r.cfg.LinearGroup = linearGroup
		how = fmt.Sprintf("prompts in groups of %d positions that begin at multiples of %d, other rows one by one; "+
			"prompts are cut at these multiples, so that bits depend neither on chunks nor on batches", linearGroup,
			linearGroup)
	}
	r.Because("design 3", "linear attention in %d of %d layers: a state per sequence and no rows of tokens, %s", layers,
		r.model.Layers, how)
}

// pooledInputs adds the arrays of MLA over pools and of linear attention.
func (w *Builder) pooledInputs() {
	n := gathered{light: closingPairs(w, poolTokens)}
	w.eachLaunch(func(s *Segment, l *Launch, r launchReach) {
		if s.Convert.Gathers() {
			l.Gather = next(&n.rows, r.keys)
		}
		if s.Indexer.Kind == IndexerRagged {
			l.Index = next(&n.groups, r.groups)
		}
	})
	w.pooledArrays(&n)
}

func (w *Builder) pooledArrays(n *gathered) {
	p := w.plan
	p.each(TokenIDs, Positions, RowRequests, Slots, Lengths, Groups, Kept, KeepRows)
	if p.Pass != PassTarget {
		p.each(HiddenRows)
	}
	p.array(PageTable, p.Requests, p.TablePages)
	p.array(GatherSlots, n.rows, 1)
	if n.rows > 0 {
		p.each(GatherStart)
	}
	p.array(GroupSlots, n.groups, 1)
	if n.groups > 0 {
		p.each(GroupStart)
	}
	p.array(CloseSources, n.light, poolTokens)
	p.array(CloseSlots, n.light, 1)
	if p.Pass == PassTarget {
		p.each(StateRows, Snapshots)
		p.array(StateSpans, p.Requests, StateSpanWords)
		if w.cfg.LinearGroup > 0 && p.PromptRows() > 0 {
			p.LinearGroup = w.cfg.LinearGroup
			p.array(StateFirst, p.Requests, 1)
		}
	}
}

// StateSpanWords is the number of words in a row of StateSpans: first index in StateRows, number of rows, slot of the
// state (-1: none), whether the state is empty, how many held-back rows the state must include first, and whether the
// rows of this pass are held back.
const StateSpanWords = 6

// mostVerified is the maximum number of verified rows of a request for models with states. The ring buffers of raw rows
// hold these rows in addition to the rows of an incomplete pool.
const mostVerified = 12

// heldBack checks the number of verified rows of a model with sequence states. A state cannot be rolled back, so
// verified rows are held back: the state includes them only after they were accepted.
func (r *resolver) heldBack(n int) error {
	if n <= mostVerified {
		r.Because("design 6", "rows that are verified do not change the state of linear attention: their changes are "+
			"held back, and the next pass applies those of accepted rows")
		return nil
	}
	return &Error{Code: E11, Asked: fmt.Sprintf("%d drafts for %s", n-1, r.model.Family),
		Supported: fmt.Sprintf("at most %d drafts", mostVerified-1), Try: fmt.Sprintf("%d drafts", mostVerified-1)}
}

// splitOf returns how the rows of a segment are cut. Prompt rows of pooled models are not cut: there are enough rows
// for all multiprocessors.
func (c *Config) splitOf(s *Segment) KeySplit {
	if c.Model.Pooled() && s.NextN == 0 && c.SplitKeys != SplitUnset {
		return SplitWhole
	}
	return c.SplitKeys
}

// capsKeys reports whether requests share a launch of a segment only while the sum of their keys is at most C, because
// the launch holds every key: the dense form, and gathered rows of pooled models, whose contexts are long.
func (c *Config) capsKeys(s *Segment) bool {
	return s.Form == FormDenseMHA || c.Model.Pooled() && s.Convert.Gathers()
}

// pooledScratch is like sparseScratch, for a row that attends to the tokens of its selected pools. For bf16 rows,
// partial results are float32.
func pooledScratch(cfg *Config, split KeySplit) (row, rows int64) {
	heads, keys := cfg.Model.Heads, cfg.Model.PoolWidth()
	row, rows = sparseScratch(cfg.Hardware.SMs, heads, keys, keys, split.Keys())
	if stats := int64(heads) * partStatBytes; row > 0 && cfg.Layout == BF16Row1024 {
		part := int64(roundUp(heads, unitHeads)) * latentDim * partValueBytes
		row += row / (part + stats) * part * (partFloatBytes - partValueBytes) / partValueBytes
	}
	return row, rows
}
