package chat

import (
	"strings"

	"sparrow/internal/jinja"
	"sparrow/internal/mark"
)

// DeepSeekV31 is the format of DeepSeek-V3.1 and V3.2-Exp.
//
//	BOS system User text Assistant </think> answer EOS User text Assistant <think>
//
// Calls are enclosed in their own marker tokens, with JSON arguments. Results follow the calls directly, and the model
// continues without a marker. The template of these checkpoints does not support tools, so they are described after the
// system text as in the model card.
//
// Template argument: thinking (or enable_thinking).
type DeepSeekV31 struct{}

const (
	v31ToolsHead = "## Tools\nYou have access to the following tools:\n"
	v31ToolsTail = "\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n" +
		callsBegin + callBegin + "tool_call_name" + callSep + "tool_call_arguments" + callEnd +
		"{{additional_tool_calls}}" + callsEnd +
		"\n\nWhere:\n\n- `tool_call_name` must be an exact match to one of the available tools\n" +
		"- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n" +
		"- For multiple tool calls, chain them directly without separators or spaces\n"
)

// Name is "deepseek-v3.1".
func (DeepSeekV31) Name() string { return "deepseek-v3.1" }

// Parser returns a parser for calls between marker tokens.
func (f DeepSeekV31) Parser(req Request) Parser {
	return newV31Parser(req, begun(f, req))
}

// Render writes the prompt.
func (f DeepSeekV31) Render(req Request) (Prompt, error) {
	turns, err := checkRequest(req, System, User, Assistant, ToolRole)
	if err != nil {
		return Prompt{}, err
	}
	if err := checkKwargs(req, "thinking", "enable_thinking"); err != nil {
		return Prompt{}, err
	}
	if err := rejectEffort(req, "DeepSeek-V3.1"); err != nil {
		return Prompt{}, err
	}
	thinking, err := thinkingMode(req, false)
	if err != nil {
		return Prompt{}, err
	}
	p := Prompt{HasBOS: true, Stop: []string{deepseekEOS}}
	var b mark.Builder
	b.WriteString(deepseekBOS)
	if err := v31System(&b, turns, offered(req)); err != nil {
		return Prompt{}, err
	}
	for i := 0; i < len(turns); i++ {
		t, final := turns[i], i == len(turns)-1
		switch t.Role {
		case User:
			b.WriteString(deepseekUser)
			t.write(&b, t.Content)
		case Assistant:
			v31Assistant(&b, t, v31Answers(turns, i), req.ContinueFinal && final)
		case ToolRole:
			group, end, err := results(turns, i)
			if err != nil {
				return Prompt{}, err
			}
			for _, r := range group {
				b.WriteString(outputBegin)
				r.write(&b, r.Content)
				b.WriteString(outputEnd)
			}
			i = end - 1
		}
	}
	if req.AddGenerationPrompt {
		switch last := turns[len(turns)-1]; last.Role {
		case User:
			p.InReasoning = thinking
			b.WriteString(deepseekAssistant)
			if thinking {
				b.WriteString(thinkOpen)
			} else {
				b.WriteString(thinkClose)
			}
		case System, Assistant:
			return Prompt{}, fieldError(messageField(last.index, "role"),
				"is %q: a reply can only follow a user or tool message; to continue an assistant message, set "+
					"continue_final_message",
				last.Role)
		}
	}
	p.set(req, b.Text())
	return p, nil
}

// v31System writes the text of all system messages of the conversation, then the tools.
func v31System(b *mark.Builder, turns []turn, tools []Tool) error {
	var texts []string
	for _, t := range turns {
		if t.Role == System {
			texts = append(texts, t.Content)
			tools = append(tools[:len(tools):len(tools)], t.Tools...)
		}
	}
	b.Mark(strings.Join(texts, "\n\n"))
	if len(tools) == 0 {
		return nil
	}
	b.WriteString("\n\n" + v31ToolsHead)
	for _, t := range tools {
		schema := "{}"
		if len(t.Parameters) > 0 {
			var err error
			if schema, err = spaced("tools."+t.Name+".parameters", t.Parameters); err != nil {
				return err
			}
		}
		b.Mark("\n### " + t.Name + "\nDescription: " + t.Description + "\n\nParameters: " + schema + "\n")
	}
	b.WriteString(v31ToolsTail)
	return nil
}

// v31Answers reports whether the message at i is the first after a user message, not counting system messages. Only
// such a message gets the assistant marker.
func v31Answers(turns []turn, i int) bool {
	for i--; i >= 0 && turns[i].Role == System; i-- {
	}
	return i >= 0 && turns[i].Role == User
}

func v31Assistant(b *mark.Builder, t turn, answers, open bool) {
	if answers {
		b.WriteString(deepseekAssistant + thinkClose)
	}
	content := t.Content
	if _, visible, found := strings.Cut(content, thinkClose); found && len(t.ToolCalls) == 0 {
		content = visible // the prompt omits reasoning inside the text of an earlier answer
	}
	t.write(b, content)
	if len(t.ToolCalls) > 0 {
		b.WriteString(callsBegin)
		for i, call := range t.ToolCalls {
			json, err := jinja.JSON(t.arguments[i])
			if err != nil {
				json = call.Arguments
			}
			b.WriteString(callBegin)
			b.Mark(call.Name)
			b.WriteString(callSep)
			b.Mark(json)
			b.WriteString(callEnd)
		}
		b.WriteString(callsEnd)
	}
	if !open {
		b.WriteString(deepseekEOS)
	}
}
