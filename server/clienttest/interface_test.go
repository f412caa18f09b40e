package clienttest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"sparrow"
	"sparrow/server"
)

// object is a JSON object that tests inspect.
type object = map[string]any

// post sends a body to the service and returns the body of the response.
func (s *service) post(t *testing.T, path string, body object) []byte {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Post(s.url()+path, "application/json", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d: %s, %v", path, res.StatusCode, out, err)
	}
	return out
}

// decoded returns the value of type T in a JSON text.
func decoded[T any](t *testing.T, text []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

var cityTool = object{"type": "object", "properties": object{"city": object{"type": "string"}},
	"required": []string{"city"}}

// message is a response of Anthropic's interface with the fields that these tests read.
type message struct {
	Content []struct {
		Type, Text, Thinking, ID, Name string
		Input                          json.RawMessage
	}
	StopReason string `json:"stop_reason"`
	Usage      struct {
		Input  int `json:"input_tokens"`
		Cached int `json:"cache_read_input_tokens"`
		Output int `json:"output_tokens"`
	}
}

// Anthropic's interface gives the same contents as a whole message and as events, in a loop of a question, a tool call,
// its result and the answer.
func TestMessagesWithTools(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	talk := []object{{"role": "user", "content": "What is the weather in Paris?"}}
	body := object{"model": model, "max_tokens": 200, "temperature": 0, "messages": talk,
		"tools": []object{{"name": "get_weather", "description": "Get the weather of a city.",
			"input_schema": cityTool}}}
	first := decoded[message](t, s.post(t, "/v1/messages", body))
	if len(first.Content) != 1 || first.Content[0].Name != "get_weather" || first.StopReason != "tool_use" ||
		normal(t, string(first.Content[0].Input)) != `{"city":"Paris"}` {
		t.Fatalf("%+v", first)
	}
	call := first.Content[0]
	body["messages"] = append(talk, object{"role": "assistant", "content": []object{
		{"type": "tool_use", "id": call.ID, "name": call.Name, "input": call.Input}}},
		object{"role": "user", "content": []object{
			{"type": "tool_result", "tool_use_id": call.ID, "content": `{"result": "42"}`}}})
	whole := decoded[message](t, s.post(t, "/v1/messages", body))
	if len(whole.Content) != 1 || whole.Content[0].Text != "The result is 42." || whole.StopReason != "end_turn" {
		t.Fatalf("%+v", whole)
	}
	counted := decoded[struct {
		N int `json:"input_tokens"`
	}](t, s.post(t, "/v1/messages/count_tokens", body))
	if got := whole.Usage.Input + whole.Usage.Cached; got != counted.N || whole.Usage.Cached == 0 {
		t.Errorf("a prompt of %d tokens was counted as %d, %d of them cached", got, counted.N, whole.Usage.Cached)
	}
	body["stream"] = true
	var text string
	var last message
	for lines := bufio.NewScanner(bytes.NewReader(s.post(t, "/v1/messages", body))); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		ev := decoded[struct {
			Delta struct {
				Text       string
				StopReason string `json:"stop_reason"`
			}
			Usage struct {
				Output int `json:"output_tokens"`
			}
		}](t, []byte(data))
		text += ev.Delta.Text
		if ev.Delta.StopReason != "" {
			last.StopReason, last.Usage.Output = ev.Delta.StopReason, ev.Usage.Output
		}
	}
	if text != whole.Content[0].Text || last.StopReason != "end_turn" || last.Usage.Output != whole.Usage.Output {
		t.Errorf("streamed %q, %+v", text, last)
	}
	s.unharmed(t)
}

// In Anthropic's interface, thinking precedes the answer and is not longer than its budget.
func TestMessagesWithThinking(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	long := 0
	for _, budget := range []int{1024, 3} {
		m := decoded[message](t, s.post(t, "/v1/messages", object{"model": model, "max_tokens": 400, "temperature": 0,
			"thinking": object{"type": "enabled", "budget_tokens": budget}, "messages": []object{{"role": "user",
				"content": "A garden is 21 meters long and 2 meters wide. How many meters of fence are needed to " +
					"go around it?"}}}))
		if len(m.Content) != 2 || m.Content[0].Type != "thinking" || m.Content[1].Type != "text" {
			t.Fatalf("%+v", m)
		}
		if n := len(m.Content[0].Thinking); budget == 1024 {
			long = n
		} else if n == 0 || n >= long {
			t.Errorf("%d bytes of thinking within 3 tokens, %d within 1024", n, long)
		}
	}
}

// ollamaLine is a line of a response of Ollama's interface.
type ollamaLine struct {
	Message struct {
		Content string
		Calls   []object `json:"tool_calls"`
	}
	Response string
	Done     bool
	Reason   string `json:"done_reason"`
	Count    int    `json:"eval_count"`
}

// Ollama's interface answers a loop of a question, a tool call without an id, its result and the answer, and also a raw
// prompt.
func TestOllamaWithTools(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	talk := []object{{"role": "user", "content": "What is the weather in Paris?"}}
	body := object{"model": model, "options": object{"temperature": 0, "num_predict": 200}, "messages": talk,
		"tools": []object{{"type": "function", "function": object{"name": "get_weather",
			"description": "Get the weather of a city.", "parameters": cityTool}}}}
	lines := func() (all []ollamaLine) {
		t.Helper()
		for _, line := range bytes.Split(bytes.TrimSpace(s.post(t, "/api/chat", body)), []byte("\n")) {
			all = append(all, decoded[ollamaLine](t, line))
		}
		return all
	}
	first := lines()
	if len(first) != 2 || len(first[0].Message.Calls) != 1 || !first[1].Done || first[1].Reason != "stop" {
		t.Fatalf("%+v", first)
	}
	delete(first[0].Message.Calls[0], "id")
	body["messages"] = append(talk, object{"role": "assistant", "content": "", "tool_calls": first[0].Message.Calls},
		object{"role": "tool", "tool_name": "get_weather", "content": `{"result": "42"}`})
	var text string
	for _, line := range lines() {
		text += line.Message.Content
	}
	if text != "The result is 42." {
		t.Errorf("streamed %q", text)
	}
	raw := decoded[ollamaLine](t, s.post(t, "/api/generate", object{"model": model, "prompt": "1, 2, 3,", "raw": true,
		"stream": false, "options": object{"num_predict": 5, "temperature": 0}}))
	if raw.Count != 5 || raw.Reason != "length" || raw.Response == "" {
		t.Errorf("%+v", raw)
	}
	s.unharmed(t)
}
