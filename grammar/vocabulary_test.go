package grammar

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// changed is a vocabulary with some texts replaced.
type changed struct {
	*byteVocabulary
	texts map[int32]string
	eos   []int32
}

func (c changed) Bytes(id int32) []byte {
	if s, ok := c.texts[id]; ok {
		return []byte(s)
	}
	return c.byteVocabulary.Bytes(id)
}

func (c changed) EOS() []int32 {
	if c.eos != nil {
		return c.eos
	}
	return c.byteVocabulary.EOS()
}

func TestUnusableVocabularies(t *testing.T) {
	base := newVocabulary()
	for name, v := range map[string]Vocabulary{
		"no brace":            changed{base, map[int32]string{'{': ""}, nil},
		"a long token":        changed{base, map[int32]string{0: strings.Repeat("x", maxTokenBytes+1)}, nil},
		"an end outside":      changed{base, nil, []int32{9999}},
		"a negative end":      changed{base, nil, []int32{-1}},
		"no tokens whatever":  &byteVocabulary{},
		"only a lone special": &byteVocabulary{texts: [][]byte{nil, nil}},
	} {
		if _, err := NewTokens(v); !errors.Is(err, ErrVocabulary) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHalfCharactersNeedTheirOtherHalf checks that the masks exclude tokens with parts of characters if some
// continuation bytes are not tokens.
func TestHalfCharactersNeedTheirOtherHalf(t *testing.T) {
	v := changed{newVocabulary("日", "\xe6\x97"), map[int32]string{0xa5: ""}, nil}
	tokens, err := NewTokens(v)
	if err != nil {
		t.Fatal(err)
	}
	s := compile(t, tokens, `{"type":"string"}`).Start()
	accept(t, s, `"`)
	mask := make([]uint64, tokens.MaskWords())
	if err := s.Mask(mask); err != nil {
		t.Fatal(err)
	}
	allowed := idsOf(mask)
	for id, want := range map[int32]bool{256: true, 257: false, 0xe6: false, 'a': true} {
		if got := slices.Contains(allowed, id); got != want {
			t.Errorf("token %d: allowed %v, want %v", id, got, want)
		}
	}
	// Only if no token can write a required character does the mask allow no token; the state reports that.
	e := compile(t, tokens, `{"const":"本"}`).Start()
	accept(t, e, `"`)
	if err := e.Mask(mask); !errors.Is(err, ErrNoToken) {
		t.Errorf("an unwritable constant: %v", err)
	}
}

func TestTokensWithTheSameText(t *testing.T) {
	tokens := tokensOf(t, "a", "a", "")
	s := compile(t, tokens, `{"const":"aa"}`).Start()
	accept(t, s, `"`)
	mask := make([]uint64, tokens.MaskWords())
	if err := s.Mask(mask); err != nil {
		t.Fatal(err)
	}
	if got := idsOf(mask); !slices.Equal(got, []int32{'a', 256, 257}) {
		t.Errorf("got %v", got)
	}
}

func TestTrieHoldsEveryToken(t *testing.T) {
	v := largeVocabulary(3000)
	tokens, err := NewTokens(v)
	if err != nil {
		t.Fatal(err)
	}
	tr := &tokens.trie
	found := 0
	var path []byte
	for i := int32(1); i < int32(len(tr.label)); i++ {
		path = append(path[:tr.depth[i]-1], tr.label[i])
		for _, id := range tr.at(i) {
			if string(v.Bytes(id)) != string(path) {
				t.Fatalf("token %d, %q, is at %q", id, v.Bytes(id), path)
			}
			found++
		}
		if tr.end[i] <= i || int(tr.end[i]) > len(tr.label) {
			t.Fatalf("node %d ends at %d", i, tr.end[i])
		}
	}
	if want := v.Size() - 2; found != want { // all tokens but the special token and the end
		t.Errorf("%d tokens, want %d", found, want)
	}
}
