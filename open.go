package sparrow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"sparrow/builtin"
	"sparrow/chat"
	"sparrow/engine"
	"sparrow/internal/device"
	"sparrow/internal/device/group"
	"sparrow/internal/device/host"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/inspect"
	"sparrow/internal/model/llamacpp"
	"sparrow/internal/numa"
	"sparrow/internal/spec"
	"sparrow/internal/textfile"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/tokenizer"
	"sparrow/toolcall"
)

// Default values of Config.
const (
	defaultMaxRunning  = 64
	gpuMaxRunning      = 256
	defaultMaxStall    = 100 * time.Millisecond
	gpuMaxStall        = 50 * time.Millisecond
	defaultMaxQueue    = 2048
	defaultPlanHistory = 64
	defaultWatchdog    = time.Minute
)

// parts holds a checkpoint: weights and config, tokenizer, chat format.
type parts struct {
	source          *family.Source
	tokenizer       *tokenizer.Tokenizer // nil if the checkpoint has no tokenizer
	tokenizerConfig []byte
	generation      []byte
	encoder         string // text of the Python file that renders prompts, if the release has one
}

// Open loads a model and starts the engine.
func Open(ctx context.Context, c Config) (*Engine, error) {
	e, err := assemble(ctx, c)
	if err != nil {
		return nil, err
	}
	go e.running.core.Run()
	if e.cfg.ExpertUsage != "" {
		e.saver = startSaving(e)
	}
	return e, nil
}

// assemble returns an engine whose loop does not run yet. After an error, everything that it opened is closed.
func assemble(ctx context.Context, c Config) (_ *Engine, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	p, err := c.parts()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.source.Close())
		}
	}()
	if c.usage, err = openUsage(&c, p.source.Model); err != nil {
		return nil, err
	}
	shape := inspect.Of(p.source, nil)
	c.leaveOut(p.source)
	r, began, err := begin(ctx, c, p)
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: began, asked: c, parts: p, running: r, info: r.core.Info(), tok: p.tokenizer,
		compilers: newCompilers(), tools: toolcall.NewStore(maxToolBytes), shown: &chat.Memo{},
		eos: endTokens(p.source.Config, p.generation, p.tokenizer)}
	e.info.Name, e.info.Device, e.info.Defaults = c.Name, device.Describe(r.dev.Machine), began.defaults
	e.info.Experts = began.placed
	e.info.Parameters, e.info.Format = shape.Parameters.Total, shape.Format
	if err := e.prepareText(p); err != nil {
		return nil, errors.Join(err, r.abandon())
	}
	return e, nil
}

// leaveOut removes the drafting layers from the source if the configuration does not use them, so that their weights
// are not loaded.
func (c Config) leaveOut(s *family.Source) {
	if c.Draft == spec.Off() {
		s.DropDrafts()
	}
}

// begin opens the device, loads the weights and creates the core (engine.Engine), whose loop does not run yet. It also
// returns the configuration with the defaults for the device.
func begin(ctx context.Context, c Config, p *parts) (_ *running, _ Config, err error) {
	var nodes *numa.Machine
	if c.NUMA {
		if nodes, err = numa.Several(c.Warn); err != nil {
			return nil, c, fmt.Errorf("sparrow: %w", err)
		}
		c.Pack = c.Pack || nodes != nil
	}
	if err := checkPacking(c, p.source.Weights.Bytes()); err != nil {
		return nil, c, err
	}
	dev, c, err := openDevices(device.Registry(), c, p, nodes)
	if err != nil {
		return nil, c, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dev.Close())
		}
	}()
	if d, ok := dev.Machine.(interface{ Placement() string }); ok {
		c.Log.Info("placement of large buffers", "kernels", dev.Name(), "text", d.Placement())
	}
	if d, ok := dev.Machine.(interface{ Compiled() string }); ok && d.Compiled() != "" {
		c.Log.Info("kernels", "kernels", dev.Name(), "text", d.Compiled())
	}
	m, err := load(ctx, c, p, dev)
	if err != nil {
		return nil, c, err
	}
	core, err := newCore(c, p, m, dev.experts)
	if err != nil {
		return nil, c, err
	}
	return &running{core, dev}, c, nil
}

// newCore returns a core for a loaded model. placed holds the experts in host memory; it is nil if there are none.
func newCore(c Config, p *parts, m model.Model, placed *device.PlacedExperts) (*engine.Engine, error) {
	ec := c.engine(p)
	if placed != nil && placed.Movable {
		ec.Moves = placed.Placement
	}
	if c.Tiers.Any() {
		ec.Tiers, ec.Weights = c.Tiers, nameWeights(p.source.Weights, placed, c.Tiers.Leave(), c.Log)
	}
	return engine.New(m, ec)
}

// abandon closes a core whose loop has not run, and its device.
func (r *running) abandon() error {
	go r.core.Run()
	r.core.Close(context.Background())
	return r.dev.Close()
}

// openDevices opens the device, or one per rank. It also returns the configuration with the defaults for the device.
func openDevices(r *kernel.Registry, c Config, p *parts, nodes *numa.Machine) (devices, Config, error) {
	if len(c.GPUs) == 1 {
		c.Device = c.GPUs[0]
		if c.Kernels == "" || c.Kernels == AutoKernels {
			c.Kernels = "cuda"
		}
	}
	q := device.Request{
		Options: kernel.Options{Workers: c.Workers, Ordinal: c.Device, Pack: c.Pack, Precise: c.Precise, NUMA: nodes,
			Limits: c.Limits},
		Kernels: c.Kernels, Source: p.source, Policy: c.Policy, Experts: c.Experts, Warn: c.Warn,
	}
	fit := &fitting{registry: r, config: c, parts: p}
	q.Fits = fit.on
	ranks := c.ranks()
	if ranks.Total() > 1 {
		g, err := device.OpenRanks(r, q, ranks, group.Options{Timeout: c.RankTimeout})
		if err != nil {
			return devices{}, c, err
		}
		c = c.onDevice(g.Machine(), p.source.Model)
		c.reserved = fit.reserved
		return onRanks(g, c.Attention), c, nil
	}
	dev, err := device.Open(r, q)
	if err != nil {
		return devices{}, c, errors.Join(err, fit.placed.Close())
	}
	c = c.onDevice(dev, p.source.Model)
	if dev.Hardware().Arch != "cpu" {
		c.placed = fit.chosen
	}
	if c.reserved = fit.reserved; fit.placed == nil {
		return onDevice(dev), c, nil
	}
	return placedOn(dev, fit.placed), c.besideExperts(), nil
}

// load loads the weights. If ctx was cancelled meanwhile, it releases the model and returns an error.
func load(ctx context.Context, c Config, p *parts, dev devices) (model.Model, error) {
	total, done := p.source.Weights.Bytes(), int64(0)
	m, err := dev.load(p.source, func(name string) {
		if t, ok := p.source.Weights.Tensor(name); ok {
			done += t.Bytes()
		}
		if c.OnLoad != nil {
			c.OnLoad(done, total)
		}
	})
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && c.Substitute != nil {
		return c.Substitute(m)
	}
	if err == nil {
		for _, text := range p.source.Config.Losses {
			c.Warn(text)
		}
		for _, text := range inspect.Slow(p.source, m.Device().Name() == "cuda") {
			c.Warn(text)
		}
		for _, text := range p.source.Skipped {
			c.Log.Info("tensors were skipped", "text", text)
		}
	}
	return m, err
}

func (c Config) withDefaults() Config {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	// Policy.Running is the load that the user configured, without the device's defaults, which are set below.
	c.Policy.Running = c.MaxRunning
	set(&c.MaxQueue, defaultMaxQueue)
	set(&c.PlanHistory, defaultPlanHistory)
	if c.Watchdog == 0 {
		c.Watchdog = defaultWatchdog
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Warn == nil {
		c.Warn = func(text string) { c.Log.Warn(text) }
	}
	if c.Name == "" {
		c.Name = builtin.Name
		if c.Model != "" {
			c.Name = family.NameOf(c.Model)
		}
	}
	return c
}

// onDevice sets unset fields to the defaults for the device, and records which fields it set.
func (c Config) onDevice(dev kernel.Machine, d config.Description) Config {
	arch, running, stall := plan.CPU, defaultMaxRunning, defaultMaxStall
	if dev.Hardware().Arch != "cpu" {
		arch, running, stall = plan.SM90, gpuMaxRunning, gpuMaxStall
	}
	c.defaults = nil
	set := func(v *int, d int, flag string) {
		if *v == 0 {
			*v = d
			c.defaults = append(c.defaults, fmt.Sprintf("--%s %d", flag, d))
		}
	}
	set(&c.StepTokens, plan.StepTokens(arch), "step-tokens")
	set(&c.MaxRunning, running, "max-running")
	if c.MaxStall == 0 {
		c.MaxStall = stall
		c.defaults = append(c.defaults, fmt.Sprintf("--max-stall %v", stall))
	}
	var chosen []string
	c.Policy, chosen = device.PolicyOn(dev, d, c.Policy)
	c.defaults = append(c.defaults, chosen...)
	return c
}

// engine returns the configuration of the core.
func (c Config) engine(p *parts) engine.Config {
	return engine.Config{Policy: c.Policy, Draft: c.Draft, DraftAccept: c.DraftAccept, CacheTokens: c.CacheTokens,
		ContextTokens: c.ContextTokens, StepTokens: c.StepTokens, MaxRunning: c.MaxRunning, MaxQueue: c.MaxQueue,
		MaxStall: max(c.MaxStall, 0), PlanHistory: c.PlanHistory, NoReuse: c.NoReuse, NoGraphs: c.NoGraphs,
		NoOverlap: c.NoOverlap, PadStates: c.PadStates,
		CacheEvents: c.CacheEvents, RecordBytes: c.RecordBytes,
		EOS: endTokens(p.source.Config, p.generation, p.tokenizer), WeightBytes: p.source.Weights.Bytes(),
		ReservedBytes: c.reserved, Packed: c.Pack, SelfTest: c.SelfTest, Watchdog: max(c.Watchdog, 0), Log: c.Log,
		Diagnose: damage(p.source.Weights, c.Log), Usage: c.usage}
}

// parts returns the checkpoint that the configuration selects.
func (c *Config) parts() (*parts, error) {
	if c.Source != nil {
		return &parts{source: c.Source}, nil
	}
	return readParts(c.Model)
}

// readParts opens the checkpoint in dir, or the built-in checkpoint if dir is empty.
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
	if family.IsGGUF(dir) {
		return readGGUF(dir)
	}
	for _, f := range []struct {
		name string
		to   *[]byte
	}{{"tokenizer_config.json", &p.tokenizerConfig}, {"generation_config.json", &p.generation}} {
		if *f.to, err = textfile.Optional(filepath.Join(dir, f.name), textfile.Config); err != nil {
			return nil, fmt.Errorf("sparrow: %w", err)
		}
	}
	if tokenizer.Has(dir) {
		if p.tokenizer, err = tokenizer.Open(dir); err != nil {
			return nil, err
		}
	}
	if p.encoder, err = readEncoder(dir); err != nil {
		return nil, err
	}
	p.source, err = family.Open(dir)
	return p, err
}

// readEncoder returns the text of the Python file that renders prompts in a DeepSeek-V4 release, or "" if there is
// none. The text is only searched for names that distinguish releases; it is never run.
func readEncoder(dir string) (string, error) {
	text, err := textfile.Optional(filepath.Join(dir, "encoding", "encoding_dsv4.py"), textfile.Config)
	if err != nil {
		return "", fmt.Errorf("sparrow: %w", err)
	}
	return string(text), nil
}

// readGGUF opens a GGUF file, which contains weights, vocabulary and chat template.
func readGGUF(path string) (*parts, error) {
	f, err := llamacpp.Open(path)
	if err != nil {
		return nil, fmt.Errorf("sparrow: %w", err)
	}
	p := &parts{tokenizerConfig: f.TokenizerConfig}
	if f.Tokenizer != nil {
		if p.tokenizer, err = tokenizer.New(f.Tokenizer, f.TokenizerConfig); err != nil {
			return nil, errors.Join(fmt.Errorf("sparrow: %s: %w", path, err), f.Weights.Close())
		}
	}
	p.source, err = family.FromGGUF(path, f)
	return p, err
}

// checkPacking returns an error if the machine has too little memory for packed copies of the weights (Pack or NUMA).
func checkPacking(c Config, weights int64) error {
	if !c.Pack {
		return nil
	}
	if err := host.CheckPackSpace(weights); err != nil {
		return fmt.Errorf("sparrow: %w", err)
	}
	return nil
}
