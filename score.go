package sparrow

import (
	"context"
	"fmt"

	"sparrow/sample"
)

// Continuations are texts that may follow a prompt, as tokens. Prompt and text are encoded together, because a text may
// be encoded differently after a prompt than alone. A continuation starts at the first token that differs from the
// encoding of the prompt.
type Continuations struct {
	Prompt []int32   // tokens at the start of all encodings
	Rest   [][]int32 // [continuations] tokens after Prompt
	Skip   []int     // [continuations] number of first tokens of Rest that belong to the prompt
}

// NewContinuations takes the token ids of the prompt, and of the prompt followed by each continuation.
func NewContinuations(prompt []int32, whole [][]int32) (*Continuations, error) {
	c := &Continuations{}
	shared := len(prompt)
	for i, ids := range whole {
		n := sharedTokens(prompt, ids)
		if n == len(ids) {
			return nil, &RequestError{Field: fmt.Sprintf("continuations[%d]", i),
				Reason: "adds no token to the prompt; send text that does"}
		}
		c.Skip = append(c.Skip, n)
		shared = min(shared, n)
	}
	if shared == 0 {
		return nil, &RequestError{Field: "prompt", Reason: "at least one token must precede a continuation; " +
			"send a longer prompt, or one with the token that begins a text"}
	}
	c.Prompt = prompt[:shared]
	for i, ids := range whole {
		c.Rest = append(c.Rest, ids[shared:])
		c.Skip[i] -= shared
	}
	return c, nil
}

// sharedTokens returns the length of the longest common prefix of two lists.
func sharedTokens(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// Request returns a request for the log probabilities of the continuations, with top alternatives per token. Each
// continuation is a choice of this request, so that the prompt is computed once.
func (c *Continuations) Request(top int) Request {
	return Request{Tokens: c.Prompt, Sampling: sample.Default(),
		Score: &Score{From: len(c.Prompt), Top: max(top, 1), Continuations: c.Rest}}
}

// Scored returns the tokens of continuation i among all scored tokens of its choice, the sum of their log
// probabilities, and whether each is the most probable token at its position.
func (c *Continuations) Scored(i int, all []Token) (tokens []Token, logprob float64, greedy bool) {
	tokens, greedy = all[c.Skip[i]:], true
	for j := range tokens {
		logprob += tokens[j].Logprob
		greedy = greedy && tokens[j].Top[0].Token == tokens[j].ID
	}
	return tokens, logprob, greedy
}

// EncodeContinuations encodes a prompt followed by each of the texts.
func EncodeContinuations(encode func(text string) ([]int32, error), prompt string, texts []string) (*Continuations,
	error) {
	first, err := encode(prompt)
	if err != nil {
		return nil, err
	}
	var whole [][]int32
	for _, text := range texts {
		ids, err := encode(prompt + text)
		if err != nil {
			return nil, err
		}
		whole = append(whole, ids)
	}
	return NewContinuations(first, whole)
}

// ScoreTexts returns the log probability of each text after the prompt. No token is generated, and no special token is
// added before the prompt. Control tokens in the prompt are encoded as control tokens.
func (e *Engine) ScoreTexts(ctx context.Context, prompt string, texts []string) ([]float64, Usage, error) {
	plain := func(text string) ([]int32, error) { return e.Encode(text, false) }
	c, err := EncodeContinuations(plain, prompt, texts)
	if err != nil {
		return nil, Usage{}, err
	}
	res, err := e.Generate(ctx, c.Request(1))
	if err != nil {
		return nil, Usage{}, err
	}
	sums := make([]float64, len(texts))
	for i := range res.Choices {
		_, sums[i], _ = c.Scored(i, res.Choices[i].Scored)
	}
	return sums, res.Usage, nil
}
