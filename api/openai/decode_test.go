package openai

import (
	"fmt"
	"slices"
	"sparrow/internal/wire"
	"strings"
	"testing"
)

func strictChat(body []byte) (*ChatRequest, *wire.Error) {
	return DecodeChat(&wire.Decoder{Strict: true}, body)
}

func strictCompletion(body []byte) (*CompletionRequest, *wire.Error) {
	return DecodeCompletion(&wire.Decoder{Strict: true}, body)
}

func strictTokenize(body []byte) (*TokenizeRequest, *wire.Error) {
	return DecodeTokenize(&wire.Decoder{Strict: true}, body)
}

func strictDetokenize(body []byte) (*DetokenizeRequest, *wire.Error) {
	return DecodeDetokenize(&wire.Decoder{Strict: true}, body)
}

// lenient returns a decoder that ignores unknown fields.
func lenient[T any](read func(*wire.Decoder, []byte) (*T, *wire.Error)) func([]byte) (*T, *wire.Error) {
	return func(body []byte) (*T, *wire.Error) { return read(&wire.Decoder{}, body) }
}

func TestFieldsWithoutEffectAreNamed(t *testing.T) {
	const listed = 32
	many := make([]string, listed, listed+1)
	var fields strings.Builder
	for i := range 2 * listed {
		if i < listed {
			many[i] = fmt.Sprintf("x%d", i)
		}
		fmt.Fprintf(&fields, `"x%d":1,`, i)
	}
	for _, c := range []struct {
		name, body string
		ignored    []string
	}{
		{"nothing", chatWith(`"n":1`), nil},
		{"an unknown field", chatWith(`"temprature":1`), []string{"temprature"}},
		{"null is the same as nothing", chatWith(`"foo":null,"user":null`), nil},
		{"a known one that changes nothing", chatWith(`"user":"u","foo":{"a":[1]}`), []string{"user", "foo"}},
		{"one name at several places",
			chatOf(`{"role":"user","content":"a","id":1},{"role":"user","content":"b","id":2}`),
			[]string{"messages[].id"}},
		{"a message as other tools return it", chatOf(`{"role":"user","content":[{"type":"text","text":"x",
			"cache_control":{"type":"ephemeral"}}]},{"role":"assistant","id":"msg_1","content":null,"refusal":null,
			"audio":null,"function_call":null,"annotations":[],"provider_specific_fields":{"a":1},
			"tool_calls":[{"id":"1","index":0,"type":"function","extra":1,
			"function":{"name":"f","arguments":"{\"a"}}]}`),
			[]string{"messages[].content[].cache_control", "messages[].id", "messages[].annotations",
				"messages[].provider_specific_fields", "messages[].tool_calls[].index",
				"messages[].tool_calls[].extra"}},
		{"how events are padded", chatWith(`"stream":true,"stream_options":{"include_obfuscation":true}`),
			[]string{"stream_options.include_obfuscation"}},
		{"names that no header could hold", chatWith(`"a\r\nb":1,"é":1`), []string{`["a\r\nb"]`, `["\u00e9"]`}},
		{"more than are listed", chatWith(fields.String() + `"n":1`), append(many, "...")},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d wire.Decoder
			if _, err := DecodeChat(&d, []byte(c.body)); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(d.Ignored, c.ignored) {
				t.Errorf("ignored %q, want %q", d.Ignored, c.ignored)
			}
		})
	}
}

func TestWhatCannotBeHonouredIsRefusedThoughUnknownFieldsAreNot(t *testing.T) {
	checkRejections(t, lenient(DecodeChat), []rejection{
		{"functions", chatWith(`"foo":1,"functions":[{}]`), "functions[0].name",
			"missing_required_parameter", "required"},
		{"a verbosity", chatWith(`"verbosity":"some"`), "verbosity", "invalid_value", "low, medium, high"},
		{"a grammar", chatWith(`"guided_grammar":"x"`), "guided_grammar", "unsupported_parameter", "response_format"},
		{"the older form of a call", chatOf(`{"role":"assistant","content":"x","function_call":{"arguments":"{}"}}`),
			"messages[0].tool_calls[0].function.name", "missing_required_parameter", "required"},
		{"a name twice", chatWith(`"foo":1,"foo":2`), "foo", "duplicate_parameter", "twice"},
		{"a wrong type", chatWith(`"foo":1,"n":"x"`), "n", "invalid_type", "an integer"},
	})
}

func TestLimitsOnTokens(t *testing.T) {
	for _, c := range []struct {
		fields string
		limit  int
		ok     bool
	}{
		{`"n":1`, 0, false}, {`"max_tokens":5`, 5, true}, {`"max_completion_tokens":6`, 6, true},
		{`"max_tokens":-1`, 0, false}, {`"max_completion_tokens":-1,"min_tokens":3`, 0, false},
	} {
		r, err := strictChat([]byte(chatWith(c.fields)))
		if err != nil {
			t.Fatal(err)
		}
		if limit, ok := r.NewTokens(); limit != c.limit || ok != c.ok {
			t.Errorf("%s: %d, %v", c.fields, limit, ok)
		}
	}
	for fields, want := range map[string]int{
		`"n":1`: DefaultCompletionTokens, `"max_tokens":-1`: Unlimited, `"max_completion_tokens":7`: 7,
		`"max_tokens":7,"max_completion_tokens":7`: 7,
	} {
		r, err := strictCompletion([]byte(textWith(fields)))
		if err != nil || r.NewTokens() != want {
			t.Errorf("%s: %+v, %v", fields, r, err)
		}
	}
}
