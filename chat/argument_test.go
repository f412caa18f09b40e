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
