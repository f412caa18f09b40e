package grammar

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"
)

// FuzzCompile checks that any bytes give either a SchemaError or a grammar whose output is valid JSON.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{
		`true`, `{"type":"object"}`, `{"type":["integer","null"],"minimum":-3,"multipleOf":4}`,
		`{"enum":[1,"a",{"b":[]}]}`, `{"$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/a"}}},"$ref":"#/$defs/a"}`,
		`{"type":"string","pattern":"^a|[^b]{2}$","maxLength":5}`,
		`{"allOf":[{"required":["a"]},{"properties":{"a":{"format":"date"}}}]}`,
		`{"type":"number","exclusiveMaximum":1.5e1,"multipleOf":0.25}`, benchSchema,
	} {
		f.Add([]byte(s), uint64(1))
	}
	tokens, err := NewTokens(newVocabulary(pieces...))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, schema []byte, seed uint64) {
		g, err := Compile(schema, tokens)
		if err != nil {
			var se *SchemaError
			if !errors.As(err, &se) {
				t.Fatalf("%q: %v is not a SchemaError", schema, err)
			}
			return
		}
		w := &walker{g: g, r: rand.New(rand.NewPCG(seed, 0)), budget: 30}
		text, ok := w.run(t)
		if !ok {
			return
		}
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("schema %q produced %q: %v", schema, text, err)
		}
	})
}

// FuzzPattern checks that any pattern gives either a SchemaError or a grammar whose mask always allows a token.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{`(yes|no)( \w+)?|"é\n?`, `[^a]{2,5}$`, `(?i)a|b*?`, `(a|b)*a(a|b){20}`, `\p{L}+\b`,
		`^$`, `[[:alpha:]]`, `(((((a?)*)*)*)*)*`, `a{0,1000}`, "\xff", `(?P<x>a)\1`} {
		f.Add(s, uint64(1))
	}
	tokens, err := NewTokens(newVocabulary(pieces...))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, pattern string, seed uint64) {
		g, err := Pattern(pattern, tokens)
		if err != nil {
			var se *SchemaError
			if !errors.As(err, &se) {
				t.Fatalf("%q: %v is not a SchemaError", pattern, err)
			}
			return
		}
		w := &walker{g: g, r: rand.New(rand.NewPCG(seed, 0)), budget: 30}
		w.run(t)
	})
}
