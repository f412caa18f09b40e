package openai

import (
	"cmp"
	"encoding/json"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// Structured output in vLLM's fields: guided_json, guided_regex, guided_choice, and structured_outputs with the members
// json, regex and choice. Each becomes a response format.

// MaxFormatChoices is the maximum number of texts in a response format of type choice.
const MaxFormatChoices = 1024

var guidedFields = wire.Fields[Options]{
	"guided_json":   {Read: func(c *wire.Reader, o *Options) { o.constrain(c, readGuidedSchema(c)) }},
	"guided_regex":  {Read: func(c *wire.Reader, o *Options) { o.constrain(c, readGuidedRegex(c)) }},
	"guided_choice": {Read: func(c *wire.Reader, o *Options) { o.constrain(c, readGuidedChoice(c)) }},
	"structured_outputs": {Read: func(c *wire.Reader, o *Options) {
		wire.ReadObject(c, o, structuredFields)
	}},
}

var structuredFields = wire.Fields[Options]{
	"json":   {Read: func(c *wire.Reader, o *Options) { o.constrain(c, readGuidedSchema(c)) }},
	"regex":  {Read: func(c *wire.Reader, o *Options) { o.constrain(c, readGuidedRegex(c)) }},
	"choice": {Read: func(c *wire.Reader, o *Options) { o.constrain(c, readGuidedChoice(c)) }},
	"json_object": {Read: func(c *wire.Reader, o *Options) {
		if yes, ok := c.Boolean(); ok && yes {
			o.constrain(c, &ResponseFormat{Type: FormatJSONObject, Param: c.Param()})
		}
	}},
	"grammar": wire.Refuse[Options]("use json, regex or choice"),
}

// constrain sets the response format. It reports an error if the format is already set.
func (o *Options) constrain(c *wire.Reader, f *ResponseFormat) {
	switch {
	case f == nil: // the reader has already reported the error
	case o.ResponseFormat != nil:
		c.Problem(wire.CodeInvalidValue, "the answer is constrained twice; send one of response_format, guided_json, "+
			"guided_regex, guided_choice and structured_outputs")
	default:
		o.ResponseFormat = f
	}
}

// readGuidedSchema reads a schema as an object, or as a string that contains the object.
func readGuidedSchema(c *wire.Reader) *ResponseFormat {
	var schema json.RawMessage
	switch c.Shape() {
	case jsonscan.Object:
		schema = c.Raw()
	case jsonscan.String:
		if schema = json.RawMessage(c.Text()); !json.Valid(schema) {
			c.Problem(wire.CodeInvalidValue, "is a string that is not JSON; send the schema as an object")
			return nil
		}
	default:
		c.WrongShape("an object, a JSON schema")
		return nil
	}
	return &ResponseFormat{Type: FormatJSONSchema, JSONSchema: &JSONSchema{Name: "guided", Schema: schema},
		Param: c.Param()}
}

func readGuidedRegex(c *wire.Reader) *ResponseFormat {
	text, ok := c.Str()
	if !ok {
		return nil
	}
	return &ResponseFormat{Type: FormatRegex, Regex: text, Param: c.Param()}
}

func readGuidedChoice(c *wire.Reader) *ResponseFormat {
	list := readChoices(c)
	if list == nil {
		return nil
	}
	return &ResponseFormat{Type: FormatChoice, Choice: list, Param: c.Param()}
}

func readChoices(c *wire.Reader) []string {
	if c.Shape() != jsonscan.Array {
		c.WrongShape("an array of strings")
		return nil
	}
	return wire.ReadList(c, MaxFormatChoices, "strings", c.Str)
}

// checkText requires a pattern in a format of type regex, and choices in a format of type choice.
func (f *ResponseFormat) checkText(p *wire.Problems, at string) {
	if f.Type == FormatRegex && f.Regex == "" {
		p.AddNew(wire.CodeMissing, cmp.Or(f.Param, at+".regex"), "required with type %s", FormatRegex)
	}
	if f.Type == FormatChoice && len(f.Choice) == 0 {
		p.AddNew(wire.CodeMissing, cmp.Or(f.Param, at+".choice"), "required with type %s: the texts to choose from",
			FormatChoice)
	}
}
