package openai

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rawMap returns a map of JSON values; pairs holds names and values in turn.
func rawMap(pairs ...string) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return m
}

func textWith(members string) string { return `{"model":"m","prompt":"x",` + members + `}` }

func TestCompletionRequestsThatClientsSend(t *testing.T) {
	for _, test := range []struct {
		name, body string
		want       CompletionRequest
	}{
		{"a string", `{"model":"m","prompt":"Once"}`,
			CompletionRequest{Options: Options{Model: "m"}, Prompt: Prompt{Texts: []string{"Once"}}}},
		{"an empty string", `{"model":"m","prompt":""}`,
			CompletionRequest{Options: Options{Model: "m"}, Prompt: Prompt{Texts: []string{""}}}},
		{"strings", `{"model":"m","prompt":["a","b"],"suffix":null,"best_of":2,"n":2}`,
			CompletionRequest{Options: Options{Model: "m", N: ptr(2)}, Prompt: Prompt{Texts: []string{"a", "b"}}}},
		{"token ids", `{"model":"m","prompt":[0,2147483647],"max_tokens":0,"echo":true,"logprobs":0}`,
			CompletionRequest{Options: Options{Model: "m"}, Prompt: Prompt{Tokens: [][]int32{{0, 2147483647}}},
				MaxTokens: ptr(0), Echo: true, Logprobs: ptr(0)}},
		{"arrays of token ids",
			`{"model":"m","prompt":[ [1,2],[3]],"max_tokens":1,"temperature":0,"logprobs":1,"seed":1234,"echo":true}`,
			CompletionRequest{Options: Options{Model: "m", Temperature: ptr(0.0), Seed: ptr(int64(1234))},
				Prompt: Prompt{Tokens: [][]int32{{1, 2}, {3}}}, MaxTokens: ptr(1), Echo: true, Logprobs: ptr(1)}},
		{"a load generator's",
			`{"model":"m","prompt":"x","temperature":0.0,"repetition_penalty":1.0,"max_tokens":128,"min_tokens":128,"logprobs":null,
			"stream":true,"stream_options":{"include_usage":true},"ignore_eos":true,"best_of":1,"suffix":"","add_special_tokens":false}`,
			CompletionRequest{Options: Options{Model: "m", Temperature: ptr(0.0), RepetitionPenalty: ptr(1.0),
				MinTokens: ptr(128), IgnoreEOS: true, Stream: true, StreamOptions: &StreamOptions{IncludeUsage: true}},
				Prompt: Prompt{Texts: []string{"x"}}, MaxTokens: ptr(128), AddSpecialTokens: ptr(false)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := strictCompletion([]byte(test.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("decoded differently (-want +got):\n%s", diff)
			}
		})
	}
	if r := (&CompletionRequest{}); r.NewTokens() != 16 {
		t.Errorf("default limit is %d", r.NewTokens())
	}
	if r := (&CompletionRequest{MaxTokens: ptr(0)}); r.NewTokens() != 0 {
		t.Errorf("limit of 0 became %d", r.NewTokens())
	}
}

func TestCompletionRequestsThatAreRefused(t *testing.T) {
	many := func(n int) string { return strings.TrimSuffix(strings.Repeat(`"a",`, n), ",") }
	checkRejections(t, strictCompletion, []rejection{
		{"no prompt", `{"model":"m"}`, "prompt", "missing_required_parameter", "send a string"},
		{"an empty array", `{"model":"m","prompt":[]}`, "prompt", "missing_required_parameter", "send a string"},
		{"an object", `{"model":"m","prompt":{}}`, "prompt", "invalid_type", "arrays of token ids, got an object"},
		{"text among ids", `{"model":"m","prompt":[1,"a"]}`, "prompt[1]", "invalid_type", "an integer, got a string"},
		{"ids among texts", `{"model":"m","prompt":["a",1]}`, "prompt[1]", "invalid_type", "a string, got a number"},
		{"an id among arrays", `{"model":"m","prompt":[[1],2]}`, "prompt[1]", "invalid_type", "an array of token ids"},
		{"arrays too deep", `{"model":"m","prompt":[[[1]]]}`, "prompt[0][0]", "invalid_type",
			"an integer, got an array"},
		{"an empty array of ids", `{"model":"m","prompt":[[1],[]]}`, "prompt[1]", "invalid_value", "at least one"},
		{"a negative id", `{"model":"m","prompt":[5,-1]}`, "prompt[1]", "value_out_of_range",
			"-1 is not in [0, 2147483647]"},
		{"an id beyond 32 bits", `{"model":"m","prompt":[[2147483648]]}`, "prompt[0][0]", "value_out_of_range",
			"2147483648 is not in"},
		{"an id with a fraction", `{"model":"m","prompt":[1.5]}`, "prompt[0]", "invalid_type", "an integer, got 1.5"},
		{"an unfinished array", `{"model":"m","prompt":[`, "prompt", "invalid_json", "byte 23"},
		{"too many prompts", `{"model":"m","prompt":[` + many(1025) + `]}`, "prompt", "array_above_max_length",
			"1025 prompts"},
		{"too many choices", `{"model":"m","n":3,"prompt":[` + many(342) + `]}`, "n", "array_above_max_length",
			"3 choices for each of 342 prompts"},
		{"a suffix", textWith(`"suffix":"end"`), "suffix", "unsupported_parameter", "fill in the middle"},
		{"a suffix of the wrong type", textWith(`"suffix":1`), "suffix", "invalid_type", "a string"},
		{"best of more", textWith(`"best_of":3`), "best_of", "unsupported_value", "3 differs from n, which is 1"},
		{"logprobs as a switch", textWith(`"logprobs":true`), "logprobs", "invalid_type", "an integer, got a boolean"},
		{"too many logprobs", textWith(`"logprobs":21`), "logprobs", "value_out_of_range", "[0, 20]"},
		{"prompt logprobs in a stream", textWith(`"prompt_logprobs":1,"stream":true`), "prompt_logprobs",
			"invalid_value", "without stream"},
		{"too many prompt logprobs", textWith(`"prompt_logprobs":21`), "prompt_logprobs", "value_out_of_range", "20"},
		{"no new tokens without echo", textWith(`"max_tokens":0`), "max_tokens", "value_out_of_range", "echo is true"},
		{"a negative limit", textWith(`"max_tokens":-2`), "max_tokens", "value_out_of_range", "[0, "},
		{"at least more than the default limit", textWith(`"min_tokens":17`), "min_tokens", "invalid_value",
			"which is 16 if not given"},
		{"special tokens around ids", `{"model":"m","prompt":[1],"add_special_tokens":true}`, "add_special_tokens",
			"invalid_value", "used unchanged"},
		{"messages", textWith(`"messages":[]`), "messages", "unsupported_parameter", "/v1/chat/completions"},
		{"the limit under two names that differ", textWith(`"max_tokens":4,"max_completion_tokens":5`),
			"max_completion_tokens", "invalid_value", "differs from max_tokens"},
		{"a mistyped name", textWith(`"promt":"y"`), "promt", "unknown_parameter", "did you mean prompt?"},
		{"a field of both kinds", textWith(`"temperature":9`), "temperature", "value_out_of_range", "[0, 2]"},
	})
}

func TestTokenizeRequests(t *testing.T) {
	got, err := strictTokenize([]byte(`{"model":"m","prompt":"","add_special_tokens":false,"return_token_strs":true}`))
	want := &TokenizeRequest{Model: "m", Prompt: ptr(""), AddSpecialTokens: ptr(false), ReturnTokenStrs: true}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("prompt: %v\n%s", err, diff)
	}
	got, err = strictTokenize([]byte(`{"messages":[{"role":"user","content":"x"}],"tools":[` + weatherTool +
		`],"add_generation_prompt":false,"chat_template_kwargs":{"thinking":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got.WantsSpecialTokens() || got.AsChat().WantsGenerationPrompt() || *got.AsChat().ThinkingMode() != true ||
		len(got.AsChat().Tools) != 1 {
		t.Errorf("messages: %+v", got)
	}
	if r := (&TokenizeRequest{Prompt: ptr("x")}); !r.WantsSpecialTokens() {
		t.Error("a prompt gets special tokens unless asked otherwise")
	}
	checkRejections(t, strictTokenize, []rejection{
		{"neither", `{}`, "prompt", "missing_required_parameter", "if there are no messages"},
		{"both", `{"prompt":"x","messages":[{"role":"user","content":"x"}]}`, "prompt", "invalid_value",
			"cannot be combined"},
		{"token ids", `{"prompt":[1]}`, "prompt", "invalid_type", "a string, got an array"},
		{"a chat field with a prompt", `{"prompt":"x","add_generation_prompt":true}`, "add_generation_prompt",
			"invalid_value", "only allowed with messages"},
		{"a bad message", `{"messages":[{"role":"user"}]}`, "messages[0].content", "missing_required_parameter",
			"required"},
		{"no message", `{"messages":[]}`, "messages", "missing_required_parameter", "at least one"},
		{"a bad tool", `{"messages":[{"role":"user","content":"x"}],"tools":[{}]}`, "tools[0].type",
			"missing_required_parameter", "function"},
		{"a template", `{"prompt":"x","chat_template":"{{ x }}"}`, "chat_template", "unsupported_parameter",
			"the model's"},
		{"an unknown name", `{"prompt":"x","add_special_token":true}`, "add_special_token", "unknown_parameter",
			"did you mean add_special_tokens?"},
	})
}

func TestDetokenizeRequests(t *testing.T) {
	got, err := strictDetokenize([]byte(`{"tokens":[1,2,3]}`))
	if diff := cmp.Diff(&DetokenizeRequest{Tokens: []int32{1, 2, 3}}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if got, err := strictDetokenize([]byte(`{"model":"m","tokens":[]}`)); err != nil || got.Tokens == nil {
		t.Errorf("no tokens are the empty text: %+v, %v", got, err)
	}
	checkRejections(t, strictDetokenize, []rejection{
		{"no tokens", `{}`, "tokens", "missing_required_parameter", "required"},
		{"text", `{"tokens":"x"}`, "tokens", "invalid_type", "an array of token ids"},
		{"a negative id", `{"tokens":[0,-7]}`, "tokens[1]", "value_out_of_range", "-7"},
		{"an unknown name", `{"token":[1]}`, "token", "unknown_parameter", "did you mean tokens?"},
	})
}

func TestValidateChecksRequestsMadeInGo(t *testing.T) {
	f := math.NaN()
	chat := ChatRequest{Options: Options{Model: "m", Temperature: &f, TopP: &f, LogitBias: map[int32]float64{-3: f}},
		Messages: []Message{{Role: RoleUser, Content: Content{"x"}}}}
	err := chat.Validate()
	if err == nil || err.Param != "temperature" || len(err.Problems) != 3 {
		t.Errorf("NaN: %v", err)
	}
	if err := (&CompletionRequest{Options: Options{Model: "m"},
		Prompt: Prompt{Texts: []string{"a"}, Tokens: [][]int32{{1}}}}).Validate(); err == nil || err.Param != "prompt" {
		t.Errorf("two kinds of prompt: %v", err)
	}
	if err := (&CompletionRequest{Options: Options{Model: "m"},
		Prompt: Prompt{Tokens: [][]int32{{1}, {2, -1}}}}).Validate(); err == nil || err.Param != "prompt[1][1]" {
		t.Errorf("negative id: %v", err)
	}
	if err := (&TokenizeRequest{}).Validate(); err == nil || err.Param != "prompt" {
		t.Errorf("empty tokenize request: %v", err)
	}
	if err := (&DetokenizeRequest{Tokens: []int32{-1}}).Validate(); err == nil || err.Param != "tokens[0]" {
		t.Errorf("negative token: %v", err)
	}
}

// A request made in Go has the limits of a body: a value at a limit is accepted, and one beyond it is refused, with the
// name of the field and as the only problem.
func TestRequestsMadeInGoHaveTheLimitsOfBodies(t *testing.T) {
	biases := func(n int) map[int32]float64 {
		m := map[int32]float64{}
		for i := range n {
			m[int32(i)] = 1
		}
		return m
	}
	kwargs := func(n int) map[string]json.RawMessage {
		m := map[string]json.RawMessage{}
		for i := range n {
			m[strconv.Itoa(i)] = json.RawMessage("1")
		}
		return m
	}
	list := func(n int, s string) []string { return slices.Repeat([]string{s}, n) }
	for _, c := range []struct {
		param   string
		set     func(r *ChatRequest, n int)
		most    int // the largest number that is accepted
		problem string
	}{
		{"stop", func(r *ChatRequest, n int) { r.Stop = list(n, "a") }, MaxStops, "17 strings"},
		{"stop[1]", func(r *ChatRequest, n int) { r.Stop = []string{"a", strings.Repeat("a", n)} }, MaxStopBytes,
			"1025"},
		{"stop_token_ids", func(r *ChatRequest, n int) { r.StopTokenIDs = make([]int32, n) }, MaxStopTokenIDs,
			"257 token ids"},
		{"stop_token_ids[1]", func(r *ChatRequest, n int) { r.StopTokenIDs = []int32{5, int32(-n)} }, 0,
			"-1 is not"},
		{"logit_bias", func(r *ChatRequest, n int) { r.LogitBias = biases(n) }, MaxLogitBias, "1025 entries"},
		{"logit_bias.7", func(r *ChatRequest, n int) { r.LogitBias = map[int32]float64{7: float64(n)} }, MaxBias,
			"101"},
		{"chat_template_kwargs", func(r *ChatRequest, n int) { r.ChatTemplateKwargs = kwargs(n) }, MaxKwargs,
			"65 entries"},
		{"min_tokens", func(r *ChatRequest, n int) { r.MaxTokens, r.MinTokens = ptr(7), &n }, 7, "8 is more than"},
		{"max_tokens", func(r *ChatRequest, n int) { r.MaxTokens = &n }, MaxTokens, "is not in [1,"},
		{"n", func(r *ChatRequest, n int) { r.N = &n }, MaxN, "129"},
		{"top_k", func(r *ChatRequest, n int) { r.TopK = &n }, MaxTopK, ""},
		{"priority", func(r *ChatRequest, n int) { r.Priority = &n }, MaxPriority, ""},
		{"priority", func(r *ChatRequest, n int) { r.Priority = ptr(-n) }, MaxPriority, ""},
		{"cache_salt", func(r *ChatRequest, n int) { r.CacheSalt = strings.Repeat("s", n) }, MaxSaltBytes, "257"},
		{"prompt_logprobs", func(r *ChatRequest, n int) { r.PromptLogprobs = &n }, MaxTopLogprobs, "21"},
		{"top_logprobs", func(r *ChatRequest, n int) { r.Logprobs, r.TopLogprobs = true, &n }, MaxTopLogprobs, "21"},
		{"sparrow.draft", func(r *ChatRequest, n int) { r.Sparrow = &Extension{Draft: &n} }, MaxDraft, "8"},
		{"thinking.budget_tokens", func(r *ChatRequest, n int) {
			r.Thinking = &Thinking{Type: ThinkingEnabled, BudgetTokens: &n}
		}, MaxTokens, ""},
	} {
		r := func(n int) *ChatRequest {
			r := &ChatRequest{Options: Options{Model: "m"},
				Messages: []Message{{Role: RoleUser, Content: Content{"x"}}}}
			c.set(r, n)
			return r
		}
		if err := r(c.most).Validate(); err != nil {
			t.Errorf("%s at the limit: %v", c.param, err)
		}
		err := r(c.most + 1).Validate()
		if err == nil || err.Param != c.param || len(err.Problems) > 1 || !strings.Contains(err.Message, c.problem) {
			t.Errorf("%s beyond the limit: %v, want %q", c.param, err, c.problem)
		}
	}
}
