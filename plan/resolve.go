package plan

import (
	"fmt"
	"slices"
)

// Resolve turns the user's wishes into an immutable Config, once at start. It
// keeps every explicit choice or refuses it with an Error; it never replaces
// one silently. Notices say what the user should know about the result.
func Resolve(hw Hardware, m Model, p Policy) (Config, []Notice, error) {
	hw.NativeNextN = slices.Clone(hw.NativeNextN)
	hw.Missing = slices.Clone(hw.Missing)
	m.Share.Types = slices.Clone(m.Share.Types)
	m.Ratios = slices.Clone(m.Ratios)
	p.PipelineCuts = slices.Clone(p.PipelineCuts)

	r := &resolver{hw: &hw, model: &m, policy: &p, cat: catalogueOf(p.Catalog)}
	r.cfg = Config{Catalog: p.Catalog, Runnable: p.Catalog == CatalogSparrow, MixedAllowed: true}
	steps := []func() error{
		r.inputs, r.speculation, r.parallelism, r.sharing, r.kvType, r.kernels,
		r.page, r.selection, r.offload, r.v4Prefill, r.split, r.reserve, r.denseForm, r.determinism, r.checkReserve,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return Config{}, r.notices, err
		}
	}
	if err := r.finish(); err != nil {
		return Config{}, r.notices, err
	}
	return r.cfg, r.notices, nil
}

// resolver holds the state of one call of Resolve.
type resolver struct {
	hw     *Hardware
	model  *Model
	policy *Policy
	cat    *catalogue

	kv   DType
	wish Layout // the layout the user named, if any

	cfg     Config
	notices []Notice
}

func (r *resolver) reason(rule, format string, args ...any) {
	r.cfg.Reasons = append(r.cfg.Reasons, Reason{rule, fmt.Sprintf(format, args...)})
}

func (r *resolver) notice(level NoticeLevel, rule, format string, args ...any) {
	r.notices = append(r.notices, Notice{level, rule, fmt.Sprintf(format, args...)})
}

func (r *resolver) inputs() error {
	if err := r.model.check(); err != nil {
		return err
	}
	p := r.policy
	switch {
	case int(p.Catalog) >= len(catalogs.words):
		return fmt.Errorf("plan: unknown catalogue %d; supported: %s", p.Catalog, catalogs.list())
	case r.hw.Arch == ArchUnset || int(r.hw.Arch) >= len(archs.words):
		return &Error{Code: E01, Asked: "hardware without an architecture", Supported: archs.list(), Try: "--hw cpu"}
	case r.hw.Arch.CUDA() && r.hw.SMs < 1:
		return fmt.Errorf("plan: hardware description of %s: %d multiprocessors; read their number from the device",
			r.hw.Arch, r.hw.SMs)
	case r.hw.Arch.CUDA() && p.Catalog == CatalogPublic && r.hw.pagedRowLimit() < 1:
		return fmt.Errorf("plan: hardware description of %s: %d bytes of opt-in shared memory; "+
			"schedules of the catalogue public lie in it",
			r.hw.Arch, r.hw.SmemOptin)
	case p.DenseThreshold < 0 || p.ChunkCapacity < 0 || p.Page < 0 || p.ChunkedPrefill < 0:
		return fmt.Errorf("plan: policy: dense threshold %d, chunk capacity %d, page %d and chunked prefill %d "+
			"must not be negative",
			p.DenseThreshold, p.ChunkCapacity, p.Page, p.ChunkedPrefill)
	case p.Running < 0:
		return fmt.Errorf("plan: policy: %d running sequences (--max-running): want 0, which says nothing, or more",
			p.Running)
	case int(p.SplitKeys) >= len(keySplits.words):
		return fmt.Errorf("plan: policy: split of keys %d must be one of %s", p.SplitKeys, keySplits.list())
	case p.ScoreCap < 0 || p.MaxTransient < 0:
		return fmt.Errorf("plan: policy: score cap %d and transient reserve %d must not be negative", p.ScoreCap,
			p.MaxTransient)
	case !(p.ScoreFraction >= 0 && p.ScoreFraction <= 1) || !(p.StaticFraction >= 0 && p.StaticFraction < 1):
		return fmt.Errorf("plan: policy: score fraction %v must lie in [0,1] and static fraction %v in [0,1)",
			p.ScoreFraction, p.StaticFraction)
	}
	if p.Catalog == CatalogSparrow && !ours.has(r.hw.Arch) {
		return r.nothingFits()
	}
	if r.indexHeads(r.model.IndexHeads) == 0 {
		return &Error{Code: E08, Asked: fmt.Sprintf("%d index heads on %s", r.model.IndexHeads, r.hw.Arch),
			Supported: "at most 64 index heads", Try: "--hw cpu"}
	}
	return nil
}

// indexHeads pads index heads to what the score kernels take, 0 for too many.
func (r *resolver) indexHeads(heads int) int { return paddedIndexHeads(r.hw.Arch, heads) }

// ScoredHeads is the number of heads that the indexer scores, padded to what the hardware's kernels take.
func (c *Config) ScoredHeads() int {
	return max(c.Model.IndexHeads, paddedIndexHeads(c.Hardware.Arch, c.Model.IndexHeads))
}

func paddedIndexHeads(arch Arch, heads int) int {
	var sizes []int
	switch {
	case arch == SM90:
		sizes = []int{32, 64}
	case arch.sm100Family():
		sizes = []int{8, 16, 32, 64}
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

// finish copies what Config keeps of the inputs, hashes it and writes the one
// summary line.
func (r *resolver) finish() error {
	c := &r.cfg
	c.Hardware, c.Model, c.Asked = *r.hw, *r.model, *r.policy
	c.Role, c.DecodeSkip = r.policy.Role, r.policy.DecodeSkip == SwitchOn
	c.Reasons = slices.Clip(c.Reasons)
	c.Rejected = slices.Clip(c.Rejected)
	var err error
	if c.Fingerprint, err = fingerprint(c); err != nil {
		return err
	}
	dense := fmt.Sprintf("dense up to %d keys", c.T)
	if !c.DenseOK {
		dense = "dense off"
	}
	rows := ""
	if c.SplitKeys != SplitUnset {
		rows = ", rows " + c.SplitKeys.Says()
	}
	r.notice(NoticeInfo, "dispatch 16",
		"%s on %s: prefill %s, decode %s, layout %s, page %d%s, %s, capacity %d keys, scores by %s, selection by %s",
		c.Catalog, c.Hardware.Arch, c.Prefill, c.Decode, c.Layout, c.Page, rows, dense, c.C, c.Scores, c.TopK)
	return nil
}
