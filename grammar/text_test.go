package grammar

import (
	"errors"
	"testing"
)

func TestTextPatterns(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	g, err := Pattern(`(yes|no)( \w+)?|"é\n?`, tokens)
	if err != nil {
		t.Fatal(err)
	}
	mask := make([]uint64, tokens.MaskWords())
	for text, want := range map[string]bool{"yes": true, "no world": true, "yes ": false, "maybe": false, "\"é": true,
		"\"é\n": true, "": false, "yesno": false, "é": false} {
		s := g.Start()
		ok := true
		for i := 0; i < len(text) && ok; i++ {
			if err := s.Mask(mask); err != nil {
				t.Fatal(err)
			}
			ok = s.Accept(int32(text[i])) == nil
			if allowed := mask[text[i]/64]>>(text[i]%64)&1 == 1; allowed != ok {
				t.Fatalf("%q: the mask says %v at byte %d", text, allowed, i)
			}
		}
		if got := ok && s.Done(); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	for pattern, kind := range map[string]error{`(?=a)`: ErrUnsupported, `a^`: ErrUnsatisfiable, ``: ErrUnsatisfiable,
		`(a|b)*a(a|b){20}`: ErrTooLarge} {
		if _, err := Pattern(pattern, tokens); !errors.Is(err, kind) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// If a pattern ignores case, a letter matches all of its forms; the letters k and s have three forms each.
func TestPatternsWithoutCase(t *testing.T) {
	g, err := Pattern(`(?i)ks\d`, tokensOf(t, pieces...))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"ks1": true, "KS1": true, "kS1": true, "\u212aS1": true, "k\u017f1": true,
		"\u212a\u017f1": true, "js1": false, "Lt1": false, "k\u01801": false} {
		s := g.Start()
		if got := s.AcceptString(text) == nil && s.Done(); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestChoices(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	g, err := Choice([]string{"red", "redder", "blue \"é"}, tokens)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"red": true, "redder": true, "blue \"é": true, "redd": false} {
		s := g.Start()
		if got := s.AcceptString(text) == nil && s.Done(); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	for _, list := range [][]string{nil, {""}, {"a", "\xff"}} {
		if _, err := Choice(list, tokens); !errors.Is(err, ErrSchema) {
			t.Errorf("%q: %v", list, err)
		}
	}
}
