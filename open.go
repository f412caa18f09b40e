package sparrow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"sparrow/builtin"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/cuda/op"
	"sparrow/kernel/ref"
	"sparrow/kv"
	"sparrow/model"
	"sparrow/model/family"
	"sparrow/plan"
	"sparrow/sample"
	"sparrow/sched"
	"sparrow/spec"
	"sparrow/step"
	"sparrow/tokenizer"
)

// Defaults of Config.
const (
	defaultStepTokens  = 512
	defaultMaxRunning  = 64
	defaultMaxQueue    = 1024
	defaultPlanHistory = 64
)

// Registry lists the kernels of this build, best first.
func Registry() *kernel.Registry {
	return kernel.NewRegistry(cpu.Backends(), op.Backends(), ref.Backends())
}

// parts is what a checkpoint consists of.
type parts struct {
	source          *family.Source
	tokenizer       *tokenizer.Tokenizer // nil without one
	tokenizerConfig []byte
	generation      []byte
}

// Open loads a model and starts its step loop.
func Open(ctx context.Context, c Config) (*Engine, error) {
	e, err := assemble(ctx, c)
	if err != nil {
		return nil, err
	}
	go e.loop()
	return e, nil
}

// assemble makes an engine whose loop does not run yet. When it fails, everything it opened is closed.
func assemble(ctx context.Context, c Config) (_ *Engine, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	p, err := readParts(c.Model)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.source.Close())
		}
	}()
	if err := packable(c, p.source.Weights.Bytes()); err != nil {
		return nil, err
	}
	dev, err := Registry().Open(c.Kernels, kernel.Options{Workers: c.Workers, Ordinal: c.Device, Pack: c.Pack})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dev.Close())
		}
	}()
	if d, ok := dev.(interface{ Placement() string }); ok {
		c.Log.Info("placement of large buffers", "kernels", dev.Name(), "text", d.Placement())
	}
	m, err := load(ctx, c, p, dev)
	if err != nil {
		return nil, err
	}
	return build(c, p, m)
}

// load reads the weights. ctx is looked at once they are read: a model that nobody waits for is not kept.
func load(ctx context.Context, c Config, p *parts, dev kernel.Device) (model.Model, error) {
	total, done := len(p.source.Weights.Names()), 0
	m, err := p.source.Load(dev, func(string) {
		if done++; c.OnLoad != nil {
			c.OnLoad(done, total)
		}
	})
	if err == nil {
		err = ctx.Err()
	}
	return m, err
}

func (c Config) withDefaults() Config {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.StepTokens, defaultStepTokens)
	set(&c.MaxRunning, defaultMaxRunning)
	set(&c.MaxQueue, defaultMaxQueue)
	set(&c.PlanHistory, defaultPlanHistory)
	if c.Kernels == "" {
		c.Kernels = "cpu"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Name == "" {
		c.Name = builtin.Name
		if c.Model != "" {
			c.Name = filepath.Base(filepath.Clean(c.Model))
		}
	}
	return c
}

// readParts opens the checkpoint in dir, or the one inside the binary.
func readParts(dir string) (*parts, error) {
	p := &parts{}
	var err error
	if dir == "" {
		p.tokenizerConfig, p.generation = builtin.TokenizerConfig(), builtin.GenerationConfig()
		if p.tokenizer, err = builtin.Tokenizer(); err != nil {
			return nil, err
		}
		p.source, err = builtin.Source()
		return p, err
	}
	for _, f := range []struct {
		name string
		to   *[]byte
	}{{"tokenizer_config.json", &p.tokenizerConfig}, {"generation_config.json", &p.generation}} {
		if *f.to, err = os.ReadFile(filepath.Join(dir, f.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("sparrow: %w", err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "tokenizer.json")); err == nil {
		if p.tokenizer, err = tokenizer.Open(dir); err != nil {
			return nil, err
		}
	}
	p.source, err = family.Open(dir)
	return p, err
}

// build puts the engine together around a loaded model.
func build(c Config, p *parts, m model.Model) (*Engine, error) {
	hw, err := model.Hardware(m.Device())
	if err != nil {
		return nil, err
	}
	drafts, why, err := draftsOf(c.Draft, m, c.StepTokens)
	if err != nil {
		return nil, err
	}
	policy := c.Policy
	if drafts > 0 {
		policy.Speculation.Tokens = drafts + 1
	}
	resolved, notices, err := plan.Resolve(hw, m.Facts(), policy)
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: c, source: p.source, dev: m.Device(), model: m, tok: p.tokenizer, wake: make(chan struct{}, 1), stopped: make(chan struct{}),
		plans: make([]PlanRecord, 0, min(c.PlanHistory, 1024))}
	e.stateful, _ = m.(model.Stateful)
	e.windowed, _ = m.(model.Windowed)
	// Pages alone do not continue a sequence of a model that keeps more of it, unless that can be restored from the cache.
	e.reuse = !c.NoReuse && (e.stateful == nil || e.windowed != nil)
	e.eos = endTokens(p.source.Config, p.generation, p.tokenizer)
	if err := e.size(&resolved, notices); err != nil {
		return nil, err
	}
	if err := e.text(p); err != nil {
		return nil, err
	}
	if e.scratch, err = sample.NewScratch(m.Config().Vocab); err != nil {
		return nil, err
	}
	l := e.sched.Limits()
	e.runner, err = step.New(m, resolved, step.Limits{Rows: l.StepTokens, Requests: l.MaxRunning, Prompts: l.MaxPrompts, Context: e.info.ContextTokens})
	if err != nil {
		return nil, err
	}
	e.info.Draft, e.info.Drafts, e.info.NoDrafts = c.Draft, drafts, why
	if drafts > 0 {
		e.drafter = &drafter{control: spec.New(c.Draft)}
	}
	e.announce()
	return e, nil
}

// size divides memory: weights are there, the cache is planned, and what one step needs at most is told.
func (e *Engine) size(cfg *plan.Config, notices []plan.Notice) error {
	mc, c := e.model.Config(), &e.cfg
	room, err := e.room(cfg)
	if err != nil {
		return err
	}
	pages := room.pages
	if err := e.allocate(cfg, room); err != nil {
		return err
	}
	pool, err := kv.New(kv.Config{Pages: pages, PageTokens: cfg.Page, Window: room.window, Reuse: e.reuse, Main: cfg.Layout.String(), Index: cfg.IndexLayout.String()})
	if err != nil {
		return err
	}
	e.pool = pool
	if e.sched, err = sched.New(pool, sched.Limits{StepTokens: c.StepTokens, MaxRunning: c.MaxRunning}); err != nil {
		return err
	}
	e.sched.OnFree(release)
	context := min(mc.MaxPositions, pages*cfg.Page)
	if c.ContextTokens > context {
		return fmt.Errorf("sparrow: a context of %d tokens was asked for; the model has %d positions and the cache holds %d tokens: ask for at most %d, or for more cache (--cache-tokens)",
			c.ContextTokens, mc.MaxPositions, pages*cfg.Page, context)
	}
	if c.ContextTokens > 0 {
		context = c.ContextTokens
	}
	e.info = Info{Name: c.Name, Family: string(mc.Family), Created: time.Now(), Vocabulary: mc.Vocab, ContextTokens: context, CacheTokens: pages * cfg.Page,
		PageTokens: cfg.Page, Pages: pages, WindowPages: room.window.Pages, StepTokens: c.StepTokens, MaxRunning: e.sched.Limits().MaxRunning, MaxQueue: c.MaxQueue, Kernels: e.dev.Name(), Config: *cfg, Notices: notices,
		Memory: Memory{Weights: e.source.Weights.Bytes(), Packed: e.cfg.Pack, Cache: room.bytes, States: room.states}}
	chunk := min(c.StepTokens, context)
	worst, err := plan.Build(*cfg, plan.NewBatch(plan.ModeExtend, plan.ExtendRequest(chunk, context-chunk)))
	if err != nil {
		return err
	}
	e.info.Memory.Transient = worst.TransientBytes
	return nil
}

// draftsOf is the longest chain of drafts, and where there is none why. A chain is verified in one step, with the token it goes on from.
func draftsOf(s spec.Setting, m model.Model, stepTokens int) (drafts int, why string, err error) {
	if s.Drafts() == 0 {
		return 0, "switched off", nil
	}
	drafts = min(s.Drafts(), stepTokens-1)
	if d, ok := m.(model.Drafter); ok {
		err = d.DraftHead()
	} else {
		err = fmt.Errorf("models of family %s are not drafted for; ask for auto or off", m.Config().Family)
	}
	switch {
	case err != nil:
	case drafts == 0 || s.Insists() && drafts < s.Drafts():
		err = fmt.Errorf("steps of --step-tokens %d have room for %d of them; ask for %d or more, or for fewer drafts", stepTokens, drafts, s.Drafts()+1)
	default:
		return drafts, "", nil
	}
	if s.Insists() {
		return 0, "", fmt.Errorf("sparrow: %v drafts were asked for: %w", s, err)
	}
	if errors.Is(err, plan.E15) {
		return 0, "this checkpoint has no draft layer", nil // nobody asked for one; a number names the tensors it lacks
	}
	return 0, err.Error(), nil
}

// announce says once how the engine was set up.
func (e *Engine) announce() {
	i := &e.info
	for _, n := range i.Notices {
		e.cfg.Log.Info("plan", "level", n.Level, "rule", n.Rule, "text", n.Text)
	}
	e.cfg.Log.Info("drafts", "asked", i.Draft.String(), "most", i.Drafts, "none_because", i.NoDrafts)
	e.cfg.Log.Info("memory", "weights_bytes", i.Memory.Weights, "cache_bytes", i.Memory.Cache, "state_bytes", i.Memory.States, "cache_tokens", i.CacheTokens, "pages", i.Pages, "window_pages", i.WindowPages,
		"transient_bytes", i.Memory.Transient, "step_tokens", i.StepTokens, "context_tokens", i.ContextTokens)
}
