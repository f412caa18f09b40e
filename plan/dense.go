package plan

import "fmt"

// A dense model has MLA without an indexer: every row attends to every key. Prompt rows with at most Config.T keys
// expand the latent rows to keys and values (kernel dense-ragged). All other rows, including all decode rows, attend in
// latent space over whole pages (kernel dense-latent). The form of a row depends only on its position.

// Dense reports whether models of the family have no indexer.
func (f Family) Dense() bool { return f == DeepSeekV3 || f == KimiK2 || f == GLM4MoeLite }

// Dense reports whether the model has no indexer.
func (m *Model) Dense() bool { return m.Family.Dense() }

// shortRow returns the kind of a prompt row that needs no indexer scores and is computed in latent space.
func (m *Model) shortRow() RowKind {
	if m.Dense() {
		return RowLatentPrefill
	}
	return RowShortPrefill
}

// withoutIndexer adds the reason that the model has no indexer. It returns an error if the user set an option of
// indexer keys.
func (r *resolver) withoutIndexer() error {
	if r.policy.ExactIndex {
		return &Error{Code: E05, Asked: fmt.Sprintf("float32 indexer keys for %s", r.model.Family),
			Supported: "indexer keys of models that have an indexer", Try: "no setting for indexer keys"}
	}
	r.Because("dispatch 3", "nothing is selected: %s has no indexer, so every row attends to all keys up to its "+
		"position; the time of a decode grows with the length of the sequence", r.model.Family)
	return nil
}

// expandedKeys and expandedOnGPU are the default values of Config.T on a CPU and on a GPU. A row needs 2 * (qk + v)
// operations per head and expanded key, and 2 * (576 + 512) per head and latent key, which is more than three times as
// many. But every pass of a prompt expands all earlier keys again, at 2 * 512 * (nope + v) operations per key and head,
// so a pass of fewer than about 170 rows is faster in latent space. The limit bounds the cost of a short prompt after a
// long cached prefix, and the memory of the expanded keys. The limit is larger on a GPU because its passes have more
// rows: 16384 keys of 128 heads take 1 GiB and 0.9 ms per layer.
const expandedKeys, expandedOnGPU = 4096, 16384

// expandedForm sets T, the maximum number of expanded keys, and C for a dense model.
func (r *resolver) expandedForm() error {
	c, p := &r.cfg, r.policy
	why := fmt.Sprintf(": the cost of expanding keys grows with the keys of each pass of a prompt, and attention of "+
		"a row in latent space costs %.1f times as much as over expanded keys", float64(latentDim+ropeDim+latentDim)/
		float64(r.model.QKDim+r.model.VDim))
	most := expandedKeys
	if r.hw.Arch.CUDA() {
		most = expandedOnGPU
	}
	if c.T = min(most, r.model.Context); p.DenseThreshold > 0 {
		c.T, why = p.DenseThreshold, ": requested by the user"
	}
	c.C = max(c.T, most) // maximum keys of a launch; several prompts share one launch
	c.DenseAgainst = AgainstDense(p.Dense, p.Deterministic, r.model)
	if need := r.denseNeed(); len(c.DenseAgainst) == 0 && c.MaxTransient > 0 && need > c.MaxTransient {
		c.DenseAgainst = append(c.DenseAgainst,
			fmt.Sprintf("dense attention over %d keys needs %d bytes of transient memory, more than the limit of %d "+
				"bytes", c.T, need, c.MaxTransient))
	}
	c.DenseOK = r.Dense(c, p.Dense, why)
	r.unusedThreshold()
	return nil
}
