package anthropic

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sparrow/api/openai"
	"sparrow/internal/wire"
)

// with returns the JSON text of a valid request with additional fields.
func with(fields string) string {
	return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],` + fields + `}`
}

// of returns the JSON text of a request with the given messages.
func of(messages string) string { return `{"model":"m","max_tokens":9,"messages":[` + messages + `]}` }

func TestRequestsAreRefusedByField(t *testing.T) {
	for _, c := range []struct{ name, body, param, code string }{
		{"an array", `[]`, "", "invalid_type"},
		{"no model", `{"max_tokens":1,"messages":[{"role":"user","content":"x"}]}`, "model",
			"missing_required_parameter"},
		{"no limit", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, "max_tokens",
			"missing_required_parameter"},
		{"two limits", with(`"max_tokens":-1`), "max_tokens", "duplicate_parameter"},
		{"a limit below 0", `{"model":"m","max_tokens":-1,"messages":[{"role":"user","content":"x"}]}`, "max_tokens",
			"value_out_of_range"},
		{"no messages", of(``), "messages", "missing_required_parameter"},
		{"no role", of(`{"content":"x"}`), "messages[0].role", "missing_required_parameter"},
		{"a role of OpenAI's", of(`{"role":"tool","content":"x"}`), "messages[0].role", "invalid_value"},
		{"no content", of(`{"role":"user"}`), "messages[0].content", "missing_required_parameter"},
		{"content that is a number", of(`{"role":"user","content":7}`), "messages[0].content", "invalid_type"},
		{"a block without a type", of(`{"role":"user","content":[{"text":"x"}]}`), "messages[0].content[0].type",
			"missing_required_parameter"},
		{"a text without text", of(`{"role":"user","content":[{"type":"text"}]}`), "messages[0].content[0].text",
			"missing_required_parameter"},
		{"an image", of(`{"role":"user","content":[{"type":"image","source":{}}]}`), "messages[0].content[0].type",
			"unsupported_value"},
		{"a document", of(`{"role":"user","content":[{"type":"document","source":{}}]}`), "messages[0].content[0].type",
			"unsupported_value"},
		{"what a server's tool returned", of(`{"role":"user","content":[{"type":"web_search_tool_result","content":[]}]}`),
			"messages[0].content[0].type", "unsupported_value"},
		{"thinking of the user", of(`{"role":"user","content":[{"type":"thinking","thinking":"x"}]}`),
			"messages[0].content[0].type", "invalid_value"},
		{"a call without an id", of(`{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{}}]}`),
			"messages[0].content[0].id", "missing_required_parameter"},
		{"arguments that are no object",
			of(`{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":[]}]}`),
			"messages[0].content[0].input", "invalid_type"},
		{"a result after text", of(`{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},
			{"role":"user","content":[{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"1"}]}`),
			"messages[1].content[1]", "invalid_value"},
		{"a system block that thinks", with(`"system":[{"type":"thinking","thinking":"x"}]`), "system",
			"invalid_value"},
		{"a stop sequence of spaces", with(`"stop_sequences":[" "]`), "stop_sequences[0]", "invalid_value"},
		{"a temperature", with(`"temperature":3`), "temperature", "value_out_of_range"},
		{"top_p", with(`"top_p":0`), "top_p", "value_out_of_range"},
		{"top_k", with(`"top_k":-1`), "top_k", "value_out_of_range"},
		{"thinking", with(`"thinking":{"type":"hard"}`), "thinking.type", "invalid_value"},
		{"a tool without a schema", with(`"tools":[{"name":"f"}]`), "tools[0].input_schema",
			"missing_required_parameter"},
		{"a tool's name", with(`"tools":[{"name":"a b","input_schema":{}}]`), "tools[0].name", "invalid_value"},
		{"a long name", with(`"tools":[{"name":"` + strings.Repeat("n", 129) + `","input_schema":{}}]`),
			"tools[0].name",
			"string_above_max_length"},
		{"two tools of one name", with(`"tools":[{"name":"f","input_schema":{}},{"name":"f","input_schema":{}}]`),
			"tools[1].name", "invalid_value"},
		{"a tool of Anthropic's", with(`"tools":[{"type":"bash_20250124","name":"bash"}]`), "tools[0].type",
			"unsupported_value"},
		{"a choice without tools", with(`"tool_choice":{"type":"any"}`), "tool_choice", "invalid_value"},
		{"a choice of no tool", with(`"tool_choice":{"type":"tool","name":"f"}`), "tool_choice.name", "invalid_value"},
		{"a choice of hosted tools", with(`"tools":[{"type":"web_search_20250305","name":"w"}],"tool_choice":{"type":"any"}`),
			"tool_choice", "unsupported_value"},
		{"a choice of a hosted tool", with(`"tools":[{"name":"f","input_schema":{}},
			{"type":"web_search_20250305","name":"w"}],"tool_choice":{"type":"tool","name":"w"}`), "tool_choice.name",
			"unsupported_value"},
		{"a choice without a type", with(`"tool_choice":{}`), "tool_choice.type", "missing_required_parameter"},
		{"a result that thinks", of(`{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"thinking",
			"thinking":"x"}]}]}`), "messages[1].content[0].content", "invalid_value"},
		{"a format without a schema", with(`"output_config":{"format":{"type":"json_schema"}}`), "output_config.format",
			"missing_required_parameter"},
		{"a budget for thinking", with(`"thinking":{"type":"enabled","budget_tokens":0}`),
			"thinking.budget_tokens", "value_out_of_range"},
		{"a format", with(`"output_config":{"format":{"type":"xml"}}`), "output_config.format", "unsupported_value"},
		{"a container", with(`"container":"c"`), "container", "unsupported_parameter"},
		{"servers", with(`"mcp_servers":[{}]`), "mcp_servers", "unsupported_parameter"},
	} {
		_, err := DecodeMessages(&wire.Decoder{}, []byte(c.body))
		if err == nil {
			t.Errorf("%s: accepted", c.name)
		} else if err.Param != c.param || string(err.Code) != c.code {
			t.Errorf("%s: %s %s, want %s %s: %s", c.name, err.Param, err.Code, c.param, c.code, err)
		}
	}
}

func TestWhatIsIgnoredIsNamed(t *testing.T) {
	var d wire.Decoder
	_, err := DecodeMessages(&d, []byte(with(`"metadata":{},"speed":"fast","mcp_servers":[],"cache_control":{},
		"thinking":{"type":"adaptive","display":"omitted"},"tools":[{"name":"f","input_schema":{},"defer_loading":true}]`)))
	want := []string{"metadata", "speed", "cache_control"}
	if err != nil || !slices.Equal(d.Ignored, want) {
		t.Errorf("%v, ignored %q, want %q", err, d.Ignored, want)
	}
	if _, err := DecodeMessages(&wire.Decoder{Strict: true}, []byte(with(`"speed":"fast"`))); err == nil {
		t.Error("a strict decoder accepts a field it does not know")
	}
}

func TestTurnsOfAChat(t *testing.T) {
	r, err := DecodeCount(&wire.Decoder{}, []byte(`{"model":"m","system":"s","messages":[
		{"role":"assistant","content":"a"},{"role":"assistant","content":[{"type":"text","text":"b"},
			{"type":"tool_use","id":"1","name":"f","input":{"x":1}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"}]},{"role":"user","content":"c"},
		{"role":"system","content":"now"},{"role":"system","content":"then"},{"role":"user","content":[]},
		{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"}]}],
		"tool_choice":{"type":"none"}}`))
	if err != nil {
		t.Fatal(err)
	}
	c := r.AsChat()
	want := []openai.Message{
		{Role: "system", Content: openai.Content{"s"}},
		{Role: "assistant", Content: openai.Content{"a", "b"}, ToolCalls: []openai.ToolCall{{ID: "1", Type: "function",
			Function: openai.FunctionCall{Name: "f", Arguments: `{"x":1}`}}}},
		{Role: "tool", ToolCallID: "1", Content: openai.Content{}},
		{Role: "user", Content: openai.Content{"c"}},
		{Role: "system", Content: openai.Content{"now"}},
		{Role: "system", Content: openai.Content{"then"}},
		{Role: "assistant", ReasoningContent: "t"},
	}
	if diff := cmp.Diff(want, c.Messages, cmp.Transformer("text", openai.Content.Text)); diff != "" {
		t.Error(diff)
	}
	if c.ToolChoice.Mode != openai.ChoiceNone || !c.ContinueFinalMessage {
		t.Errorf("%+v", c)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{with(`"stream":true`), of(`{"role":"user","content":[{"type":"tool_result"}]}`),
		with(`"system":[{"type":"text","text":"x-anthropic-billing-header: y"}]`), "{", "\xff", `{"messages":[{}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var d wire.Decoder
		r, err := DecodeMessages(&d, body)
		if err == nil {
			r.AsChat()
		} else if err.Status() != 400 || err.Message == "" {
			t.Errorf("%d %s", err.Status(), err)
		}
		for _, name := range d.Ignored {
			if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
				t.Errorf("no header holds %q", name)
			}
		}
	})
}
