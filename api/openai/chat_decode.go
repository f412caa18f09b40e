package openai

import (
	"encoding/json"
	"slices"
)

// DecodeChat reads and validates the body of a chat completion.
func DecodeChat(body []byte) (*ChatRequest, *Error) {
	return decodeBody(body, chatFields, (*ChatRequest).check)
}

// decodeBody reads an object, then checks it; both report into one list.
func decodeBody[T any](body []byte, known fields[T], check func(*T, *problems)) (*T, *Error) {
	c := newCursor(body)
	v := new(T)
	if got := c.shape(); got != shapeObject && got != shapeNone {
		c.problem(CodeInvalidType, "the body must be a JSON object, got %s", got)
		c.skip()
		return nil, c.finish()
	}
	readObject(c, v, known)
	if c.malformed == nil {
		check(v, &c.problems)
	}
	if err := c.finish(); err != nil {
		return nil, err
	}
	return v, nil
}

var chatFields = join(
	acceptedFields[ChatRequest](),
	lift(optionFields, func(r *ChatRequest) *Options { return &r.Options }),
	fields[ChatRequest]{
		"messages":               {read: func(c *cursor, r *ChatRequest) { r.Messages = readMessages(c) }},
		"max_tokens":             optionalInt(func(r *ChatRequest) **int { return &r.MaxTokens }),
		"max_completion_tokens":  optionalInt(func(r *ChatRequest) **int { return &r.MaxCompletionTokens }),
		"logprobs":               boolField(func(r *ChatRequest) *bool { return &r.Logprobs }),
		"top_logprobs":           optionalInt(func(r *ChatRequest) **int { return &r.TopLogprobs }),
		"tools":                  {read: func(c *cursor, r *ChatRequest) { r.Tools = readTools(c) }},
		"tool_choice":            {read: func(c *cursor, r *ChatRequest) { r.ToolChoice = readToolChoice(c) }},
		"parallel_tool_calls":    optionalBool(func(r *ChatRequest) **bool { return &r.ParallelToolCalls }),
		"reasoning_effort":       textField(func(r *ChatRequest) *string { return &r.ReasoningEffort }),
		"chat_template_kwargs":   {read: func(c *cursor, r *ChatRequest) { r.ChatTemplateKwargs = readKwargs(c) }},
		"add_generation_prompt":  optionalBool(func(r *ChatRequest) **bool { return &r.AddGenerationPrompt }),
		"continue_final_message": boolField(func(r *ChatRequest) *bool { return &r.ContinueFinalMessage }),
		"thinking": {read: func(c *cursor, r *ChatRequest) {
			r.Thinking = &Thinking{}
			readObject(c, r.Thinking, thinkingFields)
		}},

		"functions":          refuse[ChatRequest]("it is the older form of tools; send tools"),
		"function_call":      refuse[ChatRequest]("it is the older form of tool_choice; send tool_choice"),
		"moderation":         refuse[ChatRequest]("nothing is moderated; check the text before and after"),
		"audio":              refuse[ChatRequest]("answers are text"),
		"web_search_options": refuse[ChatRequest]("the server reaches no network; offer a search tool in tools"),
		"enable_thinking": refuse[ChatRequest](
			`send it inside chat_template_kwargs, or send thinking: {"type": "enabled"}`),
		"chat_template": refuse[ChatRequest]("the template is the model's; variables go in chat_template_kwargs"),
		"prompt":        refuse[ChatRequest]("it belongs to /v1/completions; send messages"),
	},
)

var thinkingFields = fields[Thinking]{
	"type": textField(func(t *Thinking) *string { return &t.Type }),
}

// readKwargs keeps each value as JSON; only the switch for thinking has a known type.
func readKwargs(c *cursor) map[string]json.RawMessage {
	if c.shape() != shapeObject {
		c.wrongShape("an object")
		return nil
	}
	kwargs := map[string]json.RawMessage{}
	count := 0
	for name := range c.members {
		if count++; count > MaxKwargs {
			c.skip()
			continue
		}
		if slices.Contains(thinkingKwargs, name) && c.shape() != shapeBool {
			if c.shape() == shapeNull {
				c.word()
			} else {
				c.wrongShape("a boolean")
			}
			continue
		}
		kwargs[name] = c.raw()
	}
	wantAtMost(&c.problems, c.param(), count, MaxKwargs, "entries")
	return kwargs
}
