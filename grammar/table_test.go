package grammar

import (
	"testing"
)

// schemaCases returns schemas with documents that satisfy them and others that do not.
func schemaCases() []schemaCase {
	return []schemaCase{
		{
			"any value", `true`,
			[]string{`{}`, `[]`, `0`, `-0.5e+10`, `"x"`, `null`, `true`, `[1, [2, {"a": null}]]`,
				`{"a":{"b":[]},"c":"d"}`},
			[]string{``, `nul`, `01`, `1.`, `.5`, `+1`, `{a:1}`, `{"a" :1}`, `[1,]`, `{"a":1,}`, `"\x"`, "\"\n\"",
				`[1 2]`, `1e999`, `{`, ` 1`, `1 `},
		},
		{
			"object with required and optional members",
			`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"null"}},"required":["b"],"additionalProperties":false}`,
			[]string{`{"b":"x"}`, `{"a":1,"b":"x"}`, `{"a": 1, "b": "x", "c": null}`,
				"{\n  \"a\": 1,\n  \"b\": \"x\"\n}", `{"b":"","c":null}`},
			[]string{`{}`, `{"a":1}`, `{"b":"x","a":1}`, `{"b":"x","d":1}`, `{"b":"x","b":"y"}`, `{"b":1}`,
				`{"a":1.5,"b":""}`, `{"a":1,"c":null}`},
		},
		{
			"other members come last and are checked",
			`{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"boolean"}}`,
			[]string{`{}`, `{"a":1}`, `{"a":1,"b":true}`, `{"b":true,"c":false}`, `{"ab":true}`, `{"":true}`,
				`{"A":true}`, `{"\n":true}`, `{"é":false}`},
			[]string{`{"b":1}`, `{"a":true}`, `{"b":true,"a":1}`, `{"\u0061":true}`, `{"b":true,"a":true}`},
		},
		{
			"names with escapes",
			`{"type":"object","properties":{"a\"\\\u0001\n/é":{"const":1}},"required":["a\"\\\u0001\n/é"],"additionalProperties":false}`,
			[]string{`{"a\"\\\u0001\n/é":1}`}, []string{`{"a\"\\\u0001\u000a/é":1}`, `{"a":1}`},
		},
		{
			"arrays", `{"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3}`,
			[]string{`[1]`, `[1,2]`, `[1, 2, 3]`, "[\n  1,\n  2\n]"},
			[]string{`[]`, `[1,2,3,4]`, `["a"]`, `[1,]`, `[,1]`},
		},
		{
			"tuples",
			`{"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"items":false,"minItems":1}`,
			[]string{`["a"]`, `["a",1]`}, []string{`[]`, `["a",1,2]`, `[1]`, `["a","b"]`},
		},
		{
			"tuples with more", `{"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"null"}}`,
			[]string{`[]`, `["a"]`, `["a",null,null]`}, []string{`[null]`, `["a","b"]`},
		},
		{
			"enum", `{"enum":["red","reddish",3,4.50,null,true,{"a":[1]},[]]}`,
			[]string{`"red"`, `"reddish"`, `3`, `4.50`, `null`, `true`, `{"a": [1]}`, `{"a":[1]}`, `[]`},
			[]string{`"re"`, `"redd"`, `4`, `4.5`, `false`, `{}`, `{"a":[]}`, `[1]`, `"Red"`},
		},
		{
			"enum beside other keywords",
			`{"enum":["a","abc",1,2.5,10,null],"type":["string","integer"],"minLength":2,"maximum":5}`,
			[]string{`"abc"`, `1`}, []string{`"a"`, `2.5`, `10`, `null`},
		},
		{"const", `{"const":{"x":"é\u0007"}}`, []string{`{"x":"é\u0007"}`, `{"x": "é\u0007" }`},
			[]string{`{"x":"e"}`, `{}`}},
		{
			"several types", `{"type":["string","null"]}`, []string{`null`, `""`}, []string{`1`, `true`, `{}`},
		},
		{
			"strings take every escape", `{"type":"string"}`,
			[]string{`""`, `"é日😀"`, `"\"\\\/\b\f\n\r\t"`, `"\u00e9\uD83D\ude00\ud7ff\uE000"`, "\"\x7f\""},
			[]string{`"`, `"\u12"`, `"\ud800"`, `"\ude00"`, `"\ud83dx"`, `"\ud83d\u0041"`, "\"\x00\"", "\"\x80\"",
				"\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xe0\x80\x80\"", "\"\xf0\x80\x80\x80\"",
				"\"\xc3\""},
		},
		{
			"lengths count characters", `{"type":"string","minLength":2,"maxLength":3}`,
			[]string{`"ab"`, `"abc"`, `"日本"`, `"😀😀😀"`, `"\ud83d\ude00\n"`},
			[]string{`""`, `"a"`, `"abcd"`, `"😀"`, `"\ud83d\ude00"`, `"日本語文"`},
		},
		{
			"anchored pattern", `{"type":"string","pattern":"^[a-c]{2,3}-\\d+$"}`,
			[]string{`"ab-1"`, `"abc-001"`}, []string{`"a-1"`, `"abca-1"`, `"ab-"`, `"xab-1"`, `"ab-1 "`},
		},
		{
			"pattern anywhere", `{"type":"string","pattern":"b.d"}`,
			[]string{`"bad"`, `"abcdbedf"`, `"bbd"`, `"b\"d"`, `"b\u0001d"`, `"b日d"`, `"xb😀d\n"`},
			[]string{`"bd"`, `"ba"`, `"b\nd"`, `"b\u0022d"`, `""`, "\"b\xe0\x80\x80d\"", "\"b\xe0\x9f\xbfd\"",
				"\"b\xf0\x80\x80\x80d\"", "\"b\xf0\x8f\xbf\xbfd\"", "\"b\xed\xa0\x80d\"", "\"b\xc0\x80d\""},
		},
		{
			"pattern beyond ASCII", `{"type":"string","pattern":"^[é-ë日-本😀]+$"}`,
			[]string{`"é"`, `"êë"`, `"日本"`, `"😀"`}, []string{`"e"`, `"è"`, `"語"`, `"😁"`, `""`, "\"\xe0\x80\x80\""},
		},
		{
			"pattern with characters of every length", `{"type":"string","pattern":"^.$"}`,
			[]string{"\"\u0080\"", "\"\u07ff\"", "\"\u0800\"", "\"\uffff\"", "\"\U00010000\"", "\"\U000fffff\"",
				"\"\U00100000\"", "\"\U0010ffff\""},
			[]string{"\"\xc1\xbf\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xf5\x80\x80\x80\""},
		},
		{
			"pattern with lengths", `{"type":"string","pattern":"^(ab)*$","minLength":3,"maxLength":7}`,
			[]string{`"abab"`, `"ababab"`}, []string{`""`, `"ab"`, `"aba"`, `"abababab"`},
		},
		{
			"half-anchored alternatives", `{"type":"string","pattern":"^a|b$"}`,
			[]string{`"a"`, `"ax"`, `"xb"`, `"b"`}, []string{`"xa"`, `"bx"`, `""`},
		},
		{
			"pattern with spaces of ECMA-262", `{"type":"string","pattern":"^[\\s\\S]\\s\\S\\u0041$"}`,
			[]string{"\"x xA\"", "\"\\n\u00a0xA\""}, []string{`"xxxA"`, "\"x \u00a0A\""},
		},
		{"date", `{"type":"string","format":"date"}`,
			[]string{`"2024-02-29"`, `"1999-12-31"`, `"2000-02-29"`, `"2023-04-30"`},
			[]string{`"2023-02-29"`, `"1900-02-29"`, `"2023-04-31"`, `"2023-13-01"`, `"23-01-01"`}},
		{"date-time", `{"type":"string","format":"date-time"}`,
			[]string{`"2024-02-29T23:59:59Z"`, `"2024-01-01T00:00:00.125+05:30"`},
			[]string{`"2024-01-01"`, `"2024-01-01T24:00:00Z"`, `"2024-01-01T00:00:00"`}},
		{"uuid", `{"type":"string","format":"uuid"}`, []string{`"123e4567-e89b-12d3-a456-426614174000"`},
			[]string{`"123e4567e89b12d3a456426614174000"`}},
		{"email", `{"type":"string","format":"email"}`, []string{`"a.b+c@example.co.uk"`},
			[]string{`"a@"`, `"@b.de"`, `"a b@c.de"`}},
		{"ipv4", `{"type":"string","format":"ipv4"}`, []string{`"127.0.0.1"`, `"255.255.255.255"`},
			[]string{`"256.0.0.1"`, `"1.2.3"`, `"01.2.3.4"`}},
		{"ipv6", `{"type":"string","format":"ipv6"}`,
			[]string{`"::1"`, `"2001:db8::8a2e"`, `"1:2:3:4:5:6:7:8"`, `"::"`},
			[]string{`"1:2"`, `"1:2:3:4:5:6:7:8:9"`, `"g::"`}},
		{"uri", `{"type":"string","format":"uri"}`,
			[]string{`"https://example.com/a/b?c=d#e"`, `"http://localhost:8080"`},
			[]string{`"example.com"`, `"http://"`}},
		{"hostname and duration and time",
			`{"type":"array","prefixItems":[{"type":"string","format":"hostname"},{"type":"string","format":"duration"},{"type":"string","format":"time"}]}`,
			[]string{`["a-b.example.com","P1Y2M3D","12:00:00Z"]`, `["x","PT36H","00:00:00+00:00"]`},
			[]string{`["-a","P1D","12:00:00Z"]`, `["a","P","12:00:00Z"]`, `["a","P1D","12:00"]`}},
		{"OpenAPI's formats of numbers", `{"type":"integer","format":"int32"}`, []string{`2147483647`, `-2147483648`},
			[]string{`2147483648`, `-2147483649`}},
		{
			"integers", `{"type":"integer"}`, []string{`0`, `-1`, `123456789012345678`},
			[]string{`-0`, `00`, `1.0`, `1e3`, `1234567890123456789`, `-`},
		},
		{
			"integer range", `{"type":"integer","minimum":-15,"exclusiveMaximum":120}`,
			[]string{`-15`, `-1`, `0`, `5`, `15`, `99`, `100`, `119`},
			[]string{`-16`, `-20`, `120`, `121`, `200`, `1000`, `-100`, `-0`},
		},
		{
			"integer range far from zero", `{"type":"integer","minimum":1995,"maximum":2026}`,
			[]string{`1995`, `1999`, `2000`, `2019`, `2026`},
			[]string{`1994`, `2027`, `2030`, `3`, `199`, `19951`, `0`, `-2000`},
		},
		{"one integer", `{"type":"integer","minimum":7,"maximum":7}`, []string{`7`}, []string{`6`, `8`, `70`}},
		{"negative integers", `{"type":"integer","maximum":-3}`, []string{`-3`, `-10`, `-999`},
			[]string{`-2`, `0`, `1`, `-0`}},
		{"multiples", `{"type":"integer","multipleOf":7,"minimum":10,"maximum":50}`, []string{`14`, `21`, `49`},
			[]string{`7`, `15`, `56`, `0`}},
		{"multiples of two steps", `{"type":"integer","multipleOf":4,"allOf":[{"multipleOf":6}]}`,
			[]string{`0`, `12`, `-24`}, []string{`4`, `6`, `18`}},
		{
			"number range", `{"type":"number","minimum":0.5,"exclusiveMaximum":2}`,
			[]string{`0.5`, `0.50`, `1`, `1.0`, `1.999`, `0.75`},
			[]string{`0.4`, `0.49999`, `2`, `2.0`, `0`, `-1`, `1e0`, `3`, `20`},
		},
		{"numbers around zero", `{"type":"number","exclusiveMinimum":-0.1,"maximum":0.1}`,
			[]string{`0`, `-0`, `-0.0`, `0.1`, `-0.09999`, `0.05`}, []string{`-0.1`, `0.11`, `-0.11`, `1`}},
		{"decimal multiples", `{"type":"number","multipleOf":0.25,"minimum":-1,"maximum":1}`,
			[]string{`0.25`, `-0.75`, `1`, `0.5`, `0.50`, `-1.00`}, []string{`0.1`, `0.255`, `1.25`, `0.26`}},
		{
			"anyOf",
			`{"anyOf":[{"type":"integer"},{"type":"array","items":{"type":"integer"}},{"type":"array","items":{"type":"string"}}]}`,
			[]string{`1`, `[]`, `[1,2]`, `["a"]`}, []string{`"a"`, `[1,"a"]`, `["a",1]`, `[[]]`},
		},
		{
			"alternatives that share their beginning",
			`{"oneOf":[{"type":"object","properties":{"kind":{"const":"circle"},"r":{"type":"number"}},"required":["kind","r"],"additionalProperties":false},{"type":"object","properties":{"kind":{"const":"rect"},"w":{"type":"number"}},"required":["kind","w"],"additionalProperties":false}]}`,
			[]string{`{"kind":"circle","r":1}`, `{"kind":"rect","w":2}`},
			[]string{`{"kind":"circle","w":1}`, `{"kind":"rect"}`, `{"r":1}`},
		},
		{
			"allOf merges",
			`{"allOf":[{"type":"object","properties":{"a":{"type":"number"}},"required":["a"]},{"properties":{"a":{"minimum":3},"b":{"type":"string"}},"required":["b"]}],"additionalProperties":true}`,
			[]string{`{"a":3,"b":""}`, `{"a":4.5,"b":"x","c":[]}`}, []string{`{"a":2,"b":""}`, `{"a":3}`, `[]`},
		},
		{
			"allOf with additionalProperties",
			`{"allOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}],"type":"object"}`,
			[]string{`{}`, `{"a":1}`}, []string{`{"b":1}`, `{"c":1}`},
		},
		{
			"keywords beside anyOf",
			`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"additionalProperties":false,"anyOf":[{"required":["a"]},{"required":["b"]}]}`,
			[]string{`{"a":1}`, `{"b":1}`, `{"a":1,"b":2}`}, []string{`{}`},
		},
		{
			"recursion",
			`{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}}}`,
			[]string{`{"v":1,"next":null}`, `{"v":1,"next":{"v":2,"next":{"v":3,"next":null}}}`},
			[]string{`{"v":1}`, `{"v":1,"next":{}}`, `null`},
		},
		{
			"recursion to the root", `{"type":"array","items":{"$ref":"#"}}`, []string{`[]`, `[[],[[]]]`},
			[]string{`[1]`, `{}`},
		},
		{
			"keywords beside a reference",
			`{"$defs":{"n":{"type":"integer","minimum":0}},"$ref":"#/$defs/n","maximum":9}`, []string{`0`, `9`},
			[]string{`10`, `-1`},
		},
		{
			"definitions with escaped names",
			`{"definitions":{"a/b~c d":{"const":1}},"$ref":"#/definitions/a~1b~0c%20d"}`, []string{`1`}, []string{`2`},
		},
		{
			"required without a property",
			`{"type":"object","properties":{"a":{"const":1}},"required":["z"],"additionalProperties":{"type":"integer"}}`,
			[]string{`{"z":5}`, `{"a":1,"z":5,"y":6}`}, []string{`{"a":1}`, `{"z":"x"}`, `{"y":6,"z":5}`},
		},
		{
			"an impossible optional property is never written",
			`{"type":"object","properties":{"a":false,"b":{"const":1}},"required":["b"]}`,
			[]string{`{"b":1}`, `{"b":1,"c":2}`}, []string{`{"a":1,"b":1}`, `{"b":1,"a":1}`},
		},
		{
			"whitespace is bounded", `{"type":"array","items":{"const":1}}`,
			[]string{`[ 1 ]`, "[\n1\n]", "[\n\t\t1,\n\t\t1\n]", "[ ]"},
			[]string{"[  1]", "[\n\n1]", "[1 ,1]", "[\n \t1]", "[\r\n1]", "[\t1]"},
		},
	}
}

type schemaCase struct {
	name   string
	schema string
	accept []string
	reject []string
}

// TestSchemas checks that valid documents are accepted to their end and complete there, and that invalid documents are
// not.
func TestSchemas(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	for _, c := range schemaCases() {
		t.Run(c.name, func(t *testing.T) {
			g, err := Compile([]byte(c.schema), tokens)
			if err != nil {
				t.Fatal(err)
			}
			for _, doc := range c.accept {
				s := g.Start()
				if err := s.AcceptString(doc); err != nil {
					t.Errorf("%s: %v", doc, err)
				} else if !s.Done() {
					t.Errorf("%s: not complete", doc)
				}
			}
			for _, doc := range c.reject {
				s := g.Start()
				if err := s.AcceptString(doc); err == nil && s.Done() {
					t.Errorf("%q was accepted", doc)
				}
			}
		})
	}
}
