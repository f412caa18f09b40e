package openai

import (
	"fmt"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// ScoreRequest is the body of POST /v1/score, which returns the log probabilities of given continuations of a prompt.
// Nothing is generated.
type ScoreRequest struct {
	Model         string `json:"model"`
	Prompt        Prompt `json:"prompt"`             // one prompt, as text or token ids
	Continuations Prompt `json:"continuations"`      // continuations of the same kind as the prompt
	Logprobs      *int   `json:"logprobs,omitempty"` // [0, 20]: alternatives per token

	AddSpecialTokens *bool  `json:"add_special_tokens,omitempty"` // nil means true; for a text prompt only
	TokensAsIDs      bool   `json:"return_tokens_as_token_ids,omitempty"`
	CacheSalt        string `json:"cache_salt,omitempty"`
}

// ScoreResponse is the response to POST /v1/score; its field object is ObjectScore.
type ScoreResponse struct {
	Head
	Data  []ScoredContinuation `json:"data"` // in the order of the request
	Usage *Usage               `json:"usage"`
}

// ScoredContinuation holds the log probabilities of one continuation.
type ScoredContinuation struct {
	Index    int                 `json:"index"`
	Logprob  Logprob             `json:"logprob"` // sum over all tokens of the continuation after the prompt
	Greedy   bool                `json:"greedy"`  // whether each token is the most probable one at its position
	Logprobs *CompletionLogprobs `json:"logprobs"`
}

// MaxContinuations is the maximum number of continuations of one request.
const MaxContinuations = MaxN

// DecodeScore reads and validates the body of /v1/score.
func DecodeScore(d *wire.Decoder, body []byte) (*ScoreRequest, *wire.Error) {
	return wire.Decode(d, body, scoreFields, (*ScoreRequest).check)
}

var scoreFields = wire.Fields[ScoreRequest]{
	"model":    wire.TextField(func(r *ScoreRequest) *string { return &r.Model }),
	"prompt":   {Read: func(c *wire.Reader, r *ScoreRequest) { r.Prompt = readPrompt(c) }},
	"logprobs": wire.OptionalInt(func(r *ScoreRequest) **int { return &r.Logprobs }),
	"continuations": {Read: func(c *wire.Reader, r *ScoreRequest) {
		if c.Shape() != jsonscan.Array {
			c.WrongShape("an array of strings or of arrays of token ids")
			return
		}
		r.Continuations = readPrompt(c)
	}},
	"add_special_tokens":         wire.OptionalBool(func(r *ScoreRequest) **bool { return &r.AddSpecialTokens }),
	"return_tokens_as_token_ids": wire.BoolField(func(r *ScoreRequest) *bool { return &r.TokensAsIDs }),
	"cache_salt":                 wire.TextField(func(r *ScoreRequest) *string { return &r.CacheSalt }),

	"text_1": wire.Refuse[ScoreRequest]("this endpoint does not compare texts; send prompt and continuations"),
	"text_2": wire.Refuse[ScoreRequest]("this endpoint does not compare texts; send prompt and continuations"),
	"query":  wire.Refuse[ScoreRequest]("send prompt and continuations"),
	"items":  wire.Refuse[ScoreRequest]("send prompt and continuations"),
}

// Validate returns an error with every problem of the request, or nil. DecodeScore has already called it.
func (r *ScoreRequest) Validate() *wire.Error { return wire.Verdict(r.check) }

func (r *ScoreRequest) check(p *wire.Problems) {
	if r.Model == "" {
		p.AddNew(wire.CodeMissing, "model", "required; GET /v1/models lists the names")
	}
	switch r.Prompt.check(p); {
	case r.Prompt.Len() > 1:
		p.AddNew(wire.CodeTooMany, "prompt", "has %d prompts, but one is supported; send a request for each",
			r.Prompt.Len())
	case r.Continuations.Len() == 0:
		p.AddNew(wire.CodeMissing, "continuations", "required; an array of strings or of arrays of token ids")
	case len(r.Prompt.Texts) > 0 != (len(r.Continuations.Texts) > 0):
		p.AddNew(wire.CodeInvalidValue, "continuations",
			"text and token ids cannot be mixed; send both as text or both as ids")
	case !wire.WantAtMost(p, "continuations", r.Continuations.Len(), MaxContinuations, "continuations"):
	default:
		for i, ids := range r.Continuations.Tokens {
			at := fmt.Sprintf("continuations[%d]", i)
			if len(ids) == 0 {
				p.AddNew(wire.CodeInvalidValue, at, "needs at least one token")
			}
			checkTokenIDs(p, at, ids)
		}
	}
	wire.WantRange(p, "logprobs", r.Logprobs, 0, MaxTopLogprobs)
	wire.WantShort(p, "cache_salt", r.CacheSalt, MaxSaltBytes)
	if r.AddSpecialTokens != nil && len(r.Prompt.Tokens) > 0 {
		p.AddNew(wire.CodeInvalidValue, "add_special_tokens",
			"only allowed with a text prompt: token ids are used unchanged")
	}
}
