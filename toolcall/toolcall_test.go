package toolcall_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"sparrow/builtin"
	"sparrow/chat"
	"sparrow/grammar"
	"sparrow/tokenizer"
	"sparrow/toolcall"
)

// vocabulary adapts the built-in tokenizer to the grammar; its added tokens are markers and never part of JSON.
type vocabulary struct{ *tokenizer.Tokenizer }

func (v vocabulary) Size() int               { return v.VocabSize() }
func (v vocabulary) IsSpecial(id int32) bool { return v.Tokenizer.IsSpecial(id) || v.IsAdded(id) }
func (v vocabulary) EOS() []int32            { return []int32{1} }

var (
	weather = chat.Tool{Name: "get_weather", Strict: true,
		Parameters: json.RawMessage(
			`{"type":"object","properties":{"city":{"type":"string","maxLength":8},"days":{"type":"integer","minimum":1,"maximum":9}},"required":["city","days"],"additionalProperties":false}`)}
	wide = chat.Tool{Name: "get",
		Parameters: json.RawMessage(
			`{"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"],"additionalProperties":false}`)}
	odd = chat.Tool{Name: "odd", Parameters: json.RawMessage(`{"type":"object","not":{}}`)}
)

type bench struct {
	*testing.T
	tok    *tokenizer.Tokenizer
	tokens *grammar.Tokens
}

func newBench(t *testing.T) *bench {
	t.Helper()
	tok, err := builtin.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := grammar.NewTokens(vocabulary{tok})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, tok, tokens}
}

func (b *bench) encode(text string) ([]int32, error) {
	return b.tok.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})
}

func (b *bench) rules(s chat.CallSyntax, tools []chat.Tool, o toolcall.Options) *toolcall.Rules {
	b.Helper()
	r, err := toolcall.Compile(s, tools, o, b.encode, b.tokens, []int32{1})
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// walk chooses randomly among the allowed tokens after the given ones, until the end of the sequence, and returns all
// tokens.
func (b *bench) walk(r *toolcall.Rules, seed uint64, begin ...int32) []int32 {
	b.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	s := r.Start()
	out := append([]int32(nil), begin...)
	for _, id := range begin {
		if err := s.Accept(id); err != nil {
			b.Fatal(err)
		}
	}
	mask := make([]uint64, b.tokens.MaskWords())
	for len(out) < 2000 {
		limited, err := s.Mask(mask)
		if err != nil {
			b.Fatal(err)
		}
		if !limited {
			b.Fatalf("nothing is enforced after %q", b.tok.Decode(out, false))
		}
		var allowed []int32
		for id := range int32(b.tok.VocabSize()) {
			if mask[id/64]>>(id%64)&1 != 0 {
				allowed = append(allowed, id)
			}
		}
		id := allowed[rng.IntN(len(allowed))]
		if err := s.Accept(id); err != nil {
			b.Fatalf("an allowed token is rejected: %v", err)
		}
		if id == 1 {
			return out
		}
		out = append(out, id)
	}
	b.Fatal("the walk does not end")
	return nil
}

// calls parses the tokens of a walk with the format's own parser and returns the calls.
func (b *bench) calls(ids []int32, tools []chat.Tool, thinking bool) []chat.Call {
	b.Helper()
	req := chat.Request{Messages: []chat.Message{{Role: chat.User, Content: "x"}}, Tools: tools, Thinking: &thinking,
		AddGenerationPrompt: true}
	m, err := chat.Parse(chat.DeepSeekV31{}.Parser(req), b.tok.Decode(ids, false))
	if err != nil {
		b.Fatalf("%v: %q", err, b.tok.Decode(ids, false))
	}
	return m.ToolCalls
}

func (b *bench) valid(c chat.Call) {
	b.Helper()
	var args struct {
		City *string `json:"city"`
		Days *int    `json:"days"`
		On   *bool   `json:"on"`
	}
	if err := json.Unmarshal([]byte(c.Arguments), &args); err != nil {
		b.Fatalf("%s: %v", c.Arguments, err)
	}
	switch c.Name {
	case "get_weather":
		if args.City == nil || args.Days == nil || *args.Days < 1 || *args.Days > 9 {
			b.Fatalf("get_weather(%s) breaks its schema", c.Arguments)
		}
	case "get":
		if args.On == nil {
			b.Fatalf("get(%s) breaks its schema", c.Arguments)
		}
	default:
		b.Fatalf("no tool is called %q", c.Name)
	}
}

var v31 = must(chat.DeepSeekV31{}.CallSyntax())

func must(s chat.CallSyntax, ok bool) chat.CallSyntax {
	if !ok {
		panic("no calls")
	}
	return s
}

// Whatever is sampled, a required call can be parsed and follows its schema.
func TestDemandedCalls(t *testing.T) {
	b := newBench(t)
	tools := []chat.Tool{weather, wide}
	seen := map[string]bool{}
	for seed := range uint64(30) {
		for _, c := range b.calls(b.walk(b.rules(v31, tools, toolcall.Options{Demand: true}), seed), tools, false) {
			b.valid(c)
			seen[c.Name] = true
		}
		one := b.calls(b.walk(b.rules(v31, tools, toolcall.Options{Demand: true, Only: "get", Single: true}), seed),
			tools, false)
		if len(one) != 1 || one[0].Name != "get" {
			t.Fatalf("a single call of get was demanded, got %v", one)
		}
		b.valid(one[0])
	}
	if len(seen) != 2 {
		t.Errorf("only %v were ever called", seen)
	}
}

// The model may begin a call by itself, but only after its reasoning has ended.
func TestCallsInText(t *testing.T) {
	b := newBench(t)
	tools := []chat.Tool{weather, wide}
	begin, _ := b.encode("Let me see." + v31.Begin + v31.Open)
	for seed := range uint64(10) {
		got := b.calls(b.walk(b.rules(v31, tools, toolcall.Options{}), seed, begin...), tools, false)
		if len(got) == 0 {
			t.Fatal("no call")
		}
		b.valid(got[0])
		think, _ := b.encode("I think so." + v31.ReasoningEnd)
		got = b.calls(b.walk(b.rules(v31, tools, toolcall.Options{Demand: true, Reasoning: true}), seed, think...),
			tools, true)
		if len(got) == 0 {
			t.Fatal("no call after reasoning")
		}
		b.valid(got[0])
	}
}

func TestRefusals(t *testing.T) {
	b := newBench(t)
	strict := odd
	strict.Strict = true
	for _, c := range []struct {
		name  string
		tools []chat.Tool
		o     toolcall.Options
		fails bool
	}{
		{"a schema the grammar cannot follow, strict", []chat.Tool{strict}, toolcall.Options{}, true},
		{"the same, not strict: any object", []chat.Tool{odd}, toolcall.Options{}, false},
		{"an unknown tool is demanded", []chat.Tool{wide}, toolcall.Options{Demand: true, Only: "nobody"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := toolcall.Compile(v31, c.tools, c.o, b.encode, b.tokens, []int32{1})
			if c.fails != (err != nil) || err != nil && !errors.Is(err, toolcall.ErrTools) {
				t.Errorf("got error %v", err)
			}
		})
	}
	s := b.rules(v31, []chat.Tool{wide}, toolcall.Options{Demand: true}).Start()
	if err := s.Accept(500); !errors.Is(err, toolcall.ErrTools) {
		t.Errorf("a token that does not belong: got error %v", err)
	}
}

// If a format's arguments are not JSON, only the tool's name is constrained.
func TestNamesOnly(t *testing.T) {
	b := newBench(t)
	syntax := must(chat.DeepSeekV32{}.CallSyntax())
	if r, err := toolcall.Compile(syntax, []chat.Tool{wide}, toolcall.Options{}, b.encode, b.tokens,
		[]int32{1}); r != nil || err != nil {
		t.Errorf("nothing was demanded, got rules %v and error %v", r, err)
	}
	s := b.rules(syntax, []chat.Tool{wide}, toolcall.Options{Demand: true}).Start()
	mask, text := make([]uint64, b.tokens.MaskWords()), ""
	for {
		limited, err := s.Mask(mask)
		if err != nil {
			t.Fatal(err)
		}
		if !limited {
			break
		}
		for id := range int32(b.tok.VocabSize()) {
			if mask[id/64]>>(id%64)&1 != 0 {
				if err := s.Accept(id); err != nil {
					t.Fatal(err)
				}
				text += b.tok.Decode([]int32{id}, false)
				break
			}
		}
	}
	if want := syntax.Begin + syntax.Open + "get" + syntax.Sep; text != want {
		t.Errorf("led to %q, want %q", text, want)
	}
}

// Free text contains no marker that does not begin a call, because it would become content. A marker before the first
// call leads to the call.
func TestStrayMarkersAreKeptOut(t *testing.T) {
	b := newBench(t)
	syntax, _ := chat.DeepSeekV31{}.CallSyntax()
	s := b.rules(syntax, []chat.Tool{weather}, toolcall.Options{}).Start()
	id := func(text string) int32 {
		ids, err := b.encode(text)
		if err != nil || len(ids) != 1 {
			t.Fatalf("%q is %v, %v", text, ids, err)
		}
		return ids[0]
	}
	mask := make([]uint64, b.tokens.MaskWords())
	allowed := func(text string) bool {
		t.Helper()
		if limited, err := s.Mask(mask); !limited || err != nil {
			t.Fatalf("limited %v, error %v", limited, err)
		}
		return mask[id(text)/64]&(1<<(id(text)%64)) != 0
	}
	for text, want := range map[string]bool{syntax.Begin: true, syntax.Open: true, syntax.Sep: false,
		syntax.Close: false, syntax.End: false, "a": true} {
		if allowed(text) != want {
			t.Errorf("in text %q: allowed %v", text, !want)
		}
	}
	if err := s.Accept(id(syntax.Begin)); err != nil {
		t.Fatal(err)
	}
	if !allowed(syntax.Open) || allowed("a") {
		t.Error("the marker before the calls is not followed by a call")
	}
}

// What a schema cannot enforce is reported with the index that its tool has in the request.
func TestIgnoredSchemasNameTheirTool(t *testing.T) {
	b := newBench(t)
	tools := []chat.Tool{weather, odd, {Name: "unique", Parameters: json.RawMessage(
		`{"type":"object","properties":{"a":{"type":"array","uniqueItems":true,"items":{"type":"string"}}}}`)}}
	for only, want := range map[string][]int{"": {1, 2}, "odd": {1}, "unique": {2}, "get_weather": nil} {
		var got []int
		for _, i := range b.rules(v31, tools, toolcall.Options{Demand: true, Only: only}).Ignored() {
			got = append(got, i.Tool)
		}
		if !slices.Equal(got, want) {
			t.Errorf("only %q: ignored of the tools %v, want %v", only, got, want)
		}
	}
}
