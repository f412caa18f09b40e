package main

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"sparrow"
	"sparrow/engine"
	"sparrow/internal/bench/model"
	"sparrow/internal/eval"
	"sparrow/sample"
)

// Drafting is measured on the first draftItems items of each of draftTasks, with answers of at most draftTokens tokens.
const (
	draftTasks, draftItems = "word2,word3,list,tool", 3
	draftTokens            = 96
)

// measureDrafts measures decoding with and without drafts in a separate engine.
func (f *benchModelFlags) measureDrafts(cmd *cobra.Command, dir string, o model.Options) (_ *model.Drafting,
	err error) {
	setting, err := f.drafts()
	if err != nil {
		return nil, err
	}
	o.Policy.Running = 0 // Config.MaxRunning sets it
	e, err := sparrow.Open(cmd.Context(),
		sparrow.Config{Model: dir, MaxRunning: f.maxRunning, Kernels: f.kernels, Device: f.gpu, Workers: f.workers,
			Pack: f.pack, NUMA: f.numa, Precise: f.precise, Policy: o.Policy, Draft: setting, CacheTokens: 8192})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeNow(e)) }()
	if why := e.Info().NoDrafts; why != "" {
		return nil, fmt.Errorf("bench model: --draft %s: %s", setting, why)
	}
	requests, err := draftRequests(e.Info(), f.seed)
	if err != nil {
		return nil, err
	}
	return model.Draft(cmd.Context(), e, setting.String(), requests)
}

// acceptDrafts measures decoding with drafts, of which a given share is accepted, and without drafts, in a separate
// engine.
func (f *benchModelFlags) acceptDrafts(cmd *cobra.Command, dir string, o model.Options, r *model.Report) (
	out []model.Accepting, err error) {
	setting, err := f.drafts()
	if err != nil {
		return nil, err
	}
	cells := r.Cells
	o.Policy.Running = 0 // Config.MaxRunning sets it
	c := sparrow.Config{Model: dir, MaxRunning: f.maxRunning, Kernels: f.kernels, Device: f.gpu, Workers: f.workers,
		Pack: f.pack, NUMA: f.numa, Precise: f.precise, Policy: o.Policy, Draft: setting, DraftAccept: f.accept,
		MaxStall: -1, SelfTest: engine.SelfTestOff}
	for _, cell := range cells {
		c.CacheTokens = max(c.CacheTokens, cell.Batch*(cell.Context+model.AcceptRoom))
		c.MaxRunning = max(c.MaxRunning, cell.Batch)
	}
	if f.dummy {
		one := 1
		if c.Source, err = drawn(dir, f.seed, &one, f.dummyExperts); err != nil {
			return nil, fmt.Errorf("bench model: --dummy: %w", err)
		}
	}
	e, err := sparrow.Open(cmd.Context(), c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeNow(e)) }()
	if why := e.Info().NoDrafts; why != "" {
		return nil, fmt.Errorf("bench model: --draft %s: %s", setting, why)
	}
	for _, cell := range cells {
		if cell.Skipped != "" {
			continue
		}
		a := model.Accepting{Context: cell.Context, Batch: cell.Batch, Setting: setting.String(), Accept: f.accept}
		if err := model.Accept(cmd.Context(), e, &a, f.seed); err != nil {
			return out, fmt.Errorf("bench model: context %d, batch %d: %w", a.Context, a.Batch, err)
		}
		out = append(out, a)
	}
	return out, nil
}

// draftRequests returns questions of draftTasks, or random tokens for a model without a tokenizer.
func draftRequests(info sparrow.Info, seed uint64) ([]sparrow.Request, error) {
	p := sample.Default()
	p.Temperature = 0
	var out []sparrow.Request
	if info.ChatFormat == "" {
		rng := rand.New(rand.NewPCG(seed, 4))
		for range 4 {
			tokens := make([]int32, 64)
			for i := range tokens {
				tokens[i] = int32(rng.IntN(info.Vocabulary))
			}
			out = append(out, sparrow.Request{Tokens: tokens, Sampling: p, MaxTokens: draftTokens, IgnoreEOS: true})
		}
		return out, nil
	}
	tasks, err := eval.Load(eval.Shipped(), draftTasks)
	if err != nil {
		return nil, err
	}
	for _, t := range tasks {
		for _, it := range t.Items[:min(draftItems, len(t.Items))] {
			out = append(out, sparrow.Request{Chat: &it.Chat, Sampling: p, MaxTokens: draftTokens})
		}
	}
	return out, nil
}
