package grammar

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestCompileErrors(t *testing.T) {
	deep := strings.Repeat(`{"items":`, MaxSchemaDepth+1) + "true" + strings.Repeat("}", MaxSchemaDepth+1)
	cases := []struct {
		name    string
		schema  string
		kind    error
		pointer string
		keyword string
		says    string
	}{
		{"not JSON", `{"type":`, ErrSchema, "", "", "not JSON"},
		{"empty", ``, ErrSchema, "", "", "not JSON"},
		{"two documents", `{} {}`, ErrSchema, "", "", "after"},
		{"not UTF-8", "{\"title\":\"\xff\"}", ErrSchema, "", "", "UTF-8"},
		{"a name twice", `{"type":"null","type":"null"}`, ErrSchema, "", "", "twice"},
		{"not a schema", `[1]`, ErrSchema, "", "", "array"},
		{"not a schema inside", `{"properties":{"a/b":3}}`, ErrSchema, "/properties/a~1b", "", "number"},
		{"unknown type", `{"type":"text"}`, ErrSchema, "", "type", "integer"},
		{"no types", `{"type":[]}`, ErrSchema, "", "type", "empty"},
		{"keyword is unknown", `{"items":{"javaType":"x"}}`, ErrUnsupported, "/items", "javaType",
			"additionalProperties"},
		{"not everything", `{"not":{}}`, ErrUnsatisfiable, "", "", "no document"},
		{"opposite of a format", `{"not":{"format":"date"}}`, ErrUnsupported, "", "not", "opposite of format"},
		{"opposite of closed objects", `{"items":{"not":{"additionalProperties":false}}}`, ErrUnsupported, "/items",
			"not", "additionalProperties"},
		{"uniqueItems", `{"uniqueItems":true}`, ErrUnsupported, "", "uniqueItems", "compared"},
		{"unevaluatedProperties", `{"unevaluatedProperties":false}`, ErrUnsupported, "", "unevaluatedProperties",
			"enforced"},
		{"unknown format", `{"anyOf":[true,{"type":"string","format":"isbn"}]}`, ErrUnsupported, "/anyOf/1", "format",
			"date-time"},
		{"unknown format of a number", `{"type":"number","format":"isbn"}`, ErrUnsupported, "", "format", "int32"},
		{"lookahead", `{"type":"string","pattern":"(?=a)b"}`, ErrUnsupported, "", "pattern", "RE2"},
		{"backreference", `{"type":"string","pattern":"(a)\\1"}`, ErrUnsupported, "", "pattern", "RE2"},
		{"word boundary", `{"type":"string","pattern":"\\bab"}`, ErrUnsupported, "", "pattern", "word boundaries"},
		{"bad escape", `{"type":"string","pattern":"\\u12"}`, ErrUnsupported, "", "pattern", "hexadecimal"},
		{"exponential pattern", `{"type":"string","pattern":"^(a|b)*a(a|b){20}$"}`, ErrTooLarge, "", "pattern",
			"states"},
		{"long pattern", `{"type":"string","pattern":"` + strings.Repeat("a", MaxPatternBytes+1) + `"}`, ErrTooLarge,
			"", "pattern", "bytes"},
		{"pattern with a great length", `{"type":"string","pattern":"^[a-z]*$","maxLength":100000}`, ErrUnsupported, "",
			"maxLength", "only up to"},
		{"external reference", `{"$ref":"https://example.com/a"}`, ErrUnsupported, "", "$ref", "inside the schema"},
		{"reference to an anchor", `{"$ref":"#name"}`, ErrUnsupported, "", "$ref", "inside the schema"},
		{"reference to nothing", `{"items":{"$ref":"#/$defs/x"}}`, ErrSchema, "/items", "$ref", "does not exist"},
		{"reference to itself", `{"$ref":"#"}`, ErrSchema, "", "$ref", "itself"},
		{"reference in a circle",
			`{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"}]},"b":{"allOf":[{"$ref":"#/$defs/a"}]}}}`,
			ErrSchema, "/$defs/a", "$ref", "itself"},
		{"negative count", `{"minItems":-1}`, ErrSchema, "", "minItems", "0 or more"},
		{"broken count", `{"maxLength":1.5}`, ErrSchema, "", "maxLength", "whole number"},
		{"huge count", `{"minItems":99999999999}`, ErrTooLarge, "", "minItems", "supported"},
		{"bound as text", `{"minimum":"3"}`, ErrSchema, "", "minimum", "number"},
		{"bound with a huge exponent", `{"minimum":1e999999999}`, ErrUnsupported, "", "minimum", "exponent"},
		{"bound with many digits", `{"type":"number","minimum":1e-60}`, ErrUnsupported, "", "minimum", "digits"},
		{"step of zero", `{"multipleOf":0}`, ErrSchema, "", "multipleOf", "above 0"},
		{"step too large", `{"type":"integer","multipleOf":99999999999}`, ErrTooLarge, "", "multipleOf", "supported"},
		{"empty enum", `{"enum":[]}`, ErrSchema, "", "enum", "at least one"},
		{"number that does not parse", `{"const":1e400}`, ErrUnsupported, "", "const", "float64"},
		{"object in an enum that properties forbid", `{"enum":[{"a":1}],"properties":{"a":{"type":"null"}}}`,
			ErrUnsatisfiable, "", "", "enum"},
		{"empty anyOf", `{"anyOf":[]}`, ErrSchema, "", "anyOf", "at least one"},
		{"required as text", `{"required":"a"}`, ErrSchema, "", "required", "array"},
		{"nested too deep", deep, ErrTooLarge, "", "", "nested"},
		{"too long", `"` + strings.Repeat("x", MaxSchemaBytes) + `"`, ErrTooLarge, "", "", "bytes"},
		{"too many alternatives", `{"allOf":[` +
			strings.Repeat(`{"anyOf":[{"minLength":1},{"minLength":2},{"minLength":3}]},`, 8) +
			`{"anyOf":[{"maxLength":9},{"maxLength":8}]},{"anyOf":[{"maximum":1},{"maximum":2}]},{"anyOf":[{"minimum":1},{"minimum":2}]},` + manyChoices(8) + `]}`,
			ErrTooLarge, "", "anyOf", "combinations"},
		{"false", `false`, ErrUnsatisfiable, "", "", "no document"},
		{"bounds that cross", `{"type":"integer","minimum":3,"maximum":2}`, ErrUnsatisfiable, "", "", "minimum"},
		{"nothing between bounds", `{"type":"integer","exclusiveMinimum":2,"exclusiveMaximum":3}`, ErrUnsatisfiable, "",
			"", "minimum"},
		{"no multiple between bounds", `{"type":"integer","minimum":15,"maximum":20,"multipleOf":7}`, ErrUnsatisfiable,
			"", "", "minimum"},
		{"lengths that cross", `{"type":"string","minLength":3,"maxLength":2}`, ErrUnsatisfiable, "", "", "minLength"},
		{"pattern and length", `{"type":"string","pattern":"^a{3}$","minLength":4}`, ErrUnsatisfiable, "", "",
			"pattern"},
		{"two patterns", `{"type":"string","pattern":"^a+$","allOf":[{"pattern":"^b+$"}]}`, ErrUnsatisfiable, "", "",
			"pattern"},
		{"types that exclude each other", `{"type":"string","allOf":[{"type":"null"}]}`, ErrUnsatisfiable, "", "",
			"type"},
		{"enum without its type", `{"type":"string","enum":[1]}`, ErrUnsatisfiable, "", "", "enum"},
		{"required but false", `{"type":"object","properties":{"a":false},"required":["a"]}`, ErrUnsatisfiable, "", "",
			"no document"},
		{"required but not allowed", `{"type":"object","required":["a"],"additionalProperties":false}`,
			ErrUnsatisfiable, "", "", "no document"},
		{"items that cannot be", `{"type":"array","items":false,"minItems":1}`, ErrUnsatisfiable, "", "",
			"no document"},
		{"endless recursion", `{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, ErrUnsatisfiable,
			"", "", "itself"},
	}
	tokens := tokensOf(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := CompileWith([]byte(c.schema), tokens, Options{Strict: true})
			var se *SchemaError
			if !errors.As(err, &se) {
				t.Fatalf("got %v, want a *SchemaError", err)
			}
			if !errors.Is(err, c.kind) || se.Pointer != c.pointer || se.Keyword != c.keyword ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v\nwant %v at %q, keyword %q, with %q", err, c.kind, c.pointer, c.keyword, c.says)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}

// manyChoices returns a list of n independent choices: together they have 2^n combinations.
func manyChoices(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"anyOf":[{"required":["a%d"]},{"required":["b%d"]}]}`, i, i))
	}
	return strings.Join(list, ",")
}

// TestDeadEndsAreNotSearchedForEver checks that a schema with 2^40 combinations, all of them impossible, is refused as
// too large instead of being searched.
func TestDeadEndsAreNotSearchedForEver(t *testing.T) {
	_, err := Compile([]byte(`{"allOf":[`+manyChoices(40)+`,false]}`), tokensOf(t))
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

func TestLargeSchemasCompile(t *testing.T) {
	var props []string
	for i := range MaxProperties {
		props = append(props, fmt.Sprintf(`"property%d":{"type":["integer","null"]}`, i))
	}
	schema := `{"type":"object","properties":{` + strings.Join(props, ",") + `},"additionalProperties":false}`
	g, err := Compile([]byte(schema), tokensOf(t))
	if err != nil {
		t.Fatal(err)
	}
	s := g.Start()
	if err := s.AcceptString(`{"property3":1,"property700":null,"property1023":5}`); err != nil || !s.Done() {
		t.Errorf("%v, done %v", err, s.Done())
	}
	if err := g.Start().AcceptString(`{"property700":1,"property3":`); !errors.Is(err, ErrRejected) {
		t.Errorf("out of order: %v", err)
	}
	props = append(props, `"one more":true`)
	if _, err := Compile([]byte(`{"properties":{`+strings.Join(props, ",")+`}}`), tokensOf(t)); !errors.Is(err,
		ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}
