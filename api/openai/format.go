package openai

import (
	"encoding/json"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// The types of a response format.
const (
	FormatText       = "text"
	FormatJSONObject = "json_object"
	FormatJSONSchema = "json_schema"
	FormatRegex      = "regex"  // text that matches a regular expression as a whole
	FormatChoice     = "choice" // one of a list of texts
)

// ResponseFormat constrains the answer's text.
type ResponseFormat struct {
	Type       string      `json:"type"`
	JSONSchema *JSONSchema `json:"json_schema,omitempty"` // only with FormatJSONSchema
	Regex      string      `json:"regex,omitempty"`       // only with FormatRegex
	Choice     []string    `json:"choice,omitempty"`      // only with FormatChoice

	// Param is the request field that contains the constraint, such as guided_regex; empty if it is response_format.
	Param string `json:"-"`
}

// JSONSchema is a named schema. Package grammar decides whether the schema can be enforced.
type JSONSchema struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"` // schema with names in the order in which they were sent
	Strict      *bool           `json:"strict,omitempty"`
}

var formatFields = wire.Fields[ResponseFormat]{
	"type": wire.TextField(func(f *ResponseFormat) *string { return &f.Type }),
	"json_schema": {Read: func(c *wire.Reader, f *ResponseFormat) {
		f.JSONSchema = &JSONSchema{}
		wire.ReadObject(c, f.JSONSchema, schemaFields)
	}},
	"regex":  wire.TextField(func(f *ResponseFormat) *string { return &f.Regex }),
	"choice": {Read: func(c *wire.Reader, f *ResponseFormat) { f.Choice = readChoices(c) }},
}

var schemaFields = wire.Fields[JSONSchema]{
	"name":        wire.TextField(func(s *JSONSchema) *string { return &s.Name }),
	"description": wire.TextField(func(s *JSONSchema) *string { return &s.Description }),
	"strict":      wire.OptionalBool(func(s *JSONSchema) **bool { return &s.Strict }),
	"schema":      {Read: func(c *wire.Reader, s *JSONSchema) { s.Schema = readSchema(c) }},
}

func readFormat(c *wire.Reader) *ResponseFormat {
	f := &ResponseFormat{}
	wire.ReadObject(c, f, formatFields)
	return f
}

// readSchema reads an object and keeps its text.
func readSchema(c *wire.Reader) json.RawMessage {
	if c.Shape() != jsonscan.Object {
		c.WrongShape("an object, a JSON schema")
		return nil
	}
	return c.Raw()
}

func (f *ResponseFormat) check(p *wire.Problems) {
	const at = "response_format"
	switch f.Type {
	case FormatText, FormatJSONObject, FormatRegex, FormatChoice:
		f.checkText(p, at)
		if f.JSONSchema != nil {
			p.AddNew(wire.CodeInvalidValue, at+".json_schema", "only allowed with type %s, but the type is %s",
				FormatJSONSchema, f.Type)
		}
	case FormatJSONSchema:
		if f.JSONSchema == nil {
			p.AddNew(wire.CodeMissing, at+".json_schema", "required with type %s", FormatJSONSchema)
			return
		}
		checkName(p, at+".json_schema.name", f.JSONSchema.Name)
		if len(f.JSONSchema.Schema) == 0 {
			p.AddNew(wire.CodeMissing, at+".json_schema.schema", "required; for any JSON object use type %s",
				FormatJSONObject)
		}
	case "":
		p.AddNew(wire.CodeMissing, at+".type", "required: %s, %s, %s, %s or %s", FormatText, FormatJSONObject,
			FormatJSONSchema, FormatRegex, FormatChoice)
	default:
		p.AddNew(wire.CodeUnsupportedValue, at+".type", "%q is not supported; use %s, %s, %s, %s or %s",
			jsonscan.Clip(f.Type), FormatText, FormatJSONObject, FormatJSONSchema, FormatRegex, FormatChoice)
	}
}

// checkName checks that a name has only the characters that OpenAI allows for a function or a schema.
func checkName(p *wire.Problems, param, name string) {
	switch {
	case name == "":
		p.AddNew(wire.CodeMissing, param, "required")
	case len(name) > wire.MaxNameBytes:
		wire.WantShort(p, param, name, wire.MaxNameBytes)
	case !wire.PlainName(name):
		p.AddNew(wire.CodeInvalidValue, param, "%q may contain only letters, digits, '_' and '-'", jsonscan.Clip(name))
	}
}
