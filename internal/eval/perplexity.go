package eval

import (
	"context"
	"fmt"
	"io"
	"math"

	"sparrow"
)

// Perplexity measures how well a model predicts a text, like llama.cpp's tool: the tokens are divided into chunks, and
// the second half of each chunk is scored. If the tokenizer adds a beginning-of-text token, each chunk begins with it.
type Perplexity struct {
	File        string  `json:"file"`
	Model       string  `json:"model"`
	ChunkTokens int     `json:"chunk_tokens"`
	Chunks      int     `json:"chunks"`
	Tokens      int     `json:"tokens"` // scored tokens
	Perplexity  float64 `json:"perplexity"`
	Error       float64 `json:"error"`   // standard error of the perplexity
	Entropy     float64 `json:"entropy"` // mean negative log probability of a token, in nats
}

// MeasurePerplexity scores the first limit chunks of chunk tokens of a text; limit 0 means all. An incomplete last
// chunk is ignored. onChunk, if not nil, is called after each chunk.
func MeasurePerplexity(ctx context.Context, e *sparrow.Engine, text string, chunk, limit int,
	onChunk func(done, total int, p float64)) (*Perplexity, error) {
	if most := e.Info().ContextTokens; chunk < 8 || chunk >= most {
		return nil, fmt.Errorf("eval: perplexity: the chunk size is %d tokens, want 8 to %d, less than the context",
			chunk, most-1)
	}
	first, err := e.Encode("", true)
	if err != nil {
		return nil, err
	}
	ids, err := e.EncodeWhole(text)
	if err != nil {
		return nil, err
	}
	p := &Perplexity{Model: e.Info().Name, ChunkTokens: chunk}
	ids = append(first, ids...)
	total := len(ids) / chunk
	if limit > 0 {
		total = min(total, limit)
	}
	if total == 0 {
		return nil, fmt.Errorf("eval: perplexity: the text has %d tokens; want at least one chunk of %d: use a "+
			"longer text or smaller chunks", len(ids), chunk)
	}
	var sum, squares float64
	for ; p.Chunks < total; p.Chunks++ {
		tokens := ids[p.Chunks*chunk:][:chunk:chunk]
		copy(tokens, first)
		c := &sparrow.Continuations{Prompt: tokens[:chunk/2+1], Rest: [][]int32{tokens[chunk/2+1:]}, Skip: []int{0}}
		res, err := e.Generate(ctx, c.Request(1))
		if err != nil {
			return nil, err
		}
		scored, _, _ := c.Scored(0, res.Choices[0].Scored)
		for i := range scored {
			sum -= scored[i].Logprob
			squares += scored[i].Logprob * scored[i].Logprob
		}
		p.Tokens += len(scored)
		if onChunk != nil {
			onChunk(p.Chunks+1, total, math.Exp(sum/float64(p.Tokens)))
		}
	}
	n := float64(p.Tokens)
	p.Entropy = sum / n
	p.Perplexity = math.Exp(p.Entropy)
	if p.Tokens > 1 {
		p.Error = p.Perplexity * math.Sqrt(max(0, squares/n-p.Entropy*p.Entropy)/(n-1))
	}
	return p, nil
}

// Print writes the result as plain text.
func (p *Perplexity) Print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s: perplexity %.4f +/- %.4f over %d tokens, the second halves of %d chunks of %d (%s)\n",
		p.File, p.Perplexity, p.Error, p.Tokens, p.Chunks, p.ChunkTokens, p.Model)
	return err
}
