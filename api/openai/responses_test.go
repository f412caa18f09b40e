package openai

import (
	"encoding/json"
	"fmt"
	"sparrow/internal/testkit/table"
	"sparrow/internal/wire"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func strictResponses(body []byte) (*ResponsesRequest, *wire.Error) {
	return DecodeResponses(&wire.Decoder{Strict: true}, body)
}

// responseWith returns the JSON text of a valid request to /v1/responses with additional fields.
func responseWith(members string) string { return `{"model":"m","input":"hi",` + members + `}` }

// responseOf returns the JSON text of a request to /v1/responses with the given input items.
func responseOf(items string) string { return `{"model":"m","input":[` + items + `]}` }

func TestResponsesRequestsThatClientsSend(t *testing.T) {
	hi := []Item{{Type: ItemMessage, Role: RoleUser, Content: Content{"hi"}}}
	for _, c := range []struct {
		name, body string
		want       ResponsesRequest
	}{
		{"text", `{"model":"m","input":"hi"}`, ResponsesRequest{Options: Options{Model: "m"}, Input: hi}},
		{"a message without a type", responseOf(`{"role":"user","content":"hi"}`),
			ResponsesRequest{Options: Options{Model: "m"}, Input: hi}},
		{"everything else", responseWith(`"instructions":"be","max_output_tokens":5,"temperature":0,"top_p":0.5,
			"stream":true,"store":false,"previous_response_id":"resp_1","truncation":"auto","metadata":{"a":"b"},
			"parallel_tool_calls":false,"include":["message.output_text.logprobs"],"top_logprobs":2,"background":false,
			"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true}],
			"tool_choice":{"type":"function","name":"f"},"reasoning":{"effort":"low"},"seed":3,
			"text":{"format":{"type":"json_schema","name":"s","schema":{"a":1},"strict":true},"verbosity":"medium"}`),
			ResponsesRequest{
				Options: Options{Model: "m", Temperature: ptr(0.0), TopP: ptr(0.5), Stream: true, Seed: ptr(int64(3))},
				Input:   hi, Instructions: "be", MaxOutputTokens: ptr(5), Store: ptr(false),
				PreviousResponseID: "resp_1", Truncation: TruncationAuto, Metadata: map[string]string{"a": "b"},
				ParallelToolCalls: ptr(false), Include: []string{includeLogprobs}, TopLogprobs: ptr(2),
				Tools: []ResponseTool{{Type: "function", Name: "f", Description: "d",
					Parameters: json.RawMessage(`{"type":"object"}`), Strict: ptr(true)}},
				ToolChoice: &ToolChoice{Mode: ChoiceFunction, Name: "f"}, Reasoning: Reasoning{Effort: "low"},
				Text: TextConfig{Format: TextFormat{Type: FormatJSONSchema, Name: "s",
					Schema: json.RawMessage(`{"a":1}`), Strict: ptr(true)}},
			}},
		{"items as a response has them", responseOf(`{"type":"message","role":"developer","content":[
			{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
			{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"r"}],"status":null},
			{"type":"reasoning","id":"rs_2","summary":[{"type":"summary_text","text":"s"}]},
			{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[
			{"type":"output_text","text":"t","annotations":[],"logprobs":[]}]},
			{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{}","status":"completed"},
			{"type":"function_call_output","call_id":"c1","output":"x"},
			{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"y"}]},
			{"type":"item_reference","id":"msg_2"},{"id":"msg_3"}`),
			ResponsesRequest{Options: Options{Model: "m"}, Input: []Item{
				{Type: ItemMessage, Role: RoleDeveloper, Content: Content{"a", "b"}},
				{Type: ItemReasoning, ID: "rs_1", Content: Content{"r"}},
				{Type: ItemReasoning, ID: "rs_2", Content: Content{"s"}},
				{Type: ItemMessage, ID: "msg_1", Role: RoleAssistant, Content: Content{"t"}},
				{Type: ItemCall, ID: "fc_1", CallID: "c1", Name: "f", Arguments: "{}"},
				{Type: ItemResult, CallID: "c1", Content: Content{"x"}},
				{Type: ItemResult, CallID: "c2", Content: Content{"y"}},
				{Type: ItemReference, ID: "msg_2"}, {Type: ItemReference, ID: "msg_3"},
			}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := strictResponses([]byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestResponsesRequestsThatAreRefused(t *testing.T) {
	checkRejections(t, lenient(DecodeResponses), []rejection{
		{"no input", `{"model":"m"}`, "input", "missing_required_parameter", "at least one item"},
		{"input of another type", `{"model":"m","input":1}`, "input", "invalid_type", "a string or an array"},
		{"background", responseWith(`"background":true`), "background", "unsupported_value", "keep the connection"},
		{"a conversation", responseWith(`"conversation":"c"`), "conversation", "unsupported_parameter",
			"previous_response_id"},
		{"a stored prompt", responseWith(`"prompt":{"id":"p"}`), "prompt", "unsupported_parameter", "instructions"},
		{"messages", responseWith(`"messages":[]`), "messages", "unsupported_parameter", "send input"},
		{"chat's limit", responseWith(`"max_tokens":1`), "max_tokens", "unsupported_parameter", "max_output_tokens"},
		{"chat's format", responseWith(`"response_format":{}`), "response_format", "unsupported_parameter",
			"text.format"},
		{"several answers", responseWith(`"n":2`), "n", "unsupported_parameter", "one answer"},
		{"a limit of nothing", responseWith(`"max_output_tokens":0`), "max_output_tokens", "value_out_of_range",
			"[1, "},
		{"another truncation", responseWith(`"truncation":"some"`), "truncation", "invalid_value", "auto or disabled"},
		{"another effort", responseWith(`"reasoning":{"effort":"huge"}`), "reasoning.effort", "invalid_value",
			"is not one of none"},
		{"a tool of another type", responseWith(`"tools":[{"type":"teleport"}]`), "tools[0].type", "unsupported_value",
			`"teleport" is not supported; use "function" or "custom"`},
		{"a demanded tool of a provider", responseWith(`"tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}`),
			"tool_choice", "unsupported_value", "web_search is required, but it is a hosted tool"},
		{"a demanded call of nothing", responseWith(`"tools":[{"type":"mcp","server_label":"s"}],"tool_choice":"required"`),
			"tool_choice", "unsupported_value", "mcp is a hosted tool"},
		{"a name in two namespaces", responseWith(`"tools":[{"type":"function","name":"a__b"},{"type":"namespace",` +
			`"name":"a","tools":[{"type":"function","name":"b"}]}]`), "tools[1].tools[0].name", "invalid_value",
			`"a__b" is also the name of an earlier tool`},
		{"a namespace without a name", responseWith(`"tools":[{"type":"namespace","tools":[]}]`), "tools[0].name",
			"missing_required_parameter", "required"},
		{"another summary", responseWith(`"reasoning":{"summary":"some"}`), "reasoning.summary", "invalid_value",
			"auto, concise, detailed"},
		{"a tool in chat's form", responseWith(`"tools":[` + weatherTool + `]`), "tools[0].name",
			"missing_required_parameter", "required"},
		{"a name twice", responseWith(`"tools":[{"type":"function","name":"f"},{"type":"function","name":"f"}]`),
			"tools[1].name", "invalid_value", "earlier tool"},
		{"a choice without tools", responseWith(`"tool_choice":"required"`), "tool_choice", "invalid_value",
			"at least one tool"},
		{"a choice of several", responseWith(`"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]}`),
			"tool_choice", "unsupported_value", "allowed_tools"},
		{"a schema without a name", responseWith(`"text":{"format":{"type":"json_schema","schema":{}}}`),
			"text.format.name", "missing_required_parameter", "required"},
		{"a format without a schema", responseWith(`"text":{"format":{"type":"json_schema","name":"x"}}`),
			"text.format.schema", "missing_required_parameter", "json_object"},
		{"another format", responseWith(`"text":{"format":{"type":"xml"}}`), "text.format.type", "unsupported_value",
			"json_schema"},
		{"another verbosity", responseWith(`"text":{"verbosity":"some"}`), "text.verbosity", "invalid_value",
			"low, medium, high"},
		{"metadata that is no string", responseWith(`"metadata":{"a":1}`), "metadata.a", "invalid_type", "a string"},
		{"metadata too long", responseWith(`"metadata":{"a":"` + strings.Repeat("x", 513) + `"}`), "metadata",
			"string_above_max_length", "513 bytes"},
		{"an item of another type", responseOf(`{"type":"web_search_call","id":"w"}`), "input[0].type",
			"unsupported_value", "function_call_output"},
		{"an image", responseOf(`{"role":"user","content":[{"type":"input_image","image_url":"x"}]}`),
			"input[0].content[0].type", "unsupported_value", "the models read text"},
		{"a message without content", responseOf(`{"role":"user"}`), "input[0].content", "missing_required_parameter",
			"message"},
		{"a call without a name", responseOf(`{"type":"function_call","call_id":"1"}`), "input[0].name",
			"missing_required_parameter", "function_call"},
		{"a result without its call", responseOf(`{"type":"function_call_output","output":"x"}`), "input[0].call_id",
			"missing_required_parameter", "function_call_output"},
		{"another role", responseOf(`{"role":"tool","content":"x"}`), "input[0].role", "invalid_value", "assistant"},
	})
}

func TestItemsOfTheModelThatFollowEachOtherAreOneMessage(t *testing.T) {
	say := func(text string) Item { return Item{Type: ItemMessage, Role: RoleAssistant, Content: Content{text}} }
	think := func(text string) Item { return Item{Type: ItemReasoning, Content: Content{text}} }
	ask := Item{Type: ItemMessage, Role: RoleUser, Content: Content{"q"}}
	call := func(id string) Item { return Item{Type: ItemCall, CallID: id, Name: "f", Arguments: "{}"} }
	result := Item{Type: ItemResult, CallID: "1", Content: Content{"x"}}
	calls := func(ids ...string) (list []ToolCall) {
		for _, id := range ids {
			list = append(list, ToolCall{ID: id, Type: "function", Function: FunctionCall{Name: "f", Arguments: "{}"}})
		}
		return list
	}
	q := Message{Role: RoleUser, Content: Content{"q"}}
	got := Messages([]Item{ask, think("r"), say("a"), call("1"), call("2"), result, call("3"), say("b"), say("c"),
		think("d"), think("e"), call("4"), ask, call("5")})
	want := []Message{q,
		{Role: RoleAssistant, ReasoningContent: "r", Content: Content{"a"}, ToolCalls: calls("1", "2")},
		{Role: RoleTool, ToolCallID: "1", Content: Content{"x"}},
		{Role: RoleAssistant, ToolCalls: calls("3")},
		{Role: RoleAssistant, Content: Content{"b"}},
		{Role: RoleAssistant, Content: Content{"c"}},
		{Role: RoleAssistant, ReasoningContent: "d"},
		{Role: RoleAssistant, ReasoningContent: "e", ToolCalls: calls("4")},
		q,
		{Role: RoleAssistant, ToolCalls: calls("5")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestItemsOnTheWire(t *testing.T) {
	for _, c := range []struct {
		item Item
		want string
	}{
		{Item{Type: ItemMessage, ID: "m", Status: StatusCompleted, Role: RoleAssistant, Content: Content{"t"}},
			`{"type":"message","id":"m","status":"completed","role":"assistant",` +
				`"content":[{"type":"output_text","text":"t","annotations":[],"logprobs":[]}]}`},
		{Item{Type: ItemMessage, ID: "m", Status: StatusInProgress, Role: RoleAssistant},
			`{"type":"message","id":"m","status":"in_progress","role":"assistant","content":[]}`},
		{Item{Type: ItemReasoning, ID: "r", Status: StatusCompleted, Content: Content{"t"}},
			`{"type":"reasoning","id":"r","status":"completed","summary":[],` +
				`"content":[{"type":"reasoning_text","text":"t"}]}`},
		{Item{Type: ItemCall, ID: "f", Status: StatusInProgress, CallID: "c", Name: "n"},
			`{"type":"function_call","id":"f","status":"in_progress","call_id":"c","name":"n","arguments":""}`},
		{Item{Type: ItemResult, CallID: "c", Content: Content{"x"}},
			`{"type":"function_call_output","call_id":"c","output":"x"}`},
		{Item{Type: ItemMessage, Role: RoleUser, Content: Content{"x"}},
			`{"type":"message","role":"user","content":[{"type":"input_text","text":"x"}]}`},
	} {
		if got, err := wire.Marshal(c.item); err != nil || string(got) != c.want {
			t.Errorf("%s (%v), want %s", got, err, c.want)
		}
	}
}

// The chat made from a request to /v1/responses has the tools, the token limit and the reasoning options of the
// request.
func TestAResponseIsAChatWithItsOptions(t *testing.T) {
	for _, parallel := range []*bool{nil, ptr(true), ptr(false)} {
		r := &ResponsesRequest{ParallelToolCalls: parallel, MaxOutputTokens: ptr(7), TopLogprobs: ptr(2),
			ToolChoice: &ToolChoice{Mode: ChoiceRequired}, Instructions: "be brief"}
		c := r.AsChat(nil)
		if c.ParallelToolCalls != parallel || c.MaxCompletionTokens != r.MaxOutputTokens || !c.Logprobs ||
			c.TopLogprobs != r.TopLogprobs || c.ToolChoice != r.ToolChoice || len(c.Messages) != 1 {
			t.Errorf("%+v", c)
		}
	}
}

// Only a namespace contains tools: the tools of a function are an unknown field.
func TestAFunctionContainsNoTools(t *testing.T) {
	for kind, list := range map[string]string{"function": "f", "namespace": "f__g"} {
		body := []byte(responseWith(`"tools":[{"type":"` + kind + `","name":"f","tools":[{"type":"function","name":"g"}]}]`))
		_, err := DecodeResponses(&wire.Decoder{Strict: true}, body)
		if (err != nil) != (kind == "function") || err != nil && err.Param != "tools[0].tools" {
			t.Errorf("%s: %+v", kind, err)
		}
		r, err := DecodeResponses(&wire.Decoder{}, body)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.AsChat(nil).Tools; len(got) != 1 || got[0].Name() != list {
			t.Errorf("%s: tools %+v, want %s", kind, got, list)
		}
	}
}

// Tools of items before any other item belong to the request. Tools of later items are deferred, and a system message
// shows them at their place, without those that only a provider can run.
func TestToolsOfItemsAreShownAtTheirPlace(t *testing.T) {
	text := func(role, text string) Item { return Item{Type: ItemMessage, Role: role, Content: Content{text}} }
	tools := func(list ...ResponseTool) Item { return Item{Type: ItemTools, Tools: list} }
	f, g := ResponseTool{Type: "function", Name: "f"}, ResponseTool{Type: "function", Name: "g", Description: "later"}
	space := ResponseTool{Type: "namespace", Name: "s", Tools: []ResponseTool{{Type: "function", Name: "h"}}}
	items := []Item{tools(f), text(RoleUser, "hi"), tools(g, ResponseTool{Type: "web_search"}, space),
		text(RoleAssistant, "yes")}
	r := &ResponsesRequest{Options: Options{Model: "m"}, Input: items}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	c := r.AsChat(items)
	var got []string
	for i := range c.Tools {
		got = append(got, fmt.Sprintf("%s %s deferred %v", c.Tools[i].Type, c.Tools[i].Name(), c.Tools[i].Deferred))
	}
	want := "function f deferred false; function g deferred true; web_search  deferred true; " +
		"function s__h deferred true"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("tools %s, want %s", text, want)
	}
	var roles []string
	for _, m := range c.Messages {
		roles = append(roles, m.Role)
	}
	if text := strings.Join(roles, " "); text != "user system assistant" {
		t.Fatalf("messages of %s", text)
	}
	shown := c.Messages[1].Content.Text()
	if lines := strings.Split(shown, "\n"); len(lines) != 2 || !strings.Contains(lines[0], `"g"`) ||
		!strings.Contains(lines[1], "h") || strings.Contains(shown, "web_search") {
		t.Errorf("later tools are shown as %q", shown)
	}
	// A tool that is declared again is refused at the place of the second declaration.
	r.Input = append(items, tools(ResponseTool{Type: "function", Name: "x"}, g))
	if err := r.Validate(); err == nil || !strings.HasPrefix(err.Param, "input[4].tools[1]") {
		t.Errorf("a tool declared twice: %v", err)
	}
}

// A response states the request's own values, and the defaults of the interface where the request has none.
func TestAResponseStatesItsRequest(t *testing.T) {
	plain := NewResponse("r1", 5, &ResponsesRequest{Options: Options{Model: "m"}})
	asked := NewResponse("r2", 6, &ResponsesRequest{
		Options:         Options{Model: "m", Temperature: ptr(0.25), TopP: ptr(0.5)},
		MaxOutputTokens: ptr(9), Truncation: TruncationAuto, Instructions: "be brief", PreviousResponseID: "r0",
		ParallelToolCalls: ptr(false), TopLogprobs: ptr(3), Metadata: map[string]string{"k": "v"}, Store: ptr(false),
		Reasoning: Reasoning{Effort: "low"}, ToolChoice: &ToolChoice{Mode: ChoiceRequired},
		Tools: []ResponseTool{{Type: "function", Name: "f"}}})
	var lines []string
	for _, r := range []*Response{plain, asked} {
		text, err := wire.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(text))
	}
	table.Check(t, "responses.txt", lines)
	for store, want := range map[*bool]bool{nil: true, ptr(true): true, ptr(false): false} {
		if r := (&ResponsesRequest{Store: store}); r.Stored() != want {
			t.Errorf("store %v: stored %v", store, r.Stored())
		}
	}
}

// Requests for a tool choice, a format or a part that cannot be used are refused with a message that names the field
// and what to send.
func TestRefusedChoicesNameWhatIsMissing(t *testing.T) {
	checkRejections(t, strictChat, []rejection{
		{"a call without tools", chatWith(`"tool_choice":"required"`), "tool_choice", "invalid_value",
			"send at least one tool in tools"},
		{"a format without a definition", chatWith(`"tools":[{"type":"custom","custom":{"name":"g","format":
			{"type":"grammar","grammar":{"syntax":"lark"}}}}]`), "tools[0].custom.format.grammar.definition",
			"missing_required_parameter", "required with type grammar"},
		{"an image in a text part", chatOf(`{"role":"user","content":[{"type":"text","text":"x","file":{}}]}`),
			"messages[0].content[0].file", "invalid_value", "a part of type text has no such member"},
		{"switches that contradict", chatWith(`"thinking":{"type":"enabled"},"reasoning_effort":"none",
			"chat_template_kwargs":{"thinking":false}`), "chat_template_kwargs.thinking", "invalid_value",
			"contradicts thinking.type"},
	})
}
