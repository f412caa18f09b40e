package anthropic

import (
	"encoding/json"

	"sparrow/api/openai"
	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// The roles of a message.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleSystem    = "system"
)

// Message is one message of a conversation.
type Message struct {
	Role    string
	Content []Block // a string on the wire is one block of text; nil means that the message has no content
}

// The types of blocks.
const (
	BlockText     = "text"
	BlockThinking = "thinking"
	BlockRedacted = "redacted_thinking" // in requests only; ignored, because another server has encrypted it
	BlockToolUse  = "tool_use"
	BlockResult   = "tool_result" // in requests only

	BlockReference = "tool_reference" // inside a result only: a tool that a search has found
)

// Block is one piece of a message. Its fields depend on its type.
type Block struct {
	Type string
	Text string // text of blocks of text and of thinking

	ID    string          // id of a call
	Name  string          // name of the tool of a call
	Input json.RawMessage // arguments of a call: an object

	ToolUseID string   // id of the call that a result answers
	Result    []string // texts of a result
	// References are names of tools: for a result, those that a search found; for BlockReference, one.
	References []string

	Omit bool // thinking in a response: only the signature contains the text
}

var messageFields = wire.Fields[Message]{
	"role": wire.TextField(func(m *Message) *string { return &m.Role }),
	"content": {Read: func(c *wire.Reader, m *Message) {
		m.Content = readBlocks(c, blockFields)
	}},
}

// blockReader is a block that is being read; text is nil until the field was read.
type blockReader struct {
	Block
	text, thinking *string
	sealed         string // reasoning text, decoded from the signature
}

// blockFields holds the fields of a message's content blocks.
var blockFields = wire.Join(plainFields, wire.Fields[blockReader]{"content": {Read: readResult}})

// plainFields holds the fields of blocks without inner blocks. Fields of refused types are included, so that the error
// names the type.
var plainFields = wire.Fields[blockReader]{
	"type":        wire.TextField(func(b *blockReader) *string { return &b.Type }),
	"text":        {Read: func(c *wire.Reader, b *blockReader) { wire.SetPointer(&b.text, c.Str) }},
	"thinking":    {Read: func(c *wire.Reader, b *blockReader) { wire.SetPointer(&b.thinking, c.Str) }},
	"id":          wire.TextField(func(b *blockReader) *string { return &b.ID }),
	"name":        wire.TextField(func(b *blockReader) *string { return &b.Name }),
	"input":       {Read: func(c *wire.Reader, b *blockReader) { b.Input = readObject(c, "an object") }},
	"tool_use_id": wire.TextField(func(b *blockReader) *string { return &b.ToolUseID }),

	"cache_control": wire.IgnoreAny[blockReader](), // every prompt is cached, with or without breakpoints
	"citations":     wire.IgnoreAny[blockReader](),
	"caller":        wire.IgnoreAny[blockReader](),
	"is_error":      {Read: readIsError},

	"tool_name": {Read: func(c *wire.Reader, b *blockReader) {
		if name, ok := c.Str(); ok {
			b.References = []string{name}
		}
	}},
	"signature": {Read: func(c *wire.Reader, b *blockReader) {
		if text, ok := c.Str(); ok {
			b.sealed, _ = openai.Unseal(text) // signatures of other servers do not contain the text
		}
	}},

	// Members of blocks that are refused or have no effect.
	"data":   skipped,
	"source": skipped, "title": skipped, "context": skipped,
}

var skipped = wire.Field[blockReader]{Refused: true, Read: func(c *wire.Reader, _ *blockReader) { c.Skip() }}

// readIsError ignores is_error: the models have no marker for a failed call; the text of the result describes the
// failure.
func readIsError(c *wire.Reader, _ *blockReader) {
	if yes, ok := c.Boolean(); ok && yes {
		c.Note()
	}
}

// readResult reads the content of a tool result. A block of another type with a member "content" is refused because of
// its type.
func readResult(c *wire.Reader, b *blockReader) {
	if b.Type != "" && b.Type != BlockResult {
		c.Skip()
		return
	}
	b.Result = []string{}
	for _, part := range readBlocks(c, plainFields) {
		switch part.Type {
		case BlockText:
			b.Result = append(b.Result, part.Text)
		case BlockReference:
			b.References = append(b.References, part.References...)
		default:
			c.Problem(wire.CodeInvalidValue, "a result may contain only blocks of type text, not %s", part.Type)
		}
	}
}

// readBlocks reads a string or an array of blocks.
func readBlocks(c *wire.Reader, known wire.Fields[blockReader]) []Block {
	switch c.Shape() {
	case jsonscan.String:
		return []Block{{Type: BlockText, Text: c.Text()}}
	case jsonscan.Array:
		return wire.ReadList(c, openai.MaxParts, "blocks", func() (Block, bool) { return readBlock(c, known) })
	}
	c.WrongShape("a string or an array of blocks")
	return nil
}

func readBlock(c *wire.Reader, known wire.Fields[blockReader]) (Block, bool) {
	var b blockReader
	if !c.Clean(func() { wire.ReadObject(c, &b, known) }) {
		return b.Block, false
	}
	at := c.Param()
	missing := func(name string, given bool) bool {
		if !given {
			c.Add(wire.CodeMissing, at+"."+name, "required in a block of type %s", b.Type)
		}
		return given
	}
	switch b.Type {
	case BlockText:
		wire.Set(&b.Text, given(b.text))
		return b.Block, missing("text", b.text != nil)
	case BlockReference:
		return b.Block, missing("tool_name", len(b.References) > 0)
	case BlockThinking:
		if wire.Set(&b.Text, given(b.thinking)); b.Text == "" {
			b.Text = b.sealed
		}
		return b.Block, missing("thinking", b.thinking != nil)
	case BlockRedacted:
		c.Note()
		return b.Block, true
	case BlockToolUse:
		return b.Block, missing("id", b.ID != "") && missing("name", b.Name != "")
	case BlockResult:
		return b.Block, missing("tool_use_id", b.ToolUseID != "")
	case "":
		c.Add(wire.CodeMissing, at+".type", "required: %s, %s, %s or %s", BlockText, BlockThinking, BlockToolUse,
			BlockResult)
	case "image", "document":
		c.Add(wire.CodeUnsupportedValue, at+".type",
			"%q is not supported; the models read text, so send its text in a block of type text", b.Type)
	default:
		c.Add(wire.CodeUnsupportedValue, at+".type", "%q is not supported; use %s, %s, %s or %s",
			jsonscan.Clip(b.Type), BlockText, BlockThinking, BlockToolUse, BlockResult)
	}
	return b.Block, false
}

// given returns a function for wire.Set that returns *text; ok is false if text is nil.
func given(text *string) func() (string, bool) {
	return func() (string, bool) {
		if text == nil {
			return "", false
		}
		return *text, true
	}
}
