package model

import (
	"context"
	"fmt"
	"time"

	"sparrow/internal/step"
	"sparrow/plan"
)

// verified returns the number of rows of a sequence that one step verifies: a block of drafts and the token before
// them. It returns 1 if the model does not draft in blocks, or without measurements of drafts.
func (b *bench) verified() int {
	if b.cfg.Model.Block == 0 {
		return 1
	}
	return max(b.cfg.N, 1)
}

// measureBlocks times two passes of a model that drafts in blocks: a draft pass, and a verification of all its drafts.
// All rows are computed, whether the drafts are accepted or not.
func (b *bench) measureBlocks(ctx context.Context, c *Cell) (err error) {
	if b.verified() == 1 {
		return nil
	}
	if c.Draft, err = b.blockPhase(ctx, c); err == nil {
		c.Verify, err = b.phase(ctx, plan.ModeVerify, c, b.verified())
	}
	if err != nil {
		return fmt.Errorf("bench: context %d, batch %d: drafts: %w", c.Context, c.Batch, err)
	}
	return nil
}

// blockPhase times a draft pass after the context of a cell.
func (b *bench) blockPhase(ctx context.Context, c *Cell) (*Phase, error) {
	j, err := b.job(plan.ModeDecode, c.Context, c.Batch, 1)
	if err != nil {
		return nil, err
	}
	defer j.release()
	if _, _, err := b.timed(j); err != nil { // a draft pass needs the rows of a step before it
		return nil, err
	}
	drafts := make([]step.Draft, len(j.works))
	for i, w := range j.works {
		drafts[i] = step.Draft{Kind: plan.ModeDraft, Tokens: w.Tokens, From: i, Cached: c.Context - 1, Rank: w.Rank,
			Pages: w.Pages, Windows: w.Windows, State: j.before[i], Logits: true, Best: b.gpu}
	}
	one := func() (time.Duration, Stages, error) {
		b.watch.take()
		start := time.Now()
		_, err := b.runner.Draft(drafts, false)
		took := time.Since(start)
		return took, shares(b.watch.take(), took), err
	}
	p := &Phase{Tokens: b.cfg.Model.Block * c.Batch}
	if err := b.repeat(ctx, p, one); err != nil {
		return nil, err
	}
	return p, b.profile(p, 1, func(int) error { _, _, err := one(); return err })
}
