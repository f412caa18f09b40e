package hub

import (
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Invariants of this file: errors of the hub get the advice that fits, and names and folders are read exactly.

// The advice for a refused request depends on its status, the error code of the hub, and whether there is a token.
func TestAdviceForRefusedRequests(t *testing.T) {
	n := Name{Repo: "acme/small", Revision: "dev"}
	other := errors.New("other")
	for _, c := range []struct {
		err   error
		token string
		want  error
		text  string
	}{
		{&statusError{status: http.StatusForbidden}, "", ErrDenied, "accept its terms"},
		{&statusError{status: http.StatusUnauthorized, code: "GatedRepo"}, "t", ErrDenied, "accept its terms"},
		{&statusError{status: http.StatusNotFound, code: "RevisionNotFound"}, "", ErrNotFound, `"dev"`},
		{&statusError{status: http.StatusUnauthorized}, "", ErrDenied, "HF_TOKEN"},
		{&statusError{status: http.StatusUnauthorized}, "t", ErrDenied, "the token is not allowed"},
		{&statusError{status: http.StatusNotFound}, "", ErrNotFound, "https://hub/acme/small"},
		{&statusError{status: http.StatusGone}, "", ErrNotFound, "https://hub/acme/small"},
		{&statusError{status: http.StatusTeapot}, "", nil, "418"}, {other, "", other, "other"},
	} {
		err := (&Puller{endpoint: "https://hub", token: c.token}).explain(n, c.err)
		if c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) ||
			c.want == nil && (errors.Is(err, ErrDenied) || errors.Is(err, ErrNotFound)) {
			t.Errorf("%v, token %q: %v", c.err, c.token, err)
		}
	}
}

// An endpoint is the address of a server, and a token is sent unencrypted only to this machine.
func TestAddressesOfEndpoints(t *testing.T) {
	for text, want := range map[string][2]bool{ // without and with a token
		"https://hub": {true, true}, "http://hub": {true, false}, "http://localhost:8080": {true, true},
		"http://127.0.0.1": {true, true}, "http://[::1]:80": {true, true}, "http://10.0.0.1": {true, false},
		"https://hub/path": {true, true}, "hub": {}, "https://": {}, "ftp://hub": {}, "https://u@hub": {},
		"https://hub?a=b": {}, "https://hub#a": {}, "https://hub:x": {},
	} {
		for i, token := range []string{"", "t"} {
			if u, err := checkEndpoint(text, token); (err == nil) != want[i] || (u != nil) != want[i] {
				t.Errorf("%s, token %q: %v, %v", text, token, u, err)
			}
		}
	}
}

// GGUF files of a model are grouped by path and number of parts; models with equal names are named by their paths.
func TestGroupsOfGGUFFiles(t *testing.T) {
	list := quantsOf([]string{"a/M-Q4_K_M.gguf", "b/M-q4_k_m.gguf", "M-Q8_0-00001-of-00002.gguf",
		"M-Q8_0-00002-of-00002.gguf", "M-Q8_0-00001-of-00003.gguf", "M-Q2_K.gguf", "M.txt"},
		func(name string) int64 { return int64(len(name)) })
	var got []string
	for _, q := range list {
		got = append(got, q.Name+" "+strings.Join(q.Files, ","))
	}
	want := []string{"Q2_K M-Q2_K.gguf", "a/M-Q4_K_M a/M-Q4_K_M.gguf", "b/M-q4_k_m b/M-q4_k_m.gguf",
		"M-Q8_0 M-Q8_0-00001-of-00003.gguf", "M-Q8_0 M-Q8_0-00001-of-00002.gguf,M-Q8_0-00002-of-00002.gguf"}
	if !slices.Equal(got, want) {
		t.Errorf("groups %q, want %q", got, want)
	}
}

// Folders of other engines are those that their variables name, or else their default folders; relative ones are
// ignored.
func TestFoldersOfOtherEngines(t *testing.T) {
	home := string(filepath.Separator) + "home"
	for _, c := range []struct {
		env        map[string]string
		has, lacks []string
	}{
		{nil, []string{"/home/.cache/llama.cpp", "/home/Library/Caches/llama.cpp", "/home/.lmstudio/models",
			"/home/.cache/lm-studio/models", "/home/.ollama/models", "/usr/share/ollama/.ollama/models"}, nil},
		{map[string]string{"LLAMA_CACHE": "/l"}, []string{"/l"}, []string{"/home/.cache/llama.cpp"}},
		{map[string]string{"LLAMA_CACHE": "~/l"}, []string{"/home/l"}, []string{"/home/.cache/llama.cpp"}},
		{map[string]string{"LLAMA_CACHE": "l"}, nil, []string{"l", "/home/.cache/llama.cpp"}},
		{map[string]string{"XDG_CACHE_HOME": "/x"}, []string{"/x/llama.cpp", "/home/.cache/llama.cpp"}, nil},
		{map[string]string{"OLLAMA_MODELS": "/o"}, []string{"/o"}, []string{"/home/.ollama/models"}},
	} {
		var roots []string
		for _, f := range otherFolders(func(name string) string { return c.env[name] }, home) {
			roots = append(roots, filepath.ToSlash(f.root))
		}
		for _, root := range c.has {
			if !slices.Contains(roots, root) {
				t.Errorf("%v: %s is not in %v", c.env, root, roots)
			}
		}
		for _, root := range c.lacks {
			if slices.Contains(roots, root) {
				t.Errorf("%v: %s is in %v", c.env, root, roots)
			}
		}
	}
}

// Only Python files directly in the folder of encoders are encoders, and paths have no control characters.
func TestPathsOfFiles(t *testing.T) {
	for name, want := range map[string]bool{"encoding/a.py": true, "encoding/a.txt": false, "encoding/b/a.py": false,
		"a.py": false, "encoding.py": false} {
		if isEncoder(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
	for name, want := range map[string]bool{"a": true, "a/b": true, "": false, "../a": false, "/a": false,
		"a//b": false, "a/./b": false, "a/../b": false,
		"a\x7f": false, "a\nb": false, `a\b`: false, "c:a": false, "a\u00e9": true} {
		if safePath(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}
