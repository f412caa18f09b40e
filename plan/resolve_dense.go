package plan

import (
	"cmp"
	"fmt"
)

const (
	defaultChunkCapacity = 131072    // C, keys of one dense call
	defaultScoreCap      = 256 << 20 // bytes of one chunk of scores
	defaultScoreFraction = 0.2
	defaultStaticPart    = 0.9
)

// reserve settles memory bounds (dispatch 6, 16, 17).
func (r *resolver) reserve() error {
	c, p := &r.cfg, r.policy
	c.Slicing = p.Slicing != SwitchOff
	c.ScoreCap = cmp.Or(p.ScoreCap, defaultScoreCap)
	c.ScoreFraction = cmp.Or(p.ScoreFraction, defaultScoreFraction)
	c.StaticPart = cmp.Or(p.StaticFraction, defaultStaticPart)
	c.MaxTransient = p.MaxTransient
	if c.MaxTransient == 0 && p.StaticFraction > 0 && r.hw.MemoryBytes > 0 {
		c.MaxTransient = int64(float64(r.hw.MemoryBytes) * (1 - p.StaticFraction))
		r.reason("dispatch 17", "transient reserve %d bytes: what a static part of %.2f leaves", c.MaxTransient,
			p.StaticFraction)
	}
	switch {
	case p.ChunkedPrefill > 0:
		c.ChunkedPrefill = p.ChunkedPrefill
	case p.Catalog == CatalogSparrow:
		c.ChunkedPrefill = StepTokens(r.hw.Arch)
		r.reason("dispatch 16", "prompts in chunks of --step-tokens: %d by default on %s", c.ChunkedPrefill, r.hw.Arch)
	default:
		c.ChunkedPrefill = chunkByMemory(r.hw.MemoryBytes) / max(p.DP, 1)
		r.reason("dispatch 16", "prompts in chunks of %d tokens, by device memory", c.ChunkedPrefill)
	}
	return nil
}

// StepTokens is how many new tokens a step of our server has at most, where it was not told.
func StepTokens(on Arch) int {
	if on == CPU {
		return 512
	}
	return 8192
}

// chunkByMemory is the prompt chunk that suits a device's memory, in other engines.
func chunkByMemory(bytes int64) int {
	switch {
	case bytes < 35*gb:
		return 2048
	case bytes < 60*gb:
		return 4096
	case bytes < 160*gb:
		return 8192
	}
	return 16384
}

// denseForm settles T, C and the conditions of the dense form that no batch
// can change (dispatch 5).
func (r *resolver) denseForm() error {
	c, p := &r.cfg, r.policy
	c.C = cmp.Or(p.ChunkCapacity, defaultChunkCapacity)
	times := r.hw.costs()
	c.T = cmp.Or(p.DenseThreshold, r.model.K)
	if r.kv == F32 {
		times.Prompts = nil // not measured over exact rows
	}
	byTime := p.Catalog == CatalogSparrow && p.DenseThreshold == 0
	if limit, all := crossing(times.Prompts); byTime && !all {
		c.T = min(c.T, limit)
	}
	if p.DenseThreshold > r.model.K && !r.model.v4() {
		r.notice(NoticeWarning, "dispatch 5", "dense threshold %d is above index_topk %d: rows between them attend "+
			"to every key, which changes what the model computes", p.DenseThreshold, r.model.K)
	}
	if p.Catalog == CatalogSparrow && c.T > c.C {
		r.notice(NoticeWarning, "design 3", "dense threshold %d is lowered to the capacity of one dense call, %d keys",
			c.T, c.C)
		c.T = c.C
	}
	against := func(format string, args ...any) {
		c.DenseAgainst = append(c.DenseAgainst, fmt.Sprintf(format, args...))
	}
	arch := r.hw.Arch
	if p.Dense == SwitchOff {
		against("it was switched off")
	}
	if r.model.v4() {
		against("%s has no dense form", r.model.Family)
	} else if !r.model.LayerSupportsDense {
		against("the model's layer does not implement it")
	}
	if p.Deterministic {
		against("deterministic mode keeps one arithmetic for every row")
	}
	if p.Catalog == CatalogPublic {
		if arch != SM90 && !arch.sm100Family() && arch != GFX95 {
			against("%s is neither sm90, sm100 to sm109 nor gfx95", arch)
		}
		if r.model.Heads < 2 && !r.model.v4() {
			against("the dense kernel needs more than one head")
		}
		if c.CP.Kind != CPNone {
			against("context parallelism is on")
		}
		if c.HiSparse {
			against("HiSparse is on")
		}
	}
	if c.Prefill == Reference && p.Dense != SwitchOn {
		against("prefill reference proves the sparse form")
	}
	if p.Catalog == CatalogSparrow && len(c.DenseAgainst) == 0 && c.MaxTransient > 0 {
		need := denseBytes(r.model, c.KV, int64(c.T))
		if arch.CUDA() {
			need += denseTileBytes * int64(c.T+2)
		}
		if need > c.MaxTransient {
			against("%d keys need %d bytes, more than the reserve of %d", c.T, need, c.MaxTransient)
		}
	}
	c.DenseOK = len(c.DenseAgainst) == 0
	if c.DenseOK {
		why := ""
		switch {
		case p.DenseThreshold > 0:
			why = ": asked for"
		case byTime:
			why = ": " + times.denseReason(c.T)
		}
		r.reason("dispatch 5", "dense form for prompts of at most %d keys%s", c.T, why)
		return nil
	}
	for _, why := range c.DenseAgainst {
		r.reason("dispatch 5", "dense form off: %s", why)
	}
	if p.Dense == SwitchOn {
		r.notice(NoticeWarning, "dispatch 5", "the dense form was asked for but stays off: %s", c.DenseAgainst[0])
	}
	return nil
}

// checkReserve refuses a reserve into which one row of a full context does not fit.
func (r *resolver) checkReserve() error {
	c := &r.cfg
	if c.MaxTransient == 0 {
		return nil
	}
	c.Hardware, c.Model = *r.hw, *r.model
	need := max(oneRowBytes(c, PhasePrefill), oneRowBytes(c, PhaseDecode))
	if need <= c.MaxTransient {
		return nil
	}
	e := &Error{Code: E17, Asked: fmt.Sprintf("a transient reserve of %d bytes for contexts of %d tokens",
		c.MaxTransient, c.Model.Context),
		Supported: fmt.Sprintf("at least %d bytes", need),
		Try:       fmt.Sprintf("a reserve of %d bytes or a shorter context", need)}
	if total := c.Hardware.MemoryBytes; total > need {
		e.Supported += fmt.Sprintf(", a static fraction of at most %.4f", float64(total-need)/float64(total))
	}
	return e
}
