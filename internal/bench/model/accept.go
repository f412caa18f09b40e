package model

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"sparrow"
	"sparrow/sample"
)

// Accepting holds the decode throughput of several sequences, without drafts and with drafts of which a given share is
// accepted.
type Accepting struct {
	Context  int     `json:"context"` // tokens of every prompt
	Batch    int     `json:"batch"`   // number of sequences
	Setting  string  `json:"setting"`
	Accept   float64 `json:"accept"`           // share of drafts that are accepted
	Plain    float64 `json:"plain_tokens_s"`   // tokens per second of all sequences together, without drafts
	Drafted  float64 `json:"drafted_tokens_s"` // the same with drafts
	Ratio    float64 `json:"ratio"`            // drafted / plain
	Proposed int     `json:"drafted_tokens"`
	Accepted int     `json:"accepted_tokens"`
}

func (a *Accepting) String() string {
	return fmt.Sprintf("drafts %s, %.0f %% accepted: context %d, batch %d: %.1f tokens/s against %.1f without, %.2f "+
		"x; %d of %d drafts were accepted", a.Setting, 100*a.Accept, a.Context, a.Batch, a.Drafted, a.Plain, a.Ratio,
		a.Accepted, a.Proposed)
}

// acceptTokens is the number of tokens of every sequence, acceptWarm the number of tokens of a warm-up.
const acceptTokens, acceptWarm = 384, 16

// AcceptRoom is the number of tokens after the prompt that the cache must hold for every sequence.
const AcceptRoom = 512

// Accept decodes a.Batch sequences concurrently, after prompts of random tokens: without drafts, then with the engine's
// setting for drafts. It sets the rates in a.
func Accept(ctx context.Context, e *sparrow.Engine, a *Accepting, seed uint64) error {
	none := 0
	for _, run := range []struct {
		what   string
		drafts *int
		tokens int
		rate   *float64
	}{
		// This run caches the prompts, so that the sequences of later runs start decoding at the same time, and
		// captures the CUDA graphs.
		{"prompts", nil, acceptWarm, nil},
		{"the first tokens", &none, acceptWarm, nil},
		{"without drafts", &none, acceptTokens, &a.Plain},
		{"with drafts", nil, acceptTokens, &a.Drafted},
	} {
		rate, err := a.together(ctx, e, run.drafts, run.tokens, seed)
		if err == nil && run.rate != nil {
			*run.rate, err = rate.perSecond(a.Batch)
		}
		if err != nil {
			return fmt.Errorf("bench: %s: %w", run.what, err)
		}
		a.Proposed, a.Accepted = rate.proposed, rate.accepted
	}
	a.Ratio = a.Drafted / a.Plain
	return nil
}

// decoded counts the tokens of several sequences from the time when all have their first token until the first one
// ends.
type decoded struct {
	begun, ended, tokens int
	from, to             time.Time
	proposed, accepted   int
	err                  error
}

func (d *decoded) perSecond(sequences int) (float64, error) {
	if d.begun < sequences || !d.to.After(d.from) {
		return 0, fmt.Errorf("the first of %d sequences ended before the last one began; use fewer, or more "+
			"cache", sequences)
	}
	return float64(d.tokens) / d.to.Sub(d.from).Seconds(), nil
}

// add records an event of a sequence.
func (d *decoded) add(ev *sparrow.Event, first bool, sequences int) {
	if len(ev.Tokens) > 0 && d.begun == sequences && d.ended == 0 {
		d.tokens += len(ev.Tokens)
		d.to = time.Now()
	}
	if len(ev.Tokens) > 0 && first {
		if d.begun++; d.begun == sequences {
			d.from = time.Now()
		}
	}
	if u := ev.Usage; u != nil {
		d.ended++
		d.proposed, d.accepted = d.proposed+u.DraftedTokens, d.accepted+u.AcceptedTokens
	}
	d.err = errors.Join(d.err, ev.Err)
}

// together decodes all sequences concurrently and returns their tokens and the time.
func (a *Accepting) together(ctx context.Context, e *sparrow.Engine, drafts *int, most int, seed uint64) (*decoded,
	error) {
	rng := rand.New(rand.NewPCG(seed, 5))
	p := sample.Default()
	p.Temperature = 0
	var (
		mu   sync.Mutex
		wait sync.WaitGroup
		d    decoded
	)
	for i := range a.Batch {
		tokens := make([]int32, a.Context)
		for k := range tokens {
			tokens[k] = int32(rng.IntN(e.Info().Vocabulary))
		}
		p.Seed = int64(i) // the seed determines which drafts are accepted
		s, err := e.Stream(ctx, sparrow.Request{Tokens: tokens, Sampling: p, MaxTokens: most, IgnoreEOS: true,
			Draft: drafts})
		if err != nil {
			mu.Lock()
			d.err = errors.Join(d.err, err)
			mu.Unlock()
			break
		}
		wait.Go(func() {
			first := true
			for ev := range s.All() {
				mu.Lock()
				d.add(&ev, first, a.Batch)
				mu.Unlock()
				first = first && len(ev.Tokens) == 0
			}
		})
	}
	wait.Wait()
	return &d, errors.Join(d.err, ctx.Err())
}
