package engine

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"sparrow/builtin"
	"sparrow/chat"
	"sparrow/grammar"
	"sparrow/internal/spec"
	"sparrow/internal/testmodel"
	"sparrow/sample"
	"sparrow/tokenizer"
)

// words holds the tokenizer, the chat format and the grammar of the built-in model.
type words struct {
	*tokenizer.Tokenizer
	format chat.Format
	tokens *grammar.Tokens
	eos    int32
}

var builtinWords = sync.OnceValues(func() (*words, error) {
	tok, err := builtin.Tokenizer()
	if err != nil {
		return nil, err
	}
	w := &words{Tokenizer: tok}
	w.eos, _ = tok.EOS()
	source := chat.Source{ModelType: "deepseek_v32", ChatTemplate: tok.ChatTemplate()}
	if err := source.ReadTokenizerConfig(builtin.TokenizerConfig()); err != nil {
		return nil, err
	}
	for id := range int32(tok.VocabSize()) {
		if tok.IsAdded(id) {
			source.Tokens = append(source.Tokens, tok.Text(id))
		}
	}
	if w.format, err = chat.Detect(source); err != nil {
		return nil, err
	}
	w.tokens, err = grammar.NewTokens(w)
	return w, err
})

// These methods implement the vocabulary of a grammar.
func (w *words) Size() int               { return w.VocabSize() }
func (w *words) IsSpecial(id int32) bool { return w.Tokenizer.IsSpecial(id) || w.IsAdded(id) }
func (w *words) EOS() []int32            { return []int32{w.eos} }

func vocabulary(t testing.TB) *words {
	t.Helper()
	w, err := builtinWords()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// ask returns a greedy request to the built-in model with one user message.
func ask(t testing.TB, text string) Request {
	t.Helper()
	w := vocabulary(t)
	p, err := w.format.Render(chat.Request{Messages: []chat.Message{{Role: "user", Content: text}},
		AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := w.Encode(p.Text, tokenizer.EncodeOptions{AddSpecial: !p.HasBOS, ParseSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	decoder := func() *tokenizer.Decoder { return w.NewDecoder(nil) }
	return Request{Prompt: ids, Sampling: greedy(), Decoder: decoder, Guide: Guide{ReasoningEnd: -1}}
}

// schema returns the guide for a document that follows a schema.
func schema(t testing.TB, text string) Guide {
	t.Helper()
	w := vocabulary(t)
	g, err := grammar.Compile([]byte(text), w.tokens)
	if err != nil {
		t.Fatal(err)
	}
	return Guide{Document: g, ReasoningEnd: -1, MaskWords: w.tokens.MaskWords()}
}

// If the model has no end-of-sequence token, the answer ends as soon as the document is complete.
func TestFormatsEndWithoutAnEndToken(t *testing.T) {
	e := still(t, "", Config{})
	e.cfg.EOS = nil
	_, run := running(t, e)
	run()
	for _, text := range []string{
		`{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"], "additionalProperties": false}`,
		`{"type": "integer"}`,
	} {
		r := ask(t, "A garden is 21 meters long and 2 meters wide. "+
			"How many meters of fence are needed to go around it?")
		r.MaxTokens, r.Guide = 100, schema(t, text)
		a := generate(t, e, r).Choices[0]
		if !json.Valid([]byte(a.Text)) || a.Finish != FinishStop {
			t.Errorf("%s: %q, finish %s", text, a.Text, a.Finish)
		}
	}
}

// A choice that ends in the middle of a character emits U+FFFD with its last token.
func TestACharacterCutOffByTheEnd(t *testing.T) {
	w := vocabulary(t)
	lead := int32(-1)
	for id := range int32(w.VocabSize()) {
		if b := w.Bytes(id); len(b) == 1 && b[0] == 0xe2 {
			lead = id
		}
	}
	if lead < 0 {
		t.Skip("the vocabulary has no token for half a character")
	}
	outs := advanced(t, still(t, "", Config{}), ask(t, "Hello"), lead, w.eos)
	if outs[0].event.Text != "" || outs[0].finish != "" || outs[1].event.Text != "\ufffd" ||
		outs[1].finish != FinishStop {
		t.Errorf("got %+v; want the replacement character in the last outcome", outs)
	}
}

// advanced passes rows of logits that favour the given tokens to the first choice of a request, and returns the outcome
// of each row.
func advanced(t *testing.T, e *Engine, r Request, favoured ...int32) []outcome {
	t.Helper()
	j, err := e.intake.prepare(r)
	if err != nil {
		t.Fatal(err)
	}
	var outs []outcome
	for _, token := range favoured {
		logits := make([]float32, e.info.Vocabulary)
		logits[token] = 50
		out, err := j.choices[0].advance(logitRow{whole: logits}, -1)
		if err != nil {
			t.Fatal(err)
		}
		outs = append(outs, out)
	}
	return outs
}

// A document that is a number may end after each of its digits. The end-of-sequence token ends such a document, also
// for a request that ignores that token in free text.
func TestADocumentEndsWhereTheEndIsIgnored(t *testing.T) {
	w := vocabulary(t)
	four, ok := w.TokenID("4")
	if !ok {
		t.Fatal("the vocabulary has no digit")
	}
	e := still(t, "", Config{})
	r := ask(t, "How many?")
	r.IgnoreEOS = true
	for i, out := range advanced(t, e, r, four, w.eos, four) {
		if want := []string{"4", "", "4"}[i]; out.finish != "" || out.event.Text != want {
			t.Errorf("free text, token %d: outcome %+v; want the choice to continue", i, out)
		}
	}
	r.Guide = schema(t, `{"type": "integer"}`)
	outs := advanced(t, e, r, four, four, w.eos)
	for i, want := range []Finish{"", "", FinishStop} {
		if got := outs[i]; got.finish != want || got.event.Text != []string{"4", "4", ""}[i] {
			t.Errorf("a number, token %d: %+v; want finish %q", i, got, want)
		}
	}
	r.Guide.ReasoningEnd, _ = w.TokenID("</think>")
	if outs := advanced(t, e, r, four, w.eos); outs[0].finish != "" || outs[1].finish != FinishStop {
		t.Errorf("an end-of-sequence token inside reasoning: outcomes %+v; want it to end the choice", outs)
	}
}

// A request may fill the context to its last token, with and without drafts, by leaving MaxTokens unset.
func TestARequestFillsTheContext(t *testing.T) {
	for _, setting := range []spec.Setting{spec.Off(), drafts(t, 3)} {
		e := start(t, testmodel.V32Draft(t), Config{CacheTokens: 128, Draft: setting}, checked(t))
		for _, most := range []int{0, 28} {
			out := generate(t, e, Request{Prompt: tokens(1, 100), Sampling: greedy(), MaxTokens: most, IgnoreEOS: true})
			if a := out.Choices[0]; len(a.Tokens) != 28 || a.Finish != FinishLength {
				t.Errorf("drafts %v, max tokens %d: %d tokens, finish %s; want 28 tokens", setting, most,
					len(a.Tokens), a.Finish)
			}
		}
		_, err := e.Submit(Request{Prompt: tokens(1, 100), Sampling: greedy(), MaxTokens: 29})
		var field *RequestError
		if !errors.As(err, &field) || field.Field != "max_tokens" || !errors.Is(err, ErrContext) {
			t.Errorf("drafts %v: one more token: error %v", setting, err)
		}
		out := generate(t, e, Request{Prompt: tokens(1, 100), Sampling: greedy(), MaxTokens: 1 << 30, FitContext: true,
			IgnoreEOS: true})
		if a := out.Choices[0]; len(a.Tokens) != 28 || a.Finish != FinishLength {
			t.Errorf("drafts %v, with FitContext: %d tokens, finish %s", setting, len(a.Tokens), a.Finish)
		}
		_, err = e.Submit(Request{Prompt: tokens(1, 128), Sampling: greedy(), MaxTokens: 29, FitContext: true})
		if !errors.As(err, &field) || field.Field != "prompt" || !errors.Is(err, ErrContext) {
			t.Errorf("drafts %v: a prompt that fills the context: error %v", setting, err)
		}
	}
}

// A chat without tools never begins a call, however probable the marker is. This holds in free text, in a document, and
// before MinTokens, where the tokens that end a choice are masked as well.
func TestNoCallIsBegunWhereNoneMay(t *testing.T) {
	w := vocabulary(t)
	marker, ok := w.TokenID("<｜tool▁calls▁begin｜>")
	if !ok {
		t.Fatal("the vocabulary has no marker of calls")
	}
	e := still(t, "", Config{})
	noCalls := sample.AllBut(e.info.Vocabulary, []int32{marker})
	for _, c := range []struct {
		name  string
		least int
		calls bool // a call may begin
	}{{"calls may begin", 0, true}, {"no call", 0, false}, {"no call, before the minimum", 5, false}} {
		r := ask(t, "Hello")
		r.MinTokens, r.MaxTokens = c.least, 10
		if !c.calls {
			r.Guide.NoCalls = noCalls
		}
		if got := advanced(t, e, r, marker)[0].event.Token; (got == marker) != c.calls {
			t.Errorf("%s: token %d was chosen, the marker is token %d", c.name, got, marker)
		}
		if got := advanced(t, e, r, w.eos)[0].event.Token; (got == w.eos) != (c.least == 0) {
			t.Errorf("%s: token %d was chosen, the end-of-sequence token is %d", c.name, got, w.eos)
		}
	}
}
