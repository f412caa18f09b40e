package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"sparrow/internal/jinja"
	"sparrow/internal/mark"
)

// turn is a checked message with its index in the request and its JSON parsed.
type turn struct {
	Message
	index     int           // index in Request.Messages; -1 for a message that the format has added
	prefill   bool          // whether the model continues this message, so that markers in it are effective
	arguments []*jinja.Dict // arguments of ToolCalls, in the same order
	merged    mark.Text     // for DeepSeek-V4: text of a user turn, joined from messages and results
}

// write adds text of the message to a prompt, marked as content unless the model continues the message.
func (t turn) write(b *mark.Builder, text string) {
	if t.prefill {
		b.WriteString(text)
		return
	}
	b.Mark(text)
}

// checkRequest validates the rules that all formats share and parses the arguments of earlier calls. roles lists the
// roles that the format has markers for.
func checkRequest(req Request, roles ...Role) ([]turn, error) {
	if len(req.Messages) == 0 {
		return nil, fieldError("messages", "is empty; send at least one message")
	}
	if err := checkTools("tools", req.Tools, req.Memo); err != nil {
		return nil, err
	}
	if err := checkChoice(req); err != nil {
		return nil, err
	}
	turns := make([]turn, len(req.Messages))
	for i, m := range req.Messages {
		if !slices.Contains(roles, m.Role) {
			return nil, fieldError(messageField(i, "role"), "%q is not a role of this model; want one of %s", m.Role,
				roleList(roles))
		}
		if err := checkFields(i, m, req.Memo); err != nil {
			return nil, err
		}
		t := turn{Message: m, index: i, prefill: req.ContinueFinal && i == len(req.Messages)-1}
		for j, call := range m.ToolCalls {
			args, err := replayedArguments(call.Arguments)
			if err != nil {
				return nil, fieldError(fmt.Sprintf("messages[%d].tool_calls[%d].arguments", i, j), "%v", err)
			}
			t.arguments = append(t.arguments, args)
		}
		turns[i] = t
	}
	return turns, checkEnd(req)
}

// checkFields rejects fields that do not belong to the role of their message.
func checkFields(i int, m Message, memo *Memo) error {
	if m.Role != Assistant && len(m.ToolCalls) > 0 {
		return fieldError(messageField(i, "tool_calls"), "only assistant messages may have tool calls; this one has "+
			"role %q",
			m.Role)
	}
	if m.Role != Assistant && m.Reasoning != "" {
		return fieldError(messageField(i, "reasoning"), "only assistant messages may have reasoning; this one has "+
			"role %q",
			m.Role)
	}
	if m.Role != ToolRole && m.ToolCallID != "" {
		return fieldError(messageField(i, "tool_call_id"), "only tool messages may have a tool_call_id; this one "+
			"has role %q",
			m.Role)
	}
	declares := len(m.Tools) > 0 || len(m.ResponseFormat) > 0
	if declares && m.Role != System && m.Role != Developer {
		return fieldError(messageField(i, "tools"),
			"only system and developer messages may have tools or a format; this one has role %q", m.Role)
	}
	for j, call := range m.ToolCalls {
		if call.Name == "" {
			return fieldError(fmt.Sprintf("messages[%d].tool_calls[%d].name", i, j), "is empty")
		}
	}
	return checkTools(messageField(i, "tools"), m.Tools, memo)
}

func checkTools(field string, tools []Tool, memo *Memo) error {
	seen := map[string]bool{}
	for i, t := range tools {
		name := fmt.Sprintf("%s[%d].name", field, i)
		switch {
		case t.Name == "":
			return fieldError(name, "is empty")
		case strings.ContainsAny(t.Name, "\"<>{} \t\r\n"):
			return fieldError(name, "%q has a quote, bracket or space, which the formats use as separators", t.Name)
		case seen[t.Name]:
			return fieldError(name, "%q is declared twice; send each tool once", t.Name)
		}
		seen[t.Name] = true
		if len(t.Parameters) == 0 {
			continue
		}
		shown := memo.tool(&t)
		if shown.err != nil {
			return fieldError(fmt.Sprintf("%s[%d].parameters", field, i), "%v", shown.err)
		}
		if shown.schema == nil {
			return fieldError(fmt.Sprintf("%s[%d].parameters", field, i), "must be a JSON object")
		}
	}
	return nil
}

func checkChoice(req Request) error {
	switch c := req.ToolChoice; c.Mode {
	case ChoiceAuto, ChoiceNone:
		return nil
	case ChoiceRequired:
		if len(req.Tools) == 0 {
			return fieldError("tool_choice", "requires a tool call, but tools is empty; send tools, or choose auto")
		}
		return nil
	case ChoiceFunction:
		if !slices.ContainsFunc(req.Tools, func(t Tool) bool { return t.Name == c.Name }) {
			return fieldError("tool_choice", "names %q, which is not in tools", c.Name)
		}
		return nil
	default:
		return fieldError("tool_choice", "mode %d is unknown; want auto, none, required or function", c.Mode)
	}
}

// checkEnd validates AddGenerationPrompt and ContinueFinal against the last message.
func checkEnd(req Request) error {
	last := len(req.Messages) - 1
	m := req.Messages[last]
	if !req.ContinueFinal {
		return nil
	}
	switch {
	case req.AddGenerationPrompt:
		return fieldError("continue_final_message", "cannot be combined with add_generation_prompt: one continues "+
			"the last message, the other starts a new one")
	case m.Role != Assistant:
		return fieldError(messageField(last, "role"), "is %q, but only an assistant message can be continued", m.Role)
	case len(m.ToolCalls) > 0:
		return fieldError(messageField(last, "tool_calls"),
			"a message with tool calls is complete and cannot be continued")
	}
	return nil
}

// replayedArguments parses the arguments of a call in a request. Incomplete arguments of a reply that reached its token
// limit are completed first.
func replayedArguments(text string) (*jinja.Dict, error) {
	args, err := parseArguments(text)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		if whole, ok := closeObject(text); ok {
			return parseArguments(whole)
		}
	}
	return args, err
}

// WholeArguments returns the text of a call's arguments as a JSON object. If a reply ended inside them, open strings,
// arrays and objects are closed; text that is not an object gives an empty one.
func WholeArguments(text string) string {
	if _, err := parseArguments(text); err == nil && strings.TrimSpace(text) != "" {
		return text
	}
	if whole, ok := closeObject(text); ok {
		if _, err := parseArguments(whole); err == nil {
			return whole
		}
	}
	return "{}"
}

// parseArguments parses the arguments of a call; empty text is an empty object.
func parseArguments(text string) (*jinja.Dict, error) {
	if strings.TrimSpace(text) == "" {
		return jinja.NewDict(), nil
	}
	v, err := jinja.ParseJSON([]byte(text))
	if err != nil {
		return nil, err
	}
	d, ok := v.(*jinja.Dict)
	if !ok {
		return nil, fmt.Errorf("%w: arguments must be an object", jinja.ErrJSON)
	}
	return d, nil
}

func roleList(roles []Role) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}

// offered returns the tools of the request that the prompt lists.
func offered(req Request) []Tool {
	if req.ToolChoice.Mode == ChoiceNone {
		return nil
	}
	return listed(req.Tools)
}

// listed returns the tools that are not deferred.
func listed(tools []Tool) []Tool {
	if !slices.ContainsFunc(tools, func(t Tool) bool { return t.Deferred }) {
		return tools
	}
	var list []Tool
	for _, t := range tools {
		if !t.Deferred {
			list = append(list, t)
		}
	}
	return list
}

// begun reports whether the reply to a request begins inside reasoning.
func begun(f Format, req Request) bool {
	if req.Begun != nil {
		return *req.Begun
	}
	p, err := f.Render(req)
	return err == nil && p.InReasoning
}

// OffersTools reports whether the model was shown any tool that it may call: of the request or of a message, unless
// calls are disabled.
func (r *Request) OffersTools() bool { return len(callable(*r)) > 0 }

// callable returns all tools that a reply may call: those of the request and those declared by messages.
func callable(req Request) []Tool {
	if req.ToolChoice.Mode == ChoiceNone {
		return nil
	}
	tools := slices.Clone(req.Tools)
	for _, m := range req.Messages {
		tools = append(tools, m.Tools...)
	}
	return tools
}

// wrapFunction returns {"type": "function", "function": function}, an element of OpenAI's tools.
func wrapFunction(function *jinja.Dict) *jinja.Dict {
	d := jinja.NewDict()
	d.Set("type", "function")
	d.Set("function", function)
	return d
}

// spaced rewrites JSON text with the separators of Python's json.dumps.
func spaced(field string, raw json.RawMessage) (string, error) {
	v, err := jinja.ParseJSON(raw)
	if err != nil {
		return "", fieldError(field, "%v", err)
	}
	return jinja.JSON(v)
}

// boolKwarg returns the value of the first template argument in names that the request sets, or nil.
func boolKwarg(req Request, names ...string) (*bool, error) {
	for _, name := range names {
		raw, ok := req.Kwargs[name]
		if !ok {
			continue
		}
		var b bool
		if err := json.Unmarshal(raw, &b); err != nil {
			return nil, fieldError("chat_template_kwargs."+name, "must be true or false, not %s", raw)
		}
		return &b, nil
	}
	return nil, nil
}

// checkKwargs rejects extra template arguments that the format does not support.
func checkKwargs(req Request, known ...string) error {
	var names []string
	for name := range req.Kwargs {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fieldError("chat_template_kwargs."+name, "is not supported by this model; want one of %s",
				strings.Join(known, ", "))
		}
	}
	return nil
}

// thinkingMode reports whether reasoning is on. The field of the request takes precedence over the template arguments
// thinking and enable_thinking; byDefault is the family's default.
func thinkingMode(req Request, byDefault bool) (bool, error) {
	if req.Thinking != nil {
		return *req.Thinking, nil
	}
	b, err := boolKwarg(req, "thinking", "enable_thinking")
	if err != nil || b == nil {
		return byDefault, err
	}
	return *b, nil
}

// effortWord returns the requested reasoning effort in lower case.
func effortWord(req Request) (string, error) {
	if req.Effort != "" {
		return strings.ToLower(req.Effort), nil
	}
	word, err := textKwarg(req, "reasoning_effort")
	return strings.ToLower(word), err
}

// textKwarg returns a template argument that is text, or "" if it is not set.
func textKwarg(req Request, name string) (string, error) {
	raw, ok := req.Kwargs[name]
	if !ok {
		return "", nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fieldError("chat_template_kwargs."+name, "must be a string, not %s", raw)
	}
	return s, nil
}

// rejectEffort returns an error if the request sets an effort, for families without effort levels.
func rejectEffort(req Request, family string) error {
	if req.Effort == "" {
		return nil
	}
	return fmt.Errorf("%w: reasoning_effort: %q is not supported: %s has no effort levels; omit it, or switch "+
		"thinking on or off",
		ErrUnsupported, req.Effort, family)
}

// results groups the tool messages with the results of one assistant message: turns[first:end]. If every result has the
// id of its call, the results are sorted in the order of the calls, because the prompt shows no ids.
func results(turns []turn, first int) (group []turn, end int, err error) {
	end = first
	for end < len(turns) && turns[end].Role == ToolRole {
		end++
	}
	group = turns[first:end]
	if first == 0 || turns[first-1].Role != Assistant || len(turns[first-1].ToolCalls) == 0 {
		return nil, 0, fieldError(messageField(turns[first].index, "role"),
			"a tool message must follow an assistant message with tool calls")
	}
	calls := turns[first-1].ToolCalls
	if len(group) > len(calls) {
		return nil, 0, fieldError(messageField(group[len(calls)].index, ""),
			"has one tool result more than the %d tool calls of the assistant message before it", len(calls))
	}
	place := map[string]int{}
	for i, c := range calls {
		place[c.ID] = i
	}
	ordered := make([]turn, 0, len(group))
	seen := map[string]bool{}
	for _, t := range group {
		if t.ToolCallID == "" {
			return group, end, nil
		}
		if _, ok := place[t.ToolCallID]; !ok {
			return nil, 0, fieldError(messageField(t.index, "tool_call_id"),
				"%q is not the id of a call of the assistant message before it", t.ToolCallID)
		}
		if seen[t.ToolCallID] {
			return nil, 0, fieldError(messageField(t.index, "tool_call_id"), "%q already has a result in an earlier "+
				"tool message", t.ToolCallID)
		}
		seen[t.ToolCallID] = true
		ordered = append(ordered, t)
	}
	sort.SliceStable(ordered, func(i, j int) bool {
		return place[ordered[i].ToolCallID] < place[ordered[j].ToolCallID]
	})
	return ordered, end, nil
}
