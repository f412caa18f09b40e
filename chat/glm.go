package chat

import (
	"fmt"
	"strings"

	"sparrow/internal/jinja"
	"sparrow/internal/mark"
)

// GLM5 is the format of GLM-4.7, GLM-5, GLM-5.2 and GLM-5.3-Flash, for checkpoints without a template.
//
//	[gMASK]<sop> <|system|>text <|user|>text <|assistant|><think>reasoning</think>answer
//	<|observation|><tool_response>...
//
// A turn has no end marker: it ends at the next role marker. A reply ends at any of three markers. Template arguments:
// enable_thinking (or thinking); clear_thinking, which keeps the reasoning of earlier turns if false; and in 5.2
// reasoning_effort.
type GLM5 struct {
	// V52 selects the variant of GLM-5.2: an effort line if reasoning is on, an empty block if there is no reasoning,
	// and tool schemas without the enclosing {"type": "function", "function": ...}.
	V52 bool
	// Flash selects the variant of GLM-5.3-Flash, with V52: it always reasons, has the efforts low, high and max, and
	// keeps the reasoning of earlier turns unless clear_thinking is true.
	Flash bool
}

const (
	glmToolsHead = "\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
		"You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
	glmToolsTail = "</tools>\n\nFor each function call, output the function name and arguments within the " +
		"following XML format:\n" +
		glmCallOpen + "{function-name}" +
		glmKeyOpen + "{arg-key-1}" + glmKeyClose + glmValueOpen + "{arg-value-1}" + glmValueClose +
		glmKeyOpen + "{arg-key-2}" + glmKeyClose + glmValueOpen + "{arg-value-2}" + glmValueClose + "..." + glmCallClose
)

// Name returns "glm-5", "glm-5.2" or "glm-5.3-flash".
func (f GLM5) Name() string {
	if f.Flash {
		return "glm-5.3-flash"
	}
	if f.V52 {
		return "glm-5.2"
	}
	return "glm-5"
}

// Parser returns a parser for GLM's calls.
func (f GLM5) Parser(req Request) Parser {
	return newGLMParser(req, begun(f, req))
}

// Render writes the prompt.
func (f GLM5) Render(req Request) (Prompt, error) {
	turns, err := checkRequest(req, System, User, Assistant, ToolRole)
	if err != nil {
		return Prompt{}, err
	}
	known := []string{"enable_thinking", "thinking", "clear_thinking"}
	if f.V52 {
		known = append(known, "reasoning_effort")
	}
	if f.Flash {
		known = known[2:]
	}
	if err := checkKwargs(req, known...); err != nil {
		return Prompt{}, err
	}
	thinking, err := thinkingMode(req, true)
	if err != nil {
		return Prompt{}, err
	}
	if f.Flash && !thinking {
		// GLM-5.3-Flash always begins a reply with reasoning, so the lowest effort stands for no reasoning.
		thinking, req.Effort = true, "low"
	}
	clear, err := boolKwarg(req, "clear_thinking")
	if err != nil {
		return Prompt{}, err
	}
	keepFrom := lastUser(turns) + 1 // index of the first message whose reasoning is part of the prompt
	if clear != nil && !*clear || clear == nil && f.Flash {
		keepFrom = 0
	}

	p := Prompt{HasBOS: true, Stop: []string{glmEnd, glmUser, glmObservation}}
	var b mark.Builder
	b.WriteString(glmStart)
	if err := f.effort(&b, req, thinking); err != nil {
		return Prompt{}, err
	}
	if err := f.tools(&b, listed(callable(req)), req.Memo); err != nil {
		return Prompt{}, err
	}
	for i := 0; i < len(turns); i++ {
		t, final := turns[i], i == len(turns)-1
		switch t.Role {
		case System:
			b.WriteString(glmSystem)
			t.write(&b, t.Content)
		case User:
			b.WriteString(glmUser)
			t.write(&b, t.Content)
		case Assistant:
			if p.InReasoning, err = f.assistant(&b, t, i >= keepFrom, req.ContinueFinal && final,
				thinking); err != nil {
				return Prompt{}, err
			}
		case ToolRole:
			group, end, err := results(turns, i)
			if err != nil {
				return Prompt{}, err
			}
			b.WriteString(glmObservation)
			for _, r := range group {
				b.WriteString(glmResponseOpen)
				r.write(&b, r.Content)
				b.WriteString(glmResponseClose)
			}
			i = end - 1
		}
	}
	if req.AddGenerationPrompt {
		p.InReasoning = thinking
		b.WriteString(glmAssistant)
		if thinking {
			b.WriteString(thinkOpen)
		} else {
			b.WriteString(f.noReasoning())
		}
	}
	p.set(req, b.Text())
	return p, nil
}

// noReasoning returns the markers of a turn without reasoning.
func (f GLM5) noReasoning() string {
	if f.V52 {
		return thinkOpen + thinkClose
	}
	return thinkClose
}

func (f GLM5) effort(b *mark.Builder, req Request, thinking bool) error {
	if !f.V52 {
		return rejectEffort(req, "GLM-5")
	}
	word, err := effortWord(req)
	if err != nil {
		return err
	}
	line := map[string]string{"": "Max", "max": "Max", "high": "High"}[word]
	if f.Flash && word == "low" {
		line = "Low"
	}
	switch {
	case line == "" && f.Flash:
		return fmt.Errorf("%w: reasoning_effort: %q is not supported: GLM-5.3-Flash supports low, high and max",
			ErrUnsupported, word)
	case line == "":
		return fmt.Errorf("%w: reasoning_effort: %q is not supported: GLM-5.2 supports high and max", ErrUnsupported,
			word)
	case thinking:
		b.WriteString(glmSystem + "Reasoning Effort: " + line)
	}
	return nil
}

func (f GLM5) tools(b *mark.Builder, tools []Tool, memo *Memo) error {
	if len(tools) == 0 {
		return nil
	}
	b.WriteString(glmSystem + glmToolsHead)
	for _, t := range tools {
		if f.V52 {
			t.Strict = false // the template of GLM-5.2 omits the field
		}
		shown := memo.tool(&t)
		line, err := shown.line, shown.err
		if !f.V52 && err == nil {
			line, err = jinja.JSON(wrapFunction(shown.function))
		}
		if err != nil {
			return err
		}
		b.Mark(line)
		b.WriteString("\n")
	}
	b.WriteString(glmToolsTail)
	return nil
}

// assistant writes a turn. With open, the turn has no end, because the model continues it. The result reports whether
// the text ends inside reasoning.
func (f GLM5) assistant(b *mark.Builder, t turn, keep, open, thinking bool) (inReasoning bool, err error) {
	b.WriteString(glmAssistant)
	reasoning, content := t.Reasoning, t.Content
	if before, _, found := strings.Cut(content, thinkClose); found && reasoning == "" {
		reasoning = before
		if i := strings.LastIndex(before, thinkOpen); i >= 0 {
			reasoning = before[i+len(thinkOpen):]
		}
		content = content[strings.LastIndex(content, thinkClose)+len(thinkClose):]
	}
	if open && content == "" && (reasoning != "" || thinking) {
		b.WriteString(thinkOpen)
		t.write(b, reasoning)
		return true, nil
	}
	if keep && reasoning != "" {
		b.WriteString(thinkOpen)
		t.write(b, reasoning)
		b.WriteString(thinkClose)
	} else {
		b.WriteString(f.noReasoning())
	}
	if open {
		t.write(b, strings.TrimLeft(content, " \t\r\n")) // keep trailing spaces, after which the model continues
		return false, nil
	}
	t.write(b, strings.TrimSpace(content))
	for i, call := range t.ToolCalls {
		b.WriteString(glmCallOpen)
		b.Mark(call.Name)
		for key, v := range t.arguments[i].All() {
			text, isString := v.(string)
			if !isString {
				if text, err = jinja.JSON(v); err != nil {
					return false, err
				}
			}
			b.WriteString(glmKeyOpen)
			b.Mark(key)
			b.WriteString(glmKeyClose + glmValueOpen)
			b.Mark(text)
			b.WriteString(glmValueClose)
		}
		b.WriteString(glmCallClose)
	}
	return false, nil
}
