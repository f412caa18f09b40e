package openai

import "sparrow/internal/jsonscan"

func readMessages(c *cursor) []Message {
	return readList(c, MaxMessages, "messages", func() (Message, bool) {
		var m messageReader
		readObject(c, &m, messageFields)
		m.settle(c)
		return m.Message, true
	})
}

// messageReader is a message in the making: reasoning may come under two names, of which one wins only if they agree.
type messageReader struct {
	Message
	reasoning string
}

var messageFields = fields[messageReader]{
	"role":              textField(func(m *messageReader) *string { return &m.Role }),
	"name":              textField(func(m *messageReader) *string { return &m.Name }),
	"content":           {read: func(c *cursor, m *messageReader) { m.Content = readContent(c) }},
	"reasoning_content": textField(func(m *messageReader) *string { return &m.ReasoningContent }),
	"reasoning":         textField(func(m *messageReader) *string { return &m.reasoning }),
	"tool_call_id":      textField(func(m *messageReader) *string { return &m.ToolCallID }),
	"tool_calls": {read: func(c *cursor, m *messageReader) {
		m.ToolCalls = readList(c, MaxToolCalls, "tool calls", readStruct(c, toolCallFields))
	}},

	// What is ignored, here and below, is listed with reasons in ignoredInside.
	"annotations":   ignoreAs[messageReader](shapeArray),
	"parsed":        ignoreAny[messageReader](),
	"refusal":       refuse[messageReader]("send the text as content"),
	"audio":         refuse[messageReader]("messages are text"),
	"function_call": refuse[messageReader]("it is the older form of tool_calls; send tool_calls"),
}

func (m *messageReader) settle(c *cursor) {
	switch {
	case m.reasoning == "" || m.reasoning == m.ReasoningContent:
	case m.ReasoningContent == "":
		m.ReasoningContent = m.reasoning
	default:
		c.problem(CodeInvalidValue, "reasoning and reasoning_content are two names of one field and differ; send one")
	}
}

// readContent takes a string or an array of text parts.
func readContent(c *cursor) Content {
	switch c.shape() {
	case shapeString:
		return Content{c.text()}
	case shapeArray:
		return readList(c, MaxParts, "content parts", func() (string, bool) { return readPart(c) })
	}
	c.wrongShape("a string or an array of text parts")
	return nil
}

// partReader is a content part in the making; text is nil until it was there.
type partReader struct {
	kind string
	text *string
}

// partFields also holds the members of other kinds of parts, so that the error for an image names images.
var partFields = fields[partReader]{
	"type": textField(func(p *partReader) *string { return &p.kind }),
	"text": {read: func(c *cursor, p *partReader) { setPointer(&p.text, c.str) }},

	"prompt_cache_breakpoint": ignoreAs[partReader](shapeObject),
	"cache_control":           ignoreAs[partReader](shapeObject),

	"image_url":   otherPart,
	"input_audio": otherPart,
	"audio_url":   otherPart,
	"video_url":   otherPart,
	"file":        otherPart,
	"refusal":     otherPart,
}

// otherPart skips a member that only makes sense in a part whose type is refused.
var otherPart = field[partReader]{refused: true, read: func(c *cursor, p *partReader) {
	if p.kind == "text" {
		c.problem(CodeInvalidValue, "a part of type text has no such member")
	}
	c.skip()
}}

func readPart(c *cursor) (string, bool) {
	var part partReader
	before := len(c.list)
	readObject(c, &part, partFields)
	if len(c.list) > before || c.malformed != nil {
		return "", false
	}
	at := c.param()
	switch {
	case part.kind == "":
		c.add(CodeMissing, at+".type", `required; only "text" is supported`)
	case part.kind != "text":
		c.add(CodeUnsupportedValue, at+".type",
			`%q is not supported; the models read text, so send parts of type "text"`, jsonscan.Clip(part.kind))
	case part.text == nil:
		c.add(CodeMissing, at+".text", "required")
	default:
		return *part.text, true
	}
	return "", false
}

var toolCallFields = fields[ToolCall]{
	"id":   textField(func(t *ToolCall) *string { return &t.ID }),
	"type": textField(func(t *ToolCall) *string { return &t.Type }),
	"function": {read: func(c *cursor, t *ToolCall) {
		readObject(c, &t.Function, functionCallFields)
	}},
	"index": ignoreAs[ToolCall](shapeNumber),
}

var functionCallFields = fields[FunctionCall]{
	"name":             textField(func(f *FunctionCall) *string { return &f.Name }),
	"arguments":        textField(func(f *FunctionCall) *string { return &f.Arguments }),
	"parsed_arguments": ignoreAny[FunctionCall](),
}

func readTools(c *cursor) []Tool {
	return readList(c, MaxTools, "tools", readStruct(c, toolFields))
}

var toolFields = fields[Tool]{
	"type":     textField(func(t *Tool) *string { return &t.Type }),
	"function": {read: func(c *cursor, t *Tool) { readObject(c, &t.Function, functionFields) }},
	"custom":   refuse[Tool]("send a tool of type function"),
}

var functionFields = fields[Function]{
	"name":        textField(func(f *Function) *string { return &f.Name }),
	"description": textField(func(f *Function) *string { return &f.Description }),
	"strict":      optionalBool(func(f *Function) **bool { return &f.Strict }),
	"parameters":  {read: func(c *cursor, f *Function) { f.Parameters = readSchema(c) }},
}

// readToolChoice takes a mode or an object that names a function.
func readToolChoice(c *cursor) *ToolChoice {
	switch c.shape() {
	case shapeString:
		return &ToolChoice{Mode: c.text()}
	case shapeObject:
		var named namedChoice
		readObject(c, &named, namedChoiceFields)
		if named.kind != typeFunction {
			c.problem(CodeUnsupportedValue,
				`an object must be {"type": "function", "function": {"name": ...}}, and its type is %q`,
				jsonscan.Clip(named.kind))
		}
		return &ToolChoice{Mode: ChoiceFunction, Name: named.name}
	}
	c.wrongShape("none, auto, required or an object that names a function")
	return nil
}

type namedChoice struct{ kind, name string }

var namedChoiceFields = fields[namedChoice]{
	"type":          textField(func(n *namedChoice) *string { return &n.kind }),
	"function":      {read: func(c *cursor, n *namedChoice) { readObject(c, n, choiceNameFields) }},
	"allowed_tools": refuse[namedChoice]("send only the tools that are allowed"),
	"custom":        refuse[namedChoice]("name a tool of type function"),
}

var choiceNameFields = fields[namedChoice]{
	"name": textField(func(n *namedChoice) *string { return &n.name }),
}
