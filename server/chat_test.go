package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sparrow"
	"sparrow/chat"
	"sparrow/plan"
	"sparrow/sample"
)

const hello = `{"model":"sparrow-test","messages":[{"role":"user","content":"hello"}]`

const chatHead = `{"id":"chatcmpl-t1","object":"chat.completion.chunk","created":1700000001,"model":"sparrow-test","system_fingerprint":"fp_0000000000000abc","choices":[`

// chunks returns the events of a streamed chat in which each choice has one of the given texts.
func chunks(choices ...string) string {
	var b strings.Builder
	for _, c := range choices {
		b.WriteString("data: " + chatHead + c + "]}\n\n")
	}
	return b.String()
}

func TestChatAnswers(t *testing.T) {
	_, hs := start(t, newFake(saying("Hel", "lo")), Options{})
	got := post(t, hs.URL+"/v1/chat/completions", hello+`}`)
	want :=
		`{"id":"chatcmpl-t1","object":"chat.completion","created":1700000001,"model":"sparrow-test","system_fingerprint":"fp_0000000000000abc",` +
			`"choices":[{"index":0,"message":{"role":"assistant","content":"Hello","refusal":null},"logprobs":null,"finish_reason":"stop"}],` +
			`"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":4},` +
			`"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}`
	if diff := cmp.Diff(want, got.body); got.status != 200 || diff != "" {
		t.Errorf("status %d, -want +got:\n%s", got.status, diff)
	}
	if got.header.Get("Content-Type") != "application/json" || got.header.Get(requestIDHeader) != "t1" {
		t.Errorf("headers %v", got.header)
	}
}

func TestChatStreamsByteForByte(t *testing.T) {
	_, hs := start(t, newFake(saying("Hel", "lo")), Options{})
	plain := chunks(
		`{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`,
		`{"index":0,"delta":{"content":"Hel"},"logprobs":null,"finish_reason":null}`,
		`{"index":0,"delta":{"content":"lo"},"logprobs":null,"finish_reason":null}`,
		`{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`,
	)
	usage := `"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,` +
		`"prompt_tokens_details":{"cached_tokens":4},` +
		`"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`
	withUsage := strings.ReplaceAll(plain, "]}\n\n", "],\"usage\":null}\n\n") + "data: " + chatHead + "]," + usage +
		"}\n\n"
	for _, c := range []struct{ name, fields, want string }{
		{"without usage", `,"stream":true}`, plain + "data: [DONE]\n\n"},
		{"with usage", `,"stream":true,"stream_options":{"include_usage":true}}`, withUsage + "data: [DONE]\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := post(t, hs.URL+"/v1/chat/completions", hello+c.fields)
			if diff := cmp.Diff(c.want, got.body); got.status != 200 || diff != "" {
				t.Errorf("status %d, -want +got:\n%s", got.status, diff)
			}
			if got.header.Get("Content-Type") != "text/event-stream" || got.header.Get("Cache-Control") != "no-cache" {
				t.Errorf("headers %v", got.header)
			}
		})
	}
}

// reasonedCall returns the events of a reply that reasons and then calls two tools, split into uneven pieces.
func reasonedCall() []sparrow.Event {
	call := func(i int, id, name, args string) chat.Delta {
		return chat.Delta{Kind: chat.DeltaToolCall, Call: chat.CallDelta{Index: i, ID: id, Name: name, Arguments: args}}
	}
	return []sparrow.Event{
		{Tokens: []sparrow.Token{{ID: 1}}},
		{Deltas: []chat.Delta{{Kind: chat.DeltaReasoning, Text: "hm"}}},
		{Deltas: []chat.Delta{{Kind: chat.DeltaReasoning, Text: "!"}, {Kind: chat.DeltaContent, Text: "So"}}},
		{Deltas: []chat.Delta{call(0, "c0", "add", ""), call(0, "", "", `{"a":`), call(0, "", "", `1}`),
			call(1, "c1", "sub", "{")}},
		{Deltas: []chat.Delta{call(1, "", "", "}")}},
		{Finish: sparrow.FinishToolCalls,
			Usage: &sparrow.Usage{PromptTokens: 3, CompletionTokens: 9, ReasoningTokens: 2, DraftedTokens: 5,
				AcceptedTokens: 3}},
	}
}

const aTool = `,"tools":[{"type":"function","function":{"name":"add"}},{"type":"function","function":{"name":"sub"}}]`

// With vLLM's option for continuous usage, every token has a chunk that counts it, even if the token has no text.
func TestContinuousUsage(t *testing.T) {
	silent := sparrow.Event{Tokens: []sparrow.Token{{ID: 1}}}
	events := append([]sparrow.Event{say("a")[0], silent}, say("b")...)
	_, hs := start(t, newFake(playing(events...)), Options{})
	const options = `,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`
	for path, body := range map[string]string{"/v1/chat/completions": hello + options,
		"/v1/completions": `{"model":"sparrow-test","prompt":"p"` + options} {
		got := post(t, hs.URL+path, body).body
		for n := 1; n <= 3; n++ {
			want := `"usage":{"prompt_tokens":7,"completion_tokens":` + itoa(n) + `,"total_tokens":` + itoa(7+n) + `}}`
			if !strings.Contains(got, want) {
				t.Errorf("%s: no chunk with %s: %s", path, want, got)
			}
		}
		if strings.Contains(got, `"usage":null`) || !strings.HasSuffix(got, "data: [DONE]\n\n") {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestChatStreamsReasoningAndToolCalls(t *testing.T) {
	_, hs := start(t, newFake(playing(reasonedCall()...)), Options{})
	got := post(t, hs.URL+"/v1/chat/completions", hello+aTool+`,"stream":true}`)
	want := chunks(
		`{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`,
		`{"index":0,"delta":{"reasoning_content":"hm"},"logprobs":null,"finish_reason":null}`,
		`{"index":0,"delta":{"content":"So","reasoning_content":"!"},"logprobs":null,"finish_reason":null}`,
		`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c0","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}},{"index":1,"id":"c1","type":"function","function":{"name":"sub","arguments":"{"}}]},"logprobs":null,"finish_reason":null}`,
		`{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"}"}}]},"logprobs":null,"finish_reason":null}`,
		`{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}`,
	) + "data: [DONE]\n\n"
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestChatCollectsReasoningAndToolCalls(t *testing.T) {
	_, hs := start(t, newFake(playing(reasonedCall()...)), Options{})
	for _, c := range []struct{ name, fields, message string }{
		{"all calls", `}`,
			`{"role":"assistant","content":"So","refusal":null,"reasoning_content":"hm!","tool_calls":[` +
				`{"id":"c0","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}},{"id":"c1","type":"function","function":{"name":"sub","arguments":"{}"}}]}`},
		{"only the first when calls may not be parallel", `,"parallel_tool_calls":false}`,
			`{"role":"assistant","content":"So","refusal":null,"reasoning_content":"hm!","tool_calls":[` +
				`{"id":"c0","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := post(t, hs.URL+"/v1/chat/completions", hello+aTool+c.fields)
			for _, part := range []string{c.message, `"finish_reason":"tool_calls"`,
				`"completion_tokens_details":{"reasoning_tokens":2,"accepted_prediction_tokens":3,"rejected_prediction_tokens":2}`} {
				if !strings.Contains(got.body, part) {
					t.Errorf("no %s in\n%s", part, got.body)
				}
			}
		})
	}
}

func TestOnlyToolCallsHaveNullContent(t *testing.T) {
	events := []sparrow.Event{
		{Deltas: []chat.Delta{{Kind: chat.DeltaToolCall, Call: chat.CallDelta{ID: "c", Name: "add", Arguments: "{}"}}}},
		{Finish: sparrow.FinishToolCalls, Usage: usage(1)},
	}
	_, hs := start(t, newFake(playing(events...)), Options{})
	if got := post(t, hs.URL+"/v1/chat/completions", hello+aTool+`}`); !strings.Contains(got.body, `"content":null`) {
		t.Error(got.body)
	}
	_, hs = start(t, newFake(playing(sparrow.Event{Finish: sparrow.FinishLength, Usage: usage(0)})), Options{})
	if got := post(t, hs.URL+"/v1/chat/completions", hello+`}`); !strings.Contains(got.body, `"content":""`) ||
		!strings.Contains(got.body, `"finish_reason":"length"`) {
		t.Error(got.body)
	}
}

func TestChoicesAreToldApart(t *testing.T) {
	events := []sparrow.Event{
		{Choice: 1, Deltas: []chat.Delta{{Kind: chat.DeltaContent, Text: "B"}}},
		{Choice: 0, Deltas: []chat.Delta{{Kind: chat.DeltaContent, Text: "A"}}},
		{Choice: 1, Finish: sparrow.FinishLength},
		{Choice: 0, Finish: sparrow.FinishStop, Usage: usage(2)},
	}
	_, hs := start(t, newFake(playing(events...)), Options{})
	got := post(t, hs.URL+"/v1/chat/completions", hello+`,"n":2}`)
	want :=
		`"choices":[{"index":0,"message":{"role":"assistant","content":"A","refusal":null},"logprobs":null,"finish_reason":"stop"},` +
			`{"index":1,"message":{"role":"assistant","content":"B","refusal":null},"logprobs":null,"finish_reason":"length"}]`
	if !strings.Contains(got.body, want) {
		t.Error(got.body)
	}
	got = post(t, hs.URL+"/v1/chat/completions", hello+`,"n":2,"stream":true}`)
	stream := chunks(
		`{"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`,
		`{"index":1,"delta":{"content":"B"},"logprobs":null,"finish_reason":null}`,
		`{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`,
		`{"index":0,"delta":{"content":"A"},"logprobs":null,"finish_reason":null}`,
		`{"index":1,"delta":{},"logprobs":null,"finish_reason":"length"}`,
		`{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`,
	) + "data: [DONE]\n\n"
	if diff := cmp.Diff(stream, got.body); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// halves returns the events of a reply in which two tokens form one character, with alternatives.
func halves() []sparrow.Event {
	return []sparrow.Event{
		{Tokens: []sparrow.Token{{ID: 0xc3, Text: "\xc3", Logprob: -0.25,
			Top: []sample.TokenLogprob{{Token: 'a', Logprob: -1}}}}},
		{Text: "é", Deltas: []chat.Delta{{Kind: chat.DeltaContent, Text: "é"}},
			Tokens: []sparrow.Token{{ID: 0xa9, Text: "\xa9", Logprob: -0.5}}},
		{Tokens: []sparrow.Token{{ID: 2, Text: "", Logprob: -1}}, Finish: sparrow.FinishStop, Usage: usage(3)},
	}
}

func TestLogprobsTravelWithTheTextTheyBelongTo(t *testing.T) {
	_, hs := start(t, newFake(playing(halves()...)), Options{})
	first := `{"token":"\\xc3","logprob":-0.25,"bytes":[195],"top_logprobs":[{"token":"a","logprob":-1,"bytes":[97]}]}`
	second := `{"token":"\\xa9","logprob":-0.5,"bytes":[169],"top_logprobs":[]}`
	end := `{"token":"","logprob":-1,"bytes":[],"top_logprobs":[]}`
	got := post(t, hs.URL+"/v1/chat/completions", hello+`,"logprobs":true,"top_logprobs":1,"stream":true}`)
	want := chunks(
		`{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`,
		`{"index":0,"delta":{"content":"é"},"logprobs":{"content":[`+first+`,`+second+
			`],"refusal":null},"finish_reason":null}`,
		`{"index":0,"delta":{},"logprobs":{"content":[`+end+`],"refusal":null},"finish_reason":"stop"}`,
	) + "data: [DONE]\n\n"
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	got = post(t, hs.URL+"/v1/chat/completions", hello+`,"logprobs":true,"top_logprobs":1}`)
	if all := `"logprobs":{"content":[` + first + `,` + second + `,` + end +
		`],"refusal":null}`; !strings.Contains(got.body, all) {
		t.Error(got.body)
	}
}

func TestTraceTellsPlansPrefixAndTimes(t *testing.T) {
	p := &plan.Plan{Mode: plan.ModeExtend, Rows: 6, Key: 0x12, Segments: []plan.Segment{{
		Row: plan.RowDensePrefill, Rows: 6, Form: plan.FormDenseMHA, Kernel: plan.DenseRagged,
		Convert: plan.ConvertGatherRows, Launches: make([]plan.Launch, 2),
		Reasons:  []plan.Reason{{Rule: "dispatch 5", Text: "short"}},
		Rejected: []plan.Rejection{{Kernel: plan.SparseFlat, Phase: plan.PhasePrefill, Reason: "fits too"}},
	}}}
	events := say("x")
	events[len(events)-1].TraceLog = &sparrow.Trace{
		ID: "t1", Match: aMatch, Queued: time.Millisecond, Prefill: 2 * time.Millisecond,
		Decode: 1500 * time.Microsecond, Steps: 3, Preempted: 1, Plans: []sparrow.PlanUse{{Plan: p, Steps: 3}},
	}
	e := newFake(playing(events...))
	_, hs := start(t, e, Options{})
	trace := `"sparrow":{"traces":[{"prompt":0,"id":"t1","seed":42,` +
		`"prefix":{"matched_tokens":64,"matched_pages":1,"prompt_tokens":70,"stopped_at":66,` +
		`"stop":"first difference"},` +
		`"times":{"queued_ms":1,"prefill_ms":2,"decode_ms":1.5},"steps":3,"preempted":1,` +
		`"plans":[{"steps":3,"mode":"extend","graph":"none","key":"0000000000000012","rows":6,"segments":[` +
		`{"row":"dense-prefill","rows":6,"form":"dense-mha","kernel":"dense-ragged","layout":"none","convert":"gather-rows","transform":"none","indexer":"none",` +
		`"launches":2,"reasons":[{"rule":"dispatch 5","text":"short"}],"rejected":[{"kernel":"sparse-flat","phase":"prefill","reason":"fits too"}]}]}]}]}`
	got := post(t, hs.URL+"/v1/chat/completions", hello+`,"sparrow":{"trace":true}}`)
	if !strings.Contains(got.body, trace) || !json.Valid([]byte(got.body)) {
		t.Errorf("no trace in\n%s\nwant\n%s", got.body, trace)
	}
	got = post(t, hs.URL+"/v1/chat/completions", hello+`,"sparrow":{"trace":true},"stream":true}`)
	if !strings.HasSuffix(got.body, "data: "+chatHead+"],"+trace+"}\n\ndata: [DONE]\n\n") {
		t.Errorf("no trace at the end of\n%s", got.body)
	}
	if !e.last(t).Trace {
		t.Error("no trace was requested from the engine")
	}
}

func TestRequestsAreMeasured(t *testing.T) {
	_, hs := start(t, newFake(saying("a", "b", "c")), Options{VLLMNames: true})
	post(t, hs.URL+"/v1/chat/completions", hello+`}`)
	post(t, hs.URL+"/v1/chat/completions", hello+`,"stream":true}`)
	text := get(t, hs.URL+"/metrics").body
	for _, line := range []string{
		`sparrow_time_to_first_token_seconds_count 2`, `sparrow_inter_token_seconds_count 4`,
		`sparrow_request_seconds_count 2`, `sparrow_request_prompt_tokens_sum 14`,
		`sparrow_request_output_tokens_sum 6`, `sparrow_choices_total{reason="stop"} 2`,
		`sparrow_http_requests_total{route="/v1/chat/completions",status="200"} 2`,
		`vllm:time_to_first_token_seconds_count{engine="0",model_name="sparrow-test"} 2`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

// The time between tokens is the time between events of the same choice. Tokens that arrive together share the time
// evenly, and the first token of a request is measured from its arrival.
func TestTimesBetweenTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := func(choice, n int) sparrow.Event {
			ev := sparrow.Event{Choice: choice, Text: "x", Deltas: []chat.Delta{{Kind: chat.DeltaContent, Text: "x"}}}
			for range n {
				ev.Tokens = append(ev.Tokens, sparrow.Token{ID: 1, Text: "x"})
			}
			return ev
		}
		events := []sparrow.Event{token(0, 1), token(1, 1), token(0, 1), token(0, 2), token(1, 1),
			{Choice: 0, Finish: sparrow.FinishStop}, {Choice: 1, Finish: sparrow.FinishStop, Usage: usage(6)}}
		waits := []time.Duration{200, 40, 30, 80, 20, 0, 500} // the wait before each event, in milliseconds
		e := newFake(playing(events...))
		e.pause = func(i int) { time.Sleep(waits[i] * time.Millisecond) }
		s, err := New(e, Options{})
		if err != nil {
			t.Fatal(err)
		}
		fixed(s)
		ask := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(hello+`,"n":2}`))
		ask.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, ask)
		scrape := httptest.NewRecorder()
		s.Handler().ServeHTTP(scrape, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		// Choice 0 takes 40+30 ms, then 80 ms for two tokens; choice 1 takes 30+80+20 ms.
		for _, line := range []string{
			`sparrow_time_to_first_token_seconds_sum 0.2`, `sparrow_time_to_first_token_seconds_count 1`,
			`sparrow_inter_token_seconds_count 4`, `sparrow_inter_token_seconds_sum 0.28`,
			`sparrow_inter_token_seconds_bucket{le="0.025"} 0`, `sparrow_inter_token_seconds_bucket{le="0.05"} 2`,
			`sparrow_inter_token_seconds_bucket{le="0.075"} 3`, `sparrow_inter_token_seconds_bucket{le="0.15"} 4`,
			`sparrow_request_seconds_sum 0.87`,
		} {
			if !strings.Contains(scrape.Body.String(), "\n"+line+"\n") {
				found := lines(scrape.Body.String(), "token_seconds", "request_seconds")
				t.Errorf("status %d, no line %q in\n%s", answer.Code, line, found)
			}
		}
	})
}

// lines returns the lines of a text that contain one of the words.
func lines(text string, words ...string) string {
	var out []string
	for line := range strings.Lines(text) {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) }) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}
