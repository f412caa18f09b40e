package openai

import (
	"encoding/json"
	"slices"
	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

var chatFields = wire.Join(
	acceptedFields[ChatRequest](),
	wire.Lift(optionFields, func(r *ChatRequest) *Options { return &r.Options }),
	wire.Lift(guidedFields, func(r *ChatRequest) *Options { return &r.Options }),
	wire.Fields[ChatRequest]{
		"messages":               {Read: func(c *wire.Reader, r *ChatRequest) { r.Messages = readMessages(c) }},
		"max_tokens":             wire.OptionalInt(func(r *ChatRequest) **int { return &r.MaxTokens }),
		"max_completion_tokens":  wire.OptionalInt(func(r *ChatRequest) **int { return &r.MaxCompletionTokens }),
		"logprobs":               wire.BoolField(func(r *ChatRequest) *bool { return &r.Logprobs }),
		"top_logprobs":           wire.OptionalInt(func(r *ChatRequest) **int { return &r.TopLogprobs }),
		"tools":                  {Read: readTools},
		"tool_choice":            {Read: func(c *wire.Reader, r *ChatRequest) { r.ToolChoice = readToolChoice(c) }},
		"parallel_tool_calls":    wire.OptionalBool(func(r *ChatRequest) **bool { return &r.ParallelToolCalls }),
		"reasoning_effort":       wire.TextField(func(r *ChatRequest) *string { return &r.ReasoningEffort }),
		"chat_template_kwargs":   {Read: func(c *wire.Reader, r *ChatRequest) { r.ChatTemplateKwargs = readKwargs(c) }},
		"add_generation_prompt":  wire.OptionalBool(func(r *ChatRequest) **bool { return &r.AddGenerationPrompt }),
		"continue_final_message": wire.BoolField(func(r *ChatRequest) *bool { return &r.ContinueFinalMessage }),
		"thinking": {Read: func(c *wire.Reader, r *ChatRequest) {
			r.Thinking = &Thinking{}
			wire.ReadObject(c, r.Thinking, thinkingFields)
		}},

		"functions":     {Read: readFunctions},
		"function_call": {Read: readFunctionChoice},
		"moderation": wire.Refuse[ChatRequest]("the server has no moderation; check prompts and answers in the " +
			"client"),
		"audio": wire.Refuse[ChatRequest]("the model generates only text; omit it"),
		"web_search_options": wire.Refuse[ChatRequest]("the server cannot search the web; define a search tool in " +
			"tools"), "enable_thinking": wire.Refuse[ChatRequest](
			`send it inside chat_template_kwargs, or send thinking: {"type": "enabled"}`),
		"chat_template": wire.Refuse[ChatRequest]("the model's own template is used; send variables in " +
			"chat_template_kwargs"),
		"prompt": wire.Refuse[ChatRequest]("it is a field of /v1/completions; send messages"),
	},
)

var thinkingFields = wire.Fields[Thinking]{
	"type":          wire.TextField(func(t *Thinking) *string { return &t.Type }),
	"budget_tokens": wire.OptionalInt(func(t *Thinking) **int { return &t.BudgetTokens }),
}

// readKwargs keeps each value as JSON; only the values of thinkingKwargs must be booleans.
func readKwargs(c *wire.Reader) map[string]json.RawMessage {
	if c.Shape() != jsonscan.Object {
		c.WrongShape("an object")
		return nil
	}
	kwargs := map[string]json.RawMessage{}
	count := 0
	for name := range c.Members {
		if count++; count > MaxKwargs {
			c.Skip()
			continue
		}
		if slices.Contains(thinkingKwargs, name) && c.Shape() != jsonscan.Bool {
			if c.Shape() == jsonscan.Null {
				c.Word()
			} else {
				c.WrongShape("a boolean")
			}
			continue
		}
		kwargs[name] = c.Raw()
	}
	wire.WantAtMost(&c.Problems, c.Param(), count, MaxKwargs, "entries")
	return kwargs
}
