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
	"sparrow/engine"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/cuda/op"
	"sparrow/kernel/host"
	"sparrow/kernel/ref"
	"sparrow/model"
	"sparrow/model/family"
	"sparrow/tokenizer"
)

// Defaults of Config.
const (
	defaultStepTokens  = 512
	defaultMaxRunning  = 64
	defaultMaxQueue    = 1024
	defaultPlanHistory = 64
	defaultWatchdog    = time.Minute
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

// Open loads a model and starts the engine's loop.
func Open(ctx context.Context, c Config) (*Engine, error) {
	e, err := assemble(ctx, c)
	if err != nil {
		return nil, err
	}
	go e.core.Run()
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
	if err := checkPacking(c, p.source.Weights.Bytes()); err != nil {
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

// load reads the weights. ctx is checked once they are read: a model whose caller has gone is not kept.
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
	if c.Watchdog == 0 {
		c.Watchdog = defaultWatchdog
	}
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
	eos := endTokens(p.source.Config, p.generation, p.tokenizer)
	core, err := engine.New(m, engine.Config{Policy: c.Policy, Draft: c.Draft, CacheTokens: c.CacheTokens,
		ContextTokens: c.ContextTokens, StepTokens: c.StepTokens, MaxRunning: c.MaxRunning, MaxQueue: c.MaxQueue,
		PlanHistory: c.PlanHistory, NoReuse: c.NoReuse, EOS: eos, WeightBytes: p.source.Weights.Bytes(), Packed: c.Pack,
		SelfTest: c.SelfTest, Watchdog: max(c.Watchdog, 0), Log: c.Log})
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: c, core: core, info: core.Info(), source: p.source, dev: m.Device(), tok: p.tokenizer, eos: eos}
	e.info.Name = c.Name
	return e, e.prepareText(p)
}

// checkPacking refuses weights that are to be packed and do not fit.
func checkPacking(c Config, weights int64) error {
	if !c.Pack {
		return nil
	}
	if err := host.CheckPackSpace(weights); err != nil {
		return fmt.Errorf("sparrow: %w", err)
	}
	return nil
}
