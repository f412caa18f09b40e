package plan

import (
	"cmp"
	"fmt"
)

// Default memory limits.
const (
	DefaultChunkCapacity = 131072    // keys of one dense call
	DefaultScoreCap      = 256 << 20 // bytes of one chunk of scores
)

// StepTokens returns the default maximum number of new tokens in a step of sparrow serve.
func StepTokens(on Arch) int {
	if on == CPU {
		return 512
	}
	return 8192
}

// denseForm sets Config.T and checks the conditions of the dense form that do not depend on a batch (dispatch 5).
func (r *resolver) denseForm() error {
	c, p := &r.cfg, r.policy
	times := r.hw.costs()
	if r.model.Dense() {
		return r.expandedForm()
	}
	c.T = cmp.Or(p.DenseThreshold, r.model.K)
	if r.kv == F32 {
		times.Prompts = nil // the times were not measured with float32 rows
	}
	if limit, all := crossing(times.Prompts); p.DenseThreshold == 0 && !all {
		c.T = min(c.T, limit)
	}
	if !r.model.V4() {
		r.Threshold(p.DenseThreshold, r.model.K)
	}
	if c.T > c.C {
		r.Notice(NoticeWarning, "design 3", "dense threshold %d is lowered to the capacity of one dense call, %d keys",
			c.T, c.C)
		c.T = c.C
	}
	c.DenseAgainst = AgainstDense(p.Dense, p.Deterministic, r.model)
	if need := r.denseNeed(); len(c.DenseAgainst) == 0 && c.MaxTransient > 0 && need > c.MaxTransient {
		c.DenseAgainst = append(c.DenseAgainst,
			fmt.Sprintf("dense attention over %d keys needs %d bytes of transient memory, more than the limit of %d "+
				"bytes", c.T, need, c.MaxTransient))
	}
	why := ": requested by the user"
	if p.DenseThreshold == 0 {
		why = ": " + times.denseReason(c.T)
	}
	c.DenseOK = r.Dense(c, p.Dense, why)
	r.unusedThreshold()
	return nil
}

// unusedThreshold adds a warning if the user set DenseThreshold but no row uses the dense form.
func (r *resolver) unusedThreshold() {
	if c := &r.cfg; r.policy.DenseThreshold > 0 && !c.DenseOK {
		r.Notice(NoticeWarning, "dispatch 5", "the dense threshold %d has no effect, because the dense form is off: %s",
			r.policy.DenseThreshold, c.DenseAgainst[0])
	}
}

// denseNeed returns the memory of one dense call over T keys.
func (r *resolver) denseNeed() int64 {
	need := denseBytes(r.model, r.kv, int64(r.cfg.T))
	if r.hw.Arch.CUDA() {
		need += denseTileBytes * int64(r.cfg.T+2)
	}
	return need
}

// Threshold adds a warning if the requested threshold is above index_topk.
func (n *Notes) Threshold(asked, topk int) {
	if asked > topk {
		n.Notice(NoticeWarning, "dispatch 5", "dense threshold %d is above index_topk %d: rows with more than "+
			"index_topk keys attend to every key, so results differ from those of the trained model", asked, topk)
	}
}

// AgainstDense lists the reasons against the dense form that do not depend on the hardware. If the model has no dense
// form, that is the only reason.
func AgainstDense(wish Switch, deterministic bool, m *Model) []string {
	if m.V4() {
		return []string{fmt.Sprintf("%s has no dense form", m.Family)}
	}
	var list []string
	if wish == SwitchOff {
		list = append(list, "it was switched off")
	}
	if !m.LayerSupportsDense {
		list = append(list, "the model's layer does not implement it")
	}
	if deterministic {
		list = append(list, "deterministic mode computes every row with the same arithmetic")
	}
	return list
}

// Dense reports whether there is no reason against the dense form, and adds the reasons; why is a text appended to the
// number of keys.
func (n *Notes) Dense(c *Config, wish Switch, why string) bool {
	if len(c.DenseAgainst) == 0 {
		n.Because("dispatch 5", "dense form for prompts of at most %d keys%s", c.T, why)
		return true
	}
	for _, why := range c.DenseAgainst {
		n.Because("dispatch 5", "dense form off: %s", why)
	}
	if wish == SwitchOn {
		n.Notice(NoticeWarning, "dispatch 5", "the dense form was requested, but is off: %s", c.DenseAgainst[0])
	}
	return false
}

// CheckReserve returns an error if MaxTransient is too small for one row of a full context, if prompts use the given
// kernel.
func (c *Config) CheckReserve(cat *Catalogue, prefill Kernel) error {
	if c.MaxTransient == 0 {
		return nil
	}
	need := max(oneRowBytes(c, cat, prefill, PhasePrefill), oneRowBytes(c, cat, c.Decode, PhaseDecode))
	if need <= c.MaxTransient {
		return nil
	}
	e := &Error{Code: E17, Asked: fmt.Sprintf("a transient reserve of %d bytes for contexts of %d tokens",
		c.MaxTransient, c.Model.Context),
		Supported: fmt.Sprintf("at least %d bytes", need),
		Try:       fmt.Sprintf("--reserve %d, or a shorter context", need)}
	if total := c.Hardware.MemoryBytes; total > need {
		e.Supported += fmt.Sprintf(", a static fraction of at most %.4f", float64(total-need)/float64(total))
	}
	return e
}
