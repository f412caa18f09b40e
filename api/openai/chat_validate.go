package openai

import (
	"fmt"
	"slices"
	"strings"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// Validate returns an error with every problem of the request, or nil. [Decoder.Chat] has already called it.
func (r *ChatRequest) Validate() *wire.Error { return wire.Verdict(r.check) }

func (r *ChatRequest) check(p *wire.Problems) {
	r.Options.check(p)
	r.checkLimits(p)
	r.checkTools(p)
	r.checkThinking(p)
	r.checkMessages(p)
}

func (r *ChatRequest) checkLimits(p *wire.Problems) {
	checkLength(p, "max_tokens", r.MaxTokens, r.MinTokens, 1)
	checkLength(p, "max_completion_tokens", r.MaxCompletionTokens, r.MinTokens, 1)
	if a, b := r.MaxTokens, r.MaxCompletionTokens; a != nil && b != nil && *a != *b {
		p.AddNew(wire.CodeInvalidValue, "max_completion_tokens",
			"%d differs from max_tokens, which is %d; send one of them",
			*b, *a)
	}
	wire.WantRange(p, "top_logprobs", r.TopLogprobs, 0, MaxTopLogprobs)
	if r.TopLogprobs != nil && !r.Logprobs {
		p.AddNew(wire.CodeInvalidValue, "top_logprobs", "only allowed if logprobs is true")
	}
}

func (r *ChatRequest) checkTools(p *wire.Problems) {
	field, list := ".function.name", "tools"
	if r.Functions {
		field, list = ".name", "functions"
	}
	if checkToolList(p, field, r.Tools, func(i int) string { return fmt.Sprintf("%s[%d]", list, i) }) {
		r.checkToolChoice(p)
	}
}

func (r *ChatRequest) checkToolChoice(p *wire.Problems) {
	if r.ToolChoice == nil {
		return
	}
	const at = "tool_choice"
	switch t := r.ToolChoice; t.Mode {
	case ChoiceNone, ChoiceAuto:
	case ChoiceRequired:
		switch left := LeftOut(r.Tools); {
		case len(Offered(r.Tools)) > 0:
		case len(left) > 0:
			p.AddNew(wire.CodeUnsupportedValue, at, "a call is required, but %s is a hosted tool, which this server "+
				"cannot run: also send a tool of type function or custom, or choose auto", strings.Join(left, ", "))
		default:
			p.AddNew(wire.CodeInvalidValue, at, "required is not possible without tools; send at least one tool in "+
				"tools, or choose auto")
		}
	case ChoiceFunction:
		isNamed := func(tool Tool) bool { return !Hosted(tool.Type) && tool.Name() == t.Name }
		switch {
		case t.Name == "":
			p.AddNew(wire.CodeMissing, at+".function.name", "required")
		case !slices.ContainsFunc(r.Tools, isNamed):
			p.AddNew(wire.CodeInvalidValue, at+".function.name", "%q is not the name of a tool in "+
				"tools", jsonscan.Clip(t.Name))
		}
	default:
		p.AddNew(wire.CodeInvalidValue, at,
			"%q is not supported; use none, auto, required or an object that names a function", jsonscan.Clip(t.Mode))
	}
}

// reportType reports a missing or unknown type of a tool or a tool call.
func reportType(p *wire.Problems, param, kind string) {
	if kind == "" {
		p.AddNew(wire.CodeMissing, param, "required; use %q or %q", typeFunction, TypeCustom)
		return
	}
	p.AddNew(wire.CodeUnsupportedValue, param, "%q is not supported; use %q or %q", jsonscan.Clip(kind), typeFunction,
		TypeCustom)
}

func (r *ChatRequest) checkThinking(p *wire.Problems) {
	CheckEffort(p, "reasoning_effort", r.ReasoningEffort)
	if t := r.Thinking; t != nil && t.Type != ThinkingEnabled && t.Type != ThinkingDisabled {
		p.AddNew(wire.CodeInvalidValue, "thinking.type", "%q is not %s or %s", jsonscan.Clip(t.Type), ThinkingEnabled,
			ThinkingDisabled)
	}
	if r.Thinking != nil {
		wire.WantRange(p, "thinking.budget_tokens", r.Thinking.BudgetTokens, 1, MaxTokens)
	}
	wire.WantAtMost(p, "chat_template_kwargs", len(r.ChatTemplateKwargs), MaxKwargs, "entries")
	switches := r.thinkingSwitches()
	for _, s := range switches {
		if s.on != switches[0].on {
			p.AddNew(wire.CodeInvalidValue, s.param, "contradicts %s; send one of them", switches[0].param)
			return
		}
	}
}

func (r *ChatRequest) checkMessages(p *wire.Problems) {
	checkMessages(p, r.Messages)
	checkContinuation(p, r.Messages, r.AddGenerationPrompt, r.ContinueFinalMessage)
}

// checkContinuation checks the two fields that determine the end of the prompt: only an assistant message can be
// continued, and not together with add_generation_prompt.
func checkContinuation(p *wire.Problems, messages []Message, add *bool, continueFinal bool) {
	if !continueFinal {
		return
	}
	if add != nil && *add {
		p.AddNew(wire.CodeInvalidValue, "continue_final_message", "a prompt cannot both continue a message and start "+
			"one; send add_generation_prompt false or omit it")
	}
	if n := len(messages); n > 0 && messages[n-1].Role != RoleAssistant {
		p.AddNew(wire.CodeInvalidValue, "continue_final_message",
			"the last message has role %q, but only an assistant message can be continued",
			jsonscan.Clip(messages[n-1].Role))
	}
}

// checkMessages requires at least one message, each complete for its role, and tool results that answer a call.
func checkMessages(p *wire.Problems, messages []Message) {
	if len(messages) == 0 {
		p.AddNew(wire.CodeMissing, "messages", "required; send at least one message")
		return
	}
	if !wire.WantAtMost(p, "messages", len(messages), MaxMessages, "messages") {
		return
	}
	calls := map[string]bool{}
	for i := range messages {
		messages[i].check(p, fmt.Sprintf("messages[%d]", i), calls)
	}
}

// check validates one message at path at; calls are the ids of the tool calls in earlier messages.
func (m *Message) check(p *wire.Problems, at string, calls map[string]bool) {
	switch m.Role {
	case RoleSystem, RoleDeveloper, RoleUser, RoleTool:
		if m.Content == nil {
			p.AddNew(wire.CodeMissing, at+".content", "required for role %s", m.Role)
		}
		if len(m.ToolCalls) > 0 {
			p.AddNew(wire.CodeInvalidValue, at+".tool_calls",
				"only an assistant message may have tool calls, but the role is %s",
				m.Role)
		}
		if m.ReasoningContent != "" {
			p.AddNew(wire.CodeInvalidValue, at+".reasoning_content",
				"only an assistant message may have reasoning, but the role is %s", m.Role)
		}
	case RoleAssistant:
		if m.Content == nil && len(m.ToolCalls) == 0 && m.ReasoningContent == "" {
			p.AddNew(wire.CodeMissing, at+".content", "required for role assistant unless there are tool_calls")
		}
	case "":
		p.AddNew(wire.CodeMissing, at+".role", "required: system, developer, user, assistant or tool")
		return
	default:
		p.AddNew(wire.CodeInvalidValue, at+".role",
			"%q is not supported; use system, developer, user, assistant or tool",
			jsonscan.Clip(m.Role))
		return
	}
	if m.Content != nil && len(m.Content) == 0 {
		p.AddNew(wire.CodeInvalidValue, at+".content", "is an empty array; send a string or at least one text part")
	}
	m.checkCalls(p, at, calls)
}

func (m *Message) checkCalls(p *wire.Problems, at string, calls map[string]bool) {
	for i, t := range m.ToolCalls {
		at := fmt.Sprintf("%s.tool_calls[%d]", at, i)
		if t.Type != typeFunction && t.Type != TypeCustom {
			reportType(p, at+".type", t.Type)
		}
		if t.ID == "" {
			p.AddNew(wire.CodeMissing, at+".id", "required")
		}
		if t.Function.Name == "" {
			p.AddNew(wire.CodeMissing, at+".function.name", "required")
		}
		calls[t.ID] = true
	}
	switch {
	case m.Role != RoleTool:
		if m.ToolCallID != "" {
			p.AddNew(wire.CodeInvalidValue, at+".tool_call_id",
				"only a tool message may answer a call, but the role is %s",
				m.Role)
		}
	case m.ToolCallID == "":
		p.AddNew(wire.CodeMissing, at+".tool_call_id", "required for role tool")
	case !calls[m.ToolCallID]:
		p.AddNew(wire.CodeInvalidValue, at+".tool_call_id", "no earlier message has a tool call with the id %q",
			jsonscan.Clip(m.ToolCallID))
	}
}
