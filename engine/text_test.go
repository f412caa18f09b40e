package engine

import (
	"encoding/json"
	"sync"
	"testing"

	"sparrow/builtin"
	"sparrow/chat"
	"sparrow/grammar"
	"sparrow/tokenizer"
)

// words is the built-in model's text: its tokenizer, chat format and grammar.
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

// These make words a grammar's vocabulary.
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

// ask is a greedy request to the built-in model with one message of a user.
func ask(t testing.TB, text string) Request {
	t.Helper()
	w := vocabulary(t)
	p, err := w.format.Render(chat.Request{Messages: []chat.Message{{Role: "user", Content: text}}, AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := w.Encode(p.Text, tokenizer.EncodeOptions{AddSpecial: !p.HasBOS, ParseSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	decoder := func() *tokenizer.Decoder { return w.NewDecoder(false) }
	return Request{Prompt: ids, Sampling: greedy(), Decoder: decoder, Guide: Guide{ReasoningEnd: -1}}
}

// schema is the guide of a document.
func schema(t testing.TB, text string) Guide {
	t.Helper()
	w := vocabulary(t)
	g, err := grammar.Compile([]byte(text), w.tokens)
	if err != nil {
		t.Fatal(err)
	}
	return Guide{Document: g, ReasoningEnd: -1, MaskWords: w.tokens.MaskWords()}
}

// A model without an end-of-sequence token ends with the document.
func TestFormatsEndWithoutAnEndToken(t *testing.T) {
	e := still(t, "", Config{})
	e.cfg.EOS = nil
	_, run := running(t, e)
	run()
	for _, text := range []string{
		`{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"], "additionalProperties": false}`,
		`{"type": "integer"}`,
	} {
		r := ask(t, "A garden is 21 meters long and 2 meters wide. How many meters of fence are needed to go around it?")
		r.MaxTokens, r.Guide = 100, schema(t, text)
		a := generate(t, e, r).Choices[0]
		if !json.Valid([]byte(a.Text)) || a.Finish != FinishStop {
			t.Errorf("%s: %q, finish %s", text, a.Text, a.Finish)
		}
	}
}

// A choice that ends in the middle of a character shows it as U+FFFD with its last token.
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
	e := still(t, "", Config{})
	r := ask(t, "Hello")
	j, err := e.prepare(r)
	if err != nil {
		t.Fatal(err)
	}
	var outs []outcome
	for _, token := range []int32{lead, w.eos} {
		logits := make([]float32, e.info.Vocabulary)
		logits[token] = 50
		out, err := j.choices[0].advance(logitRow{whole: logits})
		if err != nil {
			t.Fatal(err)
		}
		outs = append(outs, out)
	}
	if outs[0].event.Text != "" || outs[0].finish != "" || outs[1].event.Text != "\ufffd" || outs[1].finish != FinishStop {
		t.Errorf("got %+v; want the replacement character with the end", outs)
	}
}
