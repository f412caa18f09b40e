package anthropic

import (
	"fmt"
	"slices"
	"strings"

	"sparrow/api/openai"
	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

func (r *Request) check(p *wire.Problems) {
	if r.Model == "" {
		p.AddNew(wire.CodeMissing, "model", "required; GET /v1/models lists the names")
	}
	wire.WantRange(p, "max_tokens", r.MaxTokens, 0, openai.MaxTokens)
	wire.WantRange(p, "temperature", r.Temperature, 0, openai.MaxTemperature)
	if r.TopP != nil && !(*r.TopP > 0 && *r.TopP <= 1) {
		p.AddNew(wire.CodeOutOfRange, "top_p", "%v is not in (0, 1]; 1 turns it off", *r.TopP)
	}
	wire.WantRange(p, "top_k", r.TopK, 0, openai.MaxTopK)
	for i, s := range r.Stop {
		at := fmt.Sprintf("stop_sequences[%d]", i)
		if strings.TrimSpace(s) == "" {
			p.AddNew(wire.CodeInvalidValue, at, "contains only white space; send a stop sequence with at least one "+
				"other character")
		}
		wire.WantShort(p, at, s, openai.MaxStopBytes)
	}
	kinds := []string{ThinkingEnabled, ThinkingDisabled, ThinkingAdaptive, ThinkingBetween}
	if t := r.Thinking; t != "" && !slices.Contains(kinds, t) {
		p.AddNew(wire.CodeInvalidValue, "thinking.type", "%q is not one of %s", jsonscan.Clip(t),
			strings.Join(kinds, ", "))
	}
	openai.CheckEffort(p, "output_config.effort", r.Effort)
	wire.WantRange(p, "thinking.budget_tokens", r.Budget, 1, openai.MaxTokens)
	r.checkTools(p)
	r.checkMessages(p)
}

func (r *Request) checkTools(p *wire.Problems) {
	var names wire.NameSet
	for i := range r.Tools {
		t := &r.Tools[i]
		at := fmt.Sprintf("tools[%d]", i)
		if t.hosted() {
			continue
		}
		if t.Type != "" && t.Type != "custom" {
			p.AddNew(wire.CodeUnsupportedValue, at+".type",
				`tools of type %q are not supported: their schema is built into other models; send a tool with an input_schema`,
				jsonscan.Clip(t.Type))
			continue
		}
		switch {
		case t.Name == "":
			p.AddNew(wire.CodeMissing, at+".name", "required")
		case len(t.Name) > MaxNameBytes:
			wire.WantShort(p, at+".name", t.Name, MaxNameBytes)
		case !wire.PlainLetters(t.Name):
			p.AddNew(wire.CodeInvalidValue, at+".name", "%q may contain only letters, digits, '_' and '-'",
				jsonscan.Clip(t.Name))
		case !names.Add(t.Name):
			p.AddNew(wire.CodeInvalidValue, at+".name", "%q is also the name of an earlier tool; send different "+
				"names", jsonscan.Clip(t.Name))
		}
		if t.Schema == nil {
			p.AddNew(wire.CodeMissing, at+".input_schema", "required")
		}
	}
	if r.ToolChoice == nil {
		return
	}
	switch c := r.ToolChoice; c.Type {
	case ChoiceAuto, ChoiceNone:
	case ChoiceAny:
		switch left := r.LeftOut(); {
		case len(r.Tools) == 0:
			p.AddNew(wire.CodeInvalidValue, "tool_choice", "any is not possible without tools; send at least one "+
				"tool in tools, or choose auto")
		case !slices.ContainsFunc(r.Tools, func(t Tool) bool { return !t.hosted() }):
			refuseHosted(p, "tool_choice", strings.Join(left, ", "))
		}
	case ChoiceTool:
		switch i := slices.IndexFunc(r.Tools, func(t Tool) bool { return t.Name == c.Name }); {
		case i < 0:
			p.AddNew(wire.CodeInvalidValue, "tool_choice.name", "%q is not the name of a tool in "+
				"tools", jsonscan.Clip(c.Name))
		case r.Tools[i].hosted():
			refuseHosted(p, "tool_choice.name", r.Tools[i].Type)
		}
	case "":
		p.AddNew(wire.CodeMissing, "tool_choice.type", "required: %s, %s, %s or %s", ChoiceAuto, ChoiceAny, ChoiceTool,
			ChoiceNone)
	default:
		p.AddNew(wire.CodeInvalidValue, "tool_choice.type", "%q is not %s, %s, %s or %s", jsonscan.Clip(c.Type),
			ChoiceAuto, ChoiceAny, ChoiceTool, ChoiceNone)
	}
}

// refuseHosted refuses a tool choice that requires a hosted tool, since hosted tools are not offered.
func refuseHosted(p *wire.Problems, param, kinds string) {
	p.AddNew(wire.CodeUnsupportedValue, param, "%s is required, but it is a hosted tool, which this server cannot "+
		"run; choose auto, or a tool with an input_schema", kinds)
}

func (r *Request) checkMessages(p *wire.Problems) {
	if len(r.Messages) == 0 {
		p.AddNew(wire.CodeMissing, "messages", "required; send at least one message")
		return
	}
	calls := map[string]bool{}
	for i := range r.Messages {
		r.Messages[i].check(p, fmt.Sprintf("messages[%d]", i), calls)
	}
}

// check validates one message at path at; calls are the ids of the calls in earlier messages.
func (m *Message) check(p *wire.Problems, at string, calls map[string]bool) {
	allowed := []string{BlockText}
	switch m.Role {
	case RoleSystem:
	case RoleUser:
		allowed = append(allowed, BlockResult)
	case RoleAssistant:
		allowed = append(allowed, BlockThinking, BlockRedacted, BlockToolUse)
	case "":
		p.AddNew(wire.CodeMissing, at+".role", "required: %s or %s", RoleUser, RoleAssistant)
		return
	default:
		p.AddNew(wire.CodeInvalidValue, at+".role", "%q is not %s or %s; instructions belong in system",
			jsonscan.Clip(m.Role), RoleUser, RoleAssistant)
		return
	}
	if m.Content == nil {
		p.AddNew(wire.CodeMissing, at+".content", "required; send a string or an array of blocks")
	}
	texts := false
	for i := range m.Content {
		b := &m.Content[i]
		at := fmt.Sprintf("%s.content[%d]", at, i)
		switch {
		case !slices.Contains(allowed, b.Type):
			p.AddNew(wire.CodeInvalidValue, at+".type", "a message of role %s cannot have a block of type %s", m.Role,
				b.Type)
		case b.Type == BlockToolUse:
			calls[b.ID] = true
		case b.Type == BlockResult && !calls[b.ToolUseID]:
			p.AddNew(wire.CodeInvalidValue, at+".tool_use_id", "no earlier message has a tool_use block with the id %q",
				jsonscan.Clip(b.ToolUseID))
		case b.Type == BlockResult && texts:
			p.AddNew(wire.CodeInvalidValue, at, "tool results must come first in a message, before its text")
		}
		texts = texts || b.Type == BlockText
	}
}
