package openai

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func strictChat(body []byte) (*ChatRequest, *Error) { return (&Decoder{Strict: true}).Chat(body) }

func strictCompletion(body []byte) (*CompletionRequest, *Error) {
	return (&Decoder{Strict: true}).Completion(body)
}

func strictTokenize(body []byte) (*TokenizeRequest, *Error) {
	return (&Decoder{Strict: true}).Tokenize(body)
}

func strictDetokenize(body []byte) (*DetokenizeRequest, *Error) {
	return (&Decoder{Strict: true}).Detokenize(body)
}

func TestFieldsWithoutEffectAreNamed(t *testing.T) {
	many := make([]string, maxIgnored, maxIgnored+1)
	var fields strings.Builder
	for i := range 2 * maxIgnored {
		if i < maxIgnored {
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
		{"the usage of every chunk", chatWith(`"stream":true,"stream_options":{"continuous_usage_stats":true}`),
			[]string{"stream_options.continuous_usage_stats"}},
		{"names that no header could hold", chatWith(`"a\r\nb":1,"é":1`), []string{`["a\r\nb"]`, `["\u00e9"]`}},
		{"more than are listed", chatWith(fields.String() + `"n":1`), append(many, "...")},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Decoder
			if _, err := d.Chat([]byte(c.body)); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(d.Ignored, c.ignored) {
				t.Errorf("ignored %q, want %q", d.Ignored, c.ignored)
			}
		})
	}
}

func TestWhatCannotBeHonouredIsRefusedThoughUnknownFieldsAreNot(t *testing.T) {
	checkRejections(t, (&Decoder{}).Chat, []rejection{
		{"functions", chatWith(`"foo":1,"functions":[{}]`), "functions", "unsupported_parameter", "send tools"},
		{"a verbosity", chatWith(`"verbosity":"low"`), "verbosity", "unsupported_value", "only"},
		{"a grammar", chatWith(`"guided_grammar":"x"`), "guided_grammar", "unsupported_parameter", "response_format"},
		{"the older form of a call", chatOf(`{"role":"assistant","content":"x","function_call":{"name":"f"}}`),
			"messages[0].function_call", "unsupported_parameter", "send tool_calls"},
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
