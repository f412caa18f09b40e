package toolcall_test

import (
	"encoding/json"
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
