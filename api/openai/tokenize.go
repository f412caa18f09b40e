package openai

import (
	"encoding/json"
	"sparrow/internal/wire"
)

// TokenizeRequest is the body of POST /tokenize in vLLM's format: either a prompt or messages.
type TokenizeRequest struct {
	Model    string    `json:"model,omitempty"`
	Prompt   *string   `json:"prompt,omitempty"`
	Messages []Message `json:"messages,omitempty"`

	// AddSpecialTokens, if nil, is true for a prompt and false for messages: the chat format already writes special
	// tokens.
	AddSpecialTokens *bool `json:"add_special_tokens,omitempty"`
	ReturnTokenStrs  bool  `json:"return_token_strs,omitempty"`

	// The following fields are valid only with messages.
	AddGenerationPrompt  *bool                      `json:"add_generation_prompt,omitempty"`
	ContinueFinalMessage bool                       `json:"continue_final_message,omitempty"`
	Tools                []Tool                     `json:"tools,omitempty"`
	ChatTemplateKwargs   map[string]json.RawMessage `json:"chat_template_kwargs,omitempty"`
}

// TokenizeResponse is the response to /tokenize.
type TokenizeResponse struct {
	Count       int      `json:"count"`
	MaxModelLen int      `json:"max_model_len"`
	Tokens      []int32  `json:"tokens"`
	TokenStrs   []string `json:"token_strs"` // null unless requested
}

// DetokenizeRequest is the body of POST /detokenize.
type DetokenizeRequest struct {
	Model  string  `json:"model,omitempty"`
	Tokens []int32 `json:"tokens"`
}

// DetokenizeResponse is the response to /detokenize.
type DetokenizeResponse struct {
	Prompt string `json:"prompt"`
}

// WantsSpecialTokens reports whether the encoder adds the model's special tokens.
func (r *TokenizeRequest) WantsSpecialTokens() bool {
	if r.AddSpecialTokens == nil {
		return r.Prompt != nil
	}
	return *r.AddSpecialTokens
}

// AsChat returns the conversation of the request as a chat request, which renders the same prompt as a completion.
func (r *TokenizeRequest) AsChat() *ChatRequest {
	return &ChatRequest{
		Options:              Options{Model: r.Model},
		Messages:             r.Messages,
		Tools:                r.Tools,
		ChatTemplateKwargs:   r.ChatTemplateKwargs,
		AddGenerationPrompt:  r.AddGenerationPrompt,
		ContinueFinalMessage: r.ContinueFinalMessage,
	}
}

var tokenizeFields = wire.Fields[TokenizeRequest]{
	"model":                  wire.TextField(func(r *TokenizeRequest) *string { return &r.Model }),
	"prompt":                 {Read: func(c *wire.Reader, r *TokenizeRequest) { wire.SetPointer(&r.Prompt, c.Str) }},
	"messages":               {Read: func(c *wire.Reader, r *TokenizeRequest) { r.Messages = readMessages(c) }},
	"add_special_tokens":     wire.OptionalBool(func(r *TokenizeRequest) **bool { return &r.AddSpecialTokens }),
	"return_token_strs":      wire.BoolField(func(r *TokenizeRequest) *bool { return &r.ReturnTokenStrs }),
	"add_generation_prompt":  wire.OptionalBool(func(r *TokenizeRequest) **bool { return &r.AddGenerationPrompt }),
	"continue_final_message": wire.BoolField(func(r *TokenizeRequest) *bool { return &r.ContinueFinalMessage }),
	"tools":                  {Read: func(c *wire.Reader, r *TokenizeRequest) { r.Tools = ReadTools(c) }},
	"chat_template_kwargs":   {Read: func(c *wire.Reader, r *TokenizeRequest) { r.ChatTemplateKwargs = readKwargs(c) }},
	"chat_template": wire.Refuse[TokenizeRequest](
		"the model's own template is used; send variables in chat_template_kwargs"),
}

var detokenizeFields = wire.Fields[DetokenizeRequest]{
	"model":  wire.TextField(func(r *DetokenizeRequest) *string { return &r.Model }),
	"tokens": {Read: func(c *wire.Reader, r *DetokenizeRequest) { r.Tokens = readTokenIDs(c, c.Size()) }},
}

// Validate returns an error with every problem of the request, or nil. [Decoder.Tokenize] has already called it.
func (r *TokenizeRequest) Validate() *wire.Error { return wire.Verdict(r.check) }

func (r *TokenizeRequest) check(p *wire.Problems) {
	switch {
	case r.Prompt != nil && r.Messages != nil:
		p.AddNew(wire.CodeInvalidValue, "prompt", "prompt and messages cannot be combined; send one")
	case r.Prompt == nil && r.Messages == nil:
		if p.Empty() {
			p.Add(wire.CodeMissing, "prompt", "required if there are no messages")
		}
	case r.Prompt != nil:
		r.checkPromptOnly(p)
	default:
		chat := r.AsChat()
		chat.checkTools(p)
		chat.checkThinking(p)
		chat.checkMessages(p)
	}
}

// checkPromptOnly reports the fields that have no effect with a prompt.
func (r *TokenizeRequest) checkPromptOnly(p *wire.Problems) {
	for _, f := range []struct {
		param string
		given bool
	}{
		{"add_generation_prompt", r.AddGenerationPrompt != nil},
		{"continue_final_message", r.ContinueFinalMessage},
		{"tools", r.Tools != nil},
		{"chat_template_kwargs", r.ChatTemplateKwargs != nil},
	} {
		if f.given {
			p.AddNew(wire.CodeInvalidValue, f.param, "only allowed with messages")
		}
	}
}

// Validate returns an error with every problem of the request, or nil. [Decoder.Detokenize] has already called it.
func (r *DetokenizeRequest) Validate() *wire.Error { return wire.Verdict(r.check) }

func (r *DetokenizeRequest) check(p *wire.Problems) {
	if r.Tokens == nil {
		p.AddNew(wire.CodeMissing, "tokens", "required; an array of token ids")
	}
	checkTokenIDs(p, "tokens", r.Tokens)
}
