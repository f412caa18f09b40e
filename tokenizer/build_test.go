package tokenizer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnsupportedAndMalformedFilesAreExplained(t *testing.T) {
	seq := func(key string, items ...any) object { return object{"type": "Sequence", key: items} }
	byteLevel := object{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}
	for _, c := range []struct {
		name string
		file object
		kind error
		says []string
	}{
		{"model", withModel(smallFile(), object{"type": "Unigram"}), ErrUnsupported, []string{"Unigram", "BPE"}},
		{"dropout", withModel(smallFile(), object{"dropout": 0.1}), ErrUnsupported, []string{"dropout", "0.1"}},
		{"word prefix", withModel(smallFile(), object{"continuing_subword_prefix": "##"}), ErrUnsupported,
			[]string{"##"}},
		{"word suffix", withModel(smallFile(), object{"end_of_word_suffix": "</w>"}), ErrUnsupported, []string{"</w>"}},
		{"normalizer", with(smallFile(), object{"normalizer": object{"type": "BertNormalizer"}}), ErrUnsupported,
			[]string{"BertNormalizer", "NFC"}},
		{"nested normalizer", with(smallFile(), object{"normalizer": seq("normalizers", object{"type": "NFKD"})}),
			ErrUnsupported, []string{"NFKD"}},
		{"replace by regex", with(smallFile(),
			object{"normalizer": object{"type": "Replace", "pattern": object{"Regex": "a+"}, "content": ""}}),
			ErrUnsupported, []string{"a+", "String"}},
		{"pre-tokenizer", with(smallFile(), object{"pre_tokenizer": object{"type": "Metaspace"}}), ErrUnsupported,
			[]string{"Metaspace", "ByteLevel"}},
		{"pre-tokenizer after bytes",
			with(smallFile(), object{"pre_tokenizer": seq("pretokenizers", byteLevel, object{"type": "Digits"})}),
			ErrUnsupported, []string{"Digits after ByteLevel"}},
		{"behavior", with(smallFile(),
			object{"pre_tokenizer": object{"type": "Split", "pattern": object{"String": "a"}, "behavior": "Twice"}}),
			ErrUnsupported, []string{"Twice", "Isolated"}},
		{"pattern", with(smallFile(),
			object{"pre_tokenizer": object{"type": "Split", "pattern": object{"Regex": "(a"}, "behavior": "Isolated"}}),
			ErrMalformed, []string{"(a"}},
		{"post-processor", with(smallFile(), object{"post_processor": object{"type": "BertProcessing"}}),
			ErrUnsupported, []string{"BertProcessing"}},
		{"decoder", with(smallFile(), object{"decoder": object{"type": "WordPiece"}}), ErrUnsupported,
			[]string{"WordPiece", "ByteFallback"}},
		{"decoder that is not byte-level", with(smallFile(), object{"decoder": object{"type": "Fuse"}}), ErrUnsupported,
			[]string{"byte-level"}},
		{"decoder after fuse", with(smallFile(),
			object{"decoder": seq("decoders", object{"type": "Fuse"}, object{"type": "ByteLevel"})}),
			ErrUnsupported, []string{"ByteLevel comes after Fuse"}},
		{"strip of each token", with(charFile(),
			object{"decoder": object{"type": "Strip", "content": " ", "start": 1, "stop": 0}}),
			ErrUnsupported, []string{"Strip"}},
		{"replace of nothing", with(smallFile(),
			object{"normalizer": object{"type": "Replace", "pattern": object{"String": ""}, "content": "a"}}),
			ErrMalformed, []string{"pattern"}},
		{"a split without a pattern",
			with(smallFile(), object{"pre_tokenizer": object{"type": "Split", "behavior": "Isolated"}}), ErrMalformed,
			[]string{"pattern"}},
		{"sequences without end", with(smallFile(), object{"normalizer": nested("normalizers", 20)}), ErrMalformed,
			[]string{"nested"}},
		{"a sequence of nothing listed", with(smallFile(), object{"normalizer": object{"type": "Sequence"}}),
			ErrMalformed, []string{"normalizers"}},
		{"template without the text",
			with(smallFile(), object{"post_processor": object{"type": "TemplateProcessing", "single": []any{}}}),
			ErrMalformed, []string{"does not appear"}},
		{"template with the text twice", with(smallFile(), object{"post_processor": object{"type": "TemplateProcessing",
			"single": []any{object{"Sequence": object{"id": "A"}}, object{"Sequence": object{"id": "A"}}}}}),
			ErrMalformed, []string{"twice"}},
		{"template with a token it does not explain",
			with(smallFile(), object{"post_processor": object{"type": "TemplateProcessing",
				"single": []any{object{"SpecialToken": object{"id": "<s>"}}}}}), ErrMalformed, []string{"<s>"}},
		{"template with a token that does not exist",
			with(smallFile(), object{"post_processor": object{"type": "TemplateProcessing",
				"single": []any{object{"SpecialToken": object{"id": "<s>"}},
					object{"Sequence": object{"id": "A"}}},
				"special_tokens": object{"<s>": object{"ids": []int{999}}}}}), ErrMalformed, []string{"999"}},
		{"merge of a missing token", withModel(smallFile(), object{"merges": []string{"a zz"}}), ErrMalformed,
			[]string{"zz"}},
		{"merge into a missing token", withModel(smallFile(), object{"merges": []string{"a z"}}), ErrMalformed,
			[]string{"az"}},
		{"merge of three", withModel(smallFile(), object{"merges": []any{[]string{"a", "b", "c"}}}), ErrMalformed,
			[]string{"two"}},
		{"merge of one", withModel(smallFile(), object{"merges": []any{[]string{"a"}}}), ErrMalformed,
			[]string{"1 token"}},
		{"merge without a space", withModel(smallFile(), object{"merges": []string{"ab"}}), ErrMalformed,
			[]string{"space"}},
		{"unknown token", withModel(smallFile(), object{"unk_token": "<unk>"}), ErrMalformed, []string{"<unk>"}},
		{"two tokens, one id", withModel(smallFile(), object{"vocab": object{"a": 1, "b": 1}}), ErrMalformed,
			[]string{"id 1"}},
		{"id too large", withModel(smallFile(), object{"vocab": object{"a": 1 << 30}}), ErrMalformed,
			[]string{"the token id is above"}},
		{"negative id", withModel(smallFile(), object{"vocab": object{"a": -1}}), ErrMalformed, []string{"token id"}},
		{"no model", object{"added_tokens": []any{}}, ErrMalformed, []string{"model"}},
		{"added token elsewhere", with(smallFile(), object{"added_tokens": []any{object{"id": 300, "content": "a"}}}),
			ErrMalformed, []string{"300", "97"}},
		{"added token on a taken id",
			with(smallFile(), object{"added_tokens": []any{object{"id": 97, "content": "<a>"}}}), ErrMalformed,
			[]string{"97", "<a>"}},
		{"added token twice", with(smallFile(),
			object{"added_tokens": []any{object{"id": 300, "content": "x1"}, object{"id": 301, "content": "x1"}}}),
			ErrMalformed, []string{"300", "301"}},
		{"added id twice", with(smallFile(),
			object{"added_tokens": []any{object{"id": 300, "content": "x1"}, object{"id": 300, "content": "x2"}}}),
			ErrMalformed, []string{"x1", "x2"}},
		{"added id negative", with(smallFile(), object{"added_tokens": []any{object{"id": -300, "content": "x1"}}}),
			ErrMalformed, []string{"-300"}},
	} {
		_, err := New(toJSON(t, c.file), nil)
		if !errors.Is(err, c.kind) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.kind)
			continue
		}
		for _, word := range c.says {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", c.name, err, word)
			}
		}
	}
}

// nested returns a normalizer of sequences that are nested to the given depth; list is the name of their field.
func nested(list string, depth int) any {
	if depth == 0 {
		return object{"type": "NFC"}
	}
	return object{"type": "Sequence", list: []any{nested(list, depth-1)}}
}

func TestSyntaxErrorsSayWhere(t *testing.T) {
	good := string(toJSON(t, smallFile()))
	for _, bad := range []string{"", "{", "[]", good[:len(good)/2], good + "x", strings.Replace(good, ":", ";", 1),
		`{"model":{"vocab":{"\ud800":1},"merges":[]}}`, "{\"model\":{\"vocab\":{\"\xff\":1},\"merges\":[]}}",
		`{"model":{"vocab":{"a":1}},"merges":[]}`, `{"model":{"vocab":{"a":01},"merges":[]}}`} {
		if _, err := New([]byte(bad), nil); !errors.Is(err, ErrMalformed) {
			t.Errorf("%.60q: error %v, want ErrMalformed", bad, err)
		}
	}
	if _, err := New([]byte(good), []byte(`{"bos_token": 3}`)); !errors.Is(err, ErrMalformed) {
		t.Errorf("configuration: error %v, want ErrMalformed", err)
	}
	if _, err := New([]byte(good), []byte(`{"eos_token": "<none>"}`)); !errors.Is(err, ErrMalformed) ||
		!strings.Contains(err.Error(), "<none>") {
		t.Errorf("configuration: error %v, want ErrMalformed naming the token", err)
	}
}

func TestSpecialTokensAroundAText(t *testing.T) {
	base := with(smallFile(), object{"added_tokens": []any{
		object{"id": 300, "content": "<s>", "special": true}, object{"id": 301, "content": "</s>", "special": true}}})
	template := object{"type": "TemplateProcessing",
		"single": []any{
			object{"SpecialToken": object{"id": "<s>", "type_id": 0}},
			object{"Sequence": object{"id": "A", "type_id": 0}},
			object{"SpecialToken": object{"id": "</s>", "type_id": 0}}},
		"special_tokens": object{"<s>": object{"id": "<s>", "ids": []int{300}},
			"</s>": object{"id": "</s>", "ids": []int{301}}}}
	named := object{"bos_token": "<s>", "eos_token": object{"content": "</s>"}}
	always := EncodeOptions{AddSpecial: true, ParseSpecial: true}
	for _, c := range []struct {
		name   string
		post   any
		config object
		text   string
		opts   EncodeOptions
		want   []int32
	}{
		{"template", template, nil, "x", always, []int32{300, 'x', 301}},
		{"template, not asked for", template, nil, "x", parse, []int32{'x'}},
		{"template in a sequence", object{"type": "Sequence",
			"processors": []any{object{"type": "ByteLevel"}, template}}, nil, "x", always, []int32{300, 'x', 301}},
		{"template before the configuration", template, with(named, object{"add_bos_token": true}), "x", always,
			[]int32{300, 'x', 301}},
		{"never twice", template, nil, "<s>x</s>", always, []int32{300, 'x', 301}},
		{"around nothing", template, nil, "", always, []int32{300, 301}},
		{"configuration", nil, with(named, object{"add_bos_token": true}), "x", always, []int32{300, 'x'}},
		{"configuration, end", object{"type": "ByteLevel"}, with(named, object{"add_eos_token": true}), "x", always,
			[]int32{'x', 301}},
		{"configuration says no", nil, with(named, object{"add_bos_token": false}), "x", always, []int32{'x'}},
		{"spelled in text that is only text", nil, with(named, object{"add_bos_token": true}), "<s>",
			EncodeOptions{AddSpecial: true}, []int32{300, '<', 's', '>'}},
	} {
		var config any
		if c.config != nil {
			config = c.config
		}
		tok := newSmall(t, with(base, object{"post_processor": c.post}), config)
		if got := encode(t, tok, c.text, c.opts); !cmp.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if c.config != nil {
			if id, ok := tok.EOS(); !ok || id != 301 {
				t.Errorf("%s: EOS() = %d, %t", c.name, id, ok)
			}
		}
	}
	tok := newSmall(t, base, nil)
	if _, ok := tok.BOS(); ok {
		t.Error("a BOS without a configuration")
	}
}

func TestOpenReadsACheckpointFolder(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("empty folder: %v, want fs.ErrNotExist", err)
	}
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	template := func() string {
		t.Helper()
		tok, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return tok.ChatTemplate()
	}
	write("tokenizer.json", toJSON(t, smallFile()))
	if got := template(); got != "" {
		t.Errorf("template %q, want none", got)
	}
	write("tokenizer_config.json", []byte(`{"chat_template": "one"}`))
	if got := template(); got != "one" {
		t.Errorf("template %q, want one", got)
	}
	write("tokenizer_config.json",
		[]byte(
			`{"chat_template": [{"name": "tool_use", "template": "two"}, {"name": "default", "template": "three"}]}`))
	if got := template(); got != "three" {
		t.Errorf("template %q, want three", got)
	}
	write("chat_template.jinja", []byte("four"))
	if got := template(); got != "four" {
		t.Errorf("template %q, want four", got)
	}
	write("tokenizer.json", []byte("{}"))
	if _, err := Open(dir); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), dir) {
		t.Errorf("%v, want ErrMalformed naming the folder", err)
	}
}

func FuzzNew(f *testing.F) {
	f.Add(toJSON(f, smallFile([2]string{"a", "b"})), []byte(`{"bos_token":"a"}`), "abc")
	f.Add(toJSON(f, charFile()), []byte(nil), "a b")
	f.Add([]byte(`{"model":{"vocab":{},"merges":[]}}`), []byte(`{}`), "")
	const model = `"model":{"vocab":{"a":1,"b":2,"ab":3,"Ġ":4},"merges":["a b"]}`
	for _, parts := range []string{
		`"added_tokens":[{"id":9,"content":"<x>","lstrip":true,"rstrip":true,"single_word":true}],`,
		`"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Prepend","prepend":"a"}]},`,
		`"normalizer":{"type":"Replace","pattern":{"String":"a"},"content":"b"},`,
		`"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true,"use_regex":true},`,
		`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a|(?=b)"},"behavior":"MergedWithNext","invert":true},`,
		`"pre_tokenizer":{"type":"Digits","individual_digits":true},`,
		`"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":"a","start":2,"stop":0}]},`,
		`"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"a"}},{"Sequence":{"id":"A"}}],"special_tokens":{"a":{"ids":[1]}}},`,
	} {
		f.Add([]byte("{"+parts+model+"}"), []byte(`{"eos_token":{"content":"b"},"add_eos_token":true}`), "ab <x> a1")
	}
	f.Fuzz(func(t *testing.T, file, config []byte, text string) {
		tok, err := New(file, config)
		if err != nil {
			return
		}
		ids, err := tok.Encode(text, EncodeOptions{AddSpecial: true, ParseSpecial: true})
		if err == nil {
			tok.Decode(ids, true)
		}
	})
}
