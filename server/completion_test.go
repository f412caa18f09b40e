package server

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sparrow"
	"sparrow/sample"
)

const textHead = `{"id":"cmpl-t1","object":"text_completion","created":1700000001,"model":"sparrow-test","system_fingerprint":"fp_0000000000000abc","choices":[`

func texts(choices ...string) string {
	var b strings.Builder
	for _, c := range choices {
		b.WriteString("data: " + textHead + c + "]}\n\n")
	}
	return b.String() + "data: [DONE]\n\n"
}

// twice returns an answer that consists of the prompt in capitals and the number of the choice.
func twice(r sparrow.Request) ([]sparrow.Event, error) {
	text := strings.ToUpper(r.Prompt)
	var list []sparrow.Event
	for i := range r.Sampling.N {
		list = append(list, sparrow.Event{Choice: i, Text: text},
			sparrow.Event{Choice: i, Text: string(rune('0' + i)), Finish: sparrow.FinishStop})
	}
	list[len(list)-1].Usage = &sparrow.Usage{PromptTokens: len(r.Prompt), CompletionTokens: 2 * r.Sampling.N}
	return list, nil
}

func TestCompletionsNumberChoicesOfAllPrompts(t *testing.T) {
	e := newFake(twice)
	_, hs := start(t, e, Options{})
	got := post(t, hs.URL+"/v1/completions", `{"model":"sparrow-test","prompt":["a","bb"],"n":2,"echo":true}`)
	want := textHead +
		`{"index":0,"text":"aA0","logprobs":null,"finish_reason":"stop"},{"index":1,"text":"aA1","logprobs":null,"finish_reason":"stop"},` +
		`{"index":2,"text":"bbBB0","logprobs":null,"finish_reason":"stop"},{"index":3,"text":"bbBB1","logprobs":null,"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":3,"completion_tokens":8,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":0},` +
		`"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}`
	if diff := cmp.Diff(want, got.body); got.status != 200 || diff != "" {
		t.Errorf("status %d, -want +got:\n%s", got.status, diff)
	}
	ids := map[string]bool{}
	for _, r := range e.requests {
		ids[r.ID] = true
	}
	if !ids["t1-0"] || !ids["t1-1"] {
		t.Errorf("request ids %v", ids)
	}
}

func TestCompletionsStreamByteForByte(t *testing.T) {
	_, hs := start(t, newFake(twice), Options{})
	for _, c := range []struct{ name, fields, want string }{
		{"plain", ``, texts(
			`{"index":0,"text":"AB","logprobs":null,"finish_reason":null}`,
			`{"index":0,"text":"0","logprobs":null,"finish_reason":null}`,
			`{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}`)},
		{"with echo", `,"echo":true`, texts(
			`{"index":0,"text":"abAB","logprobs":null,"finish_reason":null}`,
			`{"index":0,"text":"0","logprobs":null,"finish_reason":null}`,
			`{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}`)},
		{"nothing but the echo", `,"echo":true,"max_tokens":0`, texts(
			`{"index":0,"text":"ab","logprobs":null,"finish_reason":null}`,
			`{"index":0,"text":"","logprobs":null,"finish_reason":"length"}`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := post(t, hs.URL+"/v1/completions", `{"model":"sparrow-test","prompt":"ab","stream":true`+c.fields+`}`)
			if diff := cmp.Diff(c.want, got.body); got.status != 200 || diff != "" {
				t.Errorf("status %d, -want +got:\n%s", got.status, diff)
			}
		})
	}
}

func TestEchoWithoutNewTokensNeedsNoEngine(t *testing.T) {
	e := newFake(func(sparrow.Request) ([]sparrow.Event, error) { panic("the engine was asked") })
	_, hs := start(t, e, Options{})
	got := post(t, hs.URL+"/v1/completions", `{"model":"sparrow-test","prompt":[104,105],"echo":true,"max_tokens":0}`)
	if got.status != 200 || !strings.Contains(got.body, `"text":"hi"`) ||
		!strings.Contains(got.body, `"prompt_tokens":2,"completion_tokens":0`) {
		t.Errorf("status %d: %s", got.status, got.body)
	}
}

func TestPromptsWithoutSpecialTokensAreEncodedHere(t *testing.T) {
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{})
	if got := post(t, hs.URL+"/v1/completions",
		`{"model":"sparrow-test","prompt":"hi","add_special_tokens":false}`); got.status != 200 {
		t.Fatal(got.body)
	}
	if diff := cmp.Diff([]int32{'h', 'i'}, e.last(t).Tokens); diff != "" || e.last(t).Prompt != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestCompletionLogprobsCountCharacters(t *testing.T) {
	events := []sparrow.Event{
		{Text: "a",
			Tokens: []sparrow.Token{{ID: 'a', Text: "a", Logprob: -1,
				Top: []sample.TokenLogprob{{Token: 'a', Logprob: -1}, {Token: 'b', Logprob: -2}}}}},
		{Tokens: []sparrow.Token{{ID: 0xc3, Text: "\xc3", Logprob: -2,
			Top: []sample.TokenLogprob{{Token: 'z', Logprob: -0.5}}}}},
		{Text: "é", Tokens: []sparrow.Token{{ID: 0xa9, Text: "\xa9", Logprob: -3}}},
		{Text: "!", Tokens: []sparrow.Token{{ID: '!', Text: "!", Logprob: -4}}, Finish: sparrow.FinishStop,
			Usage: usage(4)},
	}
	_, hs := start(t, newFake(playing(events...)), Options{})
	got := post(t, hs.URL+"/v1/completions", `{"model":"sparrow-test","prompt":"p","logprobs":2}`)
	want := `"logprobs":{"tokens":["a","bytes:\\xc3","bytes:\\xa9","!"],"token_logprobs":[-1,-2,-3,-4],` +
		`"top_logprobs":[{"a":-1,"b":-2},{"z":-0.5,"bytes:\\xc3":-2},{"bytes:\\xa9":-3},{"!":-4}],"text_offset":[0,1,1,2]}`
	if !strings.Contains(got.body, want) {
		t.Errorf("no %s in\n%s", want, got.body)
	}
	got = post(t, hs.URL+"/v1/completions", `{"model":"sparrow-test","prompt":"p","logprobs":0,"stream":true}`)
	chunk :=
		`{"index":0,"text":"é","logprobs":{"tokens":["bytes:\\xc3","bytes:\\xa9"],"token_logprobs":[-2,-3],"top_logprobs":null,"text_offset":[1,1]},"finish_reason":null}`
	if !strings.Contains(got.body, chunk) {
		t.Errorf("no %s in\n%s", chunk, got.body)
	}
}

// For a checkpoint without a tokenizer, both forms of logprobs identify tokens and their alternatives by id.
func TestLogprobsNameTokensByTheirIDs(t *testing.T) {
	_, hs := start(t, newFake(playing(
		sparrow.Event{Tokens: []sparrow.Token{
			{ID: 7, Logprob: -1, Top: []sample.TokenLogprob{{Token: 8, Logprob: -0.5}}}}},
		sparrow.Event{Tokens: []sparrow.Token{{ID: 9, Logprob: -2}}, Finish: sparrow.FinishLength, Usage: usage(2)},
	)), Options{})
	const columns = `"tokens":["token_id:7","token_id:9"],"token_logprobs":[-1,-2],"top_logprobs":[{"token_id:8":-0.5,"token_id:7":-1},{"token_id:9":-2}]`
	for _, stream := range []string{"", `,"stream":true`} {
		got := post(t, hs.URL+"/v1/completions",
			`{"model":"sparrow-test","prompt":[1,2],"logprobs":1,"return_tokens_as_token_ids":true`+stream+`}`)
		if !strings.Contains(got.body, columns) || !strings.Contains(got.body, `"text":""`) {
			t.Errorf("no %s in\n%s", columns, got.body)
		}
		got = post(t, hs.URL+"/v1/chat/completions",
			hello+`,"logprobs":true,"top_logprobs":1,"return_tokens_as_token_ids":true`+stream+`}`)
		for _, want := range []string{`{"token":"token_id:7","logprob":-1,`,
			`"top_logprobs":[{"token":"token_id:8","logprob":-0.5,`, `{"token":"token_id:9","logprob":-2,`} {
			if !strings.Contains(got.body, want) {
				t.Errorf("no %s in\n%s", want, got.body)
			}
		}
	}
}

// The usage of a request with several prompts is the sum over the prompts, for every count including cached tokens and
// drafts.
func TestUsageOfSeveralPromptsAddsUp(t *testing.T) {
	e := newFake(func(r sparrow.Request) ([]sparrow.Event, error) {
		n := len(r.Prompt)
		return []sparrow.Event{{Finish: sparrow.FinishStop,
			Usage: &sparrow.Usage{PromptTokens: 100 * n, CachedTokens: 64 * n,
				CompletionTokens: 10 * n, ReasoningTokens: 3 * n, DraftedTokens: 5 * n, AcceptedTokens: 2 * n}}}, nil
	})
	_, hs := start(t, e, Options{})
	want := `"usage":{"prompt_tokens":600,"completion_tokens":60,"total_tokens":660,` +
		`"prompt_tokens_details":{"cached_tokens":384},` +
		`"completion_tokens_details":{"reasoning_tokens":18,"accepted_prediction_tokens":12,"rejected_prediction_tokens":18}}`
	for _, stream := range []string{``, `,"stream":true,"stream_options":{"include_usage":true}`} {
		got := post(t, hs.URL+"/v1/completions", `{"model":"sparrow-test","prompt":["a","bb","ccc"]`+stream+`}`)
		if got.status != 200 || !strings.Contains(got.body, want) {
			t.Errorf("status %d, no %s in\n%s", got.status, want, got.body)
		}
	}
}
