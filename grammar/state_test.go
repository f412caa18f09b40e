package grammar

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

func compile(t testing.TB, tokens *Tokens, schema string) *Grammar {
	t.Helper()
	g, err := Compile([]byte(schema), tokens)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func accept(t testing.TB, s *State, text string) {
	t.Helper()
	if err := s.AcceptString(text); err != nil {
		t.Fatal(err)
	}
}

func TestEndOfSequence(t *testing.T) {
	tokens := tokensOf(t)
	eos := tokens.eos[0]
	special := eos - 1
	s := compile(t, tokens, `{"type":"integer"}`).Start()
	mask := make([]uint64, tokens.MaskWords()+1)
	allowed := func() []int32 {
		if err := s.Mask(mask); err != nil {
			t.Fatal(err)
		}
		return idsOf(mask)
	}
	if got := fmt.Sprint(allowed()); got != "[45 48 49 50 51 52 53 54 55 56 57]" {
		t.Errorf("at the start: %v", got)
	}
	if err := s.Accept(eos); !errors.Is(err, ErrRejected) {
		t.Errorf("end before a number: %v", err)
	}
	for _, bad := range []int32{-1, special, int32(tokens.Size()), 'x'} {
		if err := s.Accept(bad); !errors.Is(err, ErrRejected) {
			t.Errorf("token %d: %v", bad, err)
		}
	}
	if err := s.Accept('0'); err != nil {
		t.Fatal(err)
	}
	if got := allowed(); len(got) != 1 || got[0] != eos || !s.Done() || !s.Final() {
		t.Errorf("after a zero: %v, done %v, final %v", got, s.Done(), s.Final())
	}
	if err := s.Accept(eos); err != nil {
		t.Fatal(err)
	}
	if got := allowed(); len(got) != 0 {
		t.Errorf("after the end: %v", got)
	}
	if err := s.Accept('0'); !errors.Is(err, ErrRejected) {
		t.Errorf("a token after the end: %v", err)
	}
	if err := s.AcceptString("0"); !errors.Is(err, ErrRejected) {
		t.Errorf("text after the end: %v", err)
	}
	if err := s.Mask(mask[:1]); !errors.Is(err, ErrMask) {
		t.Errorf("short mask: %v", err)
	}
}

func TestDoneIsNotFinal(t *testing.T) {
	s := compile(t, tokensOf(t), `{"type":"integer","maximum":50}`).Start()
	accept(t, s, "4")
	if !s.Done() || s.Final() {
		t.Errorf("after 4: done %v, final %v", s.Done(), s.Final())
	}
	o := compile(t, tokensOf(t), `{"const":{}}`).Start()
	accept(t, o, "{")
	if o.Done() || o.Final() {
		t.Errorf("after {: done %v, final %v", o.Done(), o.Final())
	}
	accept(t, o, "}")
	if !o.Done() || !o.Final() {
		t.Errorf("after {}: done %v, final %v", o.Done(), o.Final())
	}
}

func TestClonesAreIndependent(t *testing.T) {
	s := compile(t, tokensOf(t), `{"enum":["left","right"]}`).Start()
	accept(t, s, `"`)
	before := s.Clone()
	accept(t, s, "left")
	if err := before.AcceptString("right\""); err != nil || !before.Done() {
		t.Errorf("the clone: %v", err)
	}
	if err := s.AcceptString("right"); err == nil {
		t.Error("the original took text of its clone")
	}
	if err := s.AcceptString(`"x`); !errors.Is(err, ErrRejected) || s.Done() {
		t.Errorf("a rejected text changed the state: %v", err)
	}
	*s = *before
	if !s.Done() {
		t.Error("CopyFrom did not copy")
	}
}

// TestDepthIsBounded opens arrays until the mask allows no more levels, and then closes all of them.
func TestDepthIsBounded(t *testing.T) {
	for _, schema := range []string{
		`true`,
		`{"type":"array","items":{"$ref":"#"}}`,
		`{"type":"array","items":{"$ref":"#"},"maxItems":3}`,
		`{"type":"array","prefixItems":[{"$ref":"#"}]}`,
	} {
		s := compile(t, tokensOf(t), schema).Start()
		depth := 0
		for s.AcceptString("[") == nil {
			depth++
		}
		if depth != MaxDepth {
			t.Errorf("%s: %d levels", schema, depth)
		}
		accept(t, s, strings.Repeat("]", depth))
		if !s.Final() {
			t.Errorf("%s: not complete", schema)
		}
	}
	// The mask does not allow a value that needs two more levels if only one level is left.
	s := compile(t, tokensOf(t),
		`{"$defs":{"box":{"type":"array","minItems":1,"maxItems":1,"items":{"type":"array","items":{"$ref":"#/$defs/box"}}}},"$ref":"#/$defs/box"}`).Start()
	depth := 0
	for s.AcceptString("[") == nil {
		depth++
	}
	if depth != MaxDepth {
		t.Errorf("boxes: %d levels", depth)
	}
	accept(t, s, strings.Repeat("]", depth))
	// The mask does not allow an optional property if its value would exceed the depth.
	o := compile(t, tokensOf(t),
		`{"type":"object","properties":{"a":{"$ref":"#"},"b":{"const":1}},"additionalProperties":false}`).Start()
	depth = 0
	for o.AcceptString(`{"a":`) == nil {
		depth++
	}
	if depth != MaxDepth-1 {
		t.Errorf("objects: %d levels", depth)
	}
	accept(t, o, `{"b":1`+strings.Repeat("}", MaxDepth))
	if !o.Final() {
		t.Error("objects: not complete")
	}
}

// TestArenasAreReplaced checks that two states stay valid while far more states are visited than the grammar stores.
func TestArenasAreReplaced(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	g := compile(t, tokens, `{"type":"array","items":{"type":"string","minLength":5000,"maxLength":5010},"minItems":2}`)
	first := g.arena
	s, idle := g.Start(), g.Start()
	accept(t, s, `["`)
	accept(t, idle, `["`+strings.Repeat("b", 100))
	mask := make([]uint64, tokens.MaskWords())
	for item := range 4 {
		for range 5000 {
			accept(t, s, "a")
		}
		if err := s.Mask(mask); err != nil {
			t.Fatal(err)
		}
		compareWithAccept(t, s, mask, "5000 letters")
		if item < 3 {
			accept(t, s, `", "`)
		}
	}
	accept(t, s, `"]`)
	if !s.Done() {
		t.Error("not complete")
	}
	accept(t, idle, strings.Repeat("b", 4900)+`","`)
	accept(t, idle, strings.Repeat("c", 5000)+`"]`)
	if !idle.Done() {
		t.Error("the idle state lost its way")
	}
	if g.arena == first {
		t.Error("the first arena is still in use")
	}
	if n := len(g.arena.states); n*stateBytes > 2*maxArenaBytes {
		t.Errorf("%d states are remembered", n)
	}
}

func TestCompleteDocumentsOutliveTheirArena(t *testing.T) {
	g := compile(t, tokensOf(t), `{"type":"integer"}`)
	s, open := g.Start(), g.Start()
	accept(t, s, "12")
	accept(t, open, "-")
	g.arena = newArena(g)
	if !s.Done() || open.Done() {
		t.Errorf("12 is done: %v, - is done: %v", s.Done(), open.Done())
	}
	accept(t, s, "3")
	if !s.Done() {
		t.Error("123 is not done")
	}
}

// TestSharedGrammar uses one grammar for many sequences at the same time, for the race detector.
func TestSharedGrammar(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	g := compile(t, tokens, fmt.Sprintf(`{"$defs":{"tree":%s},"type":"array","items":{"$ref":"#/$defs/tree"}}`,
		treeSchema))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			w := &walker{g: g, r: rand.New(rand.NewPCG(uint64(i), 1)), budget: 60}
			w.run(t)
			other, err := JSONObject(tokens)
			if err != nil {
				t.Error(err)
				return
			}
			w.g = other
			w.run(t)
		})
	}
	wg.Wait()
}

// TestAmbiguityIsBounded nests alternatives that differ only at their end, so that every level doubles the number of
// possible readings; the readings that are followed stay limited.
func TestAmbiguityIsBounded(t *testing.T) {
	g := compile(t, tokensOf(t), `{"anyOf":[
		{"type":"array","maxItems":2,"items":{"anyOf":[{"$ref":"#"},{"const":1}]}},
		{"type":"array","maxItems":3,"items":{"anyOf":[{"const":2},{"$ref":"#"}]}}]}`)
	s := g.Start()
	accept(t, s, strings.Repeat("[", 40))
	if !g.Narrowed() {
		t.Error("2^40 readings were kept")
	}
	if n := len(s.arena.states[s.id].configs); n > maxConfigs {
		t.Errorf("%d readings", n)
	}
	accept(t, s, strings.Repeat("]", 40))
	if !s.Done() {
		t.Error("not complete")
	}
}

func TestClosedObjects(t *testing.T) {
	schema := []byte(`{"type":"object","properties":{"a":{"type":"object"}}}`)
	for closed, want := range map[bool]bool{false: true, true: false} {
		g, err := CompileWith(schema, tokensOf(t), Options{ClosedObjects: closed})
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Start().AcceptString(`{"b":`) == nil; got != want {
			t.Errorf("closed %v: another name was accepted: %v", closed, got)
		}
		if err := g.Start().AcceptString(`{"a":{"b":1}}`); err != nil {
			t.Errorf("closed %v: an object without a list of properties: %v", closed, err)
		}
	}
}

func TestStepsDoNotAllocate(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	g := compile(t, tokens,
		`{"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer","minimum":5,"maximum":500}}}`)
	mask := make([]uint64, tokens.MaskWords())
	start := g.Start()
	s := start.Clone()
	text := []int32{'{', '"', 'n', 'a', 'm', 'e', '"', ':', '"', 'x', 'y', '"', ',', '"', 'n', '"', ':', '1', '2', '}'}
	if n := testing.AllocsPerRun(20, func() {
		*s = *start
		for _, id := range text {
			if err := s.Mask(mask); err != nil {
				t.Fatal(err)
			}
			if err := s.Accept(id); err != nil {
				t.Fatal(err)
			}
		}
		if !s.Done() {
			t.Fatal("not complete")
		}
	}); n != 0 {
		t.Errorf("%v allocations per document", n)
	}
}
