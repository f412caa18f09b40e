package openai

import (
	"encoding/json"
	"math"
	"sparrow/internal/wire"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestChatStreamIsWhatOpenAISends(t *testing.T) {
	s := NewChatStream(Head{ID: "chatcmpl-1", Model: "m", SystemFingerprint: "fp", Created: 17}, true)
	var out []byte
	for _, c := range []ChunkChoice{
		{Delta: Delta{Role: RoleAssistant}},
		{Delta: Delta{ReasoningContent: "so"}},
		{Delta: Delta{Content: "Grüße <b>\n"},
			Logprobs: &ChatLogprobs{Content: []TokenLogprob{
				{Token: "Gr", Logprob: -1, Bytes: TokenBytes("Gr"), TopLogprobs: []TopLogprob{}}}}},
		{Delta: Delta{ToolCalls: []ToolCallDelta{
			{ID: "call_1", Type: "function", Function: FunctionDelta{Name: "f"}}}}},
		{Delta: Delta{ToolCalls: []ToolCallDelta{{Function: FunctionDelta{Arguments: `{"a":`}},
			{Index: 1, Function: FunctionDelta{Arguments: "}"}}}}},
		{Index: 1, FinishReason: FinishToolCalls},
	} {
		out = s.Append(out, &c, nil)
	}
	out, err := s.AppendClosing(out, &Usage{PromptTokens: 1, CompletionTokens: 2, TotalTokens: 3},
		json.RawMessage("{\n \"plans\": 1 }"))
	if err != nil {
		t.Fatal(err)
	}
	out = AppendDone(AppendKeepAlive(out))

	head :=
		`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":17,"model":"m","system_fingerprint":"fp","choices":[`
	chunk := func(choice string) string { return head + choice + `],"usage":null}` + "\n\n" }
	want := chunk(`{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`) +
		chunk(`{"index":0,"delta":{"reasoning_content":"so"},"logprobs":null,"finish_reason":null}`) +
		chunk(
			`{"index":0,"delta":{"content":"Grüße <b>\n"},"logprobs":{"content":[{"token":"Gr","logprob":-1,"bytes":[71,114],"top_logprobs":[]}],"refusal":null},"finish_reason":null}`) +
		chunk(
			`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]},"logprobs":null,"finish_reason":null}`) +
		chunk(
			`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}},{"index":1,"function":{"arguments":"}"}}]},"logprobs":null,"finish_reason":null}`) +
		chunk(`{"index":1,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}`) +
		head + `],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"sparrow":{"plans":1}}` + "\n\n" +
		": waiting\n\ndata: [DONE]\n\n"
	if diff := cmp.Diff(strings.SplitAfter(want, "\n\n"), strings.SplitAfter(string(out), "\n\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCompletionStreamIsWhatOpenAISends(t *testing.T) {
	s := NewCompletionStream(Head{ID: "cmpl-1", Model: "m", Created: 17}, false)
	out := s.Append(nil, &CompletionChoice{Index: 2, Text: "a", Logprobs: &CompletionLogprobs{
		Tokens: []string{"a"}, TokenLogprobs: []*Logprob{ptr(Logprob(-1))}, TextOffset: []int{0}}}, nil)
	out = s.Append(out, &CompletionChoice{Text: "", FinishReason: FinishStop}, nil)
	out, err := s.AppendClosing(out, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	head := `data: {"id":"cmpl-1","object":"text_completion","created":17,"model":"m","choices":[`
	want := head +
		`{"index":2,"text":"a","logprobs":{"tokens":["a"],"token_logprobs":[-1],"top_logprobs":null,"text_offset":[0]},"finish_reason":null}]}` + "\n\n" +
		head + `{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}]}` + "\n\n"
	if string(out) != want {
		t.Errorf("got  %s\nwant %s", out, want)
	}
}

func TestAClosingChunkNeedsATraceThatIsJSON(t *testing.T) {
	s := NewChatStream(Head{ID: "x", Model: "m"}, false)
	out, err := s.AppendClosing([]byte("before"), nil, json.RawMessage("{"))
	if err == nil || string(out) != "before" {
		t.Errorf("%q, %v", out, err)
	}
}

// anyText generates text with all characters that need escapes: quotes, control characters, line separators and invalid
// UTF-8.
func anyText() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		piece := rapid.OneOf(rapid.String(),
			rapid.SampledFrom([]string{`"`, `\`, "\n", "\r", "\x00", "\x7f", "\u0085", "\u2028", "\u2029", "\xff",
				"\xe2\x82", "<&>", "😀", "\ufffd"}))
		return strings.Join(rapid.SliceOfN(piece, 0, 4).Draw(t, "pieces"), "")
	})
}

// readEvent checks that an event has one line, and returns its JSON text.
func readEvent(t *rapid.T, event []byte) []byte {
	text, ok := strings.CutPrefix(string(event), "data: ")
	body, end := strings.CutSuffix(text, "\n\n")
	if !ok || !end || strings.ContainsAny(body, "\n\r\u0085\u2028\u2029") || !utf8.ValidString(body) {
		t.Fatalf("not one event: %q", event)
	}
	return []byte(body)
}

// whole returns a text as a client receives it: invalid UTF-8 becomes U+FFFD, byte by byte.
func whole(s string) string { return string([]rune(s)) }

func TestChunksSayWhatWasMeant(t *testing.T) {
	text, number := anyText(), rapid.Float64()
	rapid.Check(t, func(t *rapid.T) {
		head := Head{ID: text.Draw(t, "id"), Model: text.Draw(t, "model"), SystemFingerprint: text.Draw(t, "fp"),
			Created: rapid.Int64().Draw(t, "created")}
		var call ToolCallDelta
		call.Index, call.ID, call.Function.Name, call.Function.Arguments = rapid.Int().Draw(t, "call"),
			text.Draw(t, "call id"), text.Draw(t, "name"), text.Draw(t, "arguments")
		alternative := TopLogprob{Token: text.Draw(t, "alt"), Logprob: Logprob(number.Draw(t, "alt logprob")),
			Bytes: TokenBytes(text.Draw(t, "alt bytes"))}
		sent := ChunkChoice{
			Index: rapid.Int().Draw(t, "index"),
			Delta: Delta{
				Role: rapid.SampledFrom([]string{"", RoleAssistant}).Draw(t, "role"), Content: text.Draw(t, "content"),
				ReasoningContent: text.Draw(t, "reasoning"), ToolCalls: []ToolCallDelta{call},
			},
			Logprobs: &ChatLogprobs{Content: []TokenLogprob{{
				Token: text.Draw(t, "token"), Logprob: Logprob(number.Draw(t, "logprob")),
				Bytes: TokenBytes(text.Draw(t, "bytes")), TopLogprobs: []TopLogprob{alternative},
			}}},
			FinishReason: rapid.SampledFrom([]FinishReason{"", FinishStop, FinishLength}).Draw(t, "finish"),
		}
		event := readEvent(t, NewChatStream(head, rapid.Bool().Draw(t, "usage")).Append(nil, &sent, nil))
		var got ChatChunk
		if err := json.Unmarshal(event, &got); err != nil {
			t.Fatalf("%s: %v", event, err)
		}
		want := ChatChunk{Head: Head{whole(head.ID), ObjectChatChunk, head.Created, whole(head.Model),
			whole(head.SystemFingerprint)}, Choices: []ChunkChoice{sent}}
		c := &want.Choices[0]
		for _, s := range []*string{&c.Delta.Content, &c.Delta.ReasoningContent, &call.ID, &call.Function.Name,
			&call.Function.Arguments, &c.Logprobs.Content[0].Token, &alternative.Token} {
			*s = whole(*s)
		}
		for _, l := range []*Logprob{&c.Logprobs.Content[0].Logprob, &alternative.Logprob} {
			*l = Logprob(l.finite())
		}
		c.Delta.ToolCalls = []ToolCallDelta{call}
		c.Logprobs.Content[0].TopLogprobs = []TopLogprob{alternative}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestTextChunksSayWhatWasMeant(t *testing.T) {
	text := anyText()
	rapid.Check(t, func(t *rapid.T) {
		sent := CompletionChoice{
			Index: rapid.Int().Draw(t, "index"), Text: text.Draw(t, "text"),
			Logprobs: &CompletionLogprobs{
				Tokens: []string{text.Draw(t, "token")}, TokenLogprobs: []*Logprob{nil, ptr(Logprob(math.Inf(-1)))},
				TopLogprobs: []RankedLogprobs{nil, {}, {{text.Draw(t, "alt"), -1}}},
				TextOffset:  []int{rapid.Int().Draw(t, "offset")},
			},
		}
		event := readEvent(t, NewCompletionStream(Head{}, false).Append(nil, &sent, nil))
		var got CompletionResponse
		if err := json.Unmarshal(event, &got); err != nil {
			t.Fatalf("%s: %v", event, err)
		}
		sent.Text, sent.Logprobs.Tokens[0] = whole(sent.Text), whole(sent.Logprobs.Tokens[0])
		sent.Logprobs.TokenLogprobs[1] = ptr(Impossible)
		sent.Logprobs.TopLogprobs[2][0].Token = whole(sent.Logprobs.TopLogprobs[2][0].Token)
		if diff := cmp.Diff([]CompletionChoice{sent}, got.Choices); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// hotChunk is a chunk with one token of text, as in nearly every event of a stream.
var hotChunk = ChunkChoice{Delta: Delta{Content: " überall"}}

// richChunk returns a chunk with every optional field.
func richChunk() *ChunkChoice {
	token := TokenLogprob{Token: " so", Logprob: -0.123456789, Bytes: TokenBytes(" so")}
	for range MaxTopLogprobs {
		token.TopLogprobs = append(token.TopLogprobs,
			TopLogprob{Token: " so", Logprob: -0.123456789, Bytes: TokenBytes(" so")})
	}
	return &ChunkChoice{Delta: Delta{Content: " so"}, Logprobs: &ChatLogprobs{Content: []TokenLogprob{token}}}
}

func TestChunksAreWrittenWithoutAllocating(t *testing.T) {
	s := NewChatStream(Head{ID: "chatcmpl-1", Model: "m", Created: 17}, false)
	buffer, rich := make([]byte, 0, 1<<14), richChunk()
	if n := testing.AllocsPerRun(100, func() {
		s.Append(buffer, &hotChunk, nil)
		s.Append(buffer, rich, &Counts{7, 9})
		s.Append(buffer,
			&ChunkChoice{Delta: Delta{ToolCalls: []ToolCallDelta{{Function: FunctionDelta{Arguments: `"x"`}}}}}, nil)
		AppendDone(buffer)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkChunk(b *testing.B) {
	head := Head{ID: "chatcmpl-0123456789abcdef", Object: ObjectChatChunk, Model: "deepseek-v3.2", Created: 1700000000}
	s := NewChatStream(head, true)
	for _, c := range []struct {
		name   string
		choice *ChunkChoice
	}{{"content", &hotChunk}, {"logprobs20", richChunk()}} {
		buffer := make([]byte, 0, 1<<14)
		b.Run(c.name+"/append", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buffer = s.Append(buffer[:0], c.choice, nil)
			}
			b.SetBytes(int64(len(buffer)))
		})
		b.Run(c.name+"/reflection", func(b *testing.B) {
			chunk := ChatChunk{Head: head, Choices: []ChunkChoice{*c.choice}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.Marshal(&chunk); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(buffer)))
		})
	}
}
