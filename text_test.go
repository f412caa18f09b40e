package sparrow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"sparrow/internal/testmodel"
	"sparrow/sample"
)

// Invariants of this file: the text of an answer is the text of its tokens, cut at stop strings and never inside a
// character; limits and formats are enforced; streamed text equals the text of Generate.

const garden = "A garden is 21 meters long and 2 meters wide. How many meters of fence are needed to go around it?"

// In this test the model answers "21 + 2 = 23\n23 * 2 = 46\n#### 46".
func TestWhatEndsAChoice(t *testing.T) {
	notUnderRace(t)
	e := start(t, Config{})
	whole := generate(t, e, Request{Chat: ask(garden), Sampling: greedy()}).Choices[0]
	if whole.Text != "21 + 2 = 23\n23 * 2 = 46\n#### 46" ||
		!slices.Contains(e.eos, whole.Tokens[len(whole.Tokens)-1].ID) {
		t.Fatalf("the answer is %q, ending with token %d", whole.Text, whole.Tokens[len(whole.Tokens)-1].ID)
	}
	body := len(whole.Tokens) - 1 // number of tokens without the end-of-sequence token
	for _, c := range []struct {
		name    string
		change  func(*Request)
		text    string
		tokens  int // expected number of tokens, not checked if 0
		finish  Finish
		matched string
	}{
		{"a stop string", func(r *Request) { r.Sampling.Stop = []string{"= 46"} }, "21 + 2 = 23\n23 * 2 ", 0,
			FinishStop, "= 46"},
		{"a stop string that is kept", func(r *Request) {
			r.Sampling.Stop, r.Sampling.IncludeStop = []string{"= 46"},
				true
		}, "21 + 2 = 23\n23 * 2 = 46", 0, FinishStop, "= 46"},
		{"the first of two stop strings", func(r *Request) { r.Sampling.Stop = []string{"####", "\n"} }, "21 + 2 = 23",
			0, FinishStop, "\n"},
		{"a stop string that begins but does not come", func(r *Request) { r.Sampling.Stop = []string{"46!"} },
			whole.Text, len(whole.Tokens), FinishStop, ""},
		{"a stop token", func(r *Request) { r.Sampling.StopTokenIDs = []int32{whole.Tokens[3].ID} }, "", 0, FinishStop,
			""},
		{"max tokens", func(r *Request) { r.MaxTokens = body }, whole.Text, body, FinishLength, ""},
		{"max tokens and a stop string held back",
			func(r *Request) { r.MaxTokens, r.Sampling.Stop = body, []string{"46!"} }, whole.Text, body, FinishLength,
			""},
		{"one token", func(r *Request) { r.MaxTokens = 1 }, whole.Tokens[0].Text, 1, FinishLength, ""},
		{"min tokens", func(r *Request) { r.MinTokens, r.MaxTokens = body+4, body+8 }, "", 0, "", ""},
		{"min tokens and a stop string before",
			func(r *Request) { r.MinTokens, r.Sampling.Stop = body, []string{"\n"} }, whole.Text, len(whole.Tokens),
			FinishStop, ""},
		{"end ignored", func(r *Request) { r.IgnoreEOS, r.MaxTokens = true, body+5 }, "", body + 5, FinishLength, ""},
	} {
		r := Request{Chat: ask(garden), Sampling: greedy()}
		c.change(&r)
		a := generate(t, e, r).Choices[0]
		if c.text != "" && a.Text != c.text || c.finish != "" && a.Finish != c.finish || a.Matched != c.matched ||
			c.tokens != 0 && len(a.Tokens) != c.tokens {
			t.Errorf("%s: %q, %d tokens, finish %s, matched %q; want %q, %d, %s, %q", c.name, a.Text, len(a.Tokens),
				a.Finish, a.Matched, c.text, c.tokens, c.finish, c.matched)
		}
		if !strings.HasPrefix(a.Text, whole.Text[:min(len(whole.Text), len(a.Text))]) {
			t.Errorf("%s: %q does not begin like the whole answer", c.name, a.Text)
		}
		if r.MinTokens > 0 && len(a.Tokens) < r.MinTokens {
			t.Errorf("%s: %d tokens were generated", c.name, len(a.Tokens))
		}
		if end := e.tok.Text(e.eos[0]); strings.Contains(a.Text, end) {
			t.Errorf("%s: the end of the sequence is in the text: %q", c.name, a.Text)
		}
	}
}

// Special tokens are not part of the text. In chats the text contains the markers that the parser of replies needs,
// even if the tokenizer marks them as special.
func TestSpecialTokensAreLeftOut(t *testing.T) {
	e := start(t, Config{})
	id := func(text string) int32 {
		t.Helper()
		id, ok := e.tok.TokenID(text)
		if !ok {
			t.Fatalf("the tokenizer has no %q", text)
		}
		return id
	}
	pad, think := id("<｜▁pad▁｜>"), id("<think>")
	for name, r := range map[string]*Request{"chat": {Chat: ask(garden)}, "prompt": {Prompt: "The"}} {
		p, _, err := e.prepare(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		d := p.Decoder()
		if got := d.Next(pad); got != "" {
			t.Errorf("%s: padding is %q", name, got)
		}
		if got := d.Next(think); got != "<think>" {
			t.Errorf("%s: the beginning of reasoning is %q", name, got)
		}
	}
	if e.replyMarkers = append(e.replyMarkers, pad); e.skipInReply(pad) {
		t.Error("a special token that the parser reads is left out")
	}
}

func TestStreamedTextIsTheWholeText(t *testing.T) {
	e := start(t, Config{})
	p := seeded(4)
	p.Temperature, p.N, p.Stop, p.Logprobs, p.TopLogprobs = 2, 3, []string{"e", "zzz"}, true, 5
	r := Request{Prompt: "The", Sampling: p, MinTokens: 30, MaxTokens: 60}
	want := generate(t, e, r)
	var got [3]strings.Builder
	var count [3]int
	for ev := range open(t, e, r).All() {
		if !utf8.ValidString(ev.Text) {
			t.Errorf("the text of an event has an incomplete character: %q", ev.Text)
		}
		got[ev.Choice].WriteString(ev.Text)
		count[ev.Choice] += len(ev.Tokens)
		for _, tok := range ev.Tokens {
			checkLogprobs(t, tok, 5)
		}
	}
	for i := range got {
		if got[i].String() != want.Choices[i].Text || count[i] != len(want.Choices[i].Tokens) {
			t.Errorf("choice %d: streamed %q, whole %q", i, got[i].String(), want.Choices[i].Text)
		}
	}
	if got[0].String() == got[1].String() && got[1].String() == got[2].String() {
		t.Errorf("three choices at temperature 2 are equal: %q", got[0].String())
	}
}

// checkLogprobs checks that the log probability of a token is at most zero and that the token has n alternatives in
// descending order. If the token is one of the alternatives, both log probabilities are equal.
func checkLogprobs(t *testing.T, tok Token, n int) {
	t.Helper()
	if tok.Logprob > 0 || math.IsNaN(tok.Logprob) || len(tok.Top) != n {
		t.Errorf("token %d: log probability %v, %d alternatives", tok.ID, tok.Logprob, len(tok.Top))
	}
	for i, top := range tok.Top {
		if i > 0 && top.Logprob > tok.Top[i-1].Logprob || top.Token == tok.ID && top.Logprob != tok.Logprob {
			t.Errorf("token %d (%v): alternatives %v", tok.ID, tok.Logprob, tok.Top)
		}
	}
}

// Reported log probabilities are those of the model: masking the end-of-sequence token does not change them.
func TestLogprobsAreTheModelsOwn(t *testing.T) {
	notUnderRace(t)
	e := start(t, Config{})
	p := greedy()
	p.Logprobs, p.TopLogprobs = true, 3
	r := Request{Chat: ask(garden), Sampling: p}
	plain := generate(t, e, r).Choices[0].Tokens
	end := plain[len(plain)-1]
	r.MinTokens, r.MaxTokens = len(plain)+2, len(plain)+2
	forced := generate(t, e, r).Choices[0].Tokens[len(plain)-1]
	if forced.ID == end.ID || forced.Top[0] != end.Top[0] || forced.Top[0].Token != end.ID {
		t.Errorf("token %d was masked and token %d chosen; alternatives %v, without a minimum length %v", end.ID,
			forced.ID, forced.Top,
			end.Top)
	}
}

// Every constrained answer parses and follows its format at any temperature, even if other tokens are more probable.
func TestFormatsHold(t *testing.T) {
	notUnderRace(t)
	e := start(t, Config{})
	schema :=
		`{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
		"pets": {"type": "array", "items": {"enum": ["cat", "dog", "owl"]}, "maxItems": 3}}, "required": ["name", "age", "pets"], "additionalProperties": false}`
	prompts := []string{"Return JSON with name, age and city. Text: Sofia, aged 89, comes from Havana.", garden}
	for i := range 8 {
		r := Request{Chat: ask(prompts[i%2]), Sampling: seeded(int64(i)), MaxTokens: 400,
			Format: Format{Kind: FormatSchema, Schema: []byte(schema)}}
		r.Sampling.Temperature = []float64{0, 0.7, 1.3, 2}[i/2]
		if i%2 == 1 {
			r.MinTokens, r.IgnoreEOS = 300, true // a complete document ends the answer before MinTokens
		}
		a := generate(t, e, r).Choices[0]
		var v struct {
			Name *string
			Age  *int
			Pets []string
		}
		d := json.NewDecoder(strings.NewReader(a.Text))
		d.DisallowUnknownFields()
		err := d.Decode(&v)
		if err != nil || a.Finish != FinishStop || v.Name == nil || utf8.RuneCountInString(*v.Name) > 12 ||
			v.Age == nil || *v.Age < 0 || *v.Age > 120 || v.Pets == nil || len(v.Pets) > 3 {
			t.Errorf("schema, temperature %v: %q, finish %s, error %v", r.Sampling.Temperature, a.Text, a.Finish, err)
		}
		for _, pet := range v.Pets {
			if !slices.Contains([]string{"cat", "dog", "owl"}, pet) {
				t.Errorf("schema: %q", a.Text)
			}
		}
	}
	r := Request{Chat: ask(prompts[0]), Sampling: greedy(), Format: Format{Kind: FormatJSON}}
	a := generate(t, e, r).Choices[0]
	var v map[string]any
	if err := json.Unmarshal([]byte(a.Text), &v); err != nil || v["name"] != "Sofia" || v["age"] != 89.0 ||
		a.Finish != FinishStop {
		t.Errorf("JSON: %q, finish %s, error %v", a.Text, a.Finish, err)
	}
	r.Format = Format{Kind: FormatPattern, Pattern: `(cat|dog)s? [0-9]{2}`}
	if a := generate(t, e, r).Choices[0]; !regexp.MustCompile(`^(cat|dog)s? [0-9]{2}$`).MatchString(a.Text) ||
		a.Finish != FinishStop {
		t.Errorf("pattern: %q, finish %s", a.Text, a.Finish)
	}
	r.Format = Format{Kind: FormatChoice, Choices: []string{"left", "right"}}
	if a := generate(t, e, r).Choices[0]; !slices.Contains(r.Format.Choices, a.Text) || a.Finish != FinishStop {
		t.Errorf("choice: %q, finish %s", a.Text, a.Finish)
	}
}

// Tokens may contain incomplete characters; the text is always valid, and an incomplete character at the end becomes
// U+FFFD.
func TestBrokenCharacters(t *testing.T) {
	notUnderRace(t)
	e := start(t, Config{})
	lead := int32(-1)
	for id := range int32(e.tok.VocabSize()) {
		if b := e.tok.Bytes(id); len(b) == 1 && b[0] == 0xe2 {
			lead = id
		}
	}
	if lead < 0 {
		t.Skip("the vocabulary has no token for half a character")
	}
	p := greedy()
	p.LogitBias = map[int32]float64{lead: 100}
	if a := generate(t, e, Request{Prompt: "Hello", Sampling: p,
		MaxTokens: 3}).Choices[0]; a.Text != "\ufffd\ufffd\ufffd" {
		t.Errorf("cut off by the limit: %q; want three replacement characters", a.Text)
	}
}

func TestBadRequestsNameTheirField(t *testing.T) {
	e := start(t, Config{})
	bare := start(t, Config{Model: testmodel.V32(t), CacheTokens: 128})
	with := func(change func(*sample.Params)) sample.Params {
		p := sample.Default()
		change(&p)
		return p
	}
	for _, c := range []struct {
		e     *Engine
		name  string
		field string
		r     Request
	}{
		{e, "nothing", "prompt", Request{Sampling: greedy(), Tokens: []int32{}}},
		{e, "two prompts", "prompt", Request{Sampling: greedy(), Prompt: "a", Tokens: []int32{1}}},
		{e, "a token outside the vocabulary", "prompt", Request{Sampling: greedy(), Tokens: []int32{1, 1 << 20}}},
		{e, "a negative token", "prompt", Request{Sampling: greedy(), Tokens: []int32{-1}}},
		{bare, "a prompt that fills the context", "prompt", Request{Sampling: greedy(), Tokens: tokens(1, 128)}},
		{bare, "more output than the context holds", "max_tokens",
			Request{Sampling: greedy(), Tokens: tokens(1, 100), MaxTokens: 29}},
		{e, "negative output", "max_tokens", Request{Sampling: greedy(), Prompt: "a", MaxTokens: -1}},
		{e, "a minimum above the maximum", "min_tokens",
			Request{Sampling: greedy(), Prompt: "a", MaxTokens: 3, MinTokens: 4}},
		{e, "a schema that is none", "response_format",
			Request{Sampling: greedy(), Prompt: "a",
				Format: Format{Kind: FormatSchema, Schema: []byte(`{"type": 5}`)}}},
		{bare, "JSON without a tokenizer", "response_format",
			Request{Sampling: greedy(), Tokens: tokens(1, 3), Format: Format{Kind: FormatJSON}}},
		{e, "sampling of which one field was set", "", Request{Prompt: "a", Sampling: sample.Params{TopK: 5}}},
		{e, "a stop token outside the vocabulary", "",
			Request{Prompt: "a", Sampling: with(func(p *sample.Params) { p.StopTokenIDs = []int32{1 << 20} })}},
		{e, "a bias outside the vocabulary", "",
			Request{Prompt: "a", Sampling: with(func(p *sample.Params) {
				p.LogitBias = map[int32]float64{1 << 20: 1}
			})}},
		{bare, "text without a tokenizer", "-", Request{Prompt: "a", Sampling: greedy()}},
		{bare, "a chat without a tokenizer", "-", Request{Chat: ask("a"), Sampling: greedy()}},
	} {
		_, err := c.e.Stream(context.Background(), c.r)
		var field *RequestError
		switch {
		case c.field == "-" && errors.Is(err, ErrNoTokenizer):
		case c.field == "" && errors.Is(err, ErrRequest):
		case errors.As(err, &field) && field.Field == c.field && errors.Is(err, ErrRequest):
		default:
			t.Errorf("%s: error %v; want one about %q", c.name, err, c.field)
		}
	}
	if st := e.Stats(); st.Requests != 0 || st.Refused != 0 {
		t.Errorf("%d requests accepted, %d refused", st.Requests, st.Refused)
	}
}

func TestEncodeAndDecode(t *testing.T) {
	e := start(t, Config{})
	text := "3 * 10 = 30, très bien"
	list, err := e.Encode(text, false)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := e.Decode(list); err != nil || back != text {
		t.Errorf("%q, error %v", back, err)
	}
	if _, err := e.Decode([]int32{1 << 20}); !errors.Is(err, ErrRequest) {
		t.Errorf("a token outside the vocabulary: error %v", err)
	}
	rendered, prompt, err := e.Render(ask("Hi"))
	if err != nil || !strings.Contains(rendered, "Hi") || len(prompt) == 0 {
		t.Errorf("%q, %v, error %v", rendered, prompt, err)
	}
	r := generate(t, e, Request{Chat: ask("Hi"), Sampling: greedy(), Trace: true, ID: "mine"})
	if r.Usage.PromptTokens != len(prompt) || r.Trace.ID != "mine" || r.Trace.Steps == 0 || len(r.Trace.Plans) == 0 {
		t.Errorf("usage %+v, trace %+v", r.Usage, r.Trace)
	}
	if got := fmt.Sprint(e.Plans()[0].Step); got != "1" {
		t.Errorf("the oldest kept plan belongs to step %s", got)
	}
}

// A chat whose format needs a marker that is not a token of the checkpoint's tokenizer is refused, because the marker
// would become ordinary text.
func TestAMarkerWithoutATokenIsRefused(t *testing.T) {
	e := start(t, Config{ChatFormat: "deepseek-v4"})
	c := ask("q")
	c.Kwargs = map[string]json.RawMessage{"task": json.RawMessage(`"title"`)}
	_, err := e.Generate(context.Background(), Request{Chat: c, Sampling: greedy()})
	if !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "<｜title｜>") {
		t.Errorf("got %v", err)
	}
}
