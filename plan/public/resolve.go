package public

import (
	"cmp"
	"fmt"
	"slices"

	"sparrow/plan"
)

// Resolve turns the user's settings into an immutable Config, once. It keeps every explicit choice or returns a
// plan.Error; notices are messages for the user.
func Resolve(hw plan.Hardware, m plan.Model, p Policy) (Config, []plan.Notice, error) {
	hw, m = hw.Clone(), m.Clone()
	p.PipelineCuts = slices.Clone(p.PipelineCuts)
	r := &resolver{hw: &hw, model: &m, policy: &p}
	r.cfg = Config{MixedAllowed: true, MaxRunning: p.Running, Wishes: p, HiSparse: p.HiSparse, TBO: p.TBO,
		Role: p.Role, Unsliced: p.Slicing == plan.SwitchOff, DecodeSkip: p.DecodeSkip == plan.SwitchOn,
		Config: plan.Config{Catalog: plan.CatalogPublic, Hardware: hw, Model: m,
			C:            cmp.Or(p.ChunkCapacity, plan.DefaultChunkCapacity),
			ScoreCap:     cmp.Or(p.ScoreCap, plan.DefaultScoreCap),
			MaxTransient: p.MaxTransient, Shared: m.SharedLayers(), IndexLayout: plan.IndexPage132}}
	for _, step := range []func() error{
		r.inputs, r.indexKeys, r.speculation, r.parallelism, r.sharing, r.kvType, r.kernels, r.page, r.selection,
		r.offload, r.v4Prefill, r.chunk, r.denseForm, r.determinism, r.checkReserve,
	} {
		if err := step(); err != nil {
			return Config{}, r.Notices, err
		}
	}
	c := &r.cfg
	c.Reasons, c.Rejected = slices.Clip(r.Reasons), slices.Clip(c.Rejected)
	var err error
	if c.Fingerprint, err = c.fingerprint(); err != nil {
		return Config{}, r.Notices, err
	}
	r.Summary(&c.Config, string(c.Scores), string(c.TopK))
	return *c, r.Notices, nil
}

// resolver holds the state of one call of Resolve.
type resolver struct {
	hw     *plan.Hardware
	model  *plan.Model
	policy *Policy

	wish plan.Layout // the layout the user named, if any

	cfg Config
	plan.Notes
}

// fingerprint hashes the decisions, without the texts that explain them.
func (c *Config) fingerprint() (plan.Key, error) {
	decided := *c
	decided.Wishes = Policy{}
	decided.Config = c.Decided()
	return plan.FingerprintOf(&decided)
}

func (r *resolver) inputs() error {
	if err := r.policy.check(); err != nil {
		return err
	}
	if err := plan.CheckInputs(r.hw, r.model); err != nil {
		return err
	}
	if r.model.Dense() || r.model.Pooled() {
		return &plan.Error{Code: plan.E01, Asked: fmt.Sprintf("%s in the catalogue public", r.model.Family),
			Supported: "models whose indexer selects tokens: the catalogue has the sparse kernels of other engines",
			Try:       "--catalog sparrow"}
	}
	if r.hw.Arch.CUDA() && r.hw.PagedRowLimit() < 1 {
		return fmt.Errorf("public: hardware description of %s: opt-in shared memory is %d bytes, too small for the "+
			"schedules", r.hw.Arch, r.hw.SmemOptin)
	}
	r.Divided(r.model)
	return nil
}

// indexKeys sets the layout of the indexer keys (dispatch 9).
func (r *resolver) indexKeys() error {
	if !r.policy.FP4Index && !r.model.IndexFP4 {
		return nil
	}
	if r.model.Family != plan.DeepSeekV4 {
		return &plan.Error{Code: plan.E05, Asked: "four-bit indexer keys for " + r.model.Family.String(),
			Supported: "four-bit keys of " + plan.DeepSeekV4.String(), Try: "8-bit keys"}
	}
	r.model.IndexFP4, r.cfg.Model.IndexFP4, r.cfg.IndexLayout = true, true, plan.IndexPage68
	r.Because("dispatch 9", "indexer keys in four bits, as requested")
	return nil
}

// speculation sets Config.N, the number of verified rows per request (dispatch 12, 16).
func (r *resolver) speculation() (err error) {
	if r.cfg.N, err = r.policy.Speculation.Chain(&r.Notes); err != nil || r.cfg.N == 1 {
		return err
	}
	r.cfg.MixedAllowed, r.cfg.MaxRunning = false, cmp.Or(r.cfg.MaxRunning, 48)
	r.Notice(plan.NoticeInfo, "dispatch 2", "speculation disables mixed batches")
	return nil
}

// parallelism checks context parallelism (dispatch 15).
func (r *resolver) parallelism() error {
	cp, p := r.policy.CP, r.policy
	refuse := func(asked, supported, try string) error {
		return &plan.Error{Code: plan.E10, Asked: asked, Supported: supported, Try: try}
	}
	switch {
	case cp.Kind == CPNone && cp.Size > 1:
		return refuse(fmt.Sprintf("context parallelism over %d ranks without a strategy", cp.Size),
			fmt.Sprintf("%s, %s", CPInterleave, CPZigzag), "the strategy interleave")
	case cp.Kind == CPNone:
		return nil
	case cp.Size < 2 || cp.Size > 8:
		return refuse(fmt.Sprintf("context parallelism over %d ranks", cp.Size), "2 to 8 ranks", "2 ranks")
	case cp.Kind == CPZigzag && r.model.V4():
		return refuse("zigzag context parallelism for "+r.model.Family.String(), "interleave",
			"the strategy interleave")
	case p.AttentionTP > 1:
		return refuse(fmt.Sprintf("context parallelism with attention split over %d ranks", p.AttentionTP),
			"attention tensor parallelism of 1", "attention tensor parallelism of 1")
	case cp.Kind == CPInterleave && p.DP > 1:
		return refuse(fmt.Sprintf("interleaved context parallelism with %d data-parallel ranks", p.DP),
			"data parallelism of 1", "data parallelism of 1")
	case p.Role == RoleDecode:
		return refuse("context parallelism on a decode worker", "prefill workers and workers that do both",
			"no context parallelism on this worker")
	}
	r.cfg.CP = cp
	r.Because("dispatch 15",
		"%s context parallelism over %d ranks disables the dense form, the score skip and prefill graphs", cp.Kind,
		cp.Size)
	return nil
}

// sharing checks that layers which reuse indices can get them.
func (r *resolver) sharing() error {
	shared := r.cfg.Shared
	for _, cut := range r.policy.PipelineCuts {
		if cut < 1 || cut >= r.model.Layers {
			return fmt.Errorf("public: policy: the pipeline is cut at layer %d, want 1 or more and less than %d", cut,
				r.model.Layers)
		}
		if shared != nil && shared[cut] && !r.policy.CarryIndices {
			source := plan.SourceLayer(shared, cut)
			return &plan.Error{Code: plan.E12,
				Asked: fmt.Sprintf("a pipeline stage that starts at layer %d, which shares the indices of layer %d",
					cut, source),
				Supported: "stages that start on a layer with its own indexer, or that carry indices",
				Try:       fmt.Sprintf("a cut at layer %d", source)}
		}
	}
	if shared != nil && r.policy.TBO && !r.policy.CarryIndices {
		return &plan.Error{Code: plan.E12,
			Asked:     "two-batch overlap of a model whose layers share indices, without carrying them",
			Supported: "each sub-batch carrying its own indices", Try: "no two-batch overlap"}
	}
	return nil
}

// kvType sets the element type of the cache (dispatch 16).
func (r *resolver) kvType() error {
	kv, wish, ok := plan.ParseKV(r.policy.KV)
	if !ok {
		return r.badKV(fmt.Sprintf("kv type %q", r.policy.KV))
	}
	if kv == plan.DTypeUnset {
		if kv = plan.BF16; r.model.V4() || r.hw.Arch.Major() >= 10 {
			kv = plan.FP8E4M3
		}
		r.DefaultKV(kv, r.hw, r.model)
	}
	switch {
	case kv == plan.F32:
		e := r.badKV(fmt.Sprintf("kv type f32 on %s", r.hw.Arch))
		e.Supported += "; f32 only with --catalog sparrow on cpu"
		return e
	case r.model.V4() && kv == plan.BF16:
		return r.badKV(fmt.Sprintf("kv type %s for %s", kv, r.model.Family))
	case !r.model.Stores(wish):
		return r.badKV(fmt.Sprintf("layout %s for %s", wish, r.model.Family))
	}
	r.cfg.KV, r.wish = kv, wish
	return nil
}

func (r *resolver) badKV(asked string) *plan.Error {
	if r.model.V4() {
		return &plan.Error{Code: plan.E05, Asked: asked, Supported: "fp8 (layout v4-584)", Try: "--kv fp8"}
	}
	return &plan.Error{Code: plan.E05, Asked: asked, Supported: "bf16, fp8 (e4m3)", Try: "--kv bf16"}
}

// kernels sets the pair of kernels and the layout of the cache (dispatch 9 and 16).
func (r *resolver) kernels() error {
	p, c := r.policy, &r.cfg
	choice, err := r.chooser().Choose()
	if err != nil {
		return err
	}
	c.Prefill, c.Decode, c.Layout, c.Rejected = choice.Prefill, choice.Decode, choice.Layout, choice.Rejected
	if r.model.V4() && p.V4Q8 && c.Prefill != plan.FlashMLASparseQ8 {
		return &plan.Error{Code: plan.E02, Asked: fmt.Sprintf("the FP8 sparse prefill of %s on %s with prefill %s",
			r.model.Family, r.hw.Arch, c.Prefill), Supported: "the FP8 sparse prefill on sm90",
			Try: "the bf16 sparse prefill"}
	}
	return nil
}

func (r *resolver) chooser() *plan.Chooser {
	p := r.policy
	return &plan.Chooser{Catalogue: &catalogue, Notes: &r.Notes, Hardware: r.hw, Model: r.model, KV: r.cfg.KV,
		Wish: r.wish, Named: p.KV, Asked: [2]string{p.Prefill, p.Decode}, Pairs: r.pairs, Against: r.objections}
}

// page sets the number of tokens per page (dispatch 4, 16).
func (r *resolver) page() error {
	want := r.policy.Page
	r.cfg.Page = r.model.PageTokens()
	switch {
	case r.model.V4():
		if want != 0 && want != r.cfg.Page {
			r.Notice(plan.NoticeWarning, "dispatch 16", "%s needs pages of 256 tokens; the requested %d is not used",
				r.model.Family, want)
		}
		return nil
	case r.hw.Arch.AMD() && r.hw.Preshuffle:
		r.Because("dispatch 4", "page 64: the preshuffled score kernel is usable")
		if want%16 != 0 {
			return &plan.Error{Code: plan.E06,
				Asked:     fmt.Sprintf("pages of %d tokens with preshuffled index keys", want),
				Supported: "multiples of 16", Try: "a page of 64"}
		}
		r.cfg.Page = cmp.Or(want, r.cfg.Page)
		return nil
	case r.hw.Arch.AMD():
		r.cfg.Page = 1
		r.Because("dispatch 4", "page 1: the preshuffled score kernel is not usable")
	}
	if want != 0 && want != r.cfg.Page {
		return &plan.Error{Code: plan.E06,
			Asked:     fmt.Sprintf("pages of %d tokens for %s on %s", want, r.model.Family, r.hw.Arch),
			Supported: fmt.Sprintf("%d", r.cfg.Page), Try: fmt.Sprintf("a page of %d", r.cfg.Page)}
	}
	return nil
}

// chunk sets the maximum number of prompt tokens of a step (dispatch 16).
func (r *resolver) chunk() error {
	if r.cfg.ChunkedPrefill = r.policy.ChunkedPrefill; r.cfg.ChunkedPrefill == 0 {
		all := chunkByMemory(r.hw.MemoryBytes)
		r.cfg.ChunkedPrefill = all / max(r.policy.DP, 1)
		why := "by device memory"
		if r.policy.DP > 1 {
			why = fmt.Sprintf("the %d by device memory divided by %d data-parallel ranks", all, r.policy.DP)
		}
		r.Because("dispatch 16", "prompts in chunks of %d tokens, %s", r.cfg.ChunkedPrefill, why)
	}
	return nil
}

// chunkByMemory returns the default number of prompt tokens of a step for a device with the given memory in bytes.
func chunkByMemory(bytes int64) int {
	const gb = 1_000_000_000
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

// denseForm sets Config.T, and checks the conditions of the dense form that do not depend on a batch (dispatch 5).
func (r *resolver) denseForm() error {
	c, p, arch := &r.cfg, r.policy, r.hw.Arch
	c.T = cmp.Or(p.DenseThreshold, r.model.K)
	if !r.model.V4() {
		r.Threshold(p.DenseThreshold, r.model.K)
	}
	c.DenseAgainst = plan.AgainstDense(p.Dense, p.Deterministic, r.model)
	if r.model.V4() {
		c.DenseOK = r.Dense(&c.Config, p.Dense, "")
		return nil
	}
	against := func(text string) { c.DenseAgainst = append(c.DenseAgainst, text) }
	if arch != plan.SM90 && !arch.SM100Family() && arch != plan.GFX95 {
		against(fmt.Sprintf("%s is neither sm90, sm100 to sm109 nor gfx95", arch))
	}
	if r.model.Heads < 2 {
		against("the dense kernel needs more than one head")
	}
	if c.CP.Kind != CPNone {
		against("context parallelism is on")
	}
	if p.HiSparse {
		against("HiSparse is on")
	}
	if c.Prefill == plan.Reference && p.Dense != plan.SwitchOn {
		against("the prefill kernel reference is only for tests of the sparse form")
	}
	why := ""
	if p.DenseThreshold > 0 {
		why = ": requested by the user"
	}
	c.DenseOK = r.Dense(&c.Config, p.Dense, why)
	return nil
}

func (r *resolver) checkReserve() error {
	return r.cfg.CheckReserve(&catalogue, auto(&r.cfg))
}
