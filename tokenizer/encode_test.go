package tokenizer

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestMergesGoByRankThenFromTheLeft(t *testing.T) {
	tok := newSmall(t, smallFile([2]string{"b", "c"}, [2]string{"a", "b"}, [2]string{"a", "a"}, [2]string{"aa", "a"}),
		nil)
	for text, want := range map[string][]int32{
		"":       nil,
		"abc":    {'a', 256},      // the merge bc ranks before ab
		"ab":     {257},           //
		"aab":    {'a', 257},      // the merge ab ranks before aa
		"aaa":    {259},           // first the leftmost aa is merged, then aa+a
		"aaaa":   {258, 258},      // every aa is merged before any aaa
		"aaaaa":  {258, 259},      //
		"xbcab":  {'x', 256, 257}, //
		"\xff\n": {0xff, '\n'},
	} {
		if got := encode(t, tok, text, parse); !cmp.Equal(got, want) {
			t.Errorf("Encode(%q) = %v, want %v", text, got, want)
		}
	}
}

// naiveMerge merges ids by the definition of BPE: it merges the leftmost pair of lowest rank until no pair can be
// merged.
func naiveMerge(m *bpe, ids []int32) []int32 {
	for {
		at, best, id := -1, int32(noMerge), int32(0)
		for i := range len(ids) - 1 {
			if rank, merged := m.merges.find(ids[i], ids[i+1]); rank < best {
				at, best, id = i, rank, merged
			}
		}
		if at < 0 {
			return ids
		}
		ids = append(append(append([]int32{}, ids[:at]...), id), ids[at+2:]...)
	}
}

func TestBothMergersFollowTheDefinition(t *testing.T) {
	m := &deepSeek(t).model
	random := rand.New(rand.NewPCG(3, 5))
	alphabet := []string{"a", "b", "the", " ", "ing", "é", "深", "=", "\n", "🚀"}
	for range 300 {
		var b strings.Builder
		kinds := 1 + random.IntN(len(alphabet))
		for range 1 + random.IntN(60) {
			b.WriteString(alphabet[random.IntN(kinds)])
		}
		symbols, err := m.symbols(nil, b.String())
		if err != nil {
			t.Fatal(err)
		}
		want := naiveMerge(m, append([]int32{}, symbols...))
		if got := m.mergeShort(&mergeBuffers{ids: append([]int32{}, symbols...)}); !cmp.Equal(got, want) {
			t.Fatalf("short: %q = %v, want %v", b.String(), got, want)
		}
		if got := m.mergeLong(&mergeBuffers{ids: append([]int32{}, symbols...)}, nil); !cmp.Equal(got, want) {
			t.Fatalf("long: %q = %v, want %v", b.String(), got, want)
		}
	}
}

func TestMergesAreReadInBothSpellings(t *testing.T) {
	pairs := smallFile([2]string{"a", "b"}, [2]string{"ab", " c"}, [2]string{" ", "c"})
	strs := withModel(pairs, object{"merges": []string{"a b", "ab Ġc", "Ġ c"}})
	vocab := pairs["model"].(object)["vocab"].(object)
	vocab["Ġc"], vocab["abĠc"] = 258, 257
	for _, file := range []object{pairs, strs} {
		if got := encode(t, newSmall(t, file, nil), "ab c", parse); !cmp.Equal(got, []int32{257}) {
			t.Errorf("%v, want 257", got)
		}
	}
}

func TestIgnoreMergesTakesWholePiecesFromTheVocabulary(t *testing.T) {
	file := smallFile([2]string{"a", "b"})
	file["model"].(object)["vocab"].(object)["abc"] = 300 // no merge produces this token
	if got := encode(t, newSmall(t, file, nil), "abc", parse); !cmp.Equal(got, []int32{256, 'c'}) {
		t.Errorf("with merges: %v", got)
	}
	tok := newSmall(t, withModel(file, object{"ignore_merges": true}), nil)
	if got := encode(t, tok, "abc", parse); !cmp.Equal(got, []int32{300}) {
		t.Errorf("ignoring merges: %v, want 300", got)
	}
	if got := encode(t, tok, "abcc", parse); !cmp.Equal(got, []int32{256, 'c', 'c'}) {
		t.Errorf("a piece that is no token: %v", got)
	}
}

func TestIgnoreMergesNeverProducesAddedTokensFromText(t *testing.T) {
	file := smallFile()
	file["model"].(object)["vocab"].(object)["<x>"] = 300
	file = with(file, object{"added_tokens": []any{object{"id": 300, "content": "<x>", "special": true}}})
	tok := newSmall(t, withModel(file, object{"ignore_merges": true}), nil)
	if got := encode(t, tok, "<x>", EncodeOptions{}); !cmp.Equal(got, []int32{'<', 'x', '>'}) {
		t.Errorf("as text: %v", got)
	}
	if got := encode(t, tok, "<x>", parse); !cmp.Equal(got, []int32{300}) {
		t.Errorf("parsed: %v", got)
	}
}

func TestMissingBytesAreUnknownOrAnError(t *testing.T) {
	file := smallFile()
	vocab := file["model"].(object)["vocab"].(object)
	delete(vocab, "z")
	vocab["?!"] = 300
	if _, err := newSmall(t, file, nil).Append([]int32{1}, "az", parse); !errors.Is(err, ErrUnencodable) {
		t.Errorf("error %v, want ErrUnencodable", err)
	}
	for fuse, want := range map[bool][]int32{false: {'a', 300, 300, 'b'}, true: {'a', 300, 'b'}} {
		tok := newSmall(t, withModel(file, object{"unk_token": "?!", "fuse_unk": fuse}), nil)
		if got := encode(t, tok, "azzb", parse); !cmp.Equal(got, want) {
			t.Errorf("fuse %t: %v, want %v", fuse, got, want)
		}
	}
}

func TestTextWithoutParseSpecialIsOnlyText(t *testing.T) {
	tok := deepSeek(t)
	for _, text := range []string{"<｜User｜>hi<｜Assistant｜>", "<｜begin▁of▁sentence｜>", "<think>", "<|EOT|>"} {
		ids := encode(t, tok, text, EncodeOptions{})
		for _, id := range ids {
			if tok.IsAdded(id) {
				t.Errorf("%q gave the added token %d", text, id)
			}
		}
		if got := tok.Decode(ids, true); got != text {
			t.Errorf("%q came back as %q", text, got)
		}
	}
}

func TestAppendKeepsWhatIsThereAndAddsToIt(t *testing.T) {
	tok := deepSeek(t)
	got, err := tok.Append([]int32{7, 8}, "Hello, world!", EncodeOptions{AddSpecial: true, ParseSpecial: true})
	if want := []int32{7, 8, 0, 19923, 14, 2058, 3}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

func TestRoundTripOfAnyBytes(t *testing.T) {
	for _, name := range []string{"deepseek_v3", "default"} {
		tok := load(t, name)
		rapid.Check(t, func(t *rapid.T) {
			s := rapid.OneOf(
				rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) }),
				rapid.String(),
				rapid.Custom(func(t *rapid.T) string {
					return strings.Join(rapid.SliceOf(rapid.SampledFrom(append(tricky, "<think>", "<｜User｜>"))).Draw(t,
						"parts"), "")
				}),
			).Draw(t, "s")
			for _, opts := range []EncodeOptions{{}, parse} {
				ids, err := tok.Encode(s, opts)
				if err != nil {
					t.Fatal(err)
				}
				if got := tok.Decode(ids, false); got != s {
					t.Fatalf("%q came back as %q", s, got)
				}
			}
		})
	}
}

func TestConcurrentUseGivesTheSameAnswers(t *testing.T) {
	tok := load(t, "deepseek_v3")
	cases := goldenCases(t)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range cases {
				c := cases[(i*7+worker*101)%len(cases)]
				ids, err := tok.Encode(c.Text, parse)
				if err != nil || len(ids)+len(c.IDs) > 0 && !cmp.Equal(ids, c.IDs) {
					t.Errorf("worker %d: %q gave %v, %v", worker, c.Text, ids, err)
					return
				}
				if got := tok.Decode(ids, false); got != c.Decoded {
					t.Errorf("worker %d: decoded %q, want %q", worker, got, c.Decoded)
					return
				}
			}
		})
	}
	wg.Wait()
}

func FuzzEncode(f *testing.F) {
	for _, s := range tricky {
		f.Add(s+"x", true)
	}
	tok := load(f, "default")
	f.Fuzz(func(t *testing.T, s string, special bool) {
		ids, err := tok.Encode(s, EncodeOptions{ParseSpecial: special})
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.Decode(ids, false); got != s {
			t.Fatalf("%q came back as %q", s, got)
		}
		dec := tok.NewDecoder(nil)
		var b strings.Builder
		for _, id := range ids {
			b.WriteString(dec.Next(id))
		}
		b.WriteString(dec.Flush())
		if want := validUTF8([]byte(s)); b.String() != want {
			t.Fatalf("streamed %q, want %q", b.String(), want)
		}
	})
}
