package chat

import (
	"encoding/json"
	"testing"
)

// The text of an argument becomes JSON by the types that its schema allows. If the schema allows a string and another
// type that is not a number, text in quotes is a string that contains the quotes, because these formats write strings
// without quotes.
func TestTextOfAnArgument(t *testing.T) {
	for _, c := range []struct{ schema, text, want string }{
		{`{"type": "string"}`, `"x"`, `"\"x\""`},
		{`{"type": "string"}`, `null`, `"null"`},
		{`{"type": ["string", "null"]}`, `"x"`, `"\"x\""`},
		{`{"type": ["string", "null"]}`, `null`, `null`},
		{`{"type": ["string", "null"]}`, `12`, `"12"`},
		{`{"anyOf": [{"type": "array"}, {"type": "string"}]}`, `"a, b"`, `"\"a, b\""`},
		{`{"anyOf": [{"type": "array"}, {"type": "string"}]}`, `["a"]`, `["a"]`},
		{`{"type": ["string", "boolean", "object"]}`, ` "x" `, `" \"x\" "`},
		{`{"type": ["string", "boolean", "object"]}`, `true`, `true`},
		{`{"type": ["string", "integer"]}`, `"x"`, `"x"`},
		{`{"type": ["string", "integer"]}`, `12`, `12`},
		{`{"type": ["string", "integer"]}`, `x y`, `"x y"`},
		{`{"type": "integer"}`, `"x"`, `"x"`},
		{`{}`, `"x"`, `"x"`},
	} {
		schema := `{"type": "object", "properties": {"a": ` + c.schema + `}}`
		tool := Tool{Name: "f", Parameters: json.RawMessage(schema)}
		if got := newToolTypes([]Tool{tool}, nil).kind("f", "a").json(c.text); got != c.want {
			t.Errorf("%s as %s is %s, want %s", c.text, c.schema, got, c.want)
		}
	}
}

// The kind of an argument follows from the types that its schema allows, directly, in unions, behind references inside
// the schema, or by the values of an enumeration if no type is given. References that lead nowhere allow every type.
func TestKindsOfArguments(t *testing.T) {
	deep, cycle := `{"type": "integer"}`, `{"$ref": "#/$defs/cycle"}`
	for range maxSchemaDepth {
		deep = `{"anyOf": [` + deep + `]}`
	}
	for schema, want := range map[string]valueKind{
		`{"type": "string"}`:                         valueString,
		`{"type": ["string", 3]}`:                    valueString,
		`{"type": "integer"}`:                        valueJSON,
		`{"type": ["string", "number"]}`:             valueUnknown,
		`{"type": ["string", "integer"]}`:            valueUnknown,
		`{"type": ["string", "boolean"]}`:            valueMixed,
		`{"allOf": [{"type": "string"}]}`:            valueString,
		`{"oneOf": [{"type": "array"}]}`:             valueJSON,
		`{"enum": ["a", "b"]}`:                       valueString,
		`{"enum": ["a", true]}`:                      valueMixed,
		`{"enum": ["a", 1]}`:                         valueUnknown,
		`{"enum": [1], "type": "string"}`:            valueString,
		`{"const": "a"}`:                             valueString,
		`{"const": null}`:                            valueJSON,
		`{"const": 1, "enum": ["a"]}`:                valueUnknown,
		`{"$ref": "#/$defs/city"}`:                   valueString,
		`{"$ref": "#/$defs/a~1b~0c"}`:                valueJSON,
		`{"$ref": "#/$defs/none"}`:                   valueUnknown,
		`{"$ref": "#/$defs/city/type/more"}`:         valueUnknown,
		`{"$ref": "city"}`:                           valueUnknown,
		`{"$ref": 3}`:                                valueUnknown,
		`{"$ref": "#/$defs/city", "type": "object"}`: valueMixed,
		`{}`:                        valueUnknown,
		`true`:                      valueUnknown,
		deep:                        valueJSON,
		`{"anyOf": [` + deep + `]}`: valueUnknown,
		cycle:                       valueUnknown,
	} {
		text := `{"type": "object", "properties": {"a": ` + schema + `}, "$defs": {"city": {"type": "string"},
			"a/b~c": {"type": "integer"}, "cycle": {"$ref": "#/$defs/cycle"}}}`
		types := newToolTypes([]Tool{{Name: "f", Parameters: json.RawMessage(text)}}, nil)
		if got := types.kind("f", "a"); got != want {
			t.Errorf("%s: kind %v, want %v", schema, got, want)
		}
		if a, b := types.kind("f", "b"), types.kind("g", "a"); a != valueUnknown || b != valueUnknown {
			t.Errorf("an argument or a tool that does not exist: %v, %v", a, b)
		}
	}
	for _, text := range []string{`{}`, `{"properties": []}`, `[]`, ``} {
		types := newToolTypes([]Tool{{Name: "f", Parameters: json.RawMessage(text)}}, nil)
		if got := types.kind("f", "a"); got != valueUnknown {
			t.Errorf("parameters %q: kind %v", text, got)
		}
	}
}
