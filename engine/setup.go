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

// setup holds the values of an engine that do not change after New.
type setup struct {
	cfg   Config
	info  Info
	model model.Model
	// stateful is the model, if the model keeps a state for each sequence; otherwise nil.
	stateful model.Stateful
	windowed model.Windowed  // the model, if rows of window attention have their own pages; otherwise nil
	overlap  bool            // the next batch is formed while a pass runs
	draws    bool            // the device samples tokens
	reuse    bool            // pages are kept in the prefix cache for later prompts
	scratch  *sample.Scratch // memory for sampling; only the loop uses it, other goroutines read only its size
}

// resolve checks the configuration and sets the values that depend on the model and the device. It allocates no device
// memory.
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
	// The host looks up rows of n-gram tables by token ids, so it must have the tokens of the previous batch first.
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

// maxDrafts returns the maximum draft length, or why drafting is disabled. A chain of drafts and the token before it
// are verified in one batch, so batchTokens limits the length.
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
		err = fmt.Errorf("the drafting stages of this checkpoint propose %d tokens at a time; set at most %d, or "+
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
		// The setting auto disables drafting here; with a fixed draft length, resolve returns an error that names the
		// missing tensors.
		return 0, "this checkpoint has no draft layer", nil
	}
	return 0, err.Error(), nil
}
