package hub

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for text, want := range map[string]Name{
		"deepseek-ai/DeepSeek-V3.2":            {Repo: "deepseek-ai/DeepSeek-V3.2", Revision: "main"},
		"zai-org/GLM-5@refs/pr/3":              {Repo: "zai-org/GLM-5", Revision: "refs/pr/3"},
		"a/b@" + testCommit:                    {Repo: "a/b", Revision: testCommit},
		"deepseek-ai/DeepSeek-V3.2-Exp@v1.0":   {Repo: "deepseek-ai/DeepSeek-V3.2-Exp", Revision: "v1.0"},
		"unsloth/GLM-5.2-GGUF:UD-IQ2_M":        {"unsloth/GLM-5.2-GGUF", "main", "UD-IQ2_M"},
		"unsloth/GLM-5.2-GGUF:BF16/GLM-5.2@v1": {"unsloth/GLM-5.2-GGUF", "v1", "BF16/GLM-5.2"},
	} {
		got, err := ParseName(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v (%s), %v", text, got, got, err)
		}
	}
	for _, text := range []string{"", "a", "a/b/c", "/a/b", "../b", "a/..", "a/.b", "-a/b", "a/-b", "a b/c", "a/b@",
		"a--b/c", "a/b..c", "a/b@../x", "a/b@x y", "a/b@x@y", "a/b@/x", `a\b/c`, "a/b@x?y",
		"a/" + strings.Repeat("b", 97), "é/b", "a/b:", "a/b:../x", "a/b:x:y", "a/b:-x", "a/b:x/../y", "a/b@v1:Q8_0"} {
		if n, err := ParseName(text); !errors.Is(err, ErrName) {
			t.Errorf("%q: %+v, %v", text, n, err)
		}
	}
}

func TestTheEnvironmentNamesTheCache(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{nil, "/home/u/.cache/huggingface/hub"},
		{map[string]string{"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"},
		{map[string]string{"HF_HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/h/hub"},
		{map[string]string{"HF_HOME": "~/h"}, "/home/u/h/hub"},
		{map[string]string{"HUGGINGFACE_HUB_CACHE": "/old", "HF_HOME": "/h"}, "/old"},
		{map[string]string{"HF_HUB_CACHE": "/c", "HUGGINGFACE_HUB_CACHE": "/old", "HF_HOME": "/h"}, "/c"},
	} {
		got, err := CacheAt(func(name string) string { return c.env[name] }, "/home/u")
		if err != nil || got.Root != filepath.FromSlash(c.want) {
			t.Errorf("%v: %s, want %s (%v)", c.env, got.Root, c.want, err)
		}
	}
	c, err := CacheAt(func(string) string { return "" }, "")
	if err == nil || !strings.Contains(err.Error(), "HF_HOME") {
		t.Errorf("without a home folder: %v, %v", c, err)
	}
}

func TestTheEnvironmentNamesTheToken(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, "token"), "from-file\n")
	write(t, filepath.Join(home, "other"), "from-path")
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"HF_HOME": home}, "from-file"},
		{map[string]string{"HF_HOME": home, "HF_TOKEN_PATH": filepath.Join(home, "other")}, "from-path"},
		{map[string]string{"HF_HOME": home, "HF_TOKEN": " given "}, "given"},
		{map[string]string{"HF_HOME": filepath.Join(home, "none")}, ""},
	} {
		if got, err := Token(func(name string) string { return c.env[name] }, "/nowhere"); err != nil || got != c.want {
			t.Errorf("%v: %q, %v", c.env, got, err)
		}
	}
	missing := map[string]string{"HF_TOKEN_PATH": filepath.Join(home, "gone")}
	if _, err := Token(func(name string) string { return missing[name] }, home); err == nil {
		t.Error("a token file that is named and not there is no error")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFindSaysWhatIsMissing(t *testing.T) {
	c := Cache{t.TempDir()}
	n := Name{Repo: "a/b", Revision: "main"}
	expect := func(kind error, want string) {
		t.Helper()
		if _, err := c.Find(n); !errors.Is(err, kind) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %v with %q", err, kind, want)
		}
	}
	expect(ErrNotCached, "a/b in "+c.Root)
	write(t, c.ref(n), "../../../etc")
	expect(ErrIncomplete, "not a commit")
	write(t, c.ref(n), testCommit+"\n")
	expect(ErrNotCached, testCommit)
	dir := c.snapshot(n, testCommit)
	write(t, filepath.Join(dir, "config.json"), "{}")
	expect(ErrIncomplete, "no model.safetensors")
	index := filepath.Join(dir, "model.safetensors.index.json")
	write(t, index, `{"weight_map":{"x":"m1.safetensors","y":"m2.safetensors"}}`)
	write(t, filepath.Join(dir, "m1.safetensors"), "x")
	expect(ErrIncomplete, "m2.safetensors")
	if err := os.Symlink("../../blobs/gone", filepath.Join(dir, "m2.safetensors")); err != nil {
		t.Skip(err)
	}
	expect(ErrIncomplete, "m2.safetensors") // the link exists, but its target does not
	write(t, c.blob(n, "gone"), "x")
	if got, err := c.Find(n); err != nil || got != dir {
		t.Errorf("%s, %v", got, err)
	}
	if err := os.Remove(filepath.Join(dir, "config.json")); err != nil {
		t.Fatal(err)
	}
	expect(ErrIncomplete, "config.json")
}
