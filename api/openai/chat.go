package openai

import (
	"encoding/json"
	"slices"
)

// ChatRequest is the body of POST /v1/chat/completions.
type ChatRequest struct {
	Options
	Messages []Message `json:"messages"`

	MaxTokens           *int `json:"max_tokens,omitempty"`            // older name of MaxCompletionTokens
	MaxCompletionTokens *int `json:"max_completion_tokens,omitempty"` // includes reasoning

	Logprobs    bool `json:"logprobs,omitempty"`
	TopLogprobs *int `json:"top_logprobs,omitempty"` // [0, 20], only with Logprobs

	Tools             []Tool      `json:"tools,omitempty"`
	ToolChoice        *ToolChoice `json:"tool_choice,omitempty"`
	ParallelToolCalls *bool       `json:"parallel_tool_calls,omitempty"` // nil means true
	// Functions reports that the request used the older field functions instead of tools. The answer then has at most
	// one call.
	Functions bool `json:"-"`

	ReasoningEffort    string                     `json:"reasoning_effort,omitempty"`
	Thinking           *Thinking                  `json:"thinking,omitempty"`
	ChatTemplateKwargs map[string]json.RawMessage `json:"chat_template_kwargs,omitempty"`

	AddGenerationPrompt  *bool `json:"add_generation_prompt,omitempty"`  // nil means !ContinueFinalMessage
	ContinueFinalMessage bool  `json:"continue_final_message,omitempty"` // continue the last assistant message
}

// Thinking switches reasoning on or off, with the field of DeepSeek's and GLM's own services.
type Thinking struct {
	Type string `json:"type"` // enabled or disabled
	// BudgetTokens limits the tokens of reasoning, as in Anthropic's interface; nil means no limit.
	BudgetTokens *int `json:"budget_tokens,omitempty"`
}

// The values of thinking.type.
const (
	ThinkingEnabled  = "enabled"
	ThinkingDisabled = "disabled"
)

// NewTokens returns the maximum number of generated tokens, from either field; ok is false if the request sets none.
func (r *ChatRequest) NewTokens() (limit int, ok bool) {
	given := r.MaxCompletionTokens
	if given == nil {
		given = r.MaxTokens
	}
	if given == nil || *given == Unlimited {
		return 0, false
	}
	return *given, true
}

// WantsGenerationPrompt reports whether the prompt ends with the start of a new assistant message.
func (r *ChatRequest) WantsGenerationPrompt() bool {
	return generationPrompt(r.AddGenerationPrompt, r.ContinueFinalMessage)
}

func generationPrompt(add *bool, continueFinal bool) bool {
	if add == nil {
		return !continueFinal
	}
	return *add
}

// thinkingSwitch is one of the fields that turn reasoning on or off.
type thinkingSwitch struct {
	param string
	on    bool
}

// thinkingSwitches lists the switches that the request sets. [ChatRequest.Validate] checks that they agree.
func (r *ChatRequest) thinkingSwitches() []thinkingSwitch {
	var list []thinkingSwitch
	if r.Thinking != nil && slices.Contains([]string{ThinkingEnabled, ThinkingDisabled}, r.Thinking.Type) {
		list = append(list, thinkingSwitch{"thinking.type", r.Thinking.Type == ThinkingEnabled})
	}
	for _, name := range thinkingKwargs {
		if raw, ok := r.ChatTemplateKwargs[name]; ok {
			list = append(list, thinkingSwitch{"chat_template_kwargs." + name, string(raw) == "true"})
		}
	}
	if r.ReasoningEffort == EffortNone {
		list = append(list, thinkingSwitch{"reasoning_effort", false})
	}
	return list
}

// thinkingKwargs lists the template arguments that turn reasoning on or off: those of DeepSeek and of GLM.
var thinkingKwargs = []string{"thinking", "enable_thinking"}

// ThinkingMode reports whether the request turns reasoning on or off, with any of its switches: thinking,
// chat_template_kwargs.thinking, chat_template_kwargs.enable_thinking, or a reasoning_effort of none. Nil means the
// model's default.
func (r *ChatRequest) ThinkingMode() *bool {
	if list := r.thinkingSwitches(); len(list) > 0 {
		return &list[0].on
	}
	return nil
}
