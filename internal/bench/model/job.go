package model

import (
	"errors"
	"fmt"

	"sparrow/internal/model"
	"sparrow/internal/step"
	"sparrow/plan"
)

// job is a step that is run repeatedly: its works (one per sequence) and, if the model has sequence states, the state
// of each sequence before the step.
type job struct {
	works  []step.Work
	before []model.State
	cached int   // tokens in the cache before the step
	few    bool  // whether the step's tokens can be removed from a state
	err    error // first error of removing tokens
}

// mostTruncated is the maximum number of tokens of a step after which its states are truncated. After longer steps,
// states are copied, which takes longer than truncation.
const mostTruncated = 8

// job returns a step of batch sequences. Each has its own pages and n new tokens after a context.
func (b *bench) job(kind plan.Mode, context, batch, n int) (*job, error) {
	// The state of linear attention is changed as a whole by every token, so it cannot be truncated.
	_, changed := b.model.(model.Snapshotted)
	j := &job{works: b.works(kind, context, batch, n), cached: context, few: n <= mostTruncated && !changed}
	windowed, ok := b.model.(model.Windowed)
	if !ok {
		return j, nil
	}
	for _, w := range j.works {
		s, err := b.behind(windowed, context, &w)
		if err != nil {
			j.release()
			return nil, fmt.Errorf("making the state after %d tokens: %w", context, err)
		}
		j.before = append(j.before, s)
	}
	return j, nil
}

// behind returns the state of a sequence after the given number of tokens. Tokens of whole pages are not computed, as
// if they were read from the cache; the tokens after them are computed in chunks.
func (b *bench) behind(windowed model.Windowed, tokens int, w *step.Work) (model.State, error) {
	whole := tokens / b.cfg.Page * b.cfg.Page
	pages, windows := w.Pages[:(tokens+b.cfg.Page-1)/b.cfg.Page], w.Windows
	if windows == nil {
		windows = pages
	}
	windows = windows[:len(pages)]
	s, err := windowed.Restore(whole, windows[:whole/b.cfg.Page])
	if err != nil {
		return nil, err
	}
	for at := whole; at < tokens; at += b.o.Chunk {
		part := step.Work{Kind: plan.ModeExtend, Tokens: b.tokens(min(b.o.Chunk, tokens-at)), Cached: at,
			Before: b.before(at), Rank: w.Rank, Pages: pages, Windows: windows, State: s}
		if _, err := b.runner.Run([]step.Work{part}); err != nil {
			s.Release()
			return nil, err
		}
	}
	return s, nil
}

// begin sets the state of every work: the state before the step, or a copy of it. A repeated step overwrites the rows
// of the previous run.
func (j *job) begin() error {
	if j.err != nil {
		return j.err
	}
	for i, s := range j.before {
		if j.few {
			j.works[i].State = s
			continue
		}
		var err error
		if j.works[i].State, err = s.Clone(); err != nil {
			j.end()
			return err
		}
	}
	return nil
}

// end removes the step's tokens from the states, or releases the copies.
func (j *job) end() {
	for i := range j.before {
		switch s := j.works[i].State; {
		case s == nil:
		case j.few:
			j.err = errors.Join(j.err, s.Truncate(j.cached))
		default:
			s.Release()
		}
		j.works[i].State = nil
	}
}

// release releases the states.
func (j *job) release() {
	for _, s := range j.before {
		s.Release()
	}
	j.before = nil
}
