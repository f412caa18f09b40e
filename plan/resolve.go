package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Resolve turns the user's settings into an immutable Config, once at start. It keeps every explicit choice or returns
// an Error. Notices are messages for the user about the result.
func Resolve(hw Hardware, m Model, p Policy) (Config, []Notice, error) {
	hw, m = hw.Clone(), m.Clone()
	r := &resolver{hw: &hw, model: &m, policy: &p}
	r.cfg = Config{Catalog: CatalogSparrow, Runnable: true, Hardware: hw, Model: m, Asked: p, Page: m.PageTokens(),
		C: DefaultChunkCapacity, ScoreCap: DefaultScoreCap, MaxTransient: p.MaxTransient, Shared: m.SharedLayers()}
	for _, step := range []func() error{
		r.inputs, r.speculation, r.kvType, r.kernels, r.split, r.denseForm, r.determinism, r.checkReserve,
	} {
		if err := step(); err != nil {
			return Config{}, r.Notices, err
		}
	}
	if err := r.finish(); err != nil {
		return Config{}, r.Notices, err
	}
	return r.cfg, r.Notices, nil
}

// resolver holds the state of one call of Resolve.
type resolver struct {
	hw     *Hardware
	model  *Model
	policy *Policy

	kv   DType
	wish Layout // the layout the user named, if any

	cfg Config
	Notes
}

func (r *resolver) inputs() error {
	if err := CheckInputs(r.hw, r.model); err != nil {
		return err
	}
	p := r.policy
	switch {
	case p.DenseThreshold < 0 || p.MaxTransient < 0:
		return fmt.Errorf("plan: policy: dense threshold %d and transient reserve %d must not be negative",
			p.DenseThreshold, p.MaxTransient)
	case p.Running < 0:
		return fmt.Errorf("plan: policy: the number of running sequences (--max-running) is %d, want 0 (unset) or more",
			p.Running)
	case int(p.SplitKeys) >= len(keySplits.words):
		return fmt.Errorf("plan: policy: split of keys %d must be one of %s", p.SplitKeys, keySplits.list())
	case !ours.Has(r.hw.Arch):
		c := r.chooser()
		c.Named = p.KV
		return c.NothingFits()
	}
	if a := r.hw.Arch; a.CUDA() && a != SM90 {
		r.Because("design 4", "kernels cuda-portable: there are no kernels for %s alone, and these run from sm80 "+
			"on; their tiles take at most 96 KiB of the %d KiB of shared memory of a block", a, r.hw.SmemOptin>>10)
	} else if r.hw.Portable {
		r.Because("design 4", "kernels cuda-portable: they were requested, or a limit of the device excludes the "+
			"kernels for %s", a)
	}
	r.Divided(r.model)
	return nil
}

// CheckInputs returns an error if the description of the model or the hardware is invalid.
func CheckInputs(hw *Hardware, m *Model) error {
	if err := m.check(); err != nil {
		return err
	}
	switch {
	case hw.Arch == ArchUnset || int(hw.Arch) >= len(archs.words):
		return &Error{Code: E01, Asked: "hardware without an architecture", Supported: archs.list(), Try: "--hw cpu"}
	case hw.Arch.CUDA() && hw.SMs < 1:
		return fmt.Errorf("plan: hardware description of %s: the number of multiprocessors is %d; read it from the "+
			"device", hw.Arch, hw.SMs)
	case !m.Dense() && paddedIndexHeads(hw.Arch, m.IndexHeads) == 0:
		return &Error{Code: E08, Asked: fmt.Sprintf("%d index heads on %s", m.IndexHeads, hw.Arch),
			Supported: "at most 64 index heads", Try: "--hw cpu"}
	}
	return nil
}

// ScoredHeads returns the number of heads that the indexer scores, padded for the hardware's kernels.
func (c *Config) ScoredHeads() int {
	return max(c.Model.IndexHeads, paddedIndexHeads(c.Hardware.Arch, c.Model.IndexHeads))
}

// paddedIndexHeads pads index heads to a number that the score kernels support; it returns 0 if there are too many
// heads.
func paddedIndexHeads(arch Arch, heads int) int {
	var sizes []int
	switch {
	case arch.SM100Family():
		sizes = []int{8, 16, 32, 64}
	case arch.CUDA():
		sizes = []int{32, 64}
	default:
		return heads
	}
	for _, s := range sizes {
		if heads <= s {
			return s
		}
	}
	return 0
}

// speculation sets Config.N, the number of verified rows per request (dispatch 12, 16).
func (r *resolver) speculation() error {
	n, err := r.policy.Speculation.Chain(&r.Notes)
	if err != nil {
		return err
	}
	if r.cfg.N = n; n == 1 {
		return nil
	}
	if r.model.NextN == 0 {
		return ErrDraftHeadMissing("a model", r.model.Layers, fmt.Sprintf("model.layers.%d.*", r.model.Layers))
	}
	by := fmt.Sprintf("layer %d", r.model.Layers)
	if b := r.model.Block; b > 0 {
		if n > b+1 {
			return fmt.Errorf("plan: policy: %d drafts; the drafting stages of this model propose %d at once: use at "+
				"most --draft %d", n-1, b, b)
		}
		by = fmt.Sprintf("%d stages, in blocks of %d,", r.model.NextN, b)
	}
	if r.model.Pooled() {
		if err := r.heldBack(n); err != nil {
			return err
		}
	}
	if r.model.Dense() {
		r.Notice(NoticeInfo, "design 6", "up to %d drafts by %s are verified as up to %d rows of a request", n-1,
			by, n)
		return nil
	}
	r.Notice(NoticeInfo, "design 6", "up to %d drafts by %s are verified as up to %d rows of a request; scores: %s",
		n-1, by, n, r.scoredTogether(n))
	return nil
}

// scoredTogether returns a text about how the scores of 2 to n verified rows of a request are computed.
func (r *resolver) scoredTogether(n int) string {
	var whole, groups, single []string
	for rows := 2; rows <= n; rows++ {
		switch g := together(r.hw, r.model, r.policy.Deterministic, rows); g {
		case rows:
			whole = append(whole, strconv.Itoa(rows))
		case 1:
			single = append(single, strconv.Itoa(rows))
		default:
			groups = append(groups, fmt.Sprintf("%d in groups of %d", rows, g))
		}
	}
	var parts []string
	if whole != nil {
		parts = append(parts, "those of "+strings.Join(whole, ", ")+" rows at once")
	}
	if groups != nil {
		parts = append(parts, "of "+strings.Join(groups, ", of "))
	}
	if single != nil {
		parts = append(parts, "of "+strings.Join(single, ", ")+" rows row by row")
	}
	return strings.Join(parts, ", ")
}

// Chain returns the number of rows verified per request: the drafts and the token before them; 1 without drafting.
func (s Speculation) Chain(notes *Notes) (int, error) {
	switch {
	case s.Steps < 0 || s.Branches < 0 || s.Tokens < 0:
		return 0, fmt.Errorf("plan: policy: speculation %+v must not be negative", s)
	case s.Branches > 1:
		return 0, &Error{Code: E11, Asked: fmt.Sprintf("drafts with %d branches per step", s.Branches),
			Supported: "chains: one branch per step", Try: "one branch"}
	case s.Steps == 0:
		return cmp.Or(s.Tokens, 1), nil
	}
	n := s.Steps + 1
	if s.Tokens != 0 && s.Tokens != n {
		notes.Notice(NoticeWarning, "dispatch 16", "a chain of %d steps verifies %d tokens, not the requested %d",
			s.Steps, n, s.Tokens)
	}
	return n, nil
}

// kernels sets the pair of kernels and the layouts (dispatch 9, 13 and 16).
func (r *resolver) kernels() error {
	for i, name := range []string{r.policy.Prefill, r.policy.Decode} {
		if fold(name) == Reference.String() {
			return &Error{Code: E02, Asked: fmt.Sprintf("%s %s: the catalogue has only the kernels of attention; "+
				"the reference kernels compute every operation of a plan", phasePair[i], Reference),
				Supported: sparrowCatalogue.names(phasePair[i], r.model), Try: "--kernels ref"}
		}
	}
	choice, err := r.chooser().Choose()
	if err != nil {
		return err
	}
	c := &r.cfg
	c.Prefill, c.Decode, c.Layout, c.Rejected = choice.Prefill, choice.Decode, choice.Layout, choice.Rejected
	if r.model.V4() && r.policy.V4SparsePrefill == SparsePrefillOn && c.Prefill != V4Flat {
		return &Error{Code: E02, Asked: fmt.Sprintf("the sparse prefill of %s with prefill %s on %s", r.model.Family,
			c.Prefill, r.hw.Arch),
			Supported: "the sparse prefill over 584-byte entries, without deterministic mode",
			Try:       "--v4-sparse-prefill off"}
	}
	if r.model.Dense() {
		return r.withoutIndexer()
	}
	if r.model.Pooled() {
		r.pooled()
	}
	if c.IndexLayout = IndexPage132; r.model.V41() {
		c.IndexLayout = V41Index68
		r.Because("dispatch 9", "indexer keys and queries in four bits, as the model was trained")
		r.Because("dispatch 6", "%s", r.model.Sharing.says(r.model))
	}
	if r.kv == F32 || r.policy.ExactIndex {
		c.IndexLayout = IndexF32Row512
	}
	if r.policy.FP4Index {
		c.IndexLayout = IndexPage68
		r.Because("dispatch 13", "indexer keys and queries in four bits, as requested")
	}
	return nil
}

func (r *resolver) chooser() *Chooser {
	p := r.policy
	c := &Chooser{Catalogue: &sparrowCatalogue, Notes: &r.Notes, Hardware: r.hw, Model: r.model, KV: r.kv,
		Wish: r.wish, Named: p.KV, Asked: [2]string{p.Prefill, p.Decode}, Why: p.PrefillWhy, Pairs: r.pairs}
	if times := r.hw.costs(); r.byCost() {
		c.Faster, c.Wins = times.flatReason(), times.faster()
	}
	c.Against = func(k Kernel, _ Phase) []Objection {
		if k == V4Flat && p.V4SparsePrefill == SparsePrefillOff {
			return []Objection{{E02, "the sparse prefill was disabled"}}
		}
		return nil
	}
	return c
}

// determinism checks that every row is computed with the same arithmetic (dispatch 5, 18).
func (r *resolver) determinism() error {
	if !r.policy.Deterministic {
		return nil
	}
	if k := autoTarget(&r.cfg); k != r.cfg.Decode {
		return &Error{Code: E13, Asked: fmt.Sprintf("deterministic mode with prefill %s and decode %s, which round "+
			"differently", k, r.cfg.Decode),
			Supported: "one kernel for both", Try: fmt.Sprintf("--prefill %s --decode %s", r.cfg.Decode, r.cfg.Decode)}
	}
	r.cfg.Deterministic = true
	r.Because("dispatch 5", "deterministic: the dense form is off, splits are fixed, ties go to the small position")
	return nil
}

// checkReserve returns an error if MaxTransient is too small for one row of a full context.
func (r *resolver) checkReserve() error {
	return r.cfg.CheckReserve(&sparrowCatalogue, autoTarget(&r.cfg))
}

// finish hashes the configuration and writes the summary line.
func (r *resolver) finish() error {
	c := &r.cfg
	c.Reasons, c.Rejected = slices.Clip(r.Reasons), slices.Clip(c.Rejected)
	var err error
	if c.Fingerprint, err = fingerprint(c); err != nil {
		return err
	}
	r.Summary(c, "native", "stable")
	return nil
}

// Summary adds the notice that names every decision in one line.
func (n *Notes) Summary(c *Config, scores, selection string) {
	dense := fmt.Sprintf("dense up to %d keys", c.T)
	if !c.DenseOK {
		dense = "dense off"
	}
	rows := ""
	if c.SplitKeys != SplitUnset {
		rows = ", rows " + c.SplitKeys.Says()
	}
	selects := fmt.Sprintf("scores by %s, selection by %s", scores, selection)
	if c.Model.Dense() {
		selects = "no indexer"
	}
	n.Notice(NoticeInfo, "dispatch 16",
		"%s on %s: prefill %s, decode %s, layout %s, page %d%s, %s, capacity %d keys, %s", c.Catalog,
		c.Hardware.Arch, c.Prefill, c.Decode, c.Layout, c.Page, rows, dense, c.C, selects)
}
