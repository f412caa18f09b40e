package engram

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"os"
	"slices"
	"testing"
)

// The token map of DeepSeek-V3's tokenizer, whose base vocabulary V4.1 uses, has the sizes, digests and samples of the
// v41 spec, 3.3.
func TestTokenMap(t *testing.T) {
	f, err := os.Open("../../../tokenizer/testdata/deepseek_v3.tokenizer.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	m, err := TokenMap(text, 128815)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		n, keys int
		digest  string
	}{
		{128000, 97812, "a44a9e7328b760556106bce7c1002c9fa632bc2f5c8e054ad9ce3ff8f8bfa8db"},
		{128815, 98627, "cd48cb62d9cca1baaf08d9e7795ad3d4c22b6c56f0f070178b9e3a52694ea930"},
	} {
		var b bytes.Buffer
		_ = binary.Write(&b, binary.LittleEndian, m[:c.n])
		sum := sha256.Sum256(b.Bytes())
		if got := int(slices.Max(m[:c.n])) + 1; got != c.keys || hex.EncodeToString(sum[:]) != c.digest {
			t.Errorf("the first %d tokens have %d keys and digest %x, want %d and %s", c.n, got, sum, c.keys, c.digest)
		}
	}
	for key, ids := range map[int32][]int{237: {270, 671, 20852, 455}, 39: {619, 16462}, 174: {223, 262, 201, 200},
		19: {14771, 16994}, 11569: {14324}, 132: {6796}, 2369: {28298}, 2797: {3299}, 43: {59299}, 74: {100}} {
		for _, id := range ids {
			if m[id] != key {
				t.Errorf("token %d has key %d, want %d", id, m[id], key)
			}
		}
	}
	if _, err := TokenMap(text, 129280); err == nil {
		t.Error("a tokenizer without texts of the last tokens was taken")
	}
}

// Every id must have a token, either in the vocabulary or as an added token. An added token has its own key, and
// replaces a token of the vocabulary with the same id. Tokens with ids beyond the vocabulary are ignored.
func TestTokensOfMaps(t *testing.T) {
	for _, c := range []struct {
		vocab, added string
		want         []int32
	}{
		{`"a":0,"A":1,"b":2`, ``, []int32{0, 0, 1}},
		{`"a":1,"b":2`, `{"id":0,"content":"<s>"}`, []int32{0, 1, 2}},
		{`"a":0,"b":1`, `{"id":2,"content":"B"}`, []int32{0, 1, 1}},
		{`"a":0,"b":1,"c":2`, `{"id":1,"content":"<s>"},{"id":2,"content":"A"}`, []int32{0, 1, 0}},
		{`"a":0,"b":1,"c":2,"d":3,"e":-1`, `{"id":4,"content":"a"},{"id":-1,"content":"a"}`, []int32{0, 1, 2}},
		{`"a":1,"b":2`, ``, nil},
		{`"a":0,"b":2`, `{"id":3,"content":"a"}`, nil},
	} {
		got, err := TokenMap([]byte(`{"model":{"vocab":{`+c.vocab+`}},"added_tokens":[`+c.added+`]}`), 3)
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("vocabulary %s, added %s: %v, %v, want %v", c.vocab, c.added, got, err, c.want)
		}
	}
}

// Without a tokenizer every key has a token, and neighbouring tokens share keys.
func TestPlainMap(t *testing.T) {
	for _, c := range []struct {
		vocab, keys int
		want        []int32
	}{
		{5, 5, []int32{0, 1, 2, 3, 4}}, {5, 2, []int32{0, 0, 0, 1, 1}}, {7, 3, []int32{0, 0, 0, 1, 1, 2, 2}},
		{3, 1, []int32{0, 0, 0}},
	} {
		if got := PlainMap(c.vocab, c.keys); !slices.Equal(got, c.want) {
			t.Errorf("%d tokens, %d keys: %v, want %v", c.vocab, c.keys, got, c.want)
		}
	}
}
