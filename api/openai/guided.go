package openai

import "encoding/json"

// Structured output as the clients of vLLM spell it: guided_json, guided_regex, guided_choice, and structured_outputs
// with the same inside. Each becomes a response format.

// MaxFormatChoices bounds the texts of a response format of type choice.
const MaxFormatChoices = 1024

var guidedFields = fields[Options]{
	"guided_json":   {read: func(c *cursor, o *Options) { o.constrain(c, readGuidedSchema(c)) }},
	"guided_regex":  {read: func(c *cursor, o *Options) { o.constrain(c, readGuidedRegex(c)) }},
	"guided_choice": {read: func(c *cursor, o *Options) { o.constrain(c, readGuidedChoice(c)) }},
	"structured_outputs": {read: func(c *cursor, o *Options) {
		readObject(c, o, structuredFields)
	}},
}

var structuredFields = fields[Options]{
	"json":   {read: func(c *cursor, o *Options) { o.constrain(c, readGuidedSchema(c)) }},
	"regex":  {read: func(c *cursor, o *Options) { o.constrain(c, readGuidedRegex(c)) }},
	"choice": {read: func(c *cursor, o *Options) { o.constrain(c, readGuidedChoice(c)) }},
	"json_object": {read: func(c *cursor, o *Options) {
		if yes, ok := c.boolean(); ok && yes {
			o.constrain(c, &ResponseFormat{Type: FormatJSONObject})
		}
	}},
	"grammar": refuse[Options]("use json, regex or choice"),
}

// constrain sets the response format, which can be said once.
func (o *Options) constrain(c *cursor, f *ResponseFormat) {
	switch {
	case f == nil: // reported already
	case o.ResponseFormat != nil:
		c.problem(CodeInvalidValue, "the answer is constrained twice; send one of response_format, guided_json, "+
			"guided_regex, guided_choice and structured_outputs")
	default:
		o.ResponseFormat = f
	}
}

// readGuidedSchema takes a schema as an object, or as its text.
func readGuidedSchema(c *cursor) *ResponseFormat {
	var schema json.RawMessage
	switch c.shape() {
	case shapeObject:
		schema = c.raw()
	case shapeString:
		if schema = json.RawMessage(c.text()); !json.Valid(schema) {
			c.problem(CodeInvalidValue, "a string that is not JSON; send the schema as an object")
			return nil
		}
	default:
		c.wrongShape("an object, a JSON schema")
		return nil
	}
	return &ResponseFormat{Type: FormatJSONSchema, JSONSchema: &JSONSchema{Name: "guided", Schema: schema}}
}

func readGuidedRegex(c *cursor) *ResponseFormat {
	text, ok := c.str()
	if !ok {
		return nil
	}
	return &ResponseFormat{Type: FormatRegex, Regex: text}
}

func readGuidedChoice(c *cursor) *ResponseFormat {
	list := readChoices(c)
	if list == nil {
		return nil
	}
	return &ResponseFormat{Type: FormatChoice, Choice: list}
}

func readChoices(c *cursor) []string {
	if c.shape() != shapeArray {
		c.wrongShape("an array of strings")
		return nil
	}
	return readList(c, MaxFormatChoices, "strings", c.str)
}

// checkText reports a format of type regex or choice without what it needs.
func (f *ResponseFormat) checkText(p *problems, at string) {
	if f.Type == FormatRegex && f.Regex == "" {
		p.addNew(CodeMissing, at+".regex", "required with type %s", FormatRegex)
	}
	if f.Type == FormatChoice && len(f.Choice) == 0 {
		p.addNew(CodeMissing, at+".choice", "required with type %s: the texts to choose from", FormatChoice)
	}
}
