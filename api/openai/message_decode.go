package openai

import (
	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

func readMessages(c *wire.Reader) []Message {
	var old oldCalls
	return wire.ReadList(c, MaxMessages, "messages", func() (Message, bool) {
		var m messageReader
		wire.ReadObject(c, &m, messageFields)
		m.settle(c)
		old.settle(&m)
		return m.Message, true
	})
}

// messageReader is a message that is being read: reasoning may be given as reasoning_content or reasoning; two values
// must be equal.
type messageReader struct {
	Message
	reasoning string
	call      *FunctionCall // function_call, the older field for a call
}

var messageFields = wire.Fields[messageReader]{
	"role":              wire.TextField(func(m *messageReader) *string { return &m.Role }),
	"name":              wire.TextField(func(m *messageReader) *string { return &m.Name }),
	"content":           {Read: func(c *wire.Reader, m *messageReader) { m.Content = readContent(c) }},
	"reasoning_content": wire.TextField(func(m *messageReader) *string { return &m.ReasoningContent }),
	"reasoning":         wire.TextField(func(m *messageReader) *string { return &m.reasoning }),
	"tool_call_id":      wire.TextField(func(m *messageReader) *string { return &m.ToolCallID }),
	"tool_calls": {Read: func(c *wire.Reader, m *messageReader) {
		m.ToolCalls = wire.ReadList(c, MaxToolCalls, "tool calls", wire.ReadStruct(c, toolCallFields))
	}},

	// Ignored fields. ignoredInside lists each with the reason.
	"annotations": wire.IgnoreAs[messageReader](jsonscan.Array),
	"parsed":      wire.IgnoreAny[messageReader](),
	"refusal":     wire.Refuse[messageReader]("send the text as content"),
	"audio":       wire.Refuse[messageReader]("the model reads and generates only text; omit it"),
	"function_call": {Read: func(c *wire.Reader, m *messageReader) {
		m.call = &FunctionCall{}
		wire.ReadObject(c, m.call, functionCallFields)
	}},
}

func (m *messageReader) settle(c *wire.Reader) {
	switch {
	case m.reasoning == "" || m.reasoning == m.ReasoningContent:
	case m.ReasoningContent == "":
		m.ReasoningContent = m.reasoning
	default:
		c.Problem(wire.CodeInvalidValue,
			"reasoning and reasoning_content are two names of one field but have different values; send one")
	}
}

// readContent reads a string or an array of text parts.
func readContent(c *wire.Reader) Content {
	switch c.Shape() {
	case jsonscan.String:
		return Content{c.Text()}
	case jsonscan.Array:
		return wire.ReadList(c, MaxParts, "content parts", func() (string, bool) { return readPart(c) })
	}
	c.WrongShape("a string or an array of text parts")
	return nil
}

// partReader is a content part that is being read; text is nil until the field was read.
type partReader struct {
	kind string
	text *string
}

// partFields also contains the members of refused parts, such as images, so that the error names the type of the part.
var partFields = wire.Fields[partReader]{
	"type": wire.TextField(func(p *partReader) *string { return &p.kind }),
	"text": {Read: func(c *wire.Reader, p *partReader) { wire.SetPointer(&p.text, c.Str) }},

	"prompt_cache_breakpoint": wire.IgnoreAs[partReader](jsonscan.Object),
	"cache_control":           wire.IgnoreAs[partReader](jsonscan.Object),

	"image_url":   otherPart,
	"input_audio": otherPart,
	"audio_url":   otherPart,
	"video_url":   otherPart,
	"file":        otherPart,
	"refusal":     otherPart,
}

// otherPart skips a member that belongs to a part of a refused type.
var otherPart = wire.Field[partReader]{Refused: true, Read: func(c *wire.Reader, p *partReader) {
	if p.kind == "text" {
		c.Problem(wire.CodeInvalidValue, "a part of type text has no such member")
	}
	c.Skip()
}}

func readPart(c *wire.Reader) (string, bool) {
	var part partReader
	if !c.Clean(func() { wire.ReadObject(c, &part, partFields) }) {
		return "", false
	}
	at := c.Param()
	switch {
	case part.kind == "":
		c.Add(wire.CodeMissing, at+".type", `required; only "text" is supported`)
	case part.kind != "text":
		c.Add(wire.CodeUnsupportedValue, at+".type",
			`%q is not supported; the models read text, so send parts of type "text"`, jsonscan.Clip(part.kind))
	case part.text == nil:
		c.Add(wire.CodeMissing, at+".text", "required")
	default:
		return *part.text, true
	}
	return "", false
}

var toolCallFields = wire.Fields[ToolCall]{
	"id":   wire.TextField(func(t *ToolCall) *string { return &t.ID }),
	"type": wire.TextField(func(t *ToolCall) *string { return &t.Type }),
	"function": {Read: func(c *wire.Reader, t *ToolCall) {
		wire.ReadObject(c, &t.Function, functionCallFields)
	}},
	"custom": {Read: func(c *wire.Reader, t *ToolCall) { wire.ReadObject(c, &t.Function, customCallFields) }},
	"index":  wire.IgnoreAs[ToolCall](jsonscan.Number),
}

// customCallFields holds the fields of a call of a custom tool, which becomes a function call.
var customCallFields = wire.Fields[FunctionCall]{
	"name": wire.TextField(func(f *FunctionCall) *string { return &f.Name }),
	"input": {Read: func(c *wire.Reader, f *FunctionCall) {
		if input, ok := c.Str(); ok {
			f.Arguments = CustomArguments(input)
		}
	}},
}

var functionCallFields = wire.Fields[FunctionCall]{
	"name":             wire.TextField(func(f *FunctionCall) *string { return &f.Name }),
	"arguments":        wire.TextField(func(f *FunctionCall) *string { return &f.Arguments }),
	"parsed_arguments": wire.IgnoreAny[FunctionCall](),
}

// readToolChoice reads a mode or an object that names a function.
func readToolChoice(c *wire.Reader) *ToolChoice {
	switch c.Shape() {
	case jsonscan.String:
		return &ToolChoice{Mode: c.Text()}
	case jsonscan.Object:
		var named namedChoice
		wire.ReadObject(c, &named, namedChoiceFields)
		switch {
		case Hosted(named.kind):
			refuseHosted(c, named.kind)
			return nil
		case named.kind == typeAllowed:
			refuseAllowed(c)
			return nil
		case named.kind != typeFunction && named.kind != TypeCustom:
			c.Problem(wire.CodeUnsupportedValue,
				`an object must be {"type": "function", "function": {"name": ...}}, but its type is %q`,
				jsonscan.Clip(named.kind))
			return nil
		}
		return &ToolChoice{Mode: ChoiceFunction, Name: named.name}
	}
	c.WrongShape("none, auto, required or an object that names a function")
	return nil
}

// refuseHosted refuses a tool choice that requires a hosted tool, since hosted tools are not offered.
func refuseHosted(c *wire.Reader, kind string) {
	c.Problem(wire.CodeUnsupportedValue,
		"%s is required, but it is a hosted tool, which this server cannot run; choose auto, or a tool of type "+
			"function or custom", kind)
}

// typeAllowed is the type of a choice among several tools.
const typeAllowed = "allowed_tools"

// refuseAllowed refuses a choice among several tools.
func refuseAllowed(c *wire.Reader) {
	c.Problem(wire.CodeUnsupportedValue, "a choice of the type %s is not supported; send only the tools that are "+
		"allowed, with the tool_choice auto or required", typeAllowed)
}

type namedChoice struct{ kind, name, namespace string }

var namedChoiceFields = wire.Fields[namedChoice]{
	"type":          wire.TextField(func(n *namedChoice) *string { return &n.kind }),
	"function":      {Read: func(c *wire.Reader, n *namedChoice) { wire.ReadObject(c, n, choiceNameFields) }},
	"allowed_tools": {Read: func(c *wire.Reader, _ *namedChoice) { c.Skip() }}, // member of a refused type
	"custom":        {Read: func(c *wire.Reader, n *namedChoice) { wire.ReadObject(c, n, choiceNameFields) }},
}

var choiceNameFields = wire.Fields[namedChoice]{
	"name": wire.TextField(func(n *namedChoice) *string { return &n.name }),
}
