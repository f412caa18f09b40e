package server

import (
	"encoding/json"
	"maps"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/chat"
)

// chatRequest converts a chat completion to an engine request.
func chatRequest(r *openai.ChatRequest, from origin) sparrow.Request {
	out := common(&r.Options, from)
	out.Chat = conversation(r)
	if limit, ok := r.NewTokens(); ok {
		out.MaxTokens = limit
	}
	if r.Thinking != nil {
		setIf(&out.MaxReasoning, r.Thinking.BudgetTokens)
	}
	out.Sampling.Logprobs = r.Logprobs
	setIf(&out.Sampling.TopLogprobs, r.TopLogprobs)
	return out
}

// conversation converts the fields on which the prompt depends. /tokenize uses it too, so that prompts are the same.
func conversation(r *openai.ChatRequest) *chat.Request {
	c := &chat.Request{
		Messages:            make([]chat.Message, len(r.Messages)),
		ToolChoice:          toolChoice(r.ToolChoice),
		Thinking:            r.ThinkingMode(),
		AddGenerationPrompt: r.WantsGenerationPrompt(),
		ContinueFinal:       r.ContinueFinalMessage,
		Kwargs:              kwargs(r.ChatTemplateKwargs),
	}
	for i := range r.Messages {
		c.Messages[i] = message(&r.Messages[i])
	}
	tools := openai.Offered(r.Tools)
	for i := range tools {
		c.Tools = append(c.Tools, toolOf(&tools[i]))
	}
	if r.ReasoningEffort != openai.EffortNone {
		c.Effort = r.ReasoningEffort
	}
	if f := r.ResponseFormat; f != nil && f.JSONSchema != nil {
		c.ResponseFormat = f.JSONSchema.Schema
	}
	return c
}

func message(m *openai.Message) chat.Message {
	out := chat.Message{
		Role: chat.Role(m.Role), Content: m.Content.Text(), Reasoning: m.ReasoningContent, ToolCallID: m.ToolCallID,
		Name: m.Name,
	}
	for _, t := range m.ToolCalls {
		out.ToolCalls = append(out.ToolCalls,
			chat.Call{ID: t.ID, Name: t.Function.Name, Arguments: t.Function.Arguments})
	}
	return out
}

func toolChoice(t *openai.ToolChoice) chat.ToolChoice {
	if t == nil {
		return chat.ToolChoice{}
	}
	switch t.Mode {
	case openai.ChoiceNone:
		return chat.ToolChoice{Mode: chat.ChoiceNone}
	case openai.ChoiceRequired:
		return chat.ToolChoice{Mode: chat.ChoiceRequired}
	case openai.ChoiceFunction:
		return chat.ToolChoice{Mode: chat.ChoiceFunction, Name: t.Name}
	}
	return chat.ToolChoice{}
}

// kwargs removes the template arguments that turn reasoning on or off, because chat.Request.Thinking contains them.
func kwargs(sent map[string]json.RawMessage) map[string]json.RawMessage {
	if len(sent) == 0 {
		return nil
	}
	rest := maps.Clone(sent)
	delete(rest, "thinking")
	delete(rest, "enable_thinking")
	if len(rest) == 0 {
		return nil
	}
	return rest
}

// singleCall reports whether a reply may contain only one call.
func singleCall(r *openai.ChatRequest) bool {
	return r.Functions || r.ParallelToolCalls != nil && !*r.ParallelToolCalls
}
