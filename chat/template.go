package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sparrow/internal/jinja"
	"sparrow/internal/mark"
)

// Template is the format of a checkpoint that carries a Jinja chat template.
//
// The template receives the same variables as in Hugging Face's library: messages, tools (none when there are none),
// add_generation_prompt, the special tokens by name, and the request's extra arguments. The thinking setting is passed
// as both thinking and enable_thinking, effort as reasoning_effort. Arguments of earlier calls are mappings, or JSON
// text for templates that concatenate them with other text.
type Template struct {
	tmpl     *jinja.Template
	now      func() time.Time
	bos      string
	stop     []string
	special  map[string]string // texts of special tokens by template name, such as bos_token
	reads    map[string]bool   // names that the template mentions
	textArgs bool              // whether the template needs arguments as text
	parser   func(Request, bool) Parser
	calls    CallSyntax // syntax of calls, from the markers in the template
}

// TemplateConfig holds the inputs of a Template.
type TemplateConfig struct {
	Source string // Jinja source
	BOS    string // text of the beginning-of-sequence token; may be empty
	EOS    string // text of the end-of-sequence token
	// Stop lists further texts that end a reply.
	Stop []string
	// Special holds further special tokens by their template name, such as "pad_token".
	Special map[string]string
	// Tokens are texts of the tokenizer's added tokens. If the template contains no markers of calls, these select the
	// parser.
	Tokens []string
	// Now is the clock for templates that print the date; nil makes such templates fail.
	Now func() time.Time
	// Limits limits the execution of the template; zero fields take defaults.
	Limits jinja.Limits
}

// NewTemplate compiles a chat template and detects its features.
func NewTemplate(c TemplateConfig) (*Template, error) {
	tmpl, err := jinja.Compile(c.Source, c.Limits)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	t := &Template{tmpl: tmpl, now: c.Now, bos: c.BOS, special: map[string]string{}}
	maps.Copy(t.special, c.Special)
	t.special["bos_token"], t.special["eos_token"] = c.BOS, c.EOS
	if c.EOS != "" {
		t.stop = append(t.stop, c.EOS)
	}
	t.stop = append(t.stop, c.Stop...)
	t.reads = tmpl.Names()
	t.parser, t.calls = chooseParser(c.Source, c.Tokens)
	t.textArgs = t.needsTextArguments()
	return t, nil
}

// Try renders one plain message, and returns an error if the template fails. Such a template would fail on every chat.
// Callers run Try when they open a model.
func (t *Template) Try() error {
	plain := Request{Messages: []Message{{Role: User, Content: "hello"}}, AddGenerationPrompt: true}
	if _, err := t.Render(plain); err != nil {
		return fmt.Errorf("rendering a chat of one message: %w", err)
	}
	return nil
}

// chooseParser looks for the markers of the supported call syntaxes, first in the template, then among the tokens.
func chooseParser(source string, tokens []string) (func(Request, bool) Parser, CallSyntax) {
	for _, text := range []string{source, strings.Join(tokens, "\n")} {
		switch {
		case strings.Contains(text, dsml+"tool_calls"):
			return func(r Request, open bool) Parser { return newDSMLParser(v4, r, open) },
				dsmlCalls(v4)
		case strings.Contains(text, dsml+"function_calls"):
			return func(r Request, open bool) Parser { return newDSMLParser(v32, r, open) },
				dsmlCalls(v32)
		case strings.Contains(text, kimiCallBegin) && strings.Contains(text, kimiArguments):
			return newKimiParser, kimiCalls
		case strings.Contains(text, callBegin) && strings.Contains(text, callSep) && strings.Contains(text, "```json"):
			return newV3Parser, v3Calls
		case strings.Contains(text, callBegin) && strings.Contains(text, callSep):
			return newV31Parser, v31Calls
		case strings.Contains(text, glmKeyOpen) && strings.Contains(text, glmCallOpen):
			return newGLMParser, glmCalls
		}
	}
	return newPlainParser, CallSyntax{}
}

// newPlainParser returns a parser for replies that have only reasoning and content.
func newPlainParser(req Request, inReasoning bool) Parser {
	s := newStream(req)
	s.tools = false
	s.begin(inReasoning, nil)
	return s
}

// needsTextArguments reports whether the template fails for a call with arguments as a mapping but not as text.
func (t *Template) needsTextArguments() bool {
	probe := Request{Messages: []Message{
		{Role: User, Content: "u"},
		{Role: Assistant, Content: "a", ToolCalls: []Call{{ID: "call00000", Name: "f", Arguments: `{"k": "v"}`}}},
		{Role: ToolRole, Content: "r", ToolCallID: "call00000", Name: "f"},
	}}
	turns, err := checkRequest(probe, User, Assistant, ToolRole)
	if err != nil {
		return false
	}
	if _, err := t.run(probe, turns); err == nil {
		return false
	}
	t.textArgs = true
	_, err = t.run(probe, turns)
	return err == nil
}

// Name is "template".
func (t *Template) Name() string { return "template" }

// Parser returns a parser for reasoning, and for calls if the markers of the template are known.
func (t *Template) Parser(req Request) Parser {
	return t.parser(req, begun(t, req))
}

// Render executes the template and returns the prompt.
func (t *Template) Render(req Request) (Prompt, error) {
	turns, err := checkRequest(req, System, Developer, User, Assistant, ToolRole)
	if err != nil {
		return Prompt{}, err
	}
	for _, turn := range turns {
		if len(turn.Tools) > 0 || len(turn.ResponseFormat) > 0 {
			return Prompt{}, fmt.Errorf("%w: %s: chat templates support only the tools of the request",
				ErrUnsupported, messageField(turn.index, "tools"))
		}
	}
	if err := t.checkReads(req); err != nil {
		return Prompt{}, err
	}
	text, err := t.run(req, turns)
	if err != nil {
		if errors.Is(err, jinja.ErrRaised) {
			return Prompt{}, fmt.Errorf("%w: refused by the checkpoint's chat template: %w", ErrRequest, err)
		}
		return Prompt{}, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	if req.ControlTokens {
		text = mark.Plain(text.String())
	}
	if req.ContinueFinal {
		if text, err = cutAfter(text, turns[len(turns)-1]); err != nil {
			return Prompt{}, err
		}
	}
	p := Prompt{Stop: t.stop}
	p.set(req, text)
	p.HasBOS = t.bos != "" && strings.HasPrefix(p.Text, t.bos) && len(text.Cut(0, len(t.bos)).Spans()) == 0
	open, shut := lastMarker(text, thinkOpen), lastMarker(text, thinkClose)
	p.InReasoning = open > shut && (req.ContinueFinal || strings.TrimSpace(p.Text[open+len(thinkOpen):]) == "")
	return p, nil
}

// lastMarker returns the offset of the last occurrence of a marker, or -1 if there is none. A marker inside content is
// skipped.
func lastMarker(t mark.Text, marker string) int {
	s := t.String()
	for end := len(s); ; {
		at := strings.LastIndex(s[:end], marker)
		if at < 0 || len(t.Cut(at, at+len(marker)).Spans()) == 0 {
			return at
		}
		end = at + len(marker) - 1
	}
}

// checkReads refuses arguments that the template does not mention, because they would have no effect. The thinking
// setting is always accepted.
func (t *Template) checkReads(req Request) error {
	if len(offered(req)) > 0 && !t.reads["tools"] {
		return fmt.Errorf(
			"%w: tools: the checkpoint's chat template does not mention them; send the request without tools",
			ErrUnsupported)
	}
	if !t.reads["reasoning_effort"] {
		if err := rejectEffort(req, "this checkpoint's chat template"); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(req.Kwargs)) {
		if !t.reads[name] && name != "thinking" && name != "enable_thinking" {
			return fieldError("chat_template_kwargs."+name,
				"is not used by this checkpoint's chat template; omit it")
		}
	}
	return nil
}

func (t *Template) run(req Request, turns []turn) (mark.Text, error) {
	vars, err := t.variables(req, turns)
	if err != nil {
		return mark.Text{}, err
	}
	return t.tmpl.Render(jinja.Options{Vars: vars, Now: t.now, Input: requestBytes(req)})
}

// requestBytes returns the size of the parts of a request that a template reads.
func requestBytes(req Request) int {
	n := len(req.ResponseFormat)
	for _, m := range req.Messages {
		n += len(m.Content) + len(m.Reasoning) + len(m.Name) + len(m.ToolCallID)
		for _, c := range m.ToolCalls {
			n += len(c.ID) + len(c.Name) + len(c.Arguments)
		}
	}
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	for name, v := range req.Kwargs {
		n += len(name) + len(v)
	}
	return n
}

func (t *Template) variables(req Request, turns []turn) (map[string]jinja.Value, error) {
	vars := map[string]jinja.Value{"tools": nil, "documents": nil, "add_generation_prompt": req.AddGenerationPrompt}
	for name, text := range t.special {
		vars[name] = text
	}
	for name, raw := range req.Kwargs {
		v, err := jinja.ParseJSON(raw)
		if err != nil {
			return nil, fieldError("chat_template_kwargs."+name, "%v", err)
		}
		vars[name] = jinja.Mark(v)
	}
	if req.Thinking != nil {
		vars["thinking"], vars["enable_thinking"] = *req.Thinking, *req.Thinking
	}
	if req.Effort != "" {
		vars["reasoning_effort"] = jinja.Mark(req.Effort)
	}
	messages := jinja.NewList()
	for _, turn := range turns {
		messages.Items = append(messages.Items, t.message(turn))
	}
	vars["messages"] = messages
	if tools := offered(req); len(tools) > 0 {
		list := jinja.NewList()
		for _, tool := range tools {
			if len(tool.Parameters) == 0 {
				tool.Parameters = json.RawMessage(`{"type": "object", "properties": {}}`)
			}
			d := req.Memo.tool(&tool).function
			if tool.Description == "" {
				d = readTool(&tool).function // a copy, which may be modified
				d.Set("description", "")     // templates concatenate the description with other text
			}
			list.Items = append(list.Items, jinja.Mark(wrapFunction(d)))
		}
		vars["tools"] = list
	}
	return vars, nil
}

// message returns a turn in the form that templates expect.
func (t *Template) message(turn turn) *jinja.Dict {
	d := jinja.NewDict()
	d.Set("role", string(turn.Role))
	set := func(name, text string) {
		if turn.prefill {
			d.Set(name, text)
			return
		}
		d.Set(name, jinja.Mark(text))
	}
	set("content", turn.Content)
	if turn.Reasoning != "" {
		set("reasoning_content", turn.Reasoning)
	}
	if turn.Name != "" {
		set("name", turn.Name)
	}
	if turn.ToolCallID != "" {
		set("tool_call_id", turn.ToolCallID)
	}
	if len(turn.ToolCalls) == 0 {
		return d
	}
	calls := jinja.NewList()
	for i, call := range turn.ToolCalls {
		function := jinja.NewDict()
		function.Set("name", jinja.Mark(call.Name))
		function.Set("arguments", jinja.Mark(turn.arguments[i]))
		if t.textArgs {
			if text, err := jinja.JSON(turn.arguments[i]); err == nil {
				function.Set("arguments", jinja.Mark(text))
			}
		}
		c := jinja.NewDict()
		c.Set("id", jinja.Mark(call.ID))
		c.Set("type", "function")
		c.Set("function", function)
		calls.Items = append(calls.Items, c)
	}
	d.Set("tool_calls", calls)
	return d
}

// cutAfter cuts a rendered conversation directly after the text of its last message, so that the model continues the
// message.
func cutAfter(rendered mark.Text, last turn) (mark.Text, error) {
	text := rendered.String()
	trimmed := strings.TrimSpace(last.Content)
	if trimmed == "" {
		return mark.Text{}, fieldError(messageField(last.index, "content"),
			"is empty: a template can only continue a message that has text")
	}
	at := strings.LastIndex(text, trimmed)
	if at < 0 {
		return mark.Text{}, fmt.Errorf(
			"%w: %s: the chat template changes the text of the message, so it cannot be continued",
			ErrUnsupported, messageField(last.index, "content"))
	}
	// Keep the spaces at the end of the message if the template kept them.
	if full := strings.TrimLeft(last.Content, " \t\r\n"); strings.HasPrefix(text[at:], full) {
		return rendered.Cut(0, at+len(full)), nil
	}
	return rendered.Cut(0, at+len(trimmed)), nil
}
