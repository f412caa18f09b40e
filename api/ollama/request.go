package ollama

import (
	"encoding/json"
	"slices"
	"strings"

	"sparrow/api/openai"
	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// Request is the body of POST /api/chat or of POST /api/generate. For nil and zero the server chooses the value.
type Request struct {
	Model   string
	Options openai.Options // sampling options of the object options, and log probabilities
	// MaxTokens is options.num_predict; a negative value means no limit.
	MaxTokens *int
	Stream    *bool // nil means true
	Format    *openai.ResponseFormat
	Think     *bool
	Effort    string // amount of reasoning, if think is a word

	// Fields of /api/chat.
	Messages []Message
	Tools    []openai.Tool

	// Fields of /api/generate.
	Prompt string
	System string
	Raw    bool // whether the prompt is completed unchanged
}

// Streams reports whether the answer is sent in pieces.
func (r *Request) Streams() bool { return r.Stream == nil || *r.Stream }

// Message is one message of a chat.
type Message struct {
	Role     string
	Content  string
	Thinking string
	Calls    []Call // assistant only
	ToolName string // tool messages only: name of the tool whose result it is
	ToolCall string // tool messages only: id of the call, if there is one
}

// Call is a call of a tool, in a request or in a response.
type Call struct {
	ID        string
	Name      string
	Arguments json.RawMessage // an object
}

// DecodeChat reads and validates the body of POST /api/chat.
func DecodeChat(d *wire.Decoder, body []byte) (*Request, *wire.Error) {
	return wire.Decode(d, body, chatFields, (*Request).checkChat)
}

// DecodeGenerate reads and validates the body of POST /api/generate.
func DecodeGenerate(d *wire.Decoder, body []byte) (*Request, *wire.Error) {
	return wire.Decode(d, body, generateFields, (*Request).checkGenerate)
}

// ShowRequest is the body of POST /api/show.
type ShowRequest struct{ Model string }

// DecodeShow reads and validates the body of POST /api/show.
func DecodeShow(d *wire.Decoder, body []byte) (*ShowRequest, *wire.Error) {
	return wire.Decode(d, body, showFields, func(r *ShowRequest, p *wire.Problems) {
		if r.Model == "" {
			p.AddNew(wire.CodeMissing, "model", "required; GET /api/tags lists the names")
		}
	})
}

var showFields = wire.Fields[ShowRequest]{
	"model":   wire.TextField(func(r *ShowRequest) *string { return &r.Model }),
	"name":    wire.TextField(func(r *ShowRequest) *string { return &r.Model }), // older name of the field
	"verbose": wire.IgnoreAs[ShowRequest](jsonscan.Bool),
}

// commonFields holds the fields of both endpoints that generate.
var commonFields = wire.Fields[Request]{
	"model":  wire.TextField(func(r *Request) *string { return &r.Model }),
	"stream": wire.OptionalBool(func(r *Request) **bool { return &r.Stream }),
	"format": {Read: readFormat},
	"think":  {Read: readThink},
	"options": {Read: func(c *wire.Reader, r *Request) {
		wire.ReadObject(c, r, optionFields)
	}},

	"keep_alive": wire.IgnoreAny[Request](), // the model stays loaded
	"truncate":   wire.IgnoreAs[Request](jsonscan.Bool),
	"shift":      wire.IgnoreAs[Request](jsonscan.Bool),
	"logprobs":   wire.IgnoreAs[Request](jsonscan.Bool),

	"top_logprobs": wire.IgnoreAs[Request](jsonscan.Number),
}

var chatFields = wire.Join(commonFields, wire.Fields[Request]{
	"messages": {Read: func(c *wire.Reader, r *Request) {
		r.Messages = wire.ReadList(c, openai.MaxMessages, "messages", wire.ReadStruct(c, messageFields))
	}},
	"tools": {Read: func(c *wire.Reader, r *Request) {
		r.Tools = openai.ReadTools(c)
		for i := range r.Tools {
			if r.Tools[i].Type == "" {
				r.Tools[i].Type = "function" // the only type
			}
		}
	}},
})

var generateFields = wire.Join(commonFields, wire.Fields[Request]{
	"prompt": wire.TextField(func(r *Request) *string { return &r.Prompt }),
	"system": wire.TextField(func(r *Request) *string { return &r.System }),
	"raw":    wire.BoolField(func(r *Request) *bool { return &r.Raw }),
	"suffix": {Read: func(c *wire.Reader, _ *Request) {
		if text, ok := c.Str(); ok && text != "" {
			c.Problem(wire.CodeUnsupportedValue, "generating text between a prompt and a suffix is not supported; "+
				"omit it")
		}
	}},
	"images":   {Read: func(c *wire.Reader, _ *Request) { refuseImages(c) }},
	"template": {Read: refuseText("the model's own template is used; send raw true to write the whole prompt")},
	"context":  {Read: readContext},
})

var messageFields = wire.Fields[Message]{
	"role":     wire.TextField(func(m *Message) *string { return &m.Role }),
	"content":  wire.TextField(func(m *Message) *string { return &m.Content }),
	"thinking": wire.TextField(func(m *Message) *string { return &m.Thinking }),
	"tool_calls": {Read: func(c *wire.Reader, m *Message) {
		m.Calls = wire.ReadList(c, openai.MaxToolCalls, "tool calls", wire.ReadStruct(c, callFields))
	}},
	"tool_name":    wire.TextField(func(m *Message) *string { return &m.ToolName }),
	"tool_call_id": wire.TextField(func(m *Message) *string { return &m.ToolCall }),
	"images":       {Read: func(c *wire.Reader, _ *Message) { refuseImages(c) }},
}

var callFields = wire.Fields[Call]{
	"id":       wire.TextField(func(t *Call) *string { return &t.ID }),
	"type":     {Read: func(c *wire.Reader, _ *Call) { c.Skip() }},
	"function": {Read: func(c *wire.Reader, t *Call) { wire.ReadObject(c, t, functionFields) }},
}

var functionFields = wire.Fields[Call]{
	"name":  wire.TextField(func(t *Call) *string { return &t.Name }),
	"index": {Read: func(c *wire.Reader, _ *Call) { c.Skip() }},
	"arguments": {Read: func(c *wire.Reader, t *Call) {
		switch c.Shape() {
		case jsonscan.Object:
			t.Arguments = c.Raw()
		case jsonscan.String: // arguments as JSON text, as in OpenAI's interface; the chat format checks them
			t.Arguments = json.RawMessage(c.Text())
		default:
			c.WrongShape("an object")
		}
	}},
}

// refuseImages accepts only an empty list of images.
func refuseImages(c *wire.Reader) {
	if c.Shape() != jsonscan.Array || c.FirstElement() != jsonscan.None {
		c.Problem(wire.CodeUnsupportedValue, "images are not supported; the models read text")
	}
	c.Skip()
}

func refuseText(why string) func(*wire.Reader, *Request) {
	return func(c *wire.Reader, _ *Request) {
		if text, ok := c.Str(); ok && text != "" {
			c.Problem(wire.CodeUnsupportedParam, "not supported; %s", why)
		}
	}
}

// readContext accepts an empty list, which means that no earlier answer is continued.
func readContext(c *wire.Reader, _ *Request) {
	if c.Shape() != jsonscan.Array || c.FirstElement() != jsonscan.None {
		c.Problem(wire.CodeUnsupportedParam, "not supported; send the conversation to /api/chat")
	}
	c.Skip()
}

// readFormat reads "json" or a schema; an empty string means no format.
func readFormat(c *wire.Reader, r *Request) {
	switch c.Shape() {
	case jsonscan.Object:
		r.Format = &openai.ResponseFormat{Type: openai.FormatJSONSchema,
			JSONSchema: &openai.JSONSchema{Name: "format", Schema: c.Raw()}}
	case jsonscan.String:
		switch text := c.Text(); text {
		case "":
		case "json":
			r.Format = &openai.ResponseFormat{Type: openai.FormatJSONObject}
		default:
			c.Problem(wire.CodeInvalidValue, `%q is not "json" or a JSON schema`, jsonscan.Clip(text))
		}
	default:
		c.WrongShape(`"json" or an object, a JSON schema`)
	}
}

// readThink reads a boolean, or a word for the amount of reasoning.
func readThink(c *wire.Reader, r *Request) {
	switch c.Shape() {
	case jsonscan.Bool:
		wire.SetPointer(&r.Think, c.Boolean)
	case jsonscan.String:
		text := strings.ToLower(c.Text())
		if text == "" {
			return
		}
		if !slices.Contains(openai.Efforts, text) {
			c.Problem(wire.CodeInvalidValue, "%q is not a boolean or one of %s", jsonscan.Clip(text),
				strings.Join(openai.Efforts, ", "))
			return
		}
		on := text != openai.EffortNone
		r.Think, r.Effort = &on, text
	default:
		c.WrongShape("a boolean or a word")
	}
}
