package grammar

import "testing"

// Strings that a negated schema lists are excluded, also beside a pattern, and references resolve against the address
// that draft 4 calls id.
func TestExcludedStringsAndOldAddresses(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	old := `{"id":"http://x/a.json","properties":{"a":{"$ref":"http://x/a.json#/definitions/n"}},` +
		`"definitions":{"n":{"type":"null"}},"additionalProperties":false}`
	for _, c := range []struct {
		schema    string
		good, bad []string
	}{
		{`{"type":"string","not":{"enum":["a","ab",1]},"maxLength":2,"pattern":"^[ab]*$"}`,
			[]string{`""`, `"b"`, `"aa"`, `"ba"`}, []string{`"a"`, `"ab"`, `"abb"`, `"c"`}},
		{`{"type":"string","not":{"const":"a"},"maxLength":2}`, []string{`""`, `"b"`, `"ab"`},
			[]string{`"a"`, `"abc"`}},
		{`{"type":"object","not":{"enum":[{"a":1},{}]}}`, []string{`{"a":2}`, `{"b":1}`, `{"a":1,"b":1}`},
			[]string{`{"a":1}`, `{}`, `{ "a" : 1 }`}},
		{`{"type":"array","not":{"const":[1,[]]}}`, []string{`[]`, `[1]`, `[1,1]`, `[2,[]]`, `[1,[],1]`, `[1,[1]]`},
			[]string{`[1,[]]`}},
		{old, []string{`{}`, `{"a":null}`}, []string{`{"a":1}`, `{"b":null}`}},
	} {
		g, err := Compile([]byte(c.schema), tokens)
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		for good, docs := range map[bool][]string{true: c.good, false: c.bad} {
			for _, doc := range docs {
				s := g.Start()
				if ok := s.AcceptString(doc) == nil && s.Done(); ok != good {
					t.Errorf("%s: %s is accepted: %v", c.schema, doc, ok)
				}
			}
		}
	}
}
