package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sparrow/internal/testkit/testflag"
)

// tricky lists characters and sequences for which the patterns behave differently: every class, every literal,
// boundaries of ranges, and invalid bytes.
var tricky = []string{
	" ", " ", "  ", "\t", "\n", "\r", "\r\n", "\v", "\u0085", "\u00a0", "\u3000", "\u2028", "\u200b",
	"a", "Z", "bc", "é", "ß", "я", "א", "\u0301", "\u093e", "\u20dd", "\u3099", "\u309b", "\u30fb", "ー",
	"0", "7", "42", "½", "Ⅷ", "٣", "一", "龥", "龦", "\u3040", "ヿ", "\u3097", "深度", "かな", "\u3100", "\u303f",
	"'", "'s", "'T", "'re", "'VE", "'lL", "'d", "'l", "’", "\"", "#", "$", "+", "-", "<", "|", "~", "_", "…", "€", "🚀",
	"\x00", "\x1f", "\u00ad", "\ue000", "\U000e0001", "\U0010ffff", "\xff", "\xe4\xbd", "\xc0", "\xed\xa0\x80",
}

func tricked(pick func(n int) int, length int) string {
	var b strings.Builder
	for range length {
		b.WriteString(tricky[pick(len(tricky))])
	}
	return b.String()
}

// compareScanners fails unless every scanner splits s like the pattern engine.
func compareScanners(t testing.TB, engines map[string]stage, s string) {
	t.Helper()
	for pattern, scanner := range knownPatterns {
		want, err := engines[pattern].cut(new(scratch), s, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := scanner.cut(new(scratch), s, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(got, want, cmp.AllowUnexported(span{})) {
			t.Fatalf("pattern %s on %q:\nscanner %q\nengine  %q", pattern, s, texts(s, got), texts(s, want))
		}
	}
}

func texts(s string, spans []span) (list []string) {
	for _, p := range spans {
		list = append(list, p.of(s))
	}
	return list
}

func allEngines(t testing.TB) map[string]stage {
	engines := map[string]stage{}
	for pattern := range knownPatterns {
		engines[pattern] = engineSplit(t, pattern)
	}
	return engines
}

func TestScannersCutLikeThePatternEngine(t *testing.T) {
	engines := allEngines(t)
	random := rand.New(rand.NewPCG(7, 11))
	less := min(slowdown, 5)
	if !*testflag.Long {
		less = 5
	}
	for range 5000 / less {
		compareScanners(t, engines, tricked(random.IntN, 1+random.IntN(9)))
	}
	for r := rune(0); r <= utf8.MaxRune; r += 1 + rune(random.IntN(200*less)) {
		compareScanners(t, engines, " "+string(r)+string(r)+"a"+string(r))
	}
	for _, c := range goldenCases(t) {
		compareScanners(t, engines, c.Text)
	}
	compareScanners(t, engines, mixedText(1<<14))
}

func FuzzScanners(f *testing.F) {
	for _, s := range []string{"", "a  b", "it's 1234 深度\r\n x", "\xff 'LL"} {
		f.Add(s)
	}
	engines := allEngines(f)
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "ſ") { // see TestCaseFoldingKnowsTheLongS
			return
		}
		compareScanners(t, engines, s)
	})
}

// The pattern engine folds case with another table than the library that the models were trained with: in that library
// (?i:'s) also matches a long s.
func TestCaseFoldingKnowsTheLongS(t *testing.T) {
	s := "it'ſ"
	for pattern, want := range map[string][]string{
		patternGLMFold: {"it", "'ſ"},
		patternGLM:     {"it", "'ſ"}, // the quote matches as the optional character before letters
	} {
		got, _ := knownPatterns[pattern].cut(nil, s, nil)
		if !cmp.Equal(texts(s, got), want) {
			t.Errorf("%s: %q, want %q", pattern, texts(s, got), want)
		}
	}
	s = "'ſo"
	got, _ := knownPatterns[patternGLMFold].cut(nil, s, nil)
	if want := []string{"'ſ", "o"}; !cmp.Equal(texts(s, got), want) {
		t.Errorf("%q, want %q", texts(s, got), want)
	}
}

func TestPatternsAreKnownWithLiteralAndEscapedLineBreaks(t *testing.T) {
	literal := strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(patternDeepSeek)
	if literal == patternDeepSeek || canonicalPattern(literal) != patternDeepSeek {
		t.Errorf("canonical form of %q is %q", literal, canonicalPattern(literal))
	}
}

func TestPiecesOfEveryStageCoverTheText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := tricked(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "i") }, 6)
		for pattern, st := range knownPatterns {
			spans, err := st.cut(nil, s, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(texts(s, spans), ""); got != s {
				t.Fatalf("%s: %q became %q", pattern, s, got)
			}
		}
	})
}
