package hub

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ggufModel returns the files of a typical GGUF repository: split files in folders, single files, and files that are
// not models.
func ggufModel() []testFile {
	var files []testFile
	for i, name := range []string{"README.md", "config.json", "UD-Q2_K_XL/Sparse-1-UD-Q2_K_XL-00001-of-00002.gguf",
		"UD-Q2_K_XL/Sparse-1-UD-Q2_K_XL-00002-of-00002.gguf", "Sparse-1-UD-IQ1_M.gguf", "Sparse-1-Q4_K_M.gguf",
		"Sparse-1-UD-Q4_K_M.gguf", "Sparse-1-IQ2XXS-w2Q2K-chat.gguf", "Sparse-1-IQ2XXS-w2Q2K-base.gguf",
		"broken/Sparse-1-Q8_0-00002-of-00002.gguf", "mmproj-F16.gguf", "imatrix_acme.gguf", "mtp-Q8_0.gguf",
		"Sparse-1-MTP-Q4_K.gguf"} {
		files = append(files, testFile{path: name, data: pattern(20_000+1000*i, byte(i)), large: i > 1})
	}
	return files
}

func TestQuantsAreFoundByTheirNames(t *testing.T) {
	h := newTestHub(t, ggufModel()...)
	plan := func(quant string) (*Download, error) {
		return h.puller(t.TempDir(), nil).Plan(context.Background(), Name{testRepo, "main", quant})
	}
	d, err := plan("")
	if err != nil || len(d.Files) > 0 || len(d.Quants) != 7 || d.Quants[6].Name != "UD-Q2_K_XL" ||
		d.Quants[6].Bytes != 45_000 {
		t.Fatalf("%+v, %v", d, err)
	}
	for quant, want := range map[string]string{
		"UD-Q2_K_XL": "UD-Q2_K_XL/Sparse-1-UD-Q2_K_XL-00001-of-00002.gguf",
		"ud-q2_k_xl": "UD-Q2_K_XL/Sparse-1-UD-Q2_K_XL-00001-of-00002.gguf",
		"Q2_K_XL":    "UD-Q2_K_XL/Sparse-1-UD-Q2_K_XL-00001-of-00002.gguf",
		"Q4_K_M":     "Sparse-1-Q4_K_M.gguf", // the exact name is preferred, although UD-Q4_K_M contains it too
		"IQ1_M":      "Sparse-1-UD-IQ1_M.gguf",
		"chat":       "Sparse-1-IQ2XXS-w2Q2K-chat.gguf",

		"UD-Q2_K_XL/Sparse-1-UD-Q2_K_XL-00002-of-00002.gguf": "UD-Q2_K_XL/Sparse-1-UD-Q2_K_XL-00001-of-00002.gguf",

		"Sparse-1-IQ2XXS-w2Q2K-base.gguf": "Sparse-1-IQ2XXS-w2Q2K-base.gguf",
	} {
		if d, err := plan(quant); err != nil || d.Files[0].Path != want || len(d.Quants) != 1 {
			t.Errorf("%s: %+v, %v", quant, d, err)
		}
	}
	for quant, want := range map[string]string{
		// The message names the smaller file first.
		"IQ2XXS": "matches Sparse-1-IQ2XXS-w2Q2K-chat, Sparse-1-IQ2XXS-w2Q2K-base",
		"Q3_K_M": "is not one of UD-IQ1_M, Q4_K_M, UD-Q4_K_M,",
		"Q8_0":   "1 of 2 parts of broken/Sparse-1-Q8_0",
		"F16":    "is not one of",
		"Q4_K":   "is not one of",
	} {
		if _, err := plan(quant); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", quant, err, want)
		}
	}
}

// The interrupted download of a split file continues where it stopped, the parts are checked against their digests, and
// the model is found by the name of its quantization.
func TestAQuantIsPulledAndFound(t *testing.T) {
	h := newTestHub(t, ggufModel()...)
	root := t.TempDir()
	n := Name{testRepo, "main", "UD-Q2_K_XL"}
	if _, err := (Cache{root}).Find(n); !errors.Is(err, ErrNotCached) {
		t.Errorf("before: %v", err)
	}
	h.storeFault = cutAfter(9000)
	p := h.puller(root, nil)
	d, err := p.Plan(context.Background(), n)
	if err != nil {
		t.Fatal(err)
	}
	at, err := p.Pull(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range h.files[2:4] {
		got, err := os.ReadFile(strings.Replace(at, "-00001-of", "-0000"+string(rune('1'+i))+"-of", 1))
		if err != nil || string(got) != string(f.data) || h.sent[f.path] != len(f.data) {
			t.Errorf("%s: %d bytes, %d sent, %v", f.path, len(got), h.sent[f.path], err)
		}
	}
	for _, quant := range []string{"UD-Q2_K_XL", "q2_k_xl", ""} { // the only quantization in the cache needs no name
		if got, err := (Cache{root}).Find(Name{testRepo, "main", quant}); err != nil || got != at {
			t.Errorf("%q: %s, %v", quant, got, err)
		}
	}
	if _, err := (Cache{root}).Find(Name{testRepo, "main", "UD-IQ1_M"}); !errors.Is(err, ErrQuant) {
		t.Errorf("another: %v", err)
	}
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if _, err := (Cache{root}).Find(n); !errors.Is(err, ErrIncomplete) {
		t.Errorf("without its first part: %v", err)
	}
}

func TestModelsOfOtherEnginesAreFound(t *testing.T) {
	home, blob := t.TempDir(), strings.Repeat("ab", 32)
	for name, text := range map[string]string{
		".cache/llama.cpp/acme_Sparse-1_UD-Q2_K_XL_Sparse-1-UD-Q2_K_XL-00001-of-00002.gguf": "12",
		".cache/llama.cpp/acme_Sparse-1_UD-Q2_K_XL_Sparse-1-UD-Q2_K_XL-00002-of-00002.gguf": "345",
		".cache/llama.cpp/acme_Sparse-1_Sparse-1-Q8_0-00001-of-00002.gguf":                  "half",
		".cache/llama.cpp/acme_Sparse-1_Sparse-1-IQ1_M.gguf.downloadInProgress":             "half",
		".lmstudio/models/acme/Sparse-1/Sparse-1-Q4_K_M.gguf":                               "6789",
		".ollama/models/manifests/hf.co/acme/Sparse-1/IQ1_S": `{"layers":[{"mediaType":"application/vnd.ollama.image.model",` +
			`"digest":"sha256:` + blob + `"},{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:../../x"}]}`,
		".ollama/models/blobs/sha256-" + blob: "x",
	} {
		write(t, filepath.Join(home, name), text)
	}
	find := func(quant string) []Local {
		return Elsewhere(func(string) string { return "" }, home, Name{testRepo, "main", quant})
	}
	if all := find(""); len(all) != 3 {
		t.Errorf("%+v", all)
	}
	for quant, want := range map[string]Local{
		"UD-Q2_K_XL": {"llama.cpp", ".cache/llama.cpp/acme_Sparse-1_UD-Q2_K_XL_Sparse-1-UD-Q2_K_XL-00001-of-00002.gguf",
			"UD-Q2_K_XL", 5},
		"q4_k_m": {"LM Studio", ".lmstudio/models/acme/Sparse-1/Sparse-1-Q4_K_M.gguf", "Q4_K_M", 4},
		"IQ1_S":  {"Ollama", ".ollama/models/blobs/sha256-" + blob, "IQ1_S", 1},
	} {
		want.Path = filepath.Join(home, want.Path)
		if got := find(quant); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %+v, want %+v", quant, got, want)
		}
	}
	if got := find("Q8_0"); len(got) > 0 {
		t.Errorf("half a model: %+v", got)
	}
}
