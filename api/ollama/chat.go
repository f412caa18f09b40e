package ollama

import (
	"fmt"

	"sparrow/api/openai"
)

// AsChat returns the request as a chat completion. A request to /api/generate becomes a chat with one user message. If
// the last message is the assistant's, the model continues it.
func (r *Request) AsChat() *openai.ChatRequest {
	c := &openai.ChatRequest{Options: r.sampling(), Tools: r.Tools, ReasoningEffort: r.Effort}
	c.MaxTokens = r.limit()
	if r.Think != nil {
		c.Thinking = &openai.Thinking{Type: openai.ThinkingDisabled}
		if *r.Think {
			c.Thinking.Type = openai.ThinkingEnabled
		}
	}
	if r.Messages == nil {
		if r.System != "" {
			c.Messages = append(c.Messages, openai.Message{Role: openai.RoleSystem, Content: openai.Content{r.System}})
		}
		c.Messages = append(c.Messages, openai.Message{Role: openai.RoleUser, Content: openai.Content{r.Prompt}})
		return c
	}
	var open []openai.ToolCall // calls of the last message with calls that have no result yet
	for i := range r.Messages {
		m := &r.Messages[i]
		out := openai.Message{Role: m.Role, Content: openai.Content{m.Content}}
		switch m.Role {
		case openai.RoleAssistant:
			out.ReasoningContent, open = m.Thinking, nil
			for j, call := range m.Calls {
				id := call.ID
				if id == "" {
					id = fmt.Sprintf("call_%d_%d", i, j)
				}
				out.ToolCalls = append(out.ToolCalls, openai.ToolCall{ID: id, Type: "function",
					Function: openai.FunctionCall{Name: call.Name, Arguments: string(call.Arguments)}})
			}
			open = append(open, out.ToolCalls...)
		case openai.RoleTool:
			out.ToolCallID, open = m.answers(open)
		}
		c.Messages = append(c.Messages, out)
	}
	if n := len(c.Messages) - 1; n >= 0 && c.Messages[n].Role == openai.RoleAssistant {
		c.ContinueFinalMessage = true
	}
	return c
}

// AsCompletion returns a raw request as a text completion.
func (r *Request) AsCompletion() *openai.CompletionRequest {
	c := &openai.CompletionRequest{Options: r.sampling(), Prompt: openai.Prompt{Texts: []string{r.Prompt}}}
	unlimited := openai.Unlimited
	if c.MaxTokens = r.limit(); c.MaxTokens == nil {
		c.MaxTokens = &unlimited
	}
	return c
}

func (r *Request) sampling() openai.Options {
	o := r.Options
	o.Model, o.ResponseFormat, o.Stream = ModelName(r.Model), r.Format, r.Streams()
	if o.TopP != nil && *o.TopP == 0 {
		o.TopP = nil // in Ollama's interface 0 disables top_p
	}
	return o
}

// limit returns the limit on tokens, or nil if there is none.
func (r *Request) limit() *int {
	if r.MaxTokens == nil || *r.MaxTokens <= 0 {
		return nil
	}
	return r.MaxTokens
}

// answers returns the id of the call that a tool message answers, and the calls that are still open. It is the call
// that the message names, otherwise the first open call of the named tool, otherwise the first open call.
func (m *Message) answers(open []openai.ToolCall) (id string, left []openai.ToolCall) {
	at := -1
	for i := range open {
		switch {
		case m.ToolCall != "" && open[i].ID == m.ToolCall:
			at = i
		case m.ToolCall == "" && at < 0 && (m.ToolName == "" || open[i].Function.Name == m.ToolName):
			at = i
		}
	}
	if at < 0 {
		return m.ToolCall, open
	}
	id = open[at].ID
	return id, append(open[:at:at], open[at+1:]...)
}
