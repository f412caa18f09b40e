package openai

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// ResponsesRequest is the body of POST /v1/responses. It has all Options except N, ResponseFormat and StreamOptions.
type ResponsesRequest struct {
	Options
	Input        []Item `json:"input"` // a string on the wire is one message of the user
	Instructions string `json:"instructions,omitempty"`

	MaxOutputTokens *int     `json:"max_output_tokens,omitempty"` // includes reasoning
	TopLogprobs     *int     `json:"top_logprobs,omitempty"`      // [0, 20]
	Include         []string `json:"include,omitempty"`           // see [ResponsesRequest.WantsLogprobs]

	Tools             []ResponseTool `json:"tools,omitempty"`
	ToolChoice        *ToolChoice    `json:"-"`
	ParallelToolCalls *bool          `json:"parallel_tool_calls,omitempty"` // nil means true

	Text      TextConfig `json:"text"`
	Reasoning Reasoning  `json:"reasoning"`
	// The fields of chat completions that turn reasoning on or off.
	Thinking           *Thinking                  `json:"thinking,omitempty"`
	ChatTemplateKwargs map[string]json.RawMessage `json:"chat_template_kwargs,omitempty"`

	PreviousResponseID string            `json:"previous_response_id,omitempty"`
	Store              *bool             `json:"store,omitempty"` // nil means true
	Truncation         string            `json:"truncation,omitempty"`
	Metadata           map[string]string `json:"metadata,omitempty"`
}

// TextConfig holds the request's settings for the text of the answer.
type TextConfig struct {
	Format TextFormat `json:"format"`
}

// TextFormat constrains the answer's text; the types are those of [ResponseFormat], and an empty type means FormatText.
type TextFormat struct {
	Type        string          `json:"type"`
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"` // only with FormatJSONSchema
	Strict      *bool           `json:"strict,omitempty"`
}

// Reasoning holds the request's settings for reasoning.
type Reasoning struct {
	Effort string `json:"effort,omitempty"`
	// Summary, auto, concise or detailed, requests a summary. The summary is all of the reasoning, because the models
	// write no summaries.
	Summary string `json:"summary,omitempty"`
}

// Summarised reports whether reasoning is returned in the field summary of the reasoning item, not in content.
func (r *Reasoning) Summarised() bool { return r.Summary != "" && r.Summary != "none" }

// summaries lists the values of reasoning.summary.
var summaries = []string{"", "auto", "concise", "detailed", "none"}

// The values of truncation.
const (
	TruncationAuto     = "auto"     // older turns are omitted if the conversation does not fit the context
	TruncationDisabled = "disabled" // a conversation that does not fit is refused; the default
)

// Limits on metadata, as in OpenAI's interface.
const (
	MaxMetadata           = 16
	MaxMetadataNameBytes  = 64
	MaxMetadataValueBytes = 512
)

// The members of include that have an effect.
const (
	includeLogprobs  = "message.output_text.logprobs"
	includeEncrypted = "reasoning.encrypted_content"
)

// WantsLogprobs reports whether the tokens of messages are returned with their log probabilities.
func (r *ResponsesRequest) WantsLogprobs() bool {
	return r.TopLogprobs != nil || slices.Contains(r.Include, includeLogprobs)
}

// WantsEncrypted reports whether reasoning items also have encrypted_content, for clients that send them back.
func (r *ResponsesRequest) WantsEncrypted() bool { return slices.Contains(r.Include, includeEncrypted) }

// Stored reports whether the response is stored for later requests.
func (r *ResponsesRequest) Stored() bool { return r.Store == nil || *r.Store }

// AsChat returns the request as a chat completion: the instructions, the stored conversation, then the input.
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
	c.Tools, _ = r.toolList(conversation)
	if f := &r.Text.Format; f.Type != "" {
		c.ResponseFormat = &ResponseFormat{Type: f.Type}
		if f.Type == FormatJSONSchema {
			c.ResponseFormat.JSONSchema = &JSONSchema{Name: f.Name, Description: f.Description, Schema: f.Schema,
				Strict: f.Strict}
		}
	}
	return c
}

var responsesFields = wire.Join(
	acceptedFields[ResponsesRequest](),
	wire.Lift(responsesOptions(), func(r *ResponsesRequest) *Options { return &r.Options }),
	wire.Fields[ResponsesRequest]{
		"input":             {Read: func(c *wire.Reader, r *ResponsesRequest) { r.Input = readInput(c) }},
		"instructions":      wire.TextField(func(r *ResponsesRequest) *string { return &r.Instructions }),
		"max_output_tokens": wire.OptionalInt(func(r *ResponsesRequest) **int { return &r.MaxOutputTokens }),
		"top_logprobs":      wire.OptionalInt(func(r *ResponsesRequest) **int { return &r.TopLogprobs }),
		"include": {Read: func(c *wire.Reader, r *ResponsesRequest) {
			r.Include = wire.ReadList(c, MaxKwargs, "strings", c.Str)
		}},
		"tools": {Read: func(c *wire.Reader, r *ResponsesRequest) {
			r.Tools = readResponseTools(c)
		}},
		"tool_choice": {Read: func(c *wire.Reader,
			r *ResponsesRequest) {
			r.ToolChoice = readResponseChoice(c)
		}},
		"parallel_tool_calls": wire.OptionalBool(func(r *ResponsesRequest) **bool { return &r.ParallelToolCalls }),
		"text": {Read: func(c *wire.Reader, r *ResponsesRequest) {
			wire.ReadObject(c, &r.Text, textConfigFields)
		}},
		"reasoning": {Read: func(c *wire.Reader, r *ResponsesRequest) {
			wire.ReadObject(c, &r.Reasoning, reasoningFields)
		}},
		"thinking": {Read: func(c *wire.Reader, r *ResponsesRequest) {
			r.Thinking = &Thinking{}
			wire.ReadObject(c, r.Thinking, thinkingFields)
		}},
		"chat_template_kwargs": {Read: func(c *wire.Reader,
			r *ResponsesRequest) {
			r.ChatTemplateKwargs = readKwargs(c)
		}},
		"previous_response_id": wire.TextField(func(r *ResponsesRequest) *string { return &r.PreviousResponseID }),
		"store":                wire.OptionalBool(func(r *ResponsesRequest) **bool { return &r.Store }),
		"truncation":           wire.TextField(func(r *ResponsesRequest) *string { return &r.Truncation }),
		"metadata":             {Read: func(c *wire.Reader, r *ResponsesRequest) { r.Metadata = readMetadata(c) }},
		"background":           {Read: readBackground},

		// max_tool_calls limits calls of tools that OpenAI runs, and stream_options pads events: this server has
		// neither.
		"max_tool_calls": wire.IgnoreAs[ResponsesRequest](jsonscan.Number),
		"stream_options": wire.IgnoreAs[ResponsesRequest](jsonscan.Object),

		"conversation":       notInResponses("the server stores no conversations; send previous_response_id"),
		"prompt":             notInResponses("the server stores no prompts; send instructions and input"),
		"context_management": notInResponses("the server cannot compact a conversation; send truncation auto"),
		"moderation": notInResponses("the server has no moderation; check prompts and answers in the " +
			"client"),
		"messages":              notInResponses("it is a field of /v1/chat/completions; send input"),
		"max_tokens":            notInResponses("it is a field of /v1/chat/completions; send max_output_tokens"),
		"max_completion_tokens": notInResponses("it is a field of /v1/chat/completions; send max_output_tokens"),
		"reasoning_effort":      notInResponses("it is a field of /v1/chat/completions; send reasoning.effort"),
		"response_format":       notInResponses("it is a field of /v1/chat/completions; send text.format"),
		"n":                     notInResponses("a response has one answer; send a request for each"),

		"guided_json":        notInResponses("use text.format with type json_schema"),
		"guided_regex":       notInResponses("use text.format with type json_schema and a string pattern"),
		"guided_choice":      notInResponses("use text.format with type json_schema and an enum"),
		"guided_grammar":     notInResponses("use text.format with type json_schema"),
		"structured_outputs": notInResponses("use text.format with type json_schema"),
	},
)

// notInResponses refuses a field with advice on what to send instead.
func notInResponses(instead string) wire.Field[ResponsesRequest] {
	return wire.Refuse[ResponsesRequest](instead)
}

// responsesOptions returns the fields of Options that /v1/responses shares with chat completions.
func responsesOptions() wire.Fields[Options] {
	shared := maps.Clone(optionFields)
	for _, name := range []string{"n", "response_format", "stream_options"} {
		delete(shared, name)
	}
	return shared
}

var textConfigFields = wire.Fields[TextConfig]{
	"format":    {Read: func(c *wire.Reader, t *TextConfig) { wire.ReadObject(c, &t.Format, textFormatFields) }},
	"verbosity": verbosityField[TextConfig](),
}

var textFormatFields = wire.Fields[TextFormat]{
	"type":        wire.TextField(func(f *TextFormat) *string { return &f.Type }),
	"name":        wire.TextField(func(f *TextFormat) *string { return &f.Name }),
	"description": wire.TextField(func(f *TextFormat) *string { return &f.Description }),
	"strict":      wire.OptionalBool(func(f *TextFormat) **bool { return &f.Strict }),
	"schema":      {Read: func(c *wire.Reader, f *TextFormat) { f.Schema = readSchema(c) }},
}

var reasoningFields = wire.Fields[Reasoning]{
	"effort":           wire.TextField(func(r *Reasoning) *string { return &r.Effort }),
	"summary":          wire.TextField(func(r *Reasoning) *string { return &r.Summary }),
	"generate_summary": wire.TextField(func(r *Reasoning) *string { return &r.Summary }), // older name of the field
	"context":          wire.IgnoreAny[Reasoning](),
}

// readBackground accepts only false.
func readBackground(c *wire.Reader, _ *ResponsesRequest) {
	if on, ok := c.Boolean(); ok && on {
		c.Problem(wire.CodeUnsupportedValue, "true is not supported: the server computes an answer only while its "+
			"client is connected; omit background and keep the connection open, with stream true to see progress")
	}
}

func readMetadata(c *wire.Reader) map[string]string {
	if c.Shape() != jsonscan.Object {
		c.WrongShape("an object of strings")
		return nil
	}
	all := map[string]string{}
	count := 0
	for name := range c.Members {
		if count++; count > MaxMetadata {
			c.Skip()
			continue
		}
		if v, ok := c.Str(); ok {
			all[name] = v
		}
	}
	wire.WantAtMost(&c.Problems, c.Param(), count, MaxMetadata, "entries")
	return all
}

// Validate returns an error with every problem of the request, or nil. [Decoder.Responses] has already called it.
func (r *ResponsesRequest) Validate() *wire.Error { return wire.Verdict(r.check) }

func (r *ResponsesRequest) check(p *wire.Problems) {
	r.Options.check(p)
	checkLength(p, "max_output_tokens", r.MaxOutputTokens, r.MinTokens, 1)
	wire.WantRange(p, "top_logprobs", r.TopLogprobs, 0, MaxTopLogprobs)
	r.checkTools(p)
	r.checkFormat(p)
	if e := r.Reasoning.Effort; e != "" && !slices.Contains(Efforts, e) {
		CheckEffort(p, "reasoning.effort", e)
	} else {
		r.AsChat(nil).checkThinking(p)
	}
	if s := r.Reasoning.Summary; !slices.Contains(summaries, s) {
		p.AddNew(wire.CodeInvalidValue, "reasoning.summary", "%q is not one of %s", jsonscan.Clip(s),
			strings.Join(summaries[1:], ", "))
	}
	switch r.Truncation {
	case "", TruncationAuto, TruncationDisabled:
	default:
		p.AddNew(wire.CodeInvalidValue, "truncation", "%q is not %s or %s", jsonscan.Clip(r.Truncation), TruncationAuto,
			TruncationDisabled)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Metadata)) {
		if len(name) > MaxMetadataNameBytes {
			p.AddNew(wire.CodeTooLong, "metadata", "a name has %d bytes, but at most %d are supported", len(name),
				MaxMetadataNameBytes)
		}
		if v := r.Metadata[name]; len(v) > MaxMetadataValueBytes {
			p.AddNew(wire.CodeTooLong, "metadata", "the value of %q has %d bytes, but at most %d are supported",
				jsonscan.Clip(name), len(v), MaxMetadataValueBytes)
		}
	}
	checkItems(p, r.Input)
}

func (r *ResponsesRequest) checkFormat(p *wire.Problems) {
	const at = "text.format"
	switch f := &r.Text.Format; f.Type {
	case "":
		if f.Name != "" || f.Schema != nil {
			p.AddNew(wire.CodeMissing, at+".type", "required: %s, %s or %s", FormatText, FormatJSONObject,
				FormatJSONSchema)
		}
	case FormatText, FormatJSONObject:
		if f.Schema != nil {
			p.AddNew(wire.CodeInvalidValue, at+".schema", "only allowed with type %s, but the type is %s",
				FormatJSONSchema,
				f.Type)
		}
	case FormatJSONSchema:
		checkName(p, at+".name", f.Name)
		if len(f.Schema) == 0 {
			p.AddNew(wire.CodeMissing, at+".schema", "required; for any JSON object use type %s", FormatJSONObject)
		}
	default:
		p.AddNew(wire.CodeUnsupportedValue, at+".type", "%q is not supported; use %s", jsonscan.Clip(f.Type),
			strings.Join([]string{FormatText, FormatJSONObject, FormatJSONSchema}, ", "))
	}
}
