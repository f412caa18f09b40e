package openai

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sparrow/internal/testkit/testflag"
	"sparrow/internal/wire"
	"sparrow/record"
)

// optional returns nil, or a pointer to a value that g generates.
func optional[V any](t *rapid.T, g *rapid.Generator[V], label string) *V {
	return rapid.Ptr(g, true).Draw(t, label)
}

// drawOptions returns random valid options.
func drawOptions(t *rapid.T) Options {
	name := rapid.StringMatching(`[a-zA-Z0-9_-]{1,64}`)
	o := Options{
		Model:             rapid.StringN(1, 20, -1).Draw(t, "model"),
		Temperature:       optional(t, rapid.Float64Range(0, 2), "temperature"),
		TopP:              optional(t, rapid.Float64Range(1e-9, 1), "top_p"),
		TopK:              optional(t, rapid.IntRange(0, MaxTopK), "top_k"),
		MinP:              optional(t, rapid.Float64Range(0, 1), "min_p"),
		FrequencyPenalty:  optional(t, rapid.Float64Range(-2, 2), "frequency"),
		PresencePenalty:   optional(t, rapid.Float64Range(-2, 2), "presence"),
		RepetitionPenalty: optional(t, rapid.Float64Range(0.1, 10), "repetition"),
		Seed:              optional(t, rapid.Int64(), "seed"),
		N:                 optional(t, rapid.IntRange(1, 128), "n"),
		IgnoreEOS:         rapid.Bool().Draw(t, "eos"),
		IncludeStop:       rapid.Bool().Draw(t, "include"),
		TokensAsIDs:       rapid.Bool().Draw(t, "as ids"),
		MinTokens:         optional(t, rapid.IntRange(0, 5), "min_tokens"),
		CacheSalt:         name.Draw(t, "salt"),
	}
	if rapid.Bool().Draw(t, "stops") {
		o.Stop = rapid.SliceOfN(rapid.StringN(1, 9, -1), 1, MaxStops).Draw(t, "stop")
		o.StopTokenIDs = rapid.SliceOfN(rapid.Int32Range(0, MaxTokenID), 1, 9).Draw(t, "ids")
		o.LogitBias = rapid.MapOfN(rapid.Int32Range(0, MaxTokenID), rapid.Float64Range(-100, 100), 1, 9).Draw(t, "bias")
	}
	if o.Stream = rapid.Bool().Draw(t, "stream"); o.Stream {
		o.StreamOptions = &StreamOptions{IncludeUsage: rapid.Bool().Draw(t, "usage")}
	}
	if rapid.Bool().Draw(t, "extras") {
		o.Sparrow = &Extension{Trace: rapid.Bool().Draw(t, "trace"),
			Draft: optional(t, rapid.IntRange(0, MaxDraft), "draft"), Experts: rapid.Bool().Draw(t, "experts")}
		if rapid.Bool().Draw(t, "selections") {
			o.Sparrow.Selections = drawSelections(t)
		}
		if rapid.Bool().Draw(t, "replay") {
			o.Sparrow.Replay = drawReplay(t)
		}
		o.ResponseFormat = &ResponseFormat{Type: FormatJSONSchema,
			JSONSchema: &JSONSchema{Name: name.Draw(t, "schema"), Schema: json.RawMessage(`{"b":1,"a":"é"}`)}}
	}
	return o
}

func drawSelections(t *rapid.T) *Selections {
	s := &Selections{Scores: rapid.Bool().Draw(t, "scores")}
	if rapid.Bool().Draw(t, "some layers") {
		s.Layers = rapid.SliceOfN(rapid.IntRange(0, 99), 1, 4).Draw(t, "layers")
	}
	if s.Tokens.All = rapid.Bool().Draw(t, "all tokens"); !s.Tokens.All && rapid.Bool().Draw(t, "range") {
		s.Tokens.Range = &record.Range{rapid.IntRange(0, 99).Draw(t, "from"), rapid.IntRange(0, 99).Draw(t, "to")}
	}
	return s
}

func drawReplay(t *rapid.T) *record.Rows {
	data, two := rapid.SliceOfN(rapid.Byte(), 1, 5), 2
	return &record.Rows{
		Rows: []record.Row{{Position: 5, Layers: []record.Layer{
			{Layer: 2, Keys: 6, Group: 4, Window: 128, Selected: data.Draw(t, "selected"),
				Scores: data.Draw(t, "scores")},
			{Layer: 3, Keys: 6, As: &two}, {Layer: 4, Keys: 6, All: true}}},
			{Position: 6, Experts: []record.Experts{{Layer: 1, IDs: data.Draw(t, "ids"), Weights: data.Draw(t, "w")}}}},
		NotComputed: []record.Range{{0, 5}}}
}

func drawChat(t *rapid.T) *ChatRequest {
	text := rapid.String()
	r := &ChatRequest{
		Options: drawOptions(t), MaxTokens: optional(t, rapid.IntRange(5, 99), "max"),
		Logprobs: rapid.Bool().Draw(t, "logprobs"), ParallelToolCalls: optional(t, rapid.Bool(), "parallel"),
		ReasoningEffort: rapid.SampledFrom(append([]string{""}, Efforts[1:]...)).Draw(t, "effort"),
	}
	if r.Logprobs {
		r.TopLogprobs = optional(t, rapid.IntRange(0, 20), "top")
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "rounds") {
		id := fmt.Sprintf("call_%d", i)
		r.Messages = append(r.Messages,
			Message{Role: rapid.SampledFrom([]string{RoleSystem, RoleDeveloper, RoleUser}).Draw(t, "role"),
				Content: rapid.SliceOfN(text, 1, 3).Draw(t, "parts"), Name: text.Draw(t, "name")},
			Message{Role: RoleAssistant, ReasoningContent: text.Draw(t, "reasoning"),
				ToolCalls: []ToolCall{{ID: id, Type: "function",
					Function: FunctionCall{Name: "f", Arguments: text.Draw(t, "arguments")}}}},
			Message{Role: RoleTool, ToolCallID: id, Content: Content{text.Draw(t, "result")}})
	}
	if rapid.Bool().Draw(t, "tools") {
		r.Tools = []Tool{{Type: "function",
			Function: Function{Name: "f", Description: text.Draw(t, "description"), Parameters: json.RawMessage(`{}`),
				Strict: optional(t, rapid.Bool(), "strict")}}}
		r.ToolChoice = rapid.SampledFrom([]*ToolChoice{nil, {Mode: ChoiceNone}, {Mode: ChoiceAuto},
			{Mode: ChoiceRequired}, {Mode: ChoiceFunction, Name: "f"}}).Draw(t, "choice")
	}
	return r
}

func TestChatRequestsSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := drawChat(t)
		if err := sent.Validate(); err != nil {
			t.Fatalf("drew an invalid request: %v", err)
		}
		checkSame(t, sent, strictChat)
	})
}

func TestCompletionRequestsSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := &CompletionRequest{Options: drawOptions(t), MaxTokens: optional(t, rapid.IntRange(5, 99), "max"),
			Echo: rapid.Bool().Draw(t, "echo"), Logprobs: optional(t, rapid.IntRange(0, 20), "logprobs")}
		if rapid.Bool().Draw(t, "text") {
			sent.Prompt.Texts = rapid.SliceOfN(rapid.String(), 1, 4).Draw(t, "texts")
		} else {
			sent.Prompt.Tokens = rapid.SliceOfN(rapid.SliceOfN(rapid.Int32Range(0, MaxTokenID), 1, 9), 1, 4).Draw(t,
				"tokens")
		}
		if sent.Stream && sent.Choices() > 1 {
			sent.Echo = false // the decoder refuses echo together with logprobs
		}
		if !sent.Stream {
			sent.PromptLogprobs = optional(t, rapid.IntRange(0, 20), "prompt logprobs")
		}
		checkSame(t, sent, strictCompletion)
	})
}

// checkSame encodes a value, decodes the text, and checks that the result equals the value.
func checkSame[V any](t interface{ Fatalf(string, ...any) }, sent V, decode func([]byte) (V, *wire.Error)) {
	body, err := wire.Marshal(sent)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	got, failed := decode(body)
	if failed != nil {
		t.Fatalf("%s: %v", body, failed)
	}
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Fatalf("%s (-sent +received):\n%s", body, diff)
	}
}

// checkAnswer checks the contract of every decoder: it returns a valid value, or an error that names a field.
func checkAnswer[T any](t *testing.T, body []byte, decode func([]byte) (*T, *wire.Error),
	validate func(*T) *wire.Error) {
	v, err := decode(body)
	if err == nil {
		if err := validate(v); err != nil {
			t.Fatalf("%q was accepted but is invalid: %v", body, err)
		}
		return
	}
	switch {
	case v != nil:
		t.Fatalf("%q gave a value and an error", body)
	case err.Status() != 400 || len(err.Problems) == 0 || err.Message == "":
		t.Fatalf("%q: status %d, error %+v", body, err.Status(), err)
	case !utf8.ValidString(err.Message) || len(err.Message) > 16<<10:
		t.Fatalf("%q: message of %d bytes: %q", body, len(err.Message), err.Message)
	}
	for _, p := range err.Problems {
		if p.Param == "" && !strings.Contains(p.Message, "byte") && !strings.Contains(p.Message, "the body") {
			t.Fatalf("%q: %q names nothing", body, p.Message)
		}
	}
	if _, e := wire.Marshal(err); e != nil {
		t.Fatalf("%q: error does not marshal: %v", body, e)
	}
}

func checkAll(t *testing.T, body []byte) {
	checkAnswer(t, body, strictChat, (*ChatRequest).Validate)
	checkAnswer(t, body, strictCompletion, (*CompletionRequest).Validate)
	checkAnswer(t, body, strictTokenize, (*TokenizeRequest).Validate)
	checkAnswer(t, body, strictDetokenize, (*DetokenizeRequest).Validate)
	checkAnswer(t, body, lenient(DecodeChat), (*ChatRequest).Validate)
	checkAnswer(t, body, lenient(DecodeCompletion), (*CompletionRequest).Validate)
	checkAnswer(t, body, strictResponses, (*ResponsesRequest).Validate)
	checkAnswer(t, body, lenient(DecodeResponses), (*ResponsesRequest).Validate)
	if r, err := strictChat(body); err == nil {
		checkSame(t, normal(r), strictChat)
	}
	if r, err := strictCompletion(body); err == nil {
		checkSame(t, normalOptions(r), strictCompletion)
	}
}

// normal replaces empty collections, which are omitted when encoded, by nil, and compacts JSON values.
func normal(r *ChatRequest) *ChatRequest {
	if len(r.Tools) == 0 {
		r.Tools = nil
	}
	for i := range r.Tools {
		r.Tools[i].Function.Parameters = compact(r.Tools[i].Function.Parameters)
	}
	for i := range r.Messages {
		if len(r.Messages[i].ToolCalls) == 0 {
			r.Messages[i].ToolCalls = nil
		}
	}
	if len(r.ChatTemplateKwargs) == 0 {
		r.ChatTemplateKwargs = nil
	}
	for name, raw := range r.ChatTemplateKwargs {
		r.ChatTemplateKwargs[name] = compact(raw)
	}
	normalizeOptions(&r.Options)
	return r
}

func normalOptions(r *CompletionRequest) *CompletionRequest {
	normalizeOptions(&r.Options)
	return r
}

func normalizeOptions(o *Options) {
	if len(o.Stop) == 0 {
		o.Stop = nil
	}
	if len(o.StopTokenIDs) == 0 {
		o.StopTokenIDs = nil
	}
	if len(o.LogitBias) == 0 {
		o.LogitBias = nil
	}
	if o.ResponseFormat != nil && o.ResponseFormat.JSONSchema != nil {
		o.ResponseFormat.JSONSchema.Schema = compact(o.ResponseFormat.JSONSchema.Schema)
	}
}

// compact returns JSON as Marshal writes it.
func compact(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return nil
	}
	text, err := wire.Marshal(raw)
	if err != nil {
		return raw
	}
	return text
}

// seeds returns bodies with many nested fields, so that fuzzing starts inside the decoders.
func seeds(t testing.TB) []string {
	text, err := os.ReadFile("testdata/bodies.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func FuzzDecode(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add([]byte(s))
	}
	f.Fuzz(checkAll)
}

// TestDamagedBodies truncates every seed at every byte, and changes each byte in turn: decoders must not panic. make
// long changes each byte to every one of these, make test to the next of them.
func TestDamagedBodies(t *testing.T) {
	for _, s := range seeds(t) {
		for i := range len(s) {
			checkAll(t, []byte(s[:i]))
			other := []byte("\"{]0,\x00\xff")
			if !*testflag.Long {
				other = other[i%len(other):][:1]
			}
			for _, b := range other {
				checkAll(t, append(append([]byte(s[:i]), b), s[i+1:]...))
			}
		}
	}
}

// TestHostileBodiesAreCheap sends bodies of a megabyte that are expensive for a decoder with quadratic time. Decoding
// one body may take half a second, or eight seconds with the race detector on a busy machine. A decoder with quadratic
// time would take many minutes.
func TestHostileBodiesAreCheap(t *testing.T) {
	const size = 1 << 20
	fill := func(before, piece, after string) []byte {
		return []byte(before + strings.Repeat(piece, size/len(piece)) + after)
	}
	var names strings.Builder
	for i := 0; names.Len() < size; i++ {
		fmt.Fprintf(&names, `"temperatura%d":1,`, i)
	}
	for name, body := range map[string][]byte{
		"open brackets":      fill(``, `[`, ``),
		"open objects":       fill(``, `{"a":`, ``),
		"a number of digits": fill(`{"n":`, `1`, `}`),
		"digits of a float":  fill(`{"temperature":0.`, `1`, `}`),
		"unknown names":      []byte("{" + names.String() + `"n":1}`),
		"one name repeated":  fill(`{`, `"n":1,`, `"n":1}`),
		"one long name":      fill(`{"`, `x`, `":1}`),
		"escapes":            fill(`{"model":"`, `\u0041`, `"}`),
		"lone surrogates":    fill(`{"model":"`, `\ud800`, `"}`),
		"stop strings":       fill(`{"stop":[`, `"x",`, `"x"]}`),
		"bad messages":       fill(`{"messages":[`, `{},`, `{}]}`),
		"messages of null":   fill(`{"messages":[`, `null,`, `null]}`),
		"bad token ids":      fill(`{"prompt":[`, `-1,`, `-1]}`),
		"empty prompts":      fill(`{"prompt":[`, `[],`, `[]]}`),
		"template arguments": []byte(`{"chat_template_kwargs":{` + names.String() + `"n":1}}`),
		"biases of no token": []byte(`{"logit_bias":{` + names.String() + `"n":1}}`),
		"names in a schema": []byte(`{"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{` +
			names.String() + `"n":1}}}}`),
		"white space":         fill(`{`, " \n", `}`),
		"bytes not in UTF-8":  fill(`{"model":"`, "\xff", `"}`),
		"an unfinished text":  fill(`{"model":"`, "x", ``),
		"fixed field, filled": fill(`{"modalities":["`, "x", `"]}`),
	} {
		t.Log(name) // names the body if the test does not end
		checkAll(t, body)
	}
}

func BenchmarkDecodeChat(b *testing.B) {
	for _, c := range []struct{ name, text string }{{"short", "What is the weather in Rome?"},
		{"1MB", strings.Repeat("The rain in Spain.\\n", 1<<20/20)}} {
		benchDecode(b, c.name, chatOf(`{"role":"user","content":"`+c.text+`"}`), strictChat)
	}
}

func BenchmarkDecodeTokenIDs(b *testing.B) {
	benchDecode(b, "128k", `{"model":"m","prompt":[1`+strings.Repeat(",12345", 128<<10)+`]}`, strictCompletion)
}

func benchDecode[T any](b *testing.B, name, body string, decode func([]byte) (*T, *wire.Error)) {
	b.Run(name, func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decode([]byte(body)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
