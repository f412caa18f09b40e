package engine

import (
	"errors"
	"fmt"

	"sparrow/internal/model"
	"sparrow/internal/spec"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/sample"
)

// setup holds the constants of an engine, which do not change once it is open.
type setup struct {
	cfg   Config
	info  Info
	model model.Model
	// stateful is the model if it has a state for each sequence, otherwise nil.
	stateful model.Stateful
	windowed model.Windowed  // the model if its window rows have their own pages, otherwise nil
	overlap  bool            // the next batch is formed while a pass runs
	draws    bool            // the device samples tokens
	reuse    bool            // pages are kept in the prefix cache for later prompts
	scratch  *sample.Scratch // memory for sampling: callers read its size, the loop uses its contents
}

// resolve decides how an engine runs. It allocates no memory.
func resolve(m model.Model, c Config) (*setup, error) {
	drafts, why, err := maxDrafts(c.Draft, m, c.StepTokens)
	if err != nil {
		return nil, err
	}
	hw, err := model.Hardware(m.Device())
	if err != nil {
		return nil, err
	}
	if drafts > 0 {
		c.Policy.Speculation.Tokens = drafts + 1
	}
	resolved, notices, err := plan.Resolve(hw, m.Facts(), c.Policy)
	if err != nil {
		return nil, err
	}
	if c.Clock == nil {
		c.Clock = machine{}
	}
	s := &setup{cfg: c, model: m}
	s.info = Info{Family: string(m.Config().Family), Vocabulary: m.Config().Vocab, StepTokens: c.StepTokens,
		MaxQueue: c.MaxQueue, MaxStall: c.MaxStall, Kernels: m.Device().Name(), Config: resolved, Notices: notices,
		MovesExperts: c.Moves != nil, Draft: c.Draft, Drafts: drafts, NoDrafts: why}
	// The host looks up the rows of n-gram tables by tokens, so it must wait for the tokens of the previous batch.
	s.overlap = !c.NoOverlap && kernel.IsAsynchronous(m.Device()) && m.Facts().Sharing.Tables == 0
	s.draws = s.overlap && m.Config().Vocab <= sample.MaxVocabulary
	s.stateful, _ = m.(model.Stateful)
	s.windowed, _ = m.(model.Windowed)
	// The pages alone are not enough to continue a sequence of a stateful model, unless its state can be restored from
	// the cache.
	s.reuse = !c.NoReuse && (s.stateful == nil || s.windowed != nil)
	if s.scratch, err = sample.NewScratch(m.Config().Vocab); err != nil {
		return nil, err
	}
	return s, nil
}

// threshold returns the number of prompt tokens up to which rows attend to all keys (dense attention).
func threshold(cfg *plan.Config) int {
	if !cfg.DenseOK {
		return 0
	}
	return cfg.T
}

// maxDrafts returns the maximum draft length, or why drafting is disabled. A chain is verified in one batch, with the
// token before it.
func maxDrafts(s spec.Setting, m model.Model, batchTokens int) (drafts int, why string, err error) {
	if s.Drafts() == 0 {
		return 0, "switched off", nil
	}
	drafts = min(s.Drafts(), batchTokens-1)
	block := m.Facts().Block
	if block > 0 {
		drafts = min(drafts, block)
	}
	if d, ok := m.(model.Drafter); ok {
		err = d.DraftHead()
	} else {
		err = fmt.Errorf("models of family %s cannot draft; set auto or off", m.Config().Family)
	}
	switch {
	case err != nil:
	case block > 0 && s.IsFixed() && s.Drafts() > block:
		err = fmt.Errorf("the drafting stages of this checkpoint propose %d tokens at once; set at most %d, or "+
			"auto", block, block)
	case drafts == 0 || s.IsFixed() && drafts < s.Drafts():
		err = fmt.Errorf("--step-tokens %d allows at most %d drafts; set --step-tokens %d or more, or fewer "+
			"drafts", batchTokens, drafts, s.Drafts()+1)
	default:
		return drafts, "", nil
	}
	if s.IsFixed() {
		return 0, "", fmt.Errorf("sparrow: the draft length is set to %v: %w", s, err)
	}
	if errors.Is(err, plan.E15) {
		// With auto nothing is drafted; with a fixed number, resolve returns an error that names the missing tensors.
		return 0, "this checkpoint has no draft layer", nil
	}
	return 0, err.Error(), nil
}
