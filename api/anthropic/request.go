package anthropic

import (
	"encoding/json"
	"slices"
	"strings"

	"sparrow/api/openai"
	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// Request is the body of POST /v1/messages, or of count_tokens, where MaxTokens is not required. For a field that is
// nil or zero the server chooses the value.
type Request struct {
	Model    string
	Messages []Message
	System   []string // a string on the wire is one text

	MaxTokens   *int // includes thinking; 0 only computes the prompt and caches it
	Temperature *float64
	TopP        *float64
	TopK        *int
	Stop        []string // stop sequences
	Stream      bool

	Tools      []Tool
	ToolChoice *ToolChoice
	Thinking   string          // one of the types below; empty means the model's default
	Omit       bool            // thinking.display is omitted: only the signatures of thinking blocks contain the text
	Budget     *int            // thinking.budget_tokens: maximum tokens of thinking
	Effort     string          // output_config.effort: amount of reasoning
	Schema     json.RawMessage // output_config.format.schema
}

// Tool is a function that the model may call.
type Tool struct {
	Type        string // "custom" or empty, which have the same meaning
	Name        string
	Description string
	Schema      json.RawMessage // input_schema
	Strict      *bool
	Deferred    bool // the tool is not listed; the result of a search for tools shows it by a tool_reference
}

// hostedTools lists prefixes of the types of tools that only a provider can run. A type is a prefix and the date of a
// version.
var hostedTools = []string{"web_search_", "web_fetch_", "code_execution_", "computer_", "tool_search_tool_",
	"mcp_toolset", "advisor_"}

// hosted reports whether only a provider can run the tool. Such a tool is not offered to the model.
func (t *Tool) hosted() bool {
	return wire.PlainName(t.Type) && slices.ContainsFunc(hostedTools, func(kind string) bool {
		return strings.HasPrefix(t.Type, kind)
	})
}

// LeftOut returns the types of the hosted tools in the request, each once. The model does not get them.
func (r *Request) LeftOut() []string {
	var list []string
	for i := range r.Tools {
		if t := &r.Tools[i]; t.hosted() && !slices.Contains(list, t.Type) {
			list = append(list, t.Type)
		}
	}
	return list
}

// ToolChoice restricts the model's use of tools.
type ToolChoice struct {
	Type   string // one of the choices below
	Name   string // name of the tool, with ChoiceTool
	Single bool   // disable_parallel_tool_use
}

// The types of a tool choice.
const (
	ChoiceAuto = "auto"
	ChoiceAny  = "any"
	ChoiceTool = "tool"
	ChoiceNone = "none"
)

// The types of thinking. With adaptive the amount of thinking is not limited.
const (
	ThinkingEnabled  = "enabled"
	ThinkingDisabled = "disabled"
	ThinkingAdaptive = "adaptive"
	ThinkingBetween  = "between_tools" // think only after results of tools
)

// DisplayOmitted, as the value of thinking.display, omits the text of thinking.
const DisplayOmitted = "omitted"

// MaxNameBytes is the maximum length of the name of a tool.
const MaxNameBytes = 128

// DecodeMessages reads and validates the body of POST /v1/messages.
func DecodeMessages(d *wire.Decoder, body []byte) (*Request, *wire.Error) {
	return wire.Decode(d, body, requestFields, func(r *Request, p *wire.Problems) {
		if r.MaxTokens == nil {
			p.AddNew(wire.CodeMissing, "max_tokens", "required: the maximum number of tokens to generate")
		}
		r.check(p)
	})
}

// DecodeCount reads and validates the body of POST /v1/messages/count_tokens.
func DecodeCount(d *wire.Decoder, body []byte) (*Request, *wire.Error) {
	return wire.Decode(d, body, requestFields, (*Request).check)
}

var requestFields = wire.Fields[Request]{
	"model": wire.TextField(func(r *Request) *string { return &r.Model }),
	"messages": {Read: func(c *wire.Reader, r *Request) {
		r.Messages = wire.ReadList(c, openai.MaxMessages, "messages", wire.ReadStruct(c, messageFields))
	}},
	"system":      {Read: func(c *wire.Reader, r *Request) { r.System = readSystem(c) }},
	"max_tokens":  wire.OptionalInt(func(r *Request) **int { return &r.MaxTokens }),
	"temperature": wire.OptionalFloat(func(r *Request) **float64 { return &r.Temperature }),
	"top_p":       wire.OptionalFloat(func(r *Request) **float64 { return &r.TopP }),
	"top_k":       wire.OptionalInt(func(r *Request) **int { return &r.TopK }),
	"stop_sequences": {Read: func(c *wire.Reader, r *Request) {
		r.Stop = wire.ReadList(c, openai.MaxStops, "strings", c.Str)
	}},
	"stream": wire.BoolField(func(r *Request) *bool { return &r.Stream }),
	"tools": {Read: func(c *wire.Reader, r *Request) {
		r.Tools = wire.ReadList(c, openai.MaxTools, "tools", func() (Tool, bool) { return readTool(c) })
	}},
	"tool_choice": {Read: func(c *wire.Reader, r *Request) {
		r.ToolChoice = &ToolChoice{}
		wire.ReadObject(c, r.ToolChoice, choiceFields)
	}},
	"thinking":      {Read: func(c *wire.Reader, r *Request) { wire.ReadObject(c, r, thinkingFields) }},
	"output_config": {Read: func(c *wire.Reader, r *Request) { wire.ReadObject(c, r, outputFields) }},
	"output_format": {Read: readFormat}, // the older place of output_config.format

	"metadata":           wire.IgnoreAs[Request](jsonscan.Object), // labels; no data is stored per user
	"service_tier":       wire.IgnoreAs[Request](jsonscan.String), // there is only one tier
	"cache_control":      wire.IgnoreAny[Request](),               // every prompt is cached
	"context_management": wire.IgnoreAny[Request](),               // no part of a conversation is removed

	"container": wire.Refuse[Request]("the server cannot run code; define a tool in tools and run it in " +
		"the client"),
	"mcp_servers":          {Read: readServers},
	"max_tokens_to_sample": wire.Refuse[Request]("it is a field of the older text completions; send max_tokens"),
	"prompt":               wire.Refuse[Request]("it is a field of the older text completions; send messages"),
}

var toolFields = wire.Fields[Tool]{
	"type":         wire.TextField(func(t *Tool) *string { return &t.Type }),
	"name":         wire.TextField(func(t *Tool) *string { return &t.Name }),
	"description":  wire.TextField(func(t *Tool) *string { return &t.Description }),
	"strict":       wire.OptionalBool(func(t *Tool) **bool { return &t.Strict }),
	"input_schema": {Read: func(c *wire.Reader, t *Tool) { t.Schema = readObject(c, "an object, a JSON schema") }},

	"defer_loading": wire.BoolField(func(t *Tool) *bool { return &t.Deferred }),
}

// readTool reads a tool. For a hosted tool only type and name are kept.
func readTool(c *wire.Reader) (t Tool, ok bool) {
	hosted := Tool{Type: c.TextMember("type"), Name: c.TextMember("name")}
	if hosted.hosted() {
		c.Skip()
		return hosted, true
	}
	wire.ReadObject(c, &t, toolFields)
	return t, true
}

var choiceFields = wire.Fields[ToolChoice]{
	"type":                      wire.TextField(func(t *ToolChoice) *string { return &t.Type }),
	"name":                      wire.TextField(func(t *ToolChoice) *string { return &t.Name }),
	"disable_parallel_tool_use": wire.BoolField(func(t *ToolChoice) *bool { return &t.Single }),
}

var thinkingFields = wire.Fields[Request]{
	"type":          wire.TextField(func(r *Request) *string { return &r.Thinking }),
	"budget_tokens": wire.OptionalInt(func(r *Request) **int { return &r.Budget }),
	"display":       {Read: readDisplay},
}

var outputFields = wire.Fields[Request]{
	"format": {Read: readFormat},
	"effort": wire.TextField(func(r *Request) *string { return &r.Effort }),
}

type formatReader struct {
	kind   string
	schema json.RawMessage
}

var formatFields = wire.Fields[formatReader]{
	"type":   wire.TextField(func(f *formatReader) *string { return &f.kind }),
	"schema": {Read: func(c *wire.Reader, f *formatReader) { f.schema = readObject(c, "an object, a JSON schema") }},
}

func readFormat(c *wire.Reader, r *Request) {
	var f formatReader
	if !c.Clean(func() { wire.ReadObject(c, &f, formatFields) }) {
		return
	}
	switch {
	case f.kind != "json_schema":
		c.Problem(wire.CodeUnsupportedValue, `the type is %q; only "json_schema" is supported`, jsonscan.Clip(f.kind))
	case f.schema == nil:
		c.Problem(wire.CodeMissing, "schema is required with type json_schema")
	default:
		r.Schema = f.schema
	}
}

// readDisplay reads thinking.display. The value "summarized" returns all thinking, because the models write no
// summaries.
func readDisplay(c *wire.Reader, r *Request) {
	switch word, ok := c.Str(); {
	case !ok:
	case word == DisplayOmitted:
		r.Omit = true
	case word != "full":
		c.Note()
	}
}

// readServers accepts only an empty list of MCP servers.
func readServers(c *wire.Reader, _ *Request) {
	if c.Shape() == jsonscan.Array && c.FirstElement() == jsonscan.None {
		c.Skip()
		return
	}
	c.Problem(wire.CodeUnsupportedParam, "not supported; the server cannot connect to MCP servers: define their "+
		"tools in tools")
	c.Skip()
}

// readObject reads an object and returns its JSON text.
func readObject(c *wire.Reader, what string) json.RawMessage {
	if c.Shape() != jsonscan.Object {
		c.WrongShape(what)
		return nil
	}
	return c.Raw()
}

// billingHeader begins a system block in which Claude Code numbers its requests. The block is omitted from the prompt:
// it changes with every request, so that no prompt would match the prefix cache.
const billingHeader = "x-anthropic-billing-header:"

// readSystem reads a string or blocks of text.
func readSystem(c *wire.Reader) []string {
	var texts []string
	for _, b := range readBlocks(c, plainFields) {
		if strings.HasPrefix(b.Text, billingHeader) {
			c.Note()
			continue
		}
		if b.Type != BlockText {
			c.Problem(wire.CodeInvalidValue, "a block of type %s; only text is allowed here", b.Type)
			continue
		}
		texts = append(texts, b.Text)
	}
	return texts
}
