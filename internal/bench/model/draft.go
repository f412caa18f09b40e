package model

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sparrow"
)

// Drafting is the decode rate with and without drafts, one sequence at a time.
type Drafting struct {
	Setting  string  `json:"setting"`
	Answers  int     `json:"answers"`          // answers timed with and without drafts
	Tokens   int     `json:"tokens"`           // tokens of these answers, each counted once
	Plain    float64 `json:"plain_tokens_s"`   // tokens per second after the first token, median of answers
	Drafted  float64 `json:"drafted_tokens_s"` // the same with drafts
	Ratio    float64 `json:"ratio"`            // drafted / plain
	Proposed int     `json:"drafted_tokens"`   // drafted tokens
	Accepted int     `json:"accepted_tokens"`  // accepted drafts
}

// generator answers requests; *sparrow.Engine implements it.
type generator interface {
	Generate(context.Context, sparrow.Request) (*sparrow.Response, error)
}

// Draft computes every answer twice, without drafts and with the engine's setting for drafts, and returns both rates.
// If drafts change an answer, it returns an error.
func Draft(ctx context.Context, e generator, setting string, requests []sparrow.Request) (*Drafting, error) {
	d := &Drafting{Setting: setting}
	var plain, drafted []float64
	none := 0
	for i, r := range requests {
		r.Trace, r.Draft = true, &none
		a, err := e.Generate(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("bench: answer %d without drafts: %w", i, err)
		}
		r.Draft = nil
		b, err := e.Generate(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("bench: answer %d with drafts: %w", i, err)
		}
		x, y := a.Choices[0].Tokens, b.Choices[0].Tokens
		if !slices.EqualFunc(x, y, func(p, q sparrow.Token) bool { return p.ID == q.ID }) {
			return nil,
				fmt.Errorf("bench: answer %d has %d tokens without drafts and %d different ones with drafts; drafts "+
					"must not change the answer", i, len(x), len(y))
		}
		if len(x) < 2 {
			continue // the answer has no token after the first
		}
		d.Answers, d.Tokens = d.Answers+1, d.Tokens+len(x)
		d.Proposed, d.Accepted = d.Proposed+b.Usage.DraftedTokens, d.Accepted+b.Usage.AcceptedTokens
		plain, drafted = append(plain, rate(len(x)-1, a.Trace.Decode)), append(drafted, rate(len(x)-1, b.Trace.Decode))
	}
	if d.Answers == 0 {
		return nil, fmt.Errorf("bench: none of %d answers has two tokens, so there is nothing to compare",
			len(requests))
	}
	d.Plain, d.Drafted = median(plain), median(drafted)
	d.Ratio = d.Drafted / d.Plain
	return d, nil
}

func rate(tokens int, took time.Duration) float64 { return float64(tokens) / max(took, 1).Seconds() }

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func (d *Drafting) String() string {
	return fmt.Sprintf("drafts %s: %.1f tokens/s against %.1f without, %.2f x; %d of %d drafts were accepted, %d "+
		"answers of %d tokens, one at a time",
		d.Setting, d.Drafted, d.Plain, d.Ratio, d.Accepted, d.Proposed, d.Answers, d.Tokens)
}
