package openai

import (
	"encoding/json"

	"sparrow/internal/jsonscan"
)

// The types of a response format.
const (
	FormatText       = "text"
	FormatJSONObject = "json_object"
	FormatJSONSchema = "json_schema"
)

// ResponseFormat constrains the answer's text.
type ResponseFormat struct {
	Type       string      `json:"type"`
	JSONSchema *JSONSchema `json:"json_schema,omitempty"` // with FormatJSONSchema only
}

// JSONSchema is a named schema. Whether the schema itself can be enforced is the grammar's to say.
type JSONSchema struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"` // names in the order sent
	Strict      *bool           `json:"strict,omitempty"`
}

var formatFields = fields[ResponseFormat]{
	"type": textField(func(f *ResponseFormat) *string { return &f.Type }),
	"json_schema": {read: func(c *cursor, f *ResponseFormat) {
		f.JSONSchema = &JSONSchema{}
		readObject(c, f.JSONSchema, schemaFields)
	}},
}

var schemaFields = fields[JSONSchema]{
	"name":        textField(func(s *JSONSchema) *string { return &s.Name }),
	"description": textField(func(s *JSONSchema) *string { return &s.Description }),
	"strict":      optionalBool(func(s *JSONSchema) **bool { return &s.Strict }),
	"schema":      {read: func(c *cursor, s *JSONSchema) { s.Schema = readSchema(c) }},
}

func readFormat(c *cursor) *ResponseFormat {
	f := &ResponseFormat{}
	readObject(c, f, formatFields)
	return f
}

// readSchema takes an object and keeps its text.
func readSchema(c *cursor) json.RawMessage {
	if c.shape() != shapeObject {
		c.wrongShape("an object, a JSON schema")
		return nil
	}
	return c.raw()
}

func (f *ResponseFormat) check(p *problems) {
	const at = "response_format"
	switch f.Type {
	case FormatText, FormatJSONObject:
		if f.JSONSchema != nil {
			p.addNew(CodeInvalidValue, at+".json_schema", "only allowed with type %s, and the type is %s",
				FormatJSONSchema, f.Type)
		}
	case FormatJSONSchema:
		if f.JSONSchema == nil {
			p.addNew(CodeMissing, at+".json_schema", "required with type %s", FormatJSONSchema)
			return
		}
		checkName(p, at+".json_schema.name", f.JSONSchema.Name)
		if len(f.JSONSchema.Schema) == 0 {
			p.addNew(CodeMissing, at+".json_schema.schema", "required; for any JSON object use type %s",
				FormatJSONObject)
		}
	case "":
		p.addNew(CodeMissing, at+".type", "required: %s, %s or %s", FormatText, FormatJSONObject, FormatJSONSchema)
	default:
		p.addNew(CodeUnsupportedValue, at+".type", "%q is not supported; use %s, %s or %s", jsonscan.Clip(f.Type),
			FormatText, FormatJSONObject, FormatJSONSchema)
	}
}

// checkName wants the letters that OpenAI allows in the name of a function or a schema.
func checkName(p *problems, param, name string) {
	switch {
	case name == "":
		p.addNew(CodeMissing, param, "required")
	case len(name) > MaxNameBytes:
		wantShort(p, param, name, MaxNameBytes)
	case !plainName(name):
		p.addNew(CodeInvalidValue, param, "%q may hold only letters, digits, '_' and '-'", jsonscan.Clip(name))
	}
}
