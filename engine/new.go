package engine

import (
	"errors"
	"fmt"
	"time"

	"sparrow/kernel"
	"sparrow/kv"
	"sparrow/model"
	"sparrow/plan"
	"sparrow/sample"
	"sparrow/sched"
	"sparrow/spec"
)

// Info describes an open engine; it does not change.
type Info struct {
	Name          string
	Family        string
	Created       time.Time
	Vocabulary    int
	ContextTokens int // longest sequence
	CacheTokens   int
	PageTokens    int
	Pages         int
	WindowPages   int // of rows that only the attention window reads; 0 where rows live as long as their page
	StepTokens    int // the most new tokens of one batch
	MaxRunning    int // at most StepTokens
	MaxQueue      int
	MaxStall      time.Duration // the longest that prompts may hold up sequences that decode; 0 is no bound
	ChatFormat    string        // empty without one
	Efforts       []string      // words for how much to think that the chat format takes
	Kernels       string
	Device        string   // its name and, where there are several, its number
	Defaults      []string // values that were not given and depend on the device, as flags
	Config        plan.Config
	Notices       []plan.Notice
	Memory        Memory
	MovesExperts  bool     // experts come to the device between steps, as they are chosen
	Tiers         []string // where pages of the prefix cache are kept outside the device
	// Draft is what was asked about drafting, Drafts the maximum draft length, and NoDrafts why drafting is disabled.
	Draft    spec.Setting
	Drafts   int
	NoDrafts string
}

// Memory is how the engine divided memory when it opened, in bytes, of all ranks together where several share the
// model.
type Memory struct {
	Weights int64
	Packed  bool // the weights are a copy of their own, see sparrow.Config.Pack
	Cache   int64
	States  int64 // the most that running sequences keep beside their pages
	Arena   int64 // of passes: activations, scores, gathered rows and logits of the largest one
	Scratch int64 // of operations, on a device with memory of its own
	Device  int64 // all memory of such a device; 0 elsewhere
	Tiers   int64 // the most that pages of the prefix cache take outside the device
}

// New makes an engine for a loaded model and allocates its cache. Run starts it.
func New(m model.Model, c Config) (*Engine, error) {
	e, resolved, notices, err := resolve(m, c)
	if err != nil {
		return nil, err
	}
	if err := e.selfTest(&resolved); err != nil {
		return nil, err
	}
	d := e.info
	if err := e.allocate(&resolved, notices); err != nil {
		return nil, err
	}
	if e.scratch, err = sample.NewScratch(m.Config().Vocab); err != nil {
		return nil, err
	}
	e.info.Draft, e.info.Drafts, e.info.NoDrafts = d.Draft, d.Drafts, d.NoDrafts
	if d.Drafts > 0 {
		e.drafter = &drafter{control: spec.New(c.Draft)}
	}
	e.announce()
	return e, nil
}

// resolve makes an engine that has decided how it runs and has no memory yet.
func resolve(m model.Model, c Config) (*Engine, plan.Config, []plan.Notice, error) {
	drafts, why, err := maxDrafts(c.Draft, m, c.StepTokens)
	if err != nil {
		return nil, plan.Config{}, nil, err
	}
	hw, err := model.Hardware(m.Device())
	if err != nil {
		return nil, plan.Config{}, nil, err
	}
	if drafts > 0 {
		c.Policy.Speculation.Tokens = drafts + 1
	}
	resolved, notices, err := plan.Resolve(hw, m.Facts(), c.Policy)
	if err != nil {
		return nil, plan.Config{}, nil, err
	}
	if c.Clock == nil {
		c.Clock = machine{}
	}
	e := &Engine{cfg: c, model: m, queued: backlog{most: c.MaxQueue}, wake: make(chan struct{}, 1),
		stopped: make(chan struct{}),
		plans:   make([]PlanRecord, 0, min(c.PlanHistory, 1024)),
		info:    Info{Draft: c.Draft, Drafts: drafts, NoDrafts: why}}
	e.watchdog.after = c.Watchdog
	e.overlap = !c.NoOverlap && kernel.IsAsynchronous(m.Device())
	e.draws = e.overlap && m.Config().Vocab <= sample.MaxVocabulary
	e.stateful, _ = m.(model.Stateful)
	e.windowed, _ = m.(model.Windowed)
	// Pages alone do not continue a sequence of a stateful model, unless its state can be restored from the cache.
	e.reuse = !c.NoReuse && (e.stateful == nil || e.windowed != nil)
	return e, resolved, notices, nil
}

// allocate divides memory: it sizes and allocates the cache, and computes the most that one pass needs.
func (e *Engine) allocate(cfg *plan.Config, notices []plan.Notice) error {
	mc, c := e.model.Config(), &e.cfg
	size, err := e.sizeCache(cfg)
	if err != nil {
		return err
	}
	if err := e.allocateCache(cfg, size); err != nil {
		return err
	}
	pool := kv.Config{Pages: size.pages, PageTokens: cfg.Page, Window: size.window, Reuse: e.reuse,
		Main: cfg.Layout.String(), Index: cfg.IndexLayout.String(), Listener: c.CacheEvents}
	if err := e.openTiers(cfg, &pool); err != nil {
		return err
	}
	if e.pools, err = openPools(pool, poolsOf(cfg)); err != nil {
		return err
	}
	e.sched, err = sched.New(e.pools, sched.Limits{BatchTokens: c.StepTokens, MaxRunning: c.MaxRunning,
		PromptLogits: e.promptLogits(), MaxStall: c.MaxStall, Divides: e.divides(), Threshold: threshold(cfg),
		RecordRows: e.recordRows(), KeepSuspended: e.stateful == nil})
	if err != nil {
		return err
	}
	e.sched.OnFree(e.released)
	if e.tiers != nil {
		e.sched.OnAdmit(e.tiers.admit)
	}
	cached := size.pages * cfg.Page // of each rank, where these have pages of their own
	context := min(mc.MaxPositions, cached)
	if c.ContextTokens > context {
		more := ""
		if cached < mc.MaxPositions {
			more = ", or for more cache (--cache-tokens)"
		}
		return fmt.Errorf("sparrow: a context of %d tokens was asked for; the model has %d positions "+
			"and the cache holds %d tokens: ask for at most %d%s", c.ContextTokens, mc.MaxPositions, cached, context,
			more)
	}
	if c.ContextTokens > 0 {
		context = c.ContextTokens
	}
	if err := e.countExperts(); err != nil {
		return err
	}
	if e.passes, err = newPasses(e.model, *cfg, e.limits(context)); err != nil {
		return err
	}
	if err := e.openInner(cfg, context); err != nil {
		return err
	}
	ranks := int64(max(cfg.Model.Ranks, 1)) // sizes are those of one
	e.info = Info{Family: string(mc.Family), Created: e.now(), Vocabulary: mc.Vocab, ContextTokens: context,
		CacheTokens: cached * len(e.pools), PageTokens: cfg.Page, Pages: size.pages * len(e.pools),
		WindowPages: size.window.Pages * len(e.pools),
		StepTokens:  c.StepTokens, MaxRunning: e.sched.Limits().MaxRunning, MaxQueue: c.MaxQueue,
		MaxStall: c.MaxStall, Kernels: e.model.Device().Name(), Config: *cfg, Notices: notices,
		MovesExperts: c.Moves != nil,
		Memory: Memory{Weights: c.WeightBytes, Packed: c.Packed, Cache: ranks * size.bytes,
			States: ranks * size.states, Arena: ranks * e.passes.runner.Bytes()}}
	if inner := e.inner.passes; inner != nil {
		e.info.Memory.Arena += ranks * inner.runner.Bytes()
	}
	if e.tiers != nil {
		e.info.Tiers, e.info.Memory.Tiers = e.tiers.stack.Describe(), e.tiers.stack.Bytes()
	}
	if o, ok := e.model.Device().(kernel.MemoryOwner); ok {
		use, m := o.MemoryUse(), &e.info.Memory
		m.Weights, m.Scratch, m.Device = use.Weights, use.Scratch, ranks*e.memory.total
	}
	return nil
}

// threshold is how many tokens of a prompt are computed in the dense form.
func threshold(cfg *plan.Config) int {
	if !cfg.DenseOK {
		return 0
	}
	return cfg.T
}

// maxDrafts is the maximum draft length, or why drafting is disabled. A chain is verified in one batch, with the token
// before it.
func maxDrafts(s spec.Setting, m model.Model, batchTokens int) (drafts int, why string, err error) {
	if s.Drafts() == 0 {
		return 0, "switched off", nil
	}
	drafts = min(s.Drafts(), batchTokens-1)
	if d, ok := m.(model.Drafter); ok {
		err = d.DraftHead()
	} else {
		err = fmt.Errorf("models of family %s are not drafted for; ask for auto or off", m.Config().Family)
	}
	switch {
	case err != nil:
	case drafts == 0 || s.IsFixed() && drafts < s.Drafts():
		err = fmt.Errorf("steps of --step-tokens %d have room for %d of them; ask for %d or more, or for fewer drafts",
			batchTokens, drafts, s.Drafts()+1)
	default:
		return drafts, "", nil
	}
	if s.IsFixed() {
		return 0, "", fmt.Errorf("sparrow: %v drafts were asked for: %w", s, err)
	}
	if errors.Is(err, plan.E15) {
		// auto asks for none; a fixed number names the missing tensors
		return 0, "this checkpoint has no draft layer", nil
	}
	return 0, err.Error(), nil
}

// announce logs once how the engine was set up.
func (e *Engine) announce() {
	i := &e.info
	for _, n := range i.Notices {
		e.cfg.Log.Info("plan", "notice", n.Level, "rule", n.Rule, "text", n.Text)
	}
	e.cfg.Log.Info("drafts", "asked", i.Draft.String(), "most", i.Drafts, "none_because", i.NoDrafts)
	e.cfg.Log.Info("memory", "weights_bytes", i.Memory.Weights, "cache_bytes", i.Memory.Cache,
		"state_bytes", i.Memory.States, "cache_tokens", i.CacheTokens, "pages", i.Pages, "window_pages", i.WindowPages,
		"arena_bytes", i.Memory.Arena, "scratch_bytes", i.Memory.Scratch, "step_tokens", i.StepTokens,
		"context_tokens", i.ContextTokens)
}
