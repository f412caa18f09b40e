package openai

import (
	"fmt"

	"sparrow/internal/jsonscan"
)

// CompletionRequest is the body of POST /v1/completions.
type CompletionRequest struct {
	Options
	Prompt    Prompt `json:"prompt"`
	MaxTokens *int   `json:"max_tokens,omitempty"` // 0 only with Echo; see [CompletionRequest.NewTokens]
	Echo      bool   `json:"echo,omitempty"`       // the prompt is part of the text, and of the logprobs
	Logprobs  *int   `json:"logprobs,omitempty"`   // [0, 20]: alternatives per token; nil is no logprobs at all

	AddSpecialTokens *bool `json:"add_special_tokens,omitempty"` // nil is true; text prompts only
}

// NewTokens is the limit on generated tokens.
func (r *CompletionRequest) NewTokens() int {
	if r.MaxTokens == nil {
		return DefaultCompletionTokens
	}
	return *r.MaxTokens
}

// completionReader is a request in the making: best_of and suffix are looked at and not kept.
type completionReader struct {
	CompletionRequest
	bestOf *int
}

// DecodeCompletion reads and validates the body of a text completion.
func DecodeCompletion(body []byte) (*CompletionRequest, *Error) {
	r, err := decodeBody(body, completionFields, func(r *completionReader, p *problems) {
		r.check(p)
		if r.bestOf != nil && *r.bestOf != r.Choices() {
			p.addNew(CodeUnsupportedValue, "best_of",
				"%d is not n, which is %d; all choices are returned, so leave best_of out and rank them by logprobs",
				*r.bestOf, r.Choices())
		}
	})
	if err != nil {
		return nil, err
	}
	return &r.CompletionRequest, nil
}

var completionFields = join(
	acceptedFields[completionReader](),
	lift(optionFields, func(r *completionReader) *Options { return &r.Options }),
	fields[completionReader]{
		"prompt":             {read: func(c *cursor, r *completionReader) { r.Prompt = readPrompt(c) }},
		"max_tokens":         optionalInt(func(r *completionReader) **int { return &r.MaxTokens }),
		"echo":               boolField(func(r *completionReader) *bool { return &r.Echo }),
		"logprobs":           optionalInt(func(r *completionReader) **int { return &r.Logprobs }),
		"best_of":            optionalInt(func(r *completionReader) **int { return &r.bestOf }),
		"add_special_tokens": optionalBool(func(r *completionReader) **bool { return &r.AddSpecialTokens }),
		"suffix":             {read: readSuffix, refused: true},

		"messages":              refuse[completionReader]("it belongs to /v1/chat/completions; send prompt"),
		"tools":                 refuse[completionReader]("it belongs to /v1/chat/completions"),
		"max_completion_tokens": refuse[completionReader]("it belongs to /v1/chat/completions; send max_tokens"),
		"top_logprobs": refuse[completionReader](
			"it belongs to /v1/chat/completions; send logprobs as a number"),
		"prompt_embeds": refuse[completionReader]("send prompt as text or token ids"),
	},
)

// readSuffix lets the empty suffix pass: it asks for nothing.
func readSuffix(c *cursor, _ *completionReader) {
	if s, ok := c.str(); ok && s != "" {
		c.problem(CodeUnsupportedParam,
			"not supported; the models do not fill in the middle, so write the task into the prompt")
	}
}

// Validate reports every problem of the request, or nil. [DecodeCompletion] has already called it.
func (r *CompletionRequest) Validate() *Error { return verdict(r.check) }

func (r *CompletionRequest) check(p *problems) {
	r.Options.check(p)
	r.Prompt.check(p)
	checkLength(p, "max_tokens", r.MaxTokens, r.MinTokens, 0)
	if r.MaxTokens != nil && *r.MaxTokens == 0 && !r.Echo {
		p.addNew(CodeOutOfRange, "max_tokens", "0 asks for no text; only allowed when echo is true")
	}
	if r.MaxTokens == nil && r.MinTokens != nil && *r.MinTokens > DefaultCompletionTokens {
		p.addNew(CodeInvalidValue, "min_tokens", "%d is more than max_tokens, which is %d when not given", *r.MinTokens,
			DefaultCompletionTokens)
	}
	wantRange(p, "logprobs", r.Logprobs, 0, MaxTopLogprobs)
	if prompts, n := r.Prompt.Len(), r.Choices(); n >= 1 && n <= MaxN && prompts*n > MaxChoices {
		p.addNew(CodeTooMany, "n", "%d choices for each of %d prompts, at most %d choices in all are supported", n,
			prompts, MaxChoices)
	}
	if r.AddSpecialTokens != nil && len(r.Prompt.Tokens) > 0 {
		p.addNew(CodeInvalidValue, "add_special_tokens",
			"only allowed with a text prompt: token ids are taken as they are")
	}
}

// Prompt is one or more prompts, all text or all token ids.
type Prompt struct {
	Texts  []string
	Tokens [][]int32
}

// Len is the number of prompts.
func (p Prompt) Len() int { return len(p.Texts) + len(p.Tokens) }

// MarshalJSON writes a single prompt as a string or an array of ids, several as an array of those.
func (p Prompt) MarshalJSON() ([]byte, error) {
	switch {
	case len(p.Texts) == 1:
		return Marshal(p.Texts[0])
	case len(p.Texts) > 1:
		return Marshal(p.Texts)
	case len(p.Tokens) == 1:
		return Marshal(p.Tokens[0])
	}
	return Marshal(p.Tokens)
}

// readPrompt takes the four forms: a string, strings, ids, arrays of ids. The first element of an array decides.
func readPrompt(c *cursor) (prompt Prompt) {
	switch c.shape() {
	case shapeString:
		prompt.Texts = []string{c.text()}
		return prompt
	case shapeArray:
	default:
		c.wrongShape("a string, an array of strings, an array of token ids or an array of arrays of token ids")
		return prompt
	}
	switch c.firstElement() {
	case shapeNumber:
		prompt.Tokens = [][]int32{readTokenIDs(c, len(c.Text))}
	case shapeArray:
		prompt.Tokens = readList(c, MaxPrompts, "prompts", func() ([]int32, bool) {
			return readTokenIDs(c, len(c.Text)), true
		})
	default:
		prompt.Texts = readList(c, MaxPrompts, "prompts", c.str)
	}
	return prompt
}

// firstElement is the shape of the first element of the array at the cursor; shapeNone if there is none.
func (c *cursor) firstElement() shape {
	ahead := cursor{Scanner: jsonscan.Scanner{Text: c.Text, Pos: c.Pos + 1}}
	if ahead.Next() == ']' {
		return shapeNone
	}
	return ahead.shape()
}

func (p *Prompt) check(list *problems) {
	switch {
	case p.Len() == 0:
		list.addNew(CodeMissing, "prompt", "required; send a string, token ids or an array of those")
	case len(p.Texts) > 0 && len(p.Tokens) > 0:
		list.addNew(CodeInvalidValue, "prompt", "%d texts and %d arrays of token ids; send one kind", len(p.Texts),
			len(p.Tokens))
	case !wantAtMost(list, "prompt", p.Len(), MaxPrompts, "prompts"):
	default:
		for i, ids := range p.Tokens {
			at := fmt.Sprintf("prompt[%d]", i)
			if len(ids) == 0 {
				list.addNew(CodeInvalidValue, at, "a prompt of token ids needs at least one")
			}
			checkTokenIDs(list, at, ids)
		}
	}
}
