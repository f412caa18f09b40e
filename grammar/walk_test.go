package grammar

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// walkSchemas lists schemas whose keywords easily lead to dead ends: bounds that the end of a value must meet, choices
// that exclude others, and names that several patterns match.
var walkSchemas = []string{
	`{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},"minProperties":2,
		"additionalProperties":false}`,
	`{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},"maxProperties":2,
		"required":["c"]}`,
	`{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"},"d":{"type":"null"}},
		"minProperties":3,"maxProperties":3,"required":["b"],"additionalProperties":false}`,
	`{"type":"object","patternProperties":{"^a":{"type":"integer"},"b$":{"minimum":5}},"additionalProperties":false,
		"maxProperties":2}`,
	`{"type":"object","properties":{"ab":{"maximum":9}},"patternProperties":{"a":{"type":"integer"}},
		"additionalProperties":{"type":"null"}}`,
	`{"type":"object","propertyNames":{"pattern":"^[ab]{1,2}$"},"properties":{"abc":true,"ab":{"type":"null"}},
		"minProperties":1}`,
	`{"type":"object","propertyNames":{"enum":["x","y"]},"additionalProperties":{"type":"boolean"}}`,
	`{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},
		"dependentRequired":{"a":["c"],"b":["a"]},"additionalProperties":false}`,
	`{"type":"array","items":{"type":["integer","null"],"maximum":3},"contains":{"type":"null"},"maxItems":3}`,
	`{"type":"array","items":{"type":["integer","null"]},"contains":{"type":"null"},"minContains":2,"maxContains":2,
		"minItems":3,"maxItems":5}`,
	`{"type":"array","prefixItems":[{"type":"null"},{"type":"boolean"}],"items":{"enum":[1,2]},
		"contains":{"const":2},"maxItems":4}`,
	`{"type":"array","items":{"enum":["a","ab",1,{"x":1},[]]},"uniqueItems":true,"minItems":4}`,
	`{"type":"array","items":{"type":["boolean","null"]},"uniqueItems":true}`,
	`{"type":["array","null"],"items":{"enum":[1,2,1]},"uniqueItems":true,"minItems":3}`,
	`{"type":["array","null"],"items":{"enum":[1,2]},"uniqueItems":true,"minItems":2,"maxItems":9}`,
	`{"type":"string","not":{"enum":["a","ab"]},"maxLength":2,"pattern":"^[ab]*$"}`,
	`{"type":"string","not":{"pattern":"^a|b"},"maxLength":4}`,
	`{"type":"integer","not":{"enum":[3,5]},"minimum":2,"maximum":6}`,
	`{"type":"number","not":{"type":"integer"},"minimum":1,"maximum":2}`,
	`{"not":{"anyOf":[{"type":["object","string","number"]},{"const":null},{"const":[]}]}}`,
	`{"type":"array","items":{"type":"boolean"},"not":{"const":[true,false]},"maxItems":3}`,
	`{"oneOf":[{"type":"integer","minimum":3},{"type":"integer","maximum":7}]}`,
	`{"oneOf":[{"type":"string","maxLength":3},{"type":"string","minLength":2}]}`,
	`{"type":"object","properties":{"a":{"enum":[0,1]},"b":{"enum":[0,1]}},"additionalProperties":false,
		"oneOf":[{"required":["a"]},{"required":["b"]}]}`,
	`{"type":"object","properties":{"a":{"enum":[0,1]},"b":{"enum":[0,1]}},"required":["a"],
		"additionalProperties":false,"if":{"properties":{"a":{"const":1}}},"then":{"required":["b"]},
		"else":{"properties":{"b":{"const":0}}}}`,
	`{"type":"array","items":{"not":{"type":["object","array","string"]}},"maxItems":2,
		"not":{"items":{"type":"number"}}}`,
	`{"enum":[{"a":1},{"a":2,"b":[]},[1],"x"],"not":{"required":["b"]},"minProperties":1}`,
}

// TestWalks writes random documents under the mask: no document reaches a dead end, and the independent validator in
// validate_test.go accepts each.
func TestWalks(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	r := rand.New(rand.NewPCG(7, 8))
	for _, schema := range walkSchemas {
		g, err := CompileWith([]byte(schema), tokens, Options{Strict: true})
		if err != nil {
			t.Errorf("%s: %v", schema, err)
			continue
		}
		for range 60 {
			if doc := walk(t, g, r); check(schema, doc) != nil {
				t.Errorf("%s: %s: %v", schema, doc, check(schema, doc))
				break
			}
		}
	}
}

// walk returns a random document, written byte by byte under the mask. Bytes that end the document are preferred.
func walk(t *testing.T, g *Grammar, r *rand.Rand) string {
	s := g.Start()
	mask := make([]uint64, g.tokens.MaskWords())
	var doc []byte
	for len(doc) < 2000 {
		if s.Done() && (s.Final() || r.IntN(2) == 0) {
			return string(doc)
		}
		if err := s.Mask(mask); err != nil {
			t.Fatalf("after %s: %v", doc, err)
		}
		var allowed []byte
		for b := range 128 {
			if mask[b/64]>>(b%64)&1 == 1 && bytes.IndexByte([]byte(" \n\\"), byte(b)) < 0 {
				allowed = append(allowed, byte(b))
			}
		}
		if len(allowed) == 0 {
			t.Fatalf("stuck after %s", doc)
		}
		b := allowed[r.IntN(len(allowed))]
		if i := r.IntN(12); i < 6 && slices.Contains(allowed, `ab"xy,`[i]) {
			b = `ab"xy,`[i]
		}
		if len(doc) > 40 || r.IntN(3) == 0 {
			ends := `]}"0`
			if bytes.Count(doc, []byte{'"'})%2 == 1 { // inside a string, where no escapes are written
				ends = `"`
			}
			for _, c := range []byte(ends) {
				if slices.Contains(allowed, c) {
					b = c
					break
				}
			}
		}
		if err := s.Accept(int32(b)); err != nil {
			t.Fatal(err)
		}
		doc = append(doc, b)
	}
	t.Fatalf("no end: %.100s", doc)
	return ""
}

// TestIgnored checks that keywords that are not enforced are reported, and that Strict refuses them.
func TestIgnored(t *testing.T) {
	tokens := tokensOf(t)
	for _, c := range []struct {
		schema string
		want   []Ignored // expected keywords; their reasons are not compared
		writes string
	}{
		{`{"javaType":"x","title":"t","items":{"id":"a","links":[],"x-y":1}}`,
			[]Ignored{{Keyword: "javaType"}, {Pointer: "/items", Keyword: "id"}, {Pointer: "/items", Keyword: "links"},
				{Pointer: "/items", Keyword: "x-y"}}, `[1]`},
		{`{"type":"string","format":"isbn"}`, []Ignored{{Keyword: "format"}}, `"x"`},
		{`{"type":"string","pattern":"(?=a)b"}`, []Ignored{{Keyword: "pattern", Asserts: true}}, `"x"`},
		{`{"type":"array","uniqueItems":true}`, []Ignored{{Keyword: "uniqueItems", Asserts: true}}, `[1,1]`},
		{`{"type":"object","patternProperties":{"(?=a)":true},"additionalProperties":false}`,
			[]Ignored{{Keyword: "additionalProperties", Asserts: true}, {Keyword: "patternProperties", Asserts: true}},
			`{"b":1}`},
		{`{"properties":{"a":{"not":{"format":"date"}},"b":{"not":{"type":"string"}}}}`,
			[]Ignored{{Pointer: "/properties/a", Keyword: "not", Asserts: true}}, `{"a":"2024-01-01","b":1}`},
		{`{"oneOf":[{"type":"string","format":"date"},{"type":"string","maxLength":99},{"type":"null"}]}`,
			[]Ignored{{Keyword: "oneOf", Asserts: true}}, `"2024-01-01"`},
		{`{"$ref":"https://example.com/a","type":"null"}`, []Ignored{{Keyword: "$ref", Asserts: true}}, `null`},
	} {
		g, err := Compile([]byte(c.schema), tokens)
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		got := g.Ignored()
		for i := range got {
			if got[i].Reason == "" {
				t.Errorf("%s: %+v has no reason", c.schema, got[i])
			}
			got[i].Reason = ""
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.schema, got, c.want)
		}
		s := g.Start()
		if err := s.AcceptString(c.writes); err != nil || !s.Done() {
			t.Errorf("%s: %s: %v", c.schema, c.writes, err)
		}
		if _, err := CompileWith([]byte(c.schema), tokens, Options{Strict: true}); err == nil {
			t.Errorf("%s: not refused when strict", c.schema)
		}
	}
}

// TestLooseOneOf checks that a oneOf that cannot be enforced as "exactly one" is enforced as "at least one".
func TestLooseOneOf(t *testing.T) {
	g := compile(t, tokensOf(t), `{"oneOf":[{"type":"string","format":"date"},{"type":"string","maxLength":99}]}`)
	if err := g.Start().AcceptString(`5`); err == nil || len(g.Ignored()) != 1 {
		t.Errorf("a number: %v; ignored %v", err, g.Ignored())
	}
}

// TestManyPlacesAreLeftOut checks a schema with more unenforceable keywords than the compiler tries to leave out one by
// one.
func TestManyPlacesAreLeftOut(t *testing.T) {
	var schema bytes.Buffer
	for i := range 40 {
		if i > 0 {
			schema.WriteByte(',')
		}
		schema.WriteString(`{"type":"array","uniqueItems":true,"maxItems":`)
		schema.WriteByte(byte('2' + i%8))
		schema.WriteString(`}`)
	}
	g, err := Compile([]byte(`{"prefixItems":[`+schema.String()+`]}`), tokensOf(t))
	if err != nil || len(g.Ignored()) != 40 {
		t.Fatalf("%v, %d places", err, len(g.Ignored()))
	}
}
