package openai

import (
	"reflect"
	"testing"
)

func TestGuidedSpellings(t *testing.T) {
	schema := func(at string) *ResponseFormat {
		return &ResponseFormat{Type: FormatJSONSchema, Param: at,
			JSONSchema: &JSONSchema{Name: "guided", Schema: []byte(`{"a":1}`)}}
	}
	regex := func(at string) *ResponseFormat {
		return &ResponseFormat{Type: FormatRegex, Regex: "a+", Param: at}
	}
	choice := func(at string) *ResponseFormat {
		return &ResponseFormat{Type: FormatChoice, Choice: []string{"x", "y"}, Param: at}
	}
	for members, want := range map[string]*ResponseFormat{
		`"guided_json":{"a":1}`:                                  schema("guided_json"),
		`"guided_json":"{\"a\":1}"`:                              schema("guided_json"),
		`"structured_outputs":{"json":{"a":1}}`:                  schema("structured_outputs.json"),
		`"guided_regex":"a+"`:                                    regex("guided_regex"),
		`"structured_outputs":{"regex":"a+"}`:                    regex("structured_outputs.regex"),
		`"response_format":{"type":"regex","regex":"a+"}`:        regex(""),
		`"guided_choice":["x","y"]`:                              choice("guided_choice"),
		`"structured_outputs":{"choice":["x","y"]}`:              choice("structured_outputs.choice"),
		`"response_format":{"type":"choice","choice":["x","y"]}`: choice(""),
		`"structured_outputs":{"json_object":true}`: {Type: FormatJSONObject,
			Param: "structured_outputs.json_object"},
		`"guided_json":null,"structured_outputs":null`: nil,
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
