package tokenizer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"sparrow/internal/testkit/cputime"
)

// mixedText returns about n bytes of text as a server receives it: English, Go code, Chinese and Japanese, JSON, emoji,
// accents and numbers.
func mixedText(n int) string {
	english := "The indexer scores every earlier token and keeps the best; attention then reads only those rows. " +
		"It's how a model with a long context stays affordable, isn't it? We've measured 1,024 of them.\n"
	chinese := "深度求索的稀疏注意力机制只读取被选中的词元，因此长上下文的开销很低。日本語のテキストもここにあります。\n"
	emoji := "Great work 🎉🚀👩‍👩‍👧‍👦! Zürich, naïve café, ½ − 3.14159 ≈ π ☃\n"
	code, err := os.ReadFile("bpe.go")
	if err != nil {
		panic(err)
	}
	json := `{"name": "get_weather", "arguments": {"city": "São Paulo", "days": 14, "units": ["metric", null]}}` + "\n"
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		at := i * 997 % (len(code) - 1200)
		fmt.Fprint(&b, english, string(code[at:at+1200]), chinese, chinese, json, emoji, i, "\n\n")
	}
	return strings.ToValidUTF8(b.String()[:n], "")
}

func BenchmarkEncode(b *testing.B) {
	tok := deepSeek(b)
	for _, c := range []struct{ name, text string }{
		{"mixed", mixedText(1 << 20)},
		{"prompt-2kB", mixedText(2 << 10)},
	} {
		b.Run(c.name, func(b *testing.B) {
			var ids []int32
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if ids, err = tok.Append(ids[:0], c.text, parse); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(c.text))/float64(len(ids)), "bytes/token")
		})
	}
}

// BenchmarkEncodeRandomTokens encodes a text of random tokens, in which hardly any piece occurs twice.
func BenchmarkEncodeRandomTokens(b *testing.B) {
	tok := deepSeek(b)
	random := rand.New(rand.NewPCG(1, 2))
	var text []byte
	for len(text) < 1<<20 {
		text = append(text, tok.Bytes(int32(random.IntN(128000)))...)
	}
	b.SetBytes(int64(len(text)))
	var ids []int32
	for b.Loop() {
		var err error
		if ids, err = tok.Append(ids[:0], string(text), parse); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeByEngine(b *testing.B) {
	tok := load(b, "deepseek_v3")
	for i, pattern := range []string{patternDigits3, patternHanKana, patternDeepSeek} {
		tok.pieces.stages[i] = engineSplit(b, pattern)
	}
	text := mixedText(1 << 18)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := tok.Encode(text, parse); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	tok := deepSeek(b)
	text := mixedText(1 << 20)
	ids := encode(b, tok, text, parse)
	b.Run("whole", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			tok.Decode(ids, true)
		}
	})
	b.Run("stream", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			dec := tok.NewDecoder(tok.IsSpecial)
			for _, id := range ids {
				dec.Next(id)
			}
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	data := unzip(b, "deepseek_v3.tokenizer.json.gz")
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(data, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// worstCases returns texts of n bytes that the patterns do not split, or split rarely.
func worstCases(n int) map[string]string {
	fill := func(s string) string { return strings.Repeat(s, n/len(s)) }
	return map[string]string{
		"one letter":          fill("a"),
		"spaces":              fill(" "),
		"spaces, then a word": fill(" ") + "x",
		"line breaks":         fill("\n"),
		"mixed white space":   fill(" \t \n"),
		"emoji":               fill("🚀"),
		"joined emoji":        fill("👩‍👩‍👧‍👦"),
		"Han":                 fill("深度求索"),
		"digits":              fill("7"),
		"combining marks":     "a" + fill("\u0301"),
		"invalid bytes":       fill("\xff\xe4"),
		"begun added tokens":  fill("<｜place▁holder▁no▁"),
		"angle brackets":      fill("<"),
		"added tokens":        fill("<｜User｜>"),
	}
}

// Encoding four times as much text takes less than eight times as much processor time; with a quadratic step it would
// take sixteen times as much.
func TestWorstCasesStayLinear(t *testing.T) {
	const n = 1 << 19 / min(slowdown, 16)
	tok := deepSeek(t)
	measure := func(text string) time.Duration {
		begin := cputime.Thread()
		encode(t, tok, text, parse)
		return cputime.Thread() - begin
	}
	quarter := worstCases(n / 4)
	for name, text := range worstCases(n) {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			small, large := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
			for range 20 { // other programs can only make a measurement longer, because they evict data from caches
				small, large = min(small, measure(quarter[name])), min(large, measure(text))
				if large <= 8*small+50*time.Millisecond {
					return
				}
			}
			t.Errorf("%d kB took %v, %d kB took %v", n>>12, small, n>>10, large)
		})
	}
}

// The time of the pattern engine is linear on white space, where the patterns backtrack.
func TestPatternEngineStaysLinearOnWhiteSpace(t *testing.T) {
	const n = 1 << 18
	for _, pattern := range []string{patternDeepSeek, patternGLM, patternGPT2} {
		st := engineSplit(t, pattern)
		for _, name := range []string{"spaces", "spaces, then a word", "mixed white space"} {
			if _, err := st.cut(new(scratch), worstCases(n)[name], nil); err != nil {
				t.Errorf("%s of %.20s: %v", name, pattern, err)
			}
		}
	}
}

// BenchmarkDeepSeekSplit measures the most expensive split, by the scanner and by the pattern engine.
func BenchmarkDeepSeekSplit(b *testing.B) {
	text := mixedText(1 << 18)
	for name, st := range map[string]stage{"scanner": knownPatterns[patternDeepSeek],
		"engine": engineSplit(b, patternDeepSeek)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			sc := new(scratch)
			var spans []span
			for b.Loop() {
				var err error
				if spans, err = st.cut(sc, text, spans[:0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
