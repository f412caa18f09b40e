//go:build openai

package clienttest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"sparrow"
	"sparrow/server"
)

// errorText returns the server's message in an error of the client, whose own text does not include it.
func errorText(err error) string {
	var e *openai.Error
	if errors.As(err, &e) {
		return e.RawJSON()
	}
	return ""
}

// refused sends a request that must fail, checks that the error has OpenAI's format, and returns it.
func (s *service) refused(t *testing.T, p openai.ChatCompletionNewParams, more ...option.RequestOption) *openai.Error {
	t.Helper()
	client := s.client()
	r, err := client.Chat.Completions.New(t.Context(), p, more...)
	if err == nil {
		t.Fatalf("answered: %s", r.RawJSON())
	}
	var e *openai.Error
	if !errors.As(err, &e) {
		t.Fatalf("not an error of the API: %v", err)
	}
	if e.Message == "" || e.Type == "" || e.Response.Header.Get("X-Request-Id") == "" {
		t.Errorf("an error without message, type or request id: %s", e.RawJSON())
	}
	return e
}

// schema returns a change of a request that requires an answer in a JSON schema.
func schema(s map[string]any) func(*openai.ChatCompletionNewParams) {
	return func(p *openai.ChatCompletionNewParams) {
		p.ResponseFormat.OfJSONSchema = &openai.ResponseFormatJSONSchemaParam{
			JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{Name: "x", Schema: s}}
	}
}

// strictSchema returns a change of a request that requires a JSON schema which must be enforced completely.
func strictSchema(s map[string]any) func(*openai.ChatCompletionNewParams) {
	return func(p *openai.ChatCompletionNewParams) {
		schema(s)(p)
		p.ResponseFormat.OfJSONSchema.JSONSchema.Strict = openai.Bool(true)
	}
}

func TestErrors(t *testing.T) {
	s := start(t, sparrow.Config{ContextTokens: 512}, server.Options{Strict: true})
	for _, c := range []struct {
		name        string
		change      func(*openai.ChatCompletionNewParams)
		more        []option.RequestOption
		status      int
		code, param string
	}{
		{"an unknown model", func(p *openai.ChatCompletionNewParams) { p.Model = "gpt-x" }, nil, 404, "model_not_found",
			"model"},
		{"a temperature above the range", func(p *openai.ChatCompletionNewParams) { p.Temperature = openai.Float(2.5) },
			nil, 400, "value_out_of_range", "temperature"},
		{"no choices", func(p *openai.ChatCompletionNewParams) { p.N = openai.Int(0) }, nil, 400, "value_out_of_range",
			"n"},
		{"an unknown field", nil, []option.RequestOption{option.WithJSONSet("temprature", 1)}, 400, "unknown_parameter",
			"temprature"},
		{"a field of the wrong type", nil, []option.RequestOption{option.WithJSONSet("max_tokens", "ten")}, 400,
			"invalid_type", "max_tokens"},
		{"no messages", func(p *openai.ChatCompletionNewParams) {
			p.Messages = []openai.ChatCompletionMessageParamUnion{}
		}, nil, 400, "", "messages"},
		{"a prompt longer than the context", func(p *openai.ChatCompletionNewParams) {
			p.Messages = ask(story(60)).Messages
		}, nil, 400, "context_length_exceeded", "messages"},
		{"more new tokens than the context holds", func(p *openai.ChatCompletionNewParams) {
			p.MaxTokens = openai.Int(512)
		}, nil, 400, "context_length_exceeded", "max_tokens"},
		{"more completion tokens than the context holds", func(p *openai.ChatCompletionNewParams) {
			p.MaxCompletionTokens = openai.Int(512)
		}, nil, 400, "context_length_exceeded", "max_completion_tokens"},
		{"too many stop strings", func(p *openai.ChatCompletionNewParams) {
			p.Stop.OfStringArray = strings.Fields(strings.Repeat("a ", 17))
		}, nil, 400, "array_above_max_length", "stop"},
		{"alternatives without log probabilities", func(p *openai.ChatCompletionNewParams) {
			p.TopLogprobs = openai.Int(2)
		}, nil, 400, "", "top_logprobs"},
		{"a schema that nothing can follow", schema(map[string]any{"type": "integer", "minimum": 5, "maximum": 4}), nil,
			400, "invalid_value", "response_format"},
		{"a strict schema that cannot be enforced", strictSchema(map[string]any{"type": "array", "uniqueItems": true}),
			nil, 400, "unsupported_value", "response_format"},
		{"a schema that is too large", schema(map[string]any{"type": "string", "minLength": 1 << 30}), nil, 400,
			"string_above_max_length", "response_format"},
		{"a tool whose arguments cannot be enforced", func(p *openai.ChatCompletionNewParams) {
			f := openai.FunctionDefinitionParam{Name: "f",
				Parameters: map[string]any{"type": "object", "unevaluatedProperties": false}, Strict: openai.Bool(true)}
			p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(f)}
		}, nil, 400, "unsupported_value", "tools"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := ask(nameQuestion)
			if c.change != nil {
				c.change(&p)
			}
			e := s.refused(t, p, c.more...)
			param, _, _ := strings.Cut(e.Param, ".")
			if e.StatusCode != c.status || param != c.param || c.code != "" && e.Code != c.code {
				t.Errorf("status %d: %s; want status %d, param %s, code %s", e.StatusCode, e.RawJSON(), c.status,
					c.param, c.code)
			}
		})
	}
	client := s.client()
	_, err := client.Models.Get(t.Context(), "gpt-x")
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != http.StatusNotFound {
		t.Errorf("another model: %v", err)
	}
	wantChat(t, s.chat(t, ask(nameQuestion)), nameAnswer, "stop")
}

func TestAnErrorBeforeTheFirstTokenHasAStatusInAStreamToo(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	p := ask(nameQuestion)
	p.Model = "gpt-x"
	client := s.client()
	events := client.Chat.Completions.NewStreaming(t.Context(), p)
	defer events.Close()
	var e *openai.Error
	if events.Next() || !errors.As(events.Err(), &e) || e.StatusCode != http.StatusNotFound {
		t.Errorf("error %v", events.Err())
	}
}

func TestKeys(t *testing.T) {
	keys, err := server.ReadKeys(strings.NewReader("k-one acme\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, sparrow.Config{}, server.Options{Keys: keys})
	for name, o := range map[string]option.RequestOption{"no key": option.WithHeaderDel("Authorization"),
		"a wrong key": option.WithAPIKey("k-two")} {
		if e := s.refused(t, ask(nameQuestion), o); e.StatusCode != http.StatusUnauthorized ||
			e.Code != "invalid_api_key" {
			t.Errorf("%s: status %d: %s", name, e.StatusCode, e.RawJSON())
		}
	}
	wantChat(t, s.chat(t, ask(nameQuestion), option.WithAPIKey("k-one")), nameAnswer, "stop")
}

// TestAFullQueue checks that one request runs, one waits, and the next is refused with Retry-After, after which the
// client's own retry succeeds.
func TestAFullQueue(t *testing.T) {
	s := start(t, sparrow.Config{MaxRunning: 1, MaxQueue: 1}, server.Options{})
	ctx, release := context.WithCancel(t.Context())
	defer release()
	s.running(t, ctx, 8000)
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		p, on := endless(8000)
		client := s.client()
		if _, err := client.Chat.Completions.New(ctx, p, on); err == nil {
			t.Error("the waiting request was answered")
		}
	}()
	s.await(t, "sparrow_requests_waiting", 1)
	e := s.refused(t, ask(nameQuestion))
	if e.StatusCode != http.StatusTooManyRequests || e.Code != "rate_limit_exceeded" ||
		e.Response.Header.Get("Retry-After") != "1" {
		t.Errorf("status %d, Retry-After %q: %s", e.StatusCode, e.Response.Header.Get("Retry-After"), e.RawJSON())
	}
	patient := make(chan *openai.ChatCompletion, 1)
	go func() {
		client := s.client(option.WithMaxRetries(5))
		r, err := client.Chat.Completions.New(t.Context(), ask(nameQuestion))
		if err != nil {
			t.Errorf("with retries: %v", err)
		}
		patient <- r
	}()
	s.await(t, `sparrow_requests_ended_total{outcome="refused"}`, 2)
	release()
	<-waiting
	if r := <-patient; r != nil {
		wantChat(t, r, nameAnswer, "stop")
	}
}
