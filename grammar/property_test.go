package grammar

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func rootSketch(t *rapid.T) sketch {
	s := schemaSketch(t, rapid.IntRange(0, 3).Draw(t, "depth"))
	return sketch{fmt.Sprintf(`{"$defs":{"tree":%s},"allOf":[%s]}`, treeSchema, s.schema), s.doc}
}

// TestEveryOutputParsesAndValidates chooses random allowed tokens under random schemas: the resulting text is valid
// JSON, and an independent validator accepts it.
func TestEveryOutputParsesAndValidates(t *testing.T) {
	vocabularies := []*Tokens{tokensOf(t), tokensOf(t, pieces...)}
	finished, walks := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := rootSketch(t)
		g, err := Compile([]byte(s.schema), rapid.SampledFrom(vocabularies).Draw(t, "vocabulary"))
		if err != nil {
			t.Fatalf("%s: %v", s.schema, err)
		}
		for range 3 {
			walks++
			w := &walker{g: g, r: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), budget: 120}
			text, ok := w.run(t)
			if !ok {
				continue
			}
			finished++
			if err := check(s.schema, text); err != nil {
				t.Fatalf("schema %s\nproduced %q\n%v", s.schema, text, err)
			}
		}
		if g.Narrowed() {
			t.Fatalf("%s: readings were dropped", s.schema)
		}
	})
	if finished < walks*95/100 {
		t.Errorf("only %d of %d walks came to an end", finished, walks)
	}
}

// walker chooses tokens at random until the end of the sequence.
type walker struct {
	g      *Grammar
	r      *rand.Rand
	budget int // number of steps after which the walker prefers tokens that close a string, an array or an object
}

type failer interface {
	Fatalf(format string, args ...any)
}

func (w *walker) run(t failer) (text string, ok bool) {
	tokens := w.g.Tokens()
	mask := make([]uint64, tokens.MaskWords())
	s := w.g.Start()
	for step := range 20 * w.budget {
		if err := s.Mask(mask); err != nil {
			t.Fatalf("after %q: %v", text, err)
		}
		if step < 3 || step%16 == 0 {
			compareWithAccept(t, s, mask, text)
		}
		allowed := idsOf(mask)
		if len(allowed) == 0 {
			t.Fatalf("after %q: nothing is allowed", text)
		}
		token := allowed[w.r.IntN(len(allowed))]
		if step > w.budget && w.r.IntN(4) > 0 {
			token = w.closing(allowed, token)
		}
		done := s.Done()
		if err := s.Accept(token); err != nil {
			t.Fatalf("after %q, token %d was allowed but: %v", text, token, err)
		}
		if token == tokens.eos[0] {
			if !done {
				t.Fatalf("the end was allowed after %q", text)
			}
			return text, true
		}
		text += string(tokens.bytes(token))
	}
	return text, false
}

// closing returns the end of the sequence if it is allowed, or else an allowed quote or closing bracket, or else
// otherwise.
func (w *walker) closing(allowed []int32, otherwise int32) int32 {
	last := allowed[len(allowed)-1]
	if last == w.g.Tokens().eos[0] {
		return last
	}
	for _, b := range `"}]` {
		for _, id := range allowed {
			if id == int32(b) {
				return id
			}
		}
	}
	return otherwise
}

// compareWithAccept checks that the mask allows exactly the tokens that Accept accepts in state s.
func compareWithAccept(t failer, s *State, mask []uint64, text string) {
	for id := range int32(s.g.Tokens().Size()) {
		err := s.Clone().Accept(id)
		if bit := mask[id/64]>>(id%64)&1 != 0; bit != (err == nil) {
			t.Fatalf("after %q, token %d (%q): the mask says %v, Accept says %v", text, id, s.g.Tokens().bytes(id), bit,
				err)
		}
	}
}

func idsOf(mask []uint64) (ids []int32) {
	for i, w := range mask {
		for ; w != 0; w &= w - 1 {
			ids = append(ids, int32(i*64+bits.TrailingZeros64(w)))
		}
	}
	return ids
}

// TestValidDocumentsAreAccepted checks that random valid documents of random schemas, in several layouts, are accepted
// in random pieces.
func TestValidDocumentsAreAccepted(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	rapid.Check(t, func(t *rapid.T) {
		s := rootSketch(t)
		g, err := Compile([]byte(s.schema), tokens)
		if err != nil {
			t.Fatalf("%s: %v", s.schema, err)
		}
		for range 3 {
			w := rapid.SampledFrom([]style{{}, {space: " "}, {indent: "  ", space: " "},
				{indent: "\t", space: " "}}).Draw(t, "style")
			w.budget = 6
			doc := s.doc(t, &w)
			if err := check(s.schema, doc); err != nil {
				t.Fatalf("the test wrote a wrong document: schema %s, document %s: %v", s.schema, doc, err)
			}
			st := g.Start()
			for rest := doc; rest != ""; {
				n := min(len(rest), rapid.IntRange(1, 9).Draw(t, "chunk"))
				if err := st.AcceptString(rest[:n]); err != nil {
					t.Fatalf("schema %s\nrejected %s\n%v", s.schema, doc, err)
				}
				rest = rest[n:]
			}
			if !st.Done() {
				t.Fatalf("schema %s\n%s is not complete", s.schema, doc)
			}
		}
	})
}
