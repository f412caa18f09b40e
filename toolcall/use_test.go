package toolcall

import (
	"testing"

	"sparrow/builtin"
	"sparrow/grammar"
	"sparrow/tokenizer"
)

// vocabulary adapts the built-in tokenizer to the grammar.
type vocabulary struct{ *tokenizer.Tokenizer }

func (v vocabulary) Size() int    { return v.VocabSize() }
func (v vocabulary) EOS() []int32 { return []int32{1} }

// If two requests compile a schema at the same time, both use the entry that was stored first, and the schema is
// counted once.
func TestASchemaIsStoredOnce(t *testing.T) {
	tok, err := builtin.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := grammar.NewTokens(vocabulary{tok})
	if err != nil {
		t.Fatal(err)
	}
	s := NewStore(0)
	compile := func() (*grammar.Grammar, bool, error) {
		g, err := grammar.JSONObject(tokens)
		return g, false, err
	}
	var first *entry
	second, err := s.use([]byte("{}"), false, func() (*grammar.Grammar, bool, error) {
		if first, err = s.use([]byte("{}"), false, compile); err != nil {
			t.Fatal(err)
		}
		return compile()
	})
	if err != nil {
		t.Fatal(err)
	}
	if first != second || first.users != 2 || s.Compiled() != 2 || s.Bytes() != first.bytes {
		t.Errorf("%d users, %d compiled, %d bytes, want %d", first.users, s.Compiled(), s.Bytes(), first.bytes)
	}
	third, err := s.use([]byte("{}"), false, compile)
	if err != nil || third != first || third.users != 3 || s.Compiled() != 2 {
		t.Errorf("a stored schema: %d users, %d compiled, error %v", third.users, s.Compiled(), err)
	}
	for range 2 {
		if s.giveBack(first); s.Bytes() != first.bytes {
			t.Error("a schema was dropped while a request uses it")
		}
	}
	if s.giveBack(second); s.Bytes() != 0 || len(s.entries) != 0 || s.idle.Len() != 0 {
		t.Errorf("%d bytes and %d entries are left", s.Bytes(), len(s.entries))
	}
}
