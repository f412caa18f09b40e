package openai

import (
	"reflect"
	"testing"
)

func TestGuidedSpellings(t *testing.T) {
	schema := &ResponseFormat{Type: FormatJSONSchema,
		JSONSchema: &JSONSchema{Name: "guided", Schema: []byte(`{"a":1}`)}}
	regex := &ResponseFormat{Type: FormatRegex, Regex: "a+"}
	choice := &ResponseFormat{Type: FormatChoice, Choice: []string{"x", "y"}}
	for members, want := range map[string]*ResponseFormat{
		`"guided_json":{"a":1}`:                                  schema,
		`"guided_json":"{\"a\":1}"`:                              schema,
		`"structured_outputs":{"json":{"a":1}}`:                  schema,
		`"guided_regex":"a+"`:                                    regex,
		`"structured_outputs":{"regex":"a+"}`:                    regex,
		`"response_format":{"type":"regex","regex":"a+"}`:        regex,
		`"guided_choice":["x","y"]`:                              choice,
		`"structured_outputs":{"choice":["x","y"]}`:              choice,
		`"response_format":{"type":"choice","choice":["x","y"]}`: choice,
		`"structured_outputs":{"json_object":true}`:              {Type: FormatJSONObject},
		`"guided_json":null,"structured_outputs":null`:           nil,
	} {
		r, err := strictChat([]byte(chatWith(members)))
		if err != nil {
			t.Errorf("%s: %v", members, err)
			continue
		}
		if !reflect.DeepEqual(r.ResponseFormat, want) {
			t.Errorf("%s: got %+v", members, r.ResponseFormat)
		}
	}
}
