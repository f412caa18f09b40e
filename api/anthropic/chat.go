package anthropic

import (
	"slices"

	"sparrow/api/openai"
)

// AsChat returns the request as a chat completion. The results of tools become their own messages; consecutive messages
// of one role are one turn. If the last message is the assistant's, the model continues it.
func (r *Request) AsChat() *openai.ChatRequest {
	c := &openai.ChatRequest{MaxTokens: r.MaxTokens}
	c.Model, c.Temperature, c.TopP, c.TopK, c.Stop = r.Model, r.Temperature, r.TopP, r.TopK, r.Stop
	c.Stream = r.Stream
	if len(r.System) > 0 {
		c.Messages = append(c.Messages, openai.Message{Role: openai.RoleSystem, Content: r.System})
	}
	for i := range r.Messages {
		c.Messages = r.addTo(c.Messages, &r.Messages[i])
	}
	if n := len(c.Messages); n > 0 && c.Messages[n-1].Role == openai.RoleAssistant {
		c.ContinueFinalMessage = true
	}
	for i := range r.Tools {
		if t := &r.Tools[i]; !t.hosted() {
			c.Tools = append(c.Tools, *t.declared())
		}
	}
	if t := r.ToolChoice; t != nil {
		c.ToolChoice = &openai.ToolChoice{Mode: map[string]string{ChoiceAuto: openai.ChoiceAuto,
			ChoiceAny: openai.ChoiceRequired, ChoiceTool: openai.ChoiceFunction, ChoiceNone: openai.ChoiceNone}[t.Type],
			Name: t.Name}
		parallel := !t.Single
		c.ParallelToolCalls = &parallel
	}
	if r.Thinking != "" {
		c.Thinking = &openai.Thinking{Type: openai.ThinkingDisabled}
		if r.thinks() {
			c.Thinking.Type, c.Thinking.BudgetTokens = openai.ThinkingEnabled, r.Budget
		}
	}
	c.ReasoningEffort = r.Effort
	if r.Schema != nil {
		c.ResponseFormat = &openai.ResponseFormat{Type: openai.FormatJSONSchema,
			JSONSchema: &openai.JSONSchema{Name: "output", Schema: r.Schema}}
	}
	return c
}

// thinks reports whether the request turns reasoning on.
func (r *Request) thinks() bool {
	last := r.Messages[len(r.Messages)-1].Content
	results := slices.ContainsFunc(last, func(b Block) bool { return b.Type == BlockResult })
	return r.Thinking != ThinkingDisabled && (r.Thinking != ThinkingBetween || results)
}

// addTo appends the chat messages for one message of the request to list.
func (r *Request) addTo(list []openai.Message, m *Message) []openai.Message {
	said := openai.Message{Role: m.Role}
	for i := range m.Content {
		switch b := &m.Content[i]; b.Type {
		case BlockText:
			said.Content = append(said.Content, b.Text)
		case BlockThinking:
			said.ReasoningContent += b.Text
		case BlockToolUse:
			said.ToolCalls = append(said.ToolCalls, openai.ToolCall{ID: b.ID, Type: "function",
				Function: openai.FunctionCall{Name: b.Name, Arguments: string(b.Input)}})
		case BlockResult:
			list = append(list, openai.Message{Role: openai.RoleTool, ToolCallID: b.ToolUseID,
				Content: r.shown(b)})
		}
	}
	if said.Content == nil && said.ReasoningContent == "" && said.ToolCalls == nil {
		return list // the message has only results, or no content
	}
	n := len(list) - 1
	switch {
	case n < 0 || list[n].Role != m.Role,
		m.Role == RoleSystem,
		m.Role == RoleAssistant && said.ReasoningContent != "": // reasoning begins a new turn
		return append(list, said)
	}
	list[n].Content = append(list[n].Content, said.Content...)
	list[n].ToolCalls = append(list[n].ToolCalls, said.ToolCalls...)
	return list
}

// declared returns a tool as a tool of a chat request.
func (t *Tool) declared() *openai.Tool {
	return &openai.Tool{Type: "function", Deferred: t.Deferred, Function: openai.Function{Name: t.Name,
		Description: t.Description, Parameters: t.Schema, Strict: t.Strict}}
}

// shown returns the text of a tool result for the prompt. A tool_reference in it is replaced by the declaration of that
// tool.
func (r *Request) shown(b *Block) openai.Content {
	texts := openai.Content(b.Result)
	for _, name := range b.References {
		i := slices.IndexFunc(r.Tools, func(t Tool) bool { return t.Name == name })
		if i < 0 {
			texts = append(texts, name)
			continue
		}
		texts = append(texts, r.Tools[i].declared().Declaration())
	}
	return texts
}
