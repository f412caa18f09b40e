package openai

import (
	"fmt"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// CompletionRequest is the body of POST /v1/completions.
type CompletionRequest struct {
	Options
	Prompt    Prompt `json:"prompt"`
	MaxTokens *int   `json:"max_tokens,omitempty"` // see NewTokens
	Echo      bool   `json:"echo,omitempty"`       // whether the prompt is part of the text and of the logprobs
	Logprobs  *int   `json:"logprobs,omitempty"`   // [0, 20]: alternatives per token; nil means no logprobs

	AddSpecialTokens *bool `json:"add_special_tokens,omitempty"` // nil means true; for text prompts only
}

// NewTokens returns the limit on generated tokens; [Unlimited] means none.
func (r *CompletionRequest) NewTokens() int {
	if r.MaxTokens == nil {
		return DefaultCompletionTokens
	}
	return *r.MaxTokens
}

// completionReader is a request that is being read. best_of and suffix are checked and dropped. The token limit may be
// given as max_completion_tokens, as in chats.
type completionReader struct {
	CompletionRequest
	bestOf        *int
	maxCompletion *int
}

func (r *completionReader) check(p *wire.Problems) {
	switch {
	case r.maxCompletion == nil:
	case r.MaxTokens == nil:
		r.MaxTokens = r.maxCompletion
	case *r.MaxTokens != *r.maxCompletion:
		p.AddNew(wire.CodeInvalidValue, "max_completion_tokens",
			"%d differs from max_tokens, which is %d; send one of them",
			*r.maxCompletion, *r.MaxTokens)
	}
	r.CompletionRequest.check(p)
	if r.bestOf != nil && *r.bestOf != r.Choices() {
		p.AddNew(wire.CodeUnsupportedValue, "best_of",
			"%d differs from n, which is %d; all choices are returned, so omit best_of and rank them by logprobs",
			*r.bestOf, r.Choices())
	}
}

var completionFields = wire.Join(
	acceptedFields[completionReader](),
	wire.Lift(optionFields, func(r *completionReader) *Options { return &r.Options }),
	wire.Lift(guidedFields, func(r *completionReader) *Options { return &r.Options }),
	wire.Fields[completionReader]{
		"prompt":     {Read: func(c *wire.Reader, r *completionReader) { r.Prompt = readPrompt(c) }},
		"max_tokens": wire.OptionalInt(func(r *completionReader) **int { return &r.MaxTokens }),
		"echo":       wire.BoolField(func(r *completionReader) *bool { return &r.Echo }),
		"logprobs":   wire.OptionalInt(func(r *completionReader) **int { return &r.Logprobs }),
		"best_of":    wire.OptionalInt(func(r *completionReader) **int { return &r.bestOf }),

		"max_completion_tokens": wire.OptionalInt(func(r *completionReader) **int { return &r.maxCompletion }),

		"add_special_tokens": wire.OptionalBool(func(r *completionReader) **bool { return &r.AddSpecialTokens }),
		"suffix":             {Read: readSuffix, Refused: true},

		"messages": wire.Refuse[completionReader]("it is a field of /v1/chat/completions; send prompt"),
		"tools":    wire.Refuse[completionReader]("it is a field of /v1/chat/completions; omit it"),
		"top_logprobs": wire.Refuse[completionReader](
			"it is a field of /v1/chat/completions; send logprobs as a number"),
		"prompt_embeds": wire.Refuse[completionReader]("send prompt as text or token ids"),
	},
)

// readSuffix accepts the empty suffix, which has no effect.
func readSuffix(c *wire.Reader, _ *completionReader) {
	if s, ok := c.Str(); ok && s != "" {
		c.Problem(wire.CodeUnsupportedParam,
			"not supported; the models do not fill in the middle, so write the task into the prompt")
	}
}

// Validate returns an error with every problem of the request, or nil. [Decoder.Completion] has already called it.
func (r *CompletionRequest) Validate() *wire.Error { return wire.Verdict(r.check) }

func (r *CompletionRequest) check(p *wire.Problems) {
	r.Options.check(p)
	r.Prompt.check(p)
	checkLength(p, "max_tokens", r.MaxTokens, r.MinTokens, 0)
	if r.MaxTokens != nil && *r.MaxTokens == 0 && !r.Echo && r.PromptLogprobs == nil {
		p.AddNew(wire.CodeOutOfRange, "max_tokens",
			"0 is only allowed if echo is true or with prompt_logprobs; otherwise send 1 or more")
	}
	if r.MaxTokens == nil && r.MinTokens != nil && *r.MinTokens > DefaultCompletionTokens {
		p.AddNew(wire.CodeInvalidValue, "min_tokens", "%d is more than max_tokens, which is %d if not given",
			*r.MinTokens,
			DefaultCompletionTokens)
	}
	wire.WantRange(p, "logprobs", r.Logprobs, 0, MaxTopLogprobs)
	if r.Stream && r.Echo && r.Logprobs != nil && r.Choices() > 1 {
		p.AddNew(wire.CodeInvalidValue, "n",
			"%d choices with echo, logprobs and stream are not supported; request one choice, or omit stream",
			r.Choices())
	}
	if prompts, n := r.Prompt.Len(), r.Choices(); n >= 1 && n <= MaxN && prompts*n > MaxChoices {
		p.AddNew(wire.CodeTooMany, "n", "%d choices for each of %d prompts, but at most %d choices in total are "+
			"supported", n, prompts, MaxChoices)
	}
	if r.AddSpecialTokens != nil && len(r.Prompt.Tokens) > 0 {
		p.AddNew(wire.CodeInvalidValue, "add_special_tokens",
			"only allowed with a text prompt: token ids are used unchanged")
	}
}

// Prompt is one or more prompts, all text or all token ids.
type Prompt struct {
	Texts  []string
	Tokens [][]int32
}

// Len returns the number of prompts.
func (p Prompt) Len() int { return len(p.Texts) + len(p.Tokens) }

// MarshalJSON writes a single prompt as a string or an array of ids, several as an array of those.
func (p Prompt) MarshalJSON() ([]byte, error) {
	switch {
	case len(p.Texts) == 1:
		return wire.Marshal(p.Texts[0])
	case len(p.Texts) > 1:
		return wire.Marshal(p.Texts)
	case len(p.Tokens) == 1:
		return wire.Marshal(p.Tokens[0])
	}
	return wire.Marshal(p.Tokens)
}

// readPrompt reads one of four types: a string, an array of strings, an array of ids, an array of arrays of ids. The
// type of the first element selects the type of array.
func readPrompt(c *wire.Reader) (prompt Prompt) {
	switch c.Shape() {
	case jsonscan.String:
		prompt.Texts = []string{c.Text()}
		return prompt
	case jsonscan.Array:
	default:
		c.WrongShape("a string, an array of strings, an array of token ids or an array of arrays of token ids")
		return prompt
	}
	switch c.FirstElement() {
	case jsonscan.Number:
		prompt.Tokens = [][]int32{readTokenIDs(c, c.Size())}
	case jsonscan.Array:
		prompt.Tokens = wire.ReadList(c, MaxPrompts, "prompts", func() ([]int32, bool) {
			return readTokenIDs(c, c.Size()), true
		})
	default:
		prompt.Texts = wire.ReadList(c, MaxPrompts, "prompts", c.Str)
	}
	return prompt
}

func (p *Prompt) check(list *wire.Problems) {
	switch {
	case p.Len() == 0:
		list.AddNew(wire.CodeMissing, "prompt", "required; send a string, token ids or an array of those")
	case len(p.Texts) > 0 && len(p.Tokens) > 0:
		list.AddNew(wire.CodeInvalidValue, "prompt", "%d texts and %d arrays of token ids; send one kind", len(p.Texts),
			len(p.Tokens))
	case !wire.WantAtMost(list, "prompt", p.Len(), MaxPrompts, "prompts"):
	default:
		for i, ids := range p.Tokens {
			at := fmt.Sprintf("prompt[%d]", i)
			if len(ids) == 0 {
				list.AddNew(wire.CodeInvalidValue, at, "a prompt of token ids needs at least one")
			}
			checkTokenIDs(list, at, ids)
		}
	}
}
