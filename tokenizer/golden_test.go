package tokenizer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Files in testdata, all of independent origin:
//
//	deepseek_v3.*  DeepSeek-V3's tokenizer; 442 texts encoded and decoded by the
//	               tokenizers library, version 0.23.2
//	default.*      the tokenizer of the built-in model; chat prompts encoded, and
//	               outputs decoded, by transformers 5.17.0
var parse = EncodeOptions{ParseSpecial: true}

// unzip reads a gzipped file from testdata.
func unzip(t testing.TB, name string) []byte {
	t.Helper()
	packed, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func load(t testing.TB, name string) *Tokenizer {
	t.Helper()
	config, err := os.ReadFile("testdata/" + name + ".tokenizer_config.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := New(unzip(t, name+".tokenizer.json.gz"), config)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

var (
	deepSeekOnce sync.Once
	deepSeekTok  *Tokenizer
)

// deepSeek returns DeepSeek-V3's tokenizer, which is loaded once for all tests.
func deepSeek(t testing.TB) *Tokenizer {
	t.Helper()
	deepSeekOnce.Do(func() { deepSeekTok = load(t, "deepseek_v3") })
	if deepSeekTok == nil {
		t.Fatal("deepseek_v3 did not load")
	}
	return deepSeekTok
}

func encode(t testing.TB, tok *Tokenizer, text string, opts EncodeOptions) []int32 {
	t.Helper()
	ids, err := tok.Encode(text, opts)
	if err != nil {
		t.Fatalf("Encode(%.60q): %v", text, err)
	}
	return ids
}

type goldenCase struct {
	Text    string  `json:"text"`
	IDs     []int32 `json:"ids"`
	Decoded string  `json:"decoded"`
}

func goldenCases(t testing.TB) []goldenCase {
	t.Helper()
	var cases []goldenCase
	if err := json.Unmarshal(unzip(t, "deepseek_v3.golden.json.gz"), &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

func TestDeepSeekEncodingsAndDecodingsMatchTheGoldenOnes(t *testing.T) {
	tok := deepSeek(t)
	cases := goldenCases(t)
	if len(cases) != 442 {
		t.Fatalf("%d golden cases, want 442", len(cases))
	}
	for i, c := range cases {
		if got := encode(t, tok, c.Text, parse); len(got)+len(c.IDs) > 0 && !cmp.Equal(got, c.IDs) {
			t.Errorf("case %d: Encode(%q) = %v, want %v", i, c.Text, got, c.IDs)
		}
		if got := tok.Decode(c.IDs, false); got != c.Decoded {
			t.Errorf("case %d: Decode(%v) = %q, want %q", i, c.IDs, got, c.Decoded)
		}
	}
}

// The pattern engine, which is used for patterns without a scanner, gives the same golden encodings as the scanners.
func TestDeepSeekGoldenEncodingsHoldWithoutScanners(t *testing.T) {
	tok := load(t, "deepseek_v3")
	for i, pattern := range []string{patternDigits3, patternHanKana, patternDeepSeek} {
		tok.pieces.stages[i] = engineSplit(t, pattern)
	}
	for i, c := range goldenCases(t) {
		if got := encode(t, tok, c.Text, parse); len(got)+len(c.IDs) > 0 && !cmp.Equal(got, c.IDs) {
			t.Errorf("case %d: Encode(%q) = %v, want %v", i, c.Text, got, c.IDs)
		}
	}
}

// engineSplit returns a stage that splits text by the pattern with the pattern engine and keeps the matches as pieces.
func engineSplit(t testing.TB, pattern string) stage {
	t.Helper()
	m, err := newMatcher(patternFile{Regex: &pattern})
	if err != nil {
		t.Fatal(err)
	}
	return splitStage{pattern: m}
}

func TestDefaultModelPromptsAndOutputsMatchTheGoldenOnes(t *testing.T) {
	tok := load(t, "default")
	data, err := os.ReadFile("testdata/default.golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Prompt       string  `json:"prompt"`
		PromptTokens []int32 `json:"prompt_tokens"`
		OutputText   string  `json:"output_text"`
		OutputTokens []int32 `json:"output_tokens"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.PromptTokens, encode(t, tok, c.Prompt, parse)); diff != "" {
			t.Errorf("prompt %q: %s", c.Prompt, diff)
		}
		if diff := cmp.Diff(c.OutputTokens, encode(t, tok, c.OutputText, parse)); diff != "" {
			t.Errorf("output %q: %s", c.OutputText, diff)
		}
		if got := tok.Decode(c.OutputTokens, false); got != c.OutputText {
			t.Errorf("Decode = %q, want %q", got, c.OutputText)
		}
		want := strings.TrimSuffix(c.OutputText, "<｜end▁of▁sentence｜>")
		if got := tok.Decode(c.OutputTokens, true); got != want {
			t.Errorf("Decode without special tokens = %q, want %q", got, want)
		}
	}
}

func TestTokensOfTheSpecification(t *testing.T) {
	tok := deepSeek(t)
	for text, id := range map[string]int32{
		"<｜begin▁of▁sentence｜>": 0, "<｜end▁of▁sentence｜>": 1, "<｜▁pad▁｜>": 2,
		"<｜fim▁hole｜>": 128800, "<｜fim▁end｜>": 128802, "<｜User｜>": 128803, "<｜Assistant｜>": 128804,
		"<|EOT|>": 128805, "<｜tool▁calls▁begin｜>": 128806, "<｜tool▁sep｜>": 128814,
	} {
		if got, ok := tok.TokenID(text); !ok || got != id {
			t.Errorf("TokenID(%q) = %d, %t, want %d", text, got, ok, id)
		}
		if got := encode(t, tok, text, parse); !cmp.Equal(got, []int32{id}) {
			t.Errorf("Encode(%q) = %v, want %d", text, got, id)
		}
		if !tok.IsAdded(id) || tok.Text(id) != text {
			t.Errorf("token %d: added %t, text %q, want %q", id, tok.IsAdded(id), tok.Text(id), text)
		}
	}
	if diff := cmp.Diff([]int32{30, 94, 328, 37864, 94, 32}, encode(t, tok, "<|im_start|>", parse)); diff != "" {
		t.Errorf("ASCII bars are text: %s", diff)
	}
	if n := tok.VocabSize(); n != 128815 {
		t.Errorf("VocabSize() = %d, want 128815", n)
	}
	if n := len(tok.Special()); n != 804 {
		t.Errorf("%d special tokens, want 804", n)
	}
}
