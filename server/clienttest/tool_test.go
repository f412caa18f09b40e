//go:build openai

package clienttest

import (
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"

	"sparrow"
	"sparrow/server"
)

// tools returns three tools that the built-in model was trained on.
func tools() []openai.ChatCompletionToolUnionParam {
	object := func(required ...string) openai.FunctionParameters {
		properties := map[string]any{}
		for _, name := range required {
			kind := "string"
			if strings.HasSuffix(name, "_id") {
				kind = "integer"
			}
			properties[name] = map[string]string{"type": kind}
		}
		return openai.FunctionParameters{"type": "object", "properties": properties, "required": required}
	}
	tool := func(name, description string, parameters openai.FunctionParameters) openai.ChatCompletionToolUnionParam {
		return openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: name,
			Description: openai.String(description), Parameters: parameters})
	}
	return []openai.ChatCompletionToolUnionParam{
		tool("get_weather", "Get the weather of a city.", object("city")),
		tool("get_user", "Look up a user by id.", object("user_id")),
		tool("find_flight", "Find a flight between two cities.", object("origin", "destination")),
	}
}

// call returns the only tool call of an answer.
func call(t *testing.T, r *openai.ChatCompletion) openai.ChatCompletionMessageToolCallUnion {
	t.Helper()
	if len(r.Choices) != 1 || r.Choices[0].FinishReason != "tool_calls" || len(r.Choices[0].Message.ToolCalls) != 1 {
		t.Fatalf("want one tool call: %s", r.RawJSON())
	}
	c := r.Choices[0].Message.ToolCalls[0]
	if c.Type != "function" || c.ID == "" || r.Choices[0].Message.Content != "" {
		t.Errorf("call: %s", r.RawJSON())
	}
	return c
}

func TestToolsAndTheirResults(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	for _, c := range []struct{ question, name, arguments string }{
		{"What is the weather in Paris?", "get_weather", `{"city":"Paris"}`},
		{"Who is user 5381?", "get_user", `{"user_id":5381}`},
		{"Find a flight from London to Havana.", "find_flight", `{"destination":"Havana","origin":"London"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := ask(c.question)
			p.Tools, p.MaxTokens = tools(), openai.Int(200)
			whole := s.chat(t, p)
			made := call(t, whole)
			if got := normal(t, made.Function.Arguments); made.Function.Name != c.name || got != c.arguments {
				t.Errorf("%s(%s), want %s(%s)", made.Function.Name, got, c.name, c.arguments)
			}
			pieces := s.stream(t, p)
			// The client's accumulator does not set the type of a streamed call, so the type is not compared.
			if got := pieces.Choices[0]; got.FinishReason != "tool_calls" || len(got.Message.ToolCalls) != 1 ||
				got.Message.ToolCalls[0].Function.Name != c.name ||
				got.Message.ToolCalls[0].Function.Arguments != made.Function.Arguments {
				t.Errorf("streamed: %+v", got.Message.ToolCalls)
			}
			p.Messages = append(p.Messages, whole.Choices[0].Message.ToParam(),
				openai.ToolMessage(`{"result": "42"}`, made.ID))
			wantChat(t, s.chat(t, p), "The result is 42.", "stop")
		})
	}
}

func TestToolsAreNotForced(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	p := ask(nameQuestion)
	p.Tools = tools()
	wantChat(t, s.chat(t, p), nameAnswer, "stop")
}

// TestToolChoice checks that a required call is made even if the model would write text, and that a forbidden call is
// not made.
func TestToolChoice(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	p := ask(nameQuestion)
	p.Tools = tools()
	p.ToolChoice.OfAuto = openai.String("required")
	made := call(t, s.chat(t, p))
	if !strings.Contains("get_weather get_user find_flight", made.Function.Name) {
		t.Errorf("a call of %q", made.Function.Name)
	}
	normal(t, made.Function.Arguments)
	p = ask("What is the weather in Paris?")
	p.Tools = tools()
	p.ToolChoice = openai.ToolChoiceOptionFunctionToolChoice(
		openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "get_user"})
	made = call(t, s.chat(t, p))
	user := member[struct {
		ID *int `json:"user_id"`
	}](t, made.Function.Arguments, "arguments")
	if made.Function.Name != "get_user" || user.ID == nil {
		t.Errorf("%s(%s), want get_user with an integer user_id", made.Function.Name, made.Function.Arguments)
	}
	p.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("none")}
	p.MaxTokens = openai.Int(64)
	if r := s.chat(t, p); len(r.Choices[0].Message.ToolCalls) != 0 || r.Choices[0].FinishReason == "tool_calls" {
		t.Errorf("a call that was forbidden: %s", r.RawJSON())
	}
}
