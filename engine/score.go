package engine

import (
	"fmt"
	"slices"

	"sparrow/internal/sched"
	"sparrow/sample"
)

// promptLogitBytes is the size, in bytes, of a pass's buffer for logits of prompt rows. Longer prompts are computed in
// chunks of rows that fit in the buffer.
const promptLogitBytes = 64 << 20

// promptLogits returns the maximum number of prompt rows with logits in a batch.
func (z *sizing) promptLogits() int {
	rows := promptLogitBytes / (4 * z.model.Config().Vocab)
	return min(max(rows, 4*sched.DefaultMaxPrompts), z.cfg.StepTokens)
}

// given returns the tokens that follow the prompt in a choice before any token is generated: its continuation, if the
// request scores continuations.
func (r *Request) given(choice int) []int32 {
	if r.Score == nil || r.Score.Continuations == nil {
		return nil
	}
	return r.Score.Continuations[choice]
}

// givenTokens returns the number of tokens in a request: the prompt and all continuations.
func (r *Request) givenTokens() int {
	n := len(r.Prompt)
	if r.Score != nil {
		for _, ids := range r.Score.Continuations {
			n += len(ids)
		}
	}
	return n
}

// checkScore refuses invalid score parameters and sets the number of choices for continuations.
func (in *intake) checkScore(r *Request) error {
	if r.Score == nil {
		return nil
	}
	s := *r.Score
	r.Score = &s
	if s.Top < 0 || s.Top > sample.MaxTopLogprobs {
		return &RequestError{Field: "prompt_logprobs",
			Reason: fmt.Sprintf("is %d, want 0 to %d", s.Top, sample.MaxTopLogprobs)}
	}
	longest := len(r.Prompt)
	if s.Continuations != nil {
		if len(s.Continuations) == 0 || len(s.Continuations) > sample.MaxN {
			return &RequestError{Field: "continuations",
				Reason: fmt.Sprintf("are %d, want 1 to %d", len(s.Continuations), sample.MaxN)}
		}
		r.Sampling.N, r.Score.Only = len(s.Continuations), true
		for i, ids := range s.Continuations {
			if len(ids) == 0 {
				return &RequestError{Field: "continuations", Reason: fmt.Sprintf("item %d has no tokens", i)}
			}
			if err := in.checkPrompt(ids); err != nil {
				return &RequestError{Field: "continuations", Reason: fmt.Sprintf("item %d: %v", i, err)}
			}
			longest = max(longest, len(r.Prompt)+len(ids))
		}
	}
	if s.From < 0 || s.From > longest {
		return &RequestError{Field: "score",
			Reason: fmt.Sprintf("begins at token %d, want one of the %d given tokens", s.From, longest)}
	}
	return nil
}

// checkScored returns an error if a prompt that is only scored does not fit in the context. Such a prompt needs no
// position for an answer.
func (in *intake) checkScored(r *Request) error {
	for i := range max(len(r.Score.Continuations), 1) {
		if n := len(r.Prompt) + len(r.given(i)); n > in.info.ContextTokens {
			return &RequestError{Field: "prompt", Err: ErrContext,
				Reason: fmt.Sprintf("has %d tokens with its continuation, but the context holds %d", n,
					in.info.ContextTokens)}
		}
	}
	return nil
}

// scores reports whether prompt rows of the choice need logits for scores.
func (c *choice) scores() bool { return c.seq.Logits > 0 }

// score computes the log probabilities of the next tokens of a prompt from every row of logits of an item, except the
// row from which the next token is sampled. It returns the number of rows that it has read.
func (c *choice) score(it *sched.Item, rows logits) (read int, err error) {
	if !c.scores() {
		return 0, nil
	}
	read = it.Logits
	if it.Last {
		read--
	}
	first := it.Cached + len(it.Tokens) - it.Logits // position of the first row with logits
	if first == 0 && it.Logits > 0 && c.job.request.Score.From == 0 {
		c.scored = append(c.scored, sample.Scored{TokenLogprob: sample.TokenLogprob{Token: c.seq.Tokens[0]}})
	}
	for i := range read {
		s, err := c.job.setup.scratch.Score(rows.row(i).whole, c.seq.Tokens[first+i+1], c.job.request.Score.Top)
		if err != nil {
			return i, err
		}
		s.Top = slices.Clone(s.Top) // the next row overwrites the memory of s.Top
		c.scored = append(c.scored, s)
	}
	c.seq.Logits -= it.Logits
	return read, nil
}

// takeScores returns an event with the scores that have not been sent yet.
func (c *choice) takeScores() Event {
	ev := Event{Choice: c.index, Token: -1, Scores: c.scored}
	c.scored = nil
	return ev
}
