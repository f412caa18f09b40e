package engine

import (
	"cmp"
	"fmt"
	"time"

	"sparrow/internal/kv"
	"sparrow/internal/model"
	"sparrow/internal/sched"
	"sparrow/internal/spec"
	"sparrow/kernel"
	"sparrow/plan"
)

// Info describes an open engine. It is constant while the engine is open.
type Info struct {
	Name          string
	Family        string
	Created       time.Time
	Vocabulary    int
	ContextTokens int // maximum length of a sequence
	CacheTokens   int
	PageTokens    int
	Pages         int
	WindowPages   int // number of pages for rows that only window attention reads; 0 if the model has no such pages
	StepTokens    int // maximum number of new tokens in one batch
	MaxRunning    int // maximum number of running sequences; at most StepTokens, see sched.Limits
	MaxQueue      int
	MaxStall      time.Duration // maximum time that prompts may delay decoding sequences; 0 means no limit
	ChatFormat    string        // name of the chat format; empty if there is none
	Efforts       []string      // names of the reasoning efforts that the chat format accepts, lowest first
	AlwaysThinks  bool          // the chat format cannot disable reasoning
	Parameters    int64         // number of weights in the checkpoint, without block scales
	Format        string        // number format of the matrices, as the release names it
	Tokenizer     Tokenizer     // zero if the checkpoint has no tokenizer
	Kernels       string
	Device        string   // name of the device, with its number if there are several devices
	Defaults      []string // values that were chosen for this device because the user did not set them, as flags
	Config        plan.Config
	Notices       []plan.Notice
	Memory        Memory
	Experts       string   // where experts of a model on a GPU are stored, and why, if Open chose it; else empty
	MovesExperts  bool     // experts move to the device between steps, according to their use
	Tiers         []string // names of the tiers outside the device that store pages of the prefix cache
	// Draft is the setting, Drafts is the maximum draft length, and NoDrafts is the reason why drafting is disabled.
	Draft    spec.Setting
	Drafts   int
	NoDrafts string
}

// Tokenizer holds the properties of a tokenizer that clients need to write prompts themselves.
type Tokenizer struct {
	Class              string // class name in Hugging Face's library
	BOS, EOS, Pad, Unk string // special tokens as text; empty if the tokenizer has none
	AddsBOS            bool   // the tokenizer adds BOS before a text
	ChatTemplate       string // Jinja source; empty if the chat format does not use it
}

// Memory holds the sizes of weights, cache and passes at start, in bytes, summed over all ranks that share the model.
type Memory struct {
	Weights int64
	Packed  bool // the weights are a copy in memory, see sparrow.Config.Pack
	Cache   int64
	States  int64 // maximum memory of running sequences in addition to their pages
	Arena   int64 // memory of passes: activations, scores, gathered rows and logits of the largest pass
	Scratch int64 // scratch memory of operations, on a device with its own memory
	Device  int64 // total memory of a device with its own memory; else 0
	Tiers   int64 // maximum memory of prefix cache pages outside the device
}

// New makes an engine for a loaded model and allocates its cache. Call Run to start its loop.
func New(m model.Model, c Config) (*Engine, error) {
	s, err := resolve(m, c)
	if err != nil {
		return nil, err
	}
	if err := groupsFit(&s.info.Config, c.StepTokens); err != nil {
		return nil, err
	}
	if err := selfTest(s); err != nil {
		return nil, err
	}
	t := &tally{plans: planRing{most: c.PlanHistory}}
	e := &Engine{setup: s, intake: &intake{setup: s}, tally: t, inbox: newInbox(&s.cfg, t)}
	e.loop = &loop{setup: s, tally: t, inbox: e.inbox, experts: experts{setup: s, tally: t, moves: c.Moves}}
	e.loop.watchdog = watchdog{setup: s, tally: t, after: c.Watchdog}
	if err := e.loop.open(); err != nil {
		return nil, err
	}
	if s.info.Drafts > 0 {
		e.intake.drafts = spec.New(c.Draft, s.info.Config.Model.Block)
		e.loop.drafter = &drafter{setup: s, tally: t, watchdog: &e.loop.watchdog, sched: e.loop.sched,
			control: e.intake.drafts}
	}
	announce(s)
	return e, nil
}

// open sizes and allocates the cache and measures the memory of the largest pass.
func (l *loop) open() error {
	c, cfg := &l.cfg, &l.info.Config
	z, err := newSizing(l.setup)
	if err != nil {
		return err
	}
	size, err := z.sizeCache(cfg)
	if err != nil {
		return err
	}
	if err := z.allocateCache(cfg, size); err != nil {
		return err
	}
	pool := kv.Config{Pages: size.pages, PageTokens: cfg.Page, Window: size.window, Reuse: l.reuse,
		Main: cfg.Layout.String(), Index: cfg.IndexLayout.String(), Listener: c.CacheEvents}
	if l.tiers, err = openTiers(l.setup, l.inbox, &pool); err != nil {
		return err
	}
	if l.pools, err = openPools(pool, poolsOf(cfg)); err != nil {
		return err
	}
	l.sched, err = sched.New(l.pools, sched.Limits{BatchTokens: c.StepTokens, MaxRunning: c.MaxRunning,
		Grain: cfg.LinearGroup, PromptLogits: z.promptLogits(), MaxStall: c.MaxStall, Divides: l.divides(),
		Threshold: threshold(cfg), RecordRows: z.recordRows(), KeepSuspended: l.stateful == nil})
	if err != nil {
		return err
	}
	l.sched.OnFree(l.released)
	if l.tiers != nil {
		l.tiers.pools, l.tiers.sched = l.pools, l.sched
		l.sched.OnAdmit(l.tiers.admit)
	}
	cached := size.pages * cfg.Page // number of tokens that fit in the pages of one rank
	context, err := contextOf(l.setup, cached)
	if err != nil {
		return err
	}
	if err := l.experts.count(); err != nil {
		return err
	}
	if l.passes, err = newPasses(l.model, *cfg, z.limits(context)); err != nil {
		return err
	}
	if l.divides() {
		if l.inner.passes, err = newPasses(l.model, *cfg, z.innerLimits(context)); err != nil {
			return err
		}
	}
	i, pools := &l.info, len(l.pools)
	i.Created, i.ContextTokens, i.CacheTokens = l.now(), context, cached*pools
	i.PageTokens, i.Pages, i.WindowPages = cfg.Page, size.pages*pools, size.window.Pages*pools
	i.MaxRunning, i.Memory = l.sched.Limits().MaxRunning, memoryOf(l, &size, z.total)
	if l.tiers != nil {
		i.Tiers = l.tiers.stack.Describe()
	}
	return nil
}

// groupsFit returns an error if a batch is too small for a group of positions of linear attention, because prompts are
// cut only between groups.
func groupsFit(cfg *plan.Config, stepTokens int) error {
	if n := cfg.LinearGroup; stepTokens < n {
		return fmt.Errorf("sparrow: --step-tokens %d: linear attention of prompts is computed in groups of %d "+
			"positions, which need at least %d tokens in a step; set --step-tokens %d or more, or --deterministic, "+
			"which computes positions one by one", stepTokens, n, n, n)
	}
	return nil
}

// contextOf returns the maximum length of a sequence with a cache of the given number of tokens.
func contextOf(s *setup, cached int) (int, error) {
	positions := s.model.Config().MaxPositions
	most, asked := min(positions, cached), s.cfg.ContextTokens
	if asked <= most {
		return cmp.Or(asked, most), nil
	}
	more := ""
	if cached < positions {
		more = ", or a larger cache (--cache-tokens)"
	}
	return 0, fmt.Errorf("sparrow: the context is set to %d tokens, but the model has %d positions "+
		"and the cache holds %d tokens: set at most %d%s", asked, positions, cached, most, more)
}

// memoryOf returns the sizes of weights, cache and passes at start; device is the total memory of the device in bytes.
func memoryOf(l *loop, size *cacheSize, device int64) Memory {
	ranks := int64(max(l.info.Config.Model.Ranks, 1)) // the sizes below are those of one rank
	m := Memory{Weights: l.cfg.WeightBytes, Packed: l.cfg.Packed, Cache: ranks * size.bytes,
		States: ranks * size.states, Arena: ranks * l.passes.runner.Bytes()}
	if inner := l.inner.passes; inner != nil {
		m.Arena += ranks * inner.runner.Bytes()
	}
	if l.tiers != nil {
		m.Tiers = l.tiers.stack.Bytes()
	}
	if o, ok := l.model.Device().(kernel.MemoryOwner); ok {
		use := o.MemoryUse()
		m.Weights, m.Scratch, m.Device = use.Weights, use.Scratch, ranks*device
	}
	return m
}

// announce logs the settings and sizes of the engine when it opens.
func announce(s *setup) {
	i := &s.info
	for _, n := range i.Notices {
		s.cfg.Log.Info("plan", "notice", n.Level, "rule", n.Rule, "text", n.Text)
	}
	s.cfg.Log.Info("drafts", "asked", i.Draft.String(), "most", i.Drafts, "none_because", i.NoDrafts)
	s.cfg.Log.Info("memory", "weights_bytes", i.Memory.Weights, "cache_bytes", i.Memory.Cache,
		"state_bytes", i.Memory.States, "cache_tokens", i.CacheTokens, "pages", i.Pages, "window_pages", i.WindowPages,
		"arena_bytes", i.Memory.Arena, "scratch_bytes", i.Memory.Scratch, "step_tokens", i.StepTokens,
		"context_tokens", i.ContextTokens)
}
