package openai

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"sparrow/internal/jsonscan"
)

// ResponsesRequest is the body of POST /v1/responses. Of Options it has those that are not about several choices, the
// format or the shape of a stream.
type ResponsesRequest struct {
	Options
	Input        []Item `json:"input"` // a string on the wire is one message of the user
	Instructions string `json:"instructions,omitempty"`

	MaxOutputTokens *int     `json:"max_output_tokens,omitempty"` // reasoning included
	TopLogprobs     *int     `json:"top_logprobs,omitempty"`      // [0, 20]
	Include         []string `json:"include,omitempty"`           // see [ResponsesRequest.WantsLogprobs]

	Tools             []ResponseTool `json:"tools,omitempty"`
	ToolChoice        *ToolChoice    `json:"-"`
	ParallelToolCalls *bool          `json:"parallel_tool_calls,omitempty"` // nil is true

	Text      TextConfig `json:"text"`
	Reasoning Reasoning  `json:"reasoning"`
	// The switches of chat completions for reasoning.
	Thinking           *Thinking                  `json:"thinking,omitempty"`
	ChatTemplateKwargs map[string]json.RawMessage `json:"chat_template_kwargs,omitempty"`

	PreviousResponseID string            `json:"previous_response_id,omitempty"`
	Store              *bool             `json:"store,omitempty"` // nil is true
	Truncation         string            `json:"truncation,omitempty"`
	Metadata           map[string]string `json:"metadata,omitempty"`
}

// ResponseTool is a function that the model may call.
type ResponseTool struct {
	Type        string          `json:"type"` // always "function"
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict"`
}

// TextConfig is what a request says about the text of the answer.
type TextConfig struct {
	Format TextFormat `json:"format"`
}

// TextFormat constrains the text; its types are those of a [ResponseFormat], and none is FormatText.
type TextFormat struct {
	Type        string          `json:"type"`
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"` // with FormatJSONSchema only
	Strict      *bool           `json:"strict,omitempty"`
}

// Reasoning is what a request says about reasoning.
type Reasoning struct {
	Effort string `json:"effort,omitempty"`
}

// The values of truncation.
const (
	TruncationAuto     = "auto"     // older turns are left out where the conversation does not fit the context
	TruncationDisabled = "disabled" // a conversation that does not fit is refused; the default
)

// Limits on metadata, as OpenAI has them.
const (
	MaxMetadata           = 16
	MaxMetadataNameBytes  = 64
	MaxMetadataValueBytes = 512
)

// includeLogprobs asks for log probabilities.
const includeLogprobs = "message.output_text.logprobs"

// WantsLogprobs says whether the tokens of messages come with their log probabilities.
func (r *ResponsesRequest) WantsLogprobs() bool {
	return r.TopLogprobs != nil || slices.Contains(r.Include, includeLogprobs)
}

// Stored says whether the response is kept for later requests.
func (r *ResponsesRequest) Stored() bool { return r.Store == nil || *r.Store }

// AsChat is the request as a chat completion over a whole conversation, which is what came before and the input. The
// instructions come first.
func (r *ResponsesRequest) AsChat(conversation []Item) *ChatRequest {
	c := &ChatRequest{
		Options: r.Options, MaxCompletionTokens: r.MaxOutputTokens, Logprobs: r.WantsLogprobs(),
		TopLogprobs: r.TopLogprobs, ToolChoice: r.ToolChoice, ParallelToolCalls: r.ParallelToolCalls,
		ReasoningEffort: r.Reasoning.Effort, Thinking: r.Thinking, ChatTemplateKwargs: r.ChatTemplateKwargs,
	}
	if r.Instructions != "" {
		c.Messages = append(c.Messages, Message{Role: RoleSystem, Content: Content{r.Instructions}})
	}
	c.Messages = append(c.Messages, Messages(conversation)...)
	for _, t := range r.Tools {
		c.Tools = append(c.Tools, Tool{Type: t.Type,
			Function: Function{Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: t.Strict}})
	}
	if f := &r.Text.Format; f.Type != "" {
		c.ResponseFormat = &ResponseFormat{Type: f.Type}
		if f.Type == FormatJSONSchema {
			c.ResponseFormat.JSONSchema = &JSONSchema{Name: f.Name, Description: f.Description, Schema: f.Schema,
				Strict: f.Strict}
		}
	}
	return c
}

var responsesFields = join(
	acceptedFields[ResponsesRequest](),
	lift(responsesOptions(), func(r *ResponsesRequest) *Options { return &r.Options }),
	fields[ResponsesRequest]{
		"input":             {read: func(c *cursor, r *ResponsesRequest) { r.Input = readInput(c) }},
		"instructions":      textField(func(r *ResponsesRequest) *string { return &r.Instructions }),
		"max_output_tokens": optionalInt(func(r *ResponsesRequest) **int { return &r.MaxOutputTokens }),
		"top_logprobs":      optionalInt(func(r *ResponsesRequest) **int { return &r.TopLogprobs }),
		"include": {read: func(c *cursor, r *ResponsesRequest) {
			r.Include = readList(c, MaxKwargs, "strings", c.str)
		}},
		"tools": {read: func(c *cursor, r *ResponsesRequest) {
			r.Tools = readList(c, MaxTools, "tools", readStruct(c, responseToolFields))
		}},
		"tool_choice":         {read: func(c *cursor, r *ResponsesRequest) { r.ToolChoice = readResponseChoice(c) }},
		"parallel_tool_calls": optionalBool(func(r *ResponsesRequest) **bool { return &r.ParallelToolCalls }),
		"text": {read: func(c *cursor, r *ResponsesRequest) {
			readObject(c, &r.Text, textConfigFields)
		}},
		"reasoning": {read: func(c *cursor, r *ResponsesRequest) {
			readObject(c, &r.Reasoning, reasoningFields)
		}},
		"thinking": {read: func(c *cursor, r *ResponsesRequest) {
			r.Thinking = &Thinking{}
			readObject(c, r.Thinking, thinkingFields)
		}},
		"chat_template_kwargs": {read: func(c *cursor, r *ResponsesRequest) { r.ChatTemplateKwargs = readKwargs(c) }},
		"previous_response_id": textField(func(r *ResponsesRequest) *string { return &r.PreviousResponseID }),
		"store":                optionalBool(func(r *ResponsesRequest) **bool { return &r.Store }),
		"truncation":           textField(func(r *ResponsesRequest) *string { return &r.Truncation }),
		"metadata":             {read: func(c *cursor, r *ResponsesRequest) { r.Metadata = readMetadata(c) }},
		"background":           {read: readBackground},

		// Calls of tools that OpenAI runs, and how events are padded: there are neither.
		"max_tool_calls": ignoreAs[ResponsesRequest](shapeNumber),
		"stream_options": ignoreAs[ResponsesRequest](shapeObject),

		"conversation":          refuse[ResponsesRequest]("there are no conversations; send previous_response_id"),
		"prompt":                refuse[ResponsesRequest]("there are no stored prompts; send instructions and input"),
		"context_management":    refuse[ResponsesRequest]("nothing is compacted; send truncation auto"),
		"moderation":            refuse[ResponsesRequest]("nothing is moderated; check the text before and after"),
		"messages":              refuse[ResponsesRequest]("it belongs to /v1/chat/completions; send input"),
		"max_tokens":            refuse[ResponsesRequest]("it belongs to /v1/chat/completions; send max_output_tokens"),
		"max_completion_tokens": refuse[ResponsesRequest]("it belongs to /v1/chat/completions; send max_output_tokens"),
		"reasoning_effort":      refuse[ResponsesRequest]("it belongs to /v1/chat/completions; send reasoning.effort"),
		"response_format":       refuse[ResponsesRequest]("it belongs to /v1/chat/completions; send text.format"),
		"n":                     refuse[ResponsesRequest]("a response is one answer; send several requests"),

		"guided_json":        refuse[ResponsesRequest]("use text.format with type json_schema"),
		"guided_regex":       refuse[ResponsesRequest]("use text.format with type json_schema and a string pattern"),
		"guided_choice":      refuse[ResponsesRequest]("use text.format with type json_schema and an enum"),
		"guided_grammar":     refuse[ResponsesRequest]("use text.format with type json_schema"),
		"structured_outputs": refuse[ResponsesRequest]("use text.format with type json_schema"),
	},
)

// responsesOptions are the options that /v1/responses shares with chat completions.
func responsesOptions() fields[Options] {
	shared := maps.Clone(optionFields)
	for _, name := range []string{"n", "response_format", "stream_options"} {
		delete(shared, name)
	}
	return shared
}

var responseToolFields = fields[ResponseTool]{
	"type":        textField(func(t *ResponseTool) *string { return &t.Type }),
	"name":        textField(func(t *ResponseTool) *string { return &t.Name }),
	"description": textField(func(t *ResponseTool) *string { return &t.Description }),
	"strict":      optionalBool(func(t *ResponseTool) **bool { return &t.Strict }),
	"parameters":  {read: func(c *cursor, t *ResponseTool) { t.Parameters = readSchema(c) }},
}

var textConfigFields = fields[TextConfig]{
	"format":    {read: func(c *cursor, t *TextConfig) { readObject(c, &t.Format, textFormatFields) }},
	"verbosity": fixedAs[TextConfig](`"medium"`, "the models take no such instruction; say it in a message"),
}

var textFormatFields = fields[TextFormat]{
	"type":        textField(func(f *TextFormat) *string { return &f.Type }),
	"name":        textField(func(f *TextFormat) *string { return &f.Name }),
	"description": textField(func(f *TextFormat) *string { return &f.Description }),
	"strict":      optionalBool(func(f *TextFormat) **bool { return &f.Strict }),
	"schema":      {read: func(c *cursor, f *TextFormat) { f.Schema = readSchema(c) }},
}

var reasoningFields = fields[Reasoning]{
	"effort": textField(func(r *Reasoning) *string { return &r.Effort }),
	// Reasoning is returned as it is and never summarised.
	"summary":          ignoreAny[Reasoning](),
	"generate_summary": ignoreAny[Reasoning](),
	"context":          ignoreAny[Reasoning](),
}

// readBackground lets false pass: it is what happens.
func readBackground(c *cursor, _ *ResponsesRequest) {
	if on, ok := c.boolean(); ok && on {
		c.problem(CodeUnsupportedValue, "true is not supported: an answer is computed while its client waits; "+
			"leave background out and keep the connection open, with stream true to see progress")
	}
}

func readMetadata(c *cursor) map[string]string {
	if c.shape() != shapeObject {
		c.wrongShape("an object of strings")
		return nil
	}
	all := map[string]string{}
	count := 0
	for name := range c.members {
		if count++; count > MaxMetadata {
			c.skip()
			continue
		}
		if v, ok := c.str(); ok {
			all[name] = v
		}
	}
	wantAtMost(&c.problems, c.param(), count, MaxMetadata, "entries")
	return all
}

// readResponseChoice takes a mode or an object that names a function, without the inner object of chat completions.
func readResponseChoice(c *cursor) *ToolChoice {
	switch c.shape() {
	case shapeString:
		return &ToolChoice{Mode: c.text()}
	case shapeObject:
		var named namedChoice
		readObject(c, &named, responseChoiceFields)
		if named.kind != typeFunction {
			c.problem(CodeUnsupportedValue, `an object must be {"type": "function", "name": ...}, and its type is %q`,
				jsonscan.Clip(named.kind))
		}
		return &ToolChoice{Mode: ChoiceFunction, Name: named.name}
	}
	c.wrongShape("none, auto, required or an object that names a function")
	return nil
}

var responseChoiceFields = fields[namedChoice]{
	"type": textField(func(n *namedChoice) *string { return &n.kind }),
	"name": textField(func(n *namedChoice) *string { return &n.name }),
	"mode": {read: func(c *cursor, _ *namedChoice) { c.skip() }}, // of allowed_tools, whose type is refused
	"tools": {read: func(c *cursor, _ *namedChoice) {
		c.skip()
	}},
}

// Validate reports every problem of the request, or nil. [Decoder.Responses] has already called it.
func (r *ResponsesRequest) Validate() *Error { return verdict(r.check) }

func (r *ResponsesRequest) check(p *problems) {
	r.Options.check(p)
	checkLength(p, "max_output_tokens", r.MaxOutputTokens, r.MinTokens, 1)
	wantRange(p, "top_logprobs", r.TopLogprobs, 0, MaxTopLogprobs)
	r.checkTools(p)
	r.checkFormat(p)
	if e := r.Reasoning.Effort; e != "" && !slices.Contains(reasoningEfforts, e) {
		p.addNew(CodeInvalidValue, "reasoning.effort", "%q is not one of %s", jsonscan.Clip(e),
			strings.Join(reasoningEfforts, ", "))
	} else {
		r.AsChat(nil).checkThinking(p)
	}
	switch r.Truncation {
	case "", TruncationAuto, TruncationDisabled:
	default:
		p.addNew(CodeInvalidValue, "truncation", "%q is not %s or %s", jsonscan.Clip(r.Truncation), TruncationAuto,
			TruncationDisabled)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Metadata)) {
		if len(name) > MaxMetadataNameBytes {
			p.addNew(CodeTooLong, "metadata", "a name has %d bytes, at most %d are supported", len(name),
				MaxMetadataNameBytes)
		}
		if v := r.Metadata[name]; len(v) > MaxMetadataValueBytes {
			p.addNew(CodeTooLong, "metadata", "the value of %q has %d bytes, at most %d are supported",
				jsonscan.Clip(name), len(v), MaxMetadataValueBytes)
		}
	}
	checkItems(p, r.Input)
}

func (r *ResponsesRequest) checkTools(p *problems) {
	ok := checkToolList(p, ".name", len(r.Tools), func(i int) (string, string) {
		return r.Tools[i].Type, r.Tools[i].Name
	})
	if ok {
		r.AsChat(nil).checkToolChoice(p)
	}
}

func (r *ResponsesRequest) checkFormat(p *problems) {
	const at = "text.format"
	switch f := &r.Text.Format; f.Type {
	case "":
		if f.Name != "" || f.Schema != nil {
			p.addNew(CodeMissing, at+".type", "required: %s, %s or %s", FormatText, FormatJSONObject, FormatJSONSchema)
		}
	case FormatText, FormatJSONObject:
		if f.Schema != nil {
			p.addNew(CodeInvalidValue, at+".schema", "only allowed with type %s, and the type is %s", FormatJSONSchema,
				f.Type)
		}
	case FormatJSONSchema:
		checkName(p, at+".name", f.Name)
		if len(f.Schema) == 0 {
			p.addNew(CodeMissing, at+".schema", "required; for any JSON object use type %s", FormatJSONObject)
		}
	default:
		p.addNew(CodeUnsupportedValue, at+".type", "%q is not supported; use %s", jsonscan.Clip(f.Type),
			strings.Join([]string{FormatText, FormatJSONObject, FormatJSONSchema}, ", "))
	}
}
