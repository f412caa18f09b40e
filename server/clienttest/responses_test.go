//go:build openai

package clienttest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"sparrow"
	"sparrow/server"
)

// question returns a request to /v1/responses with one question and greedy decoding.
func question(text string) responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: model, Temperature: openai.Float(0),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}}
}

// respond sends a request without streaming and returns the response.
func (s *service) respond(t *testing.T, p responses.ResponseNewParams,
	more ...option.RequestOption) *responses.Response {
	t.Helper()
	client := s.client()
	r, err := client.Responses.New(t.Context(), p, more...)
	if err != nil {
		t.Fatalf("%v: %s", err, errorText(err))
	}
	return r
}

// wantText checks the output text of a response.
func wantText(t *testing.T, r *responses.Response, text string) {
	t.Helper()
	if r.OutputText() != text || r.Status != "completed" {
		t.Errorf("%s, %q, want %q", r.Status, r.OutputText(), text)
	}
}

func TestResponses(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	p := question(nameQuestion)
	p.Metadata = map[string]string{"a": "b"}
	first := s.respond(t, p)
	wantText(t, first, nameAnswer)
	if u := first.Usage; first.Metadata["a"] != "b" || u.InputTokens == 0 || u.OutputTokens == 0 ||
		u.TotalTokens != u.InputTokens+u.OutputTokens {
		t.Errorf("metadata %v, usage %s", first.Metadata, u.RawJSON())
	}
	client := s.client()
	kept, err := client.Responses.Get(t.Context(), first.ID, responses.ResponseGetParams{})
	if err != nil || kept.OutputText() != nameAnswer {
		t.Fatalf("the stored response: %v", err)
	}
	p = question(treesQuestion)
	p.PreviousResponseID = openai.String(first.ID)
	second := s.respond(t, p)
	wantText(t, second, treesAnswer)
	alone := s.respond(t, question(treesQuestion))
	if whole := first.Usage.TotalTokens + alone.Usage.InputTokens; second.Usage.InputTokens < whole-4 {
		t.Errorf("the second request has %d tokens, the conversation about %d", second.Usage.InputTokens, whole)
	}
	if err := client.Responses.Delete(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Responses.Get(t.Context(), first.ID, responses.ResponseGetParams{}); err == nil ||
		!strings.Contains(err.Error(), "404") {
		t.Errorf("a deleted response: %v", err)
	}
	r := s.respond(t, question(nameQuestion), option.WithJSONSet("thinking", map[string]any{"type": "enabled"}))
	if r.OutputText() != nameAnswer || len(r.Output) != 2 || r.Output[0].Type != "reasoning" ||
		r.Usage.OutputTokensDetails.ReasoningTokens == 0 {
		t.Errorf("with reasoning: %s", r.RawJSON())
	}
}

func TestResponsesInAStream(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	client := s.client()
	stream := client.Responses.NewStreaming(t.Context(), question(nameQuestion))
	defer stream.Close()
	var text strings.Builder
	var last responses.ResponseStreamEventUnion
	for n := int64(0); stream.Next(); n++ {
		last = stream.Current()
		if last.SequenceNumber != n {
			t.Fatalf("event %d has number %d", n, last.SequenceNumber)
		}
		if last.Type == "response.output_text.delta" {
			text.WriteString(last.Delta)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if text.String() != nameAnswer || last.Type != "response.completed" {
		t.Errorf("%q, then %s", text.String(), last.Type)
	}
	wantText(t, &last.Response, nameAnswer)
}

func TestToolsAndSchemasOfResponses(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	weather := responses.ToolUnionParam{OfFunction: &responses.FunctionToolParam{Name: "get_weather",
		Strict: openai.Bool(true), Parameters: map[string]any{"type": "object", "additionalProperties": false,
			"properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}}}}
	p := question("What is the weather in Paris?")
	p.Tools = []responses.ToolUnionParam{weather}
	p.ToolChoice.OfToolChoiceMode = param.NewOpt(responses.ToolChoiceOptionsRequired)
	first := s.respond(t, p)
	var call responses.ResponseFunctionToolCall
	for _, item := range first.Output {
		if item.Type == "function_call" {
			call = item.AsFunctionCall()
		}
	}
	if call.Name != "get_weather" || normal(t, call.Arguments) != `{"city":"Paris"}` {
		t.Fatalf("no call: %s", first.RawJSON())
	}
	next := responses.ResponseNewParams{Model: model, Temperature: openai.Float(0), Tools: p.Tools,
		PreviousResponseID: openai.String(first.ID)}
	result := responses.ResponseInputItemParamOfFunctionCallOutput("21 degrees")
	result.OfFunctionCallOutput.CallID = openai.String(call.CallID)
	next.Input.OfInputItemList = responses.ResponseInputParam{result}
	if r := s.respond(t, next); r.Status != "completed" || !strings.Contains(r.OutputText(), "21 degrees") {
		t.Errorf("after the result: %s", r.RawJSON())
	}
	p = question("Anna is 12 years old. Who is it?")
	p.MaxOutputTokens = openai.Int(64)
	p.Text.Format.OfJSONSchema = &responses.ResponseFormatTextJSONSchemaConfigParam{Name: "person",
		Strict: openai.Bool(true), Schema: map[string]any{"type": "object", "additionalProperties": false,
			"properties": map[string]any{"name": map[string]any{"type": "string"},
				"age": map[string]any{"type": "integer"}}, "required": []string{"name", "age"}}}
	var person struct {
		Name string
		Age  *int
	}
	r := s.respond(t, p)
	if err := json.Unmarshal([]byte(r.OutputText()), &person); err != nil || person.Age == nil {
		t.Errorf("%v: %s", err, r.OutputText())
	}
	p = question(nameQuestion)
	p.MaxOutputTokens = openai.Int(3)
	if r := s.respond(t, p); r.Status != "incomplete" || r.IncompleteDetails.Reason != "max_output_tokens" {
		t.Errorf("three tokens: %s", r.RawJSON())
	}
}
