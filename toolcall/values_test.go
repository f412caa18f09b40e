package toolcall_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"sparrow/chat"
	"sparrow/toolcall"
)

// accept feeds a text to a state, token by token, and returns the first refusal.
func (b *bench) accept(s *toolcall.State, text string) error {
	b.Helper()
	ids, err := b.encode(text)
	if err != nil {
		b.Fatal(err)
	}
	for _, id := range ids {
		if err := s.Accept(id); err != nil {
			return err
		}
	}
	return nil
}

// A second call is accepted if several calls are allowed. If only one is allowed, both the mask and Accept refuse it.
func TestSecondCallsNeedLeave(t *testing.T) {
	b := newBench(t)
	syntax := must(chat.DeepSeekV31{}.CallSyntax())
	for _, single := range []bool{false, true} {
		s := b.rules(syntax, []chat.Tool{wide}, toolcall.Options{Demand: true, Single: single}).Start()
		if err := b.accept(s, syntax.Begin+syntax.Open+"get"+syntax.Sep+`{"on": true}`+syntax.Close); err != nil {
			t.Fatal(err)
		}
		mask := make([]uint64, b.tokens.MaskWords())
		if _, err := s.Mask(mask); err != nil {
			t.Fatal(err)
		}
		open, err := b.encode(syntax.Open)
		if err != nil {
			t.Fatal(err)
		}
		allowed := mask[open[0]/64]>>(open[0]%64)&1 != 0
		if err := s.Accept(open[0]); allowed == single || (err != nil) != single {
			t.Errorf("single %v: a second call is allowed %v, accepted %v", single, allowed, err)
		}
	}
}

// A clone and its original are independent: the part of a name that one has read does not affect the other.
func TestClonesAreApart(t *testing.T) {
	b := newBench(t)
	syntax := must(chat.DeepSeekV31{}.CallSyntax())
	for _, names := range [][2]string{{"get", "odd_one"}, {"odd_one", "get"}} {
		tools := []chat.Tool{wide, {Name: "odd_one", Parameters: wide.Parameters}}
		s := b.rules(syntax, tools, toolcall.Options{Demand: true}).Start()
		if err := b.accept(s, syntax.Begin+syntax.Open); err != nil {
			t.Fatal(err)
		}
		c := s.Clone()
		for i, state := range []*toolcall.State{s, c} {
			if err := b.accept(state, names[i]+syntax.Sep+`{"on": false}`+syntax.Close); err != nil {
				t.Errorf("%s after %s: %v", names[i], names[0], err)
			}
		}
		if err := b.accept(s, syntax.Open+"get"+syntax.Sep+`{"on": `); err != nil {
			t.Fatal(err)
		}
		inside := s.Clone()
		for _, state := range []*toolcall.State{s, inside} { // arguments may differ from here on
			if err := b.accept(state, `true}`+syntax.Close); err != nil {
				t.Errorf("a clone within arguments: %v", err)
			}
		}
		d := c.Clone()
		if err := b.accept(d, syntax.End); err != nil {
			t.Error(err)
		}
		if err := b.accept(c, syntax.Open+"get"+syntax.Sep); err != nil {
			t.Errorf("after its clone ended: %v", err)
		}
	}
}

// A strict schema that cannot be enforced is refused, even if the same schema is stored for a tool that is not strict.
func TestStrictSchemasAreApart(t *testing.T) {
	b := newBench(t)
	syntax := must(chat.DeepSeekV31{}.CallSyntax())
	schema := json.RawMessage(`{"type":"object","properties":{"a":{"type":"array","uniqueItems":true,"items":{"type":"string"}}}}`)
	store := toolcall.NewStore(1 << 20)
	lenient, strict := chat.Tool{Name: "a", Parameters: schema}, chat.Tool{Name: "a", Parameters: schema, Strict: true}
	r := b.rules(syntax, []chat.Tool{lenient}, toolcall.Options{Demand: true, Store: store})
	defer r.Release()
	if len(r.Ignored()) == 0 {
		t.Error("nothing of the schema is ignored")
	}
	if _, err := toolcall.Compile(syntax, []chat.Tool{strict}, toolcall.Options{Demand: true, Store: store}, b.encode,
		b.tokens, []int32{1}); err == nil {
		t.Error("a strict tool got what was compiled for one that is not strict")
	}
}

// Arguments follow the schema that is enforced, if a tool has one in addition to the schema of its prompt.
func TestTheEnforcedSchemaCounts(t *testing.T) {
	b := newBench(t)
	tool := wide
	tool.Enforced = json.RawMessage(strings.ReplaceAll(string(wide.Parameters), `"on"`, `"off"`))
	r := b.rules(v31, []chat.Tool{tool}, toolcall.Options{Demand: true})
	call := v31.Begin + v31.Open + "get" + v31.Sep
	if err := b.accept(r.Start(), call+`{"off": true}`+v31.Close+v31.End); err != nil {
		t.Error(err)
	}
	if err := b.accept(r.Start(), call+`{"on": true}`); err == nil {
		t.Error("arguments of the schema that is not enforced are accepted")
	}
}

// After the calls only the end of the sequence is accepted, and a name or a mask that does not fit is an error.
func TestWhatDoesNotFitACall(t *testing.T) {
	b := newBench(t)
	r := b.rules(v31, []chat.Tool{wide}, toolcall.Options{Demand: true})
	whole := v31.Begin + v31.Open + "get" + v31.Sep + `{"on": true}` + v31.Close + v31.End
	s := r.Start()
	if err := b.accept(s, whole); err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"x", v31.Open, v31.End} {
		if err := b.accept(s.Clone(), more); !errors.Is(err, toolcall.ErrTools) {
			t.Errorf("%q after the calls: %v", more, err)
		}
	}
	if err := s.Accept(1); err != nil {
		t.Errorf("the end of the sequence: %v", err)
	}
	for _, text := range []string{v31.Begin + v31.Open + "set", v31.Begin + "get"} {
		if err := b.accept(r.Start(), text); !errors.Is(err, toolcall.ErrTools) {
			t.Errorf("%q: %v", text, err)
		}
	}
	words := b.tokens.MaskWords()
	if limited, err := s.Mask(make([]uint64, words-1)); !limited || !errors.Is(err, toolcall.ErrTools) {
		t.Errorf("a mask of one word too few: %v, %v", limited, err)
	}
	if _, err := s.Mask(make([]uint64, words)); err != nil {
		t.Error(err)
	}
}

// A call after reasoning can be required only if one token ends the reasoning.
func TestReasoningNeedsAnEnd(t *testing.T) {
	b := newBench(t)
	syntax := v31
	syntax.ReasoningEnd = "That is all."
	for _, c := range []struct {
		demand, reasoning, refused bool
	}{{true, true, true}, {true, false, false}, {false, true, false}} {
		_, err := toolcall.Compile(syntax, []chat.Tool{wide},
			toolcall.Options{Demand: c.demand, Reasoning: c.reasoning}, b.encode, b.tokens, []int32{1})
		if (err != nil) != c.refused || err != nil && !errors.Is(err, toolcall.ErrTools) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// If a text cannot be encoded, the tools are refused, and no schema stays in use.
func TestTextsThatCannotBeEncoded(t *testing.T) {
	b := newBench(t)
	for _, bad := range []string{v31.Open, "get" + v31.Sep, v31.Markers[0]} {
		store, broken := toolcall.NewStore(0), errors.New("broken")
		encode := func(text string) ([]int32, error) {
			if text == bad {
				return nil, broken
			}
			return b.encode(text)
		}
		r, err := toolcall.Compile(v31, []chat.Tool{wide}, toolcall.Options{Store: store}, encode, b.tokens, []int32{1})
		if r != nil || !errors.Is(err, broken) || !errors.Is(err, toolcall.ErrTools) || store.Bytes() != 0 {
			t.Errorf("%q: rules %v, %d bytes in use, error %v", bad, r != nil, store.Bytes(), err)
		}
	}
}

// Rules without a store count the bytes of their own schemas.
func TestRulesWithoutAStoreCountTheirSchemas(t *testing.T) {
	b := newBench(t)
	one := b.rules(v31, []chat.Tool{wide}, toolcall.Options{}).Bytes()
	two := b.rules(v31, []chat.Tool{wide, weather}, toolcall.Options{}).Bytes()
	if one <= 0 || two <= one {
		t.Errorf("one tool takes %d bytes, two take %d", one, two)
	}
}
