// Package step runs one step of a batch: sequences with their new tokens and pages flow in, a plan is made, the model runs, and logits in
// host memory flow out. It owns no policy: which sequences are in a step is the scheduler's decision, how they run is the planner's.
package step

import (
	"fmt"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/model"
	"sparrow/plan"
)

// Work is one sequence's part of a step.
type Work struct {
	// Kind is plan.ModeExtend, ModeDecode, ModeVerify or ModeDraft.
	Kind plan.Mode
	// Tokens are the new tokens. Decode has exactly one.
	Tokens []int32
	// Cached is how many tokens before them are in the cache.
	Cached int
	// Pages holds the pages of all Cached + len(Tokens) tokens.
	Pages []int32
	// Windows are the window pages of the same tokens where the model is model.Windowed; nil where they have the numbers of the pages.
	Windows []int32
	// Logits is for how many of the last new tokens logits are wanted.
	Logits int
	// State is the sequence's state where the model is model.Stateful, and nil elsewhere.
	State model.State
}

// Runner turns works into logits. One goroutine uses it at a time.
type Runner struct {
	model model.Model
	cfg   plan.Config
	plans map[plan.Shape]*plan.Plan

	batch  plan.Batch
	input  model.Input
	logits []float32
	draft  drafts
}

// maxPlans bounds the plans kept for reuse; decode shapes repeat, prefill shapes hardly do.
const maxPlans = 256

// New prepares steps of a model whose cache was allocated for cfg.
func New(m model.Model, cfg plan.Config) *Runner {
	return &Runner{model: m, cfg: cfg, plans: map[plan.Shape]*plan.Plan{}}
}

// Config is the configuration every plan is made from.
func (r *Runner) Config() *plan.Config { return &r.cfg }

// Result is what a step gave. Logits holds the wanted rows, vocabulary floats each, sequence after sequence; it is valid until the next Run.
type Result struct {
	Plan   *plan.Plan
	Logits []float32
	Vocab  int
}

// Row is the i-th wanted row of logits.
func (r Result) Row(i int) []float32 { return r.Logits[i*r.Vocab : (i+1)*r.Vocab] }

// Run carries out one step.
func (r *Runner) Run(works []Work) (Result, error) {
	if err := r.collect(works); err != nil {
		return Result{}, err
	}
	p, err := r.plan(&r.batch)
	if err != nil {
		return Result{}, err
	}
	r.input.Step = attn.Step{Plan: p, Config: &r.cfg, Batch: &r.batch, Tables: r.input.Tables, PageTokens: r.cfg.Page}
	t, err := r.model.Forward(r.input)
	if err != nil {
		return Result{}, err
	}
	return r.read(p, t, len(r.input.Logits), &r.logits)
}

// read copies rows of logits to host memory and waits for the step's end.
func (r *Runner) read(p *plan.Plan, t kernel.Tensor, rows int, into *[]float32) (Result, error) {
	res := Result{Plan: p, Vocab: r.model.Config().Vocab}
	if n := rows * res.Vocab; n > 0 {
		if cap(*into) < n {
			*into = make([]float32, n)
		}
		res.Logits = (*into)[:n]
		if err := kernel.ReadF32(r.model.Device(), res.Logits, t); err != nil {
			return Result{}, err
		}
	}
	return res, r.model.Device().Sync()
}

// collect describes the works as a batch.
func (r *Runner) collect(works []Work) error {
	b, in := &r.batch, &r.input
	b.Mode, b.Requests = plan.ModeIdle, b.Requests[:0]
	in.Tokens, in.Tables, in.Logits, in.States = in.Tokens[:0], in.Tables[:0], in.Logits[:0], in.States[:0]
	in.Windows = in.Windows[:0]
	for i := range works {
		w := &works[i]
		n := len(w.Tokens)
		if n == 0 || w.Cached < 0 || w.Logits > n || w.Logits < 0 {
			return fmt.Errorf("step: sequence %d: %d new tokens after %d cached, %d rows of logits", i, n, w.Cached, w.Logits)
		}
		if end, most := w.Cached+n, r.model.Config().MaxPositions; end > most {
			return fmt.Errorf("step: sequence %d would hold %d tokens, the model has %d positions", i, end, most)
		}
		var q plan.Request
		switch w.Kind {
		case plan.ModeExtend:
			q = plan.ExtendRequest(n, w.Cached)
		case plan.ModeDecode:
			if n != 1 {
				return fmt.Errorf("step: sequence %d decodes %d tokens, want one", i, n)
			}
			q = plan.DecodeRequest(w.Cached + 1)
		case plan.ModeVerify:
			q = plan.VerifyRequest(n, w.Cached)
		case plan.ModeDraft:
			q = plan.DraftRequest(n, w.Cached+n)
		default:
			return fmt.Errorf("step: sequence %d: a sequence cannot %v", i, w.Kind)
		}
		if i == 0 {
			b.Mode = w.Kind
		} else if b.Mode != w.Kind {
			b.Mode = plan.ModeMixed
		}
		b.Requests = append(b.Requests, q)
		in.Tokens = append(in.Tokens, w.Tokens)
		in.Tables = append(in.Tables, w.Pages)
		in.Windows = append(in.Windows, w.Windows)
		in.States = append(in.States, w.State)
		for t := n - w.Logits; t < n; t++ {
			in.Logits = append(in.Logits, model.Pick{Request: i, Token: t})
		}
	}
	return nil
}

// plan builds the batch's plan or reuses the one made for the same shape.
func (r *Runner) plan(b *plan.Batch) (*plan.Plan, error) {
	shape, err := plan.ShapeOf(r.cfg, *b)
	if err != nil {
		return nil, err
	}
	if p, ok := r.plans[shape]; ok {
		return p, nil
	}
	p, err := plan.Build(r.cfg, *b)
	if err != nil {
		return nil, err
	}
	if !p.Runnable {
		return nil, fmt.Errorf("step: the %v catalogue explains other engines' kernels; only plans of the sparrow catalogue run", r.cfg.Catalog)
	}
	if len(r.plans) >= maxPlans {
		clear(r.plans)
	}
	r.plans[shape] = p
	return p, nil
}
