package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"sparrow/internal/eval"
)

// evalJSON runs the eval command with --json and returns its decoded output.
func evalJSON[T any](t *testing.T, args ...string) T {
	t.Helper()
	all := append([]string{"eval", "--json"}, args...)
	if !slices.Contains(args, "--url") {
		all = append(all, "--cache-tokens", "16384", "--workers", "1") // two would only spin for such a small model
	}
	status, stdout, stderr := invoke(all...)
	if status != 0 || stderr != "" {
		t.Fatalf("%v: status %d, %s", args, status, stderr)
	}
	var out T
	if err := json.Unmarshal([]byte(stdout), &out); err != nil {
		t.Fatalf("%v: %v in\n%s", args, err, stdout)
	}
	return out
}

func TestEvalShippedTasks(t *testing.T) {
	r := evalJSON[eval.Report](t, "--tasks", "word1,tool", "--limit", "2", "--kv", "fp8")
	if len(r.Tasks) != 2 || r.Tasks[0].Task != "tool" || r.Tasks[1].Task != "word1" || r.Total.Items != 4 ||
		r.Total.Exact != 4 || r.Total.TokensPerSecond <= 0 {
		t.Errorf("%+v", r)
	}
	if r.By.Model != "sparrow-tiny" || r.By.Layout != "fp8-656" || len(r.Rows) == 0 {
		t.Errorf("by %+v, rows %+v", r.By, r.Rows)
	}
}

// The built-in model answers every demonstration question of the web page and of the documents correctly.
func TestEvalDemonstrations(t *testing.T) {
	r := evalJSON[eval.Report](t, "--tasks", "result,extract")
	if len(r.Tasks) != 2 || r.Tasks[0].Items != 30 || r.Tasks[0].Exact != 30 || r.Tasks[1].Items != 30 ||
		r.Tasks[1].Exact != 30 {
		t.Errorf("%+v", r)
	}
}

// The perplexity of a text depends on its tokens: training text is more probable than random letters.
func TestEvalPerplexity(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	measure := func(text string) eval.Perplexity {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return evalJSON[eval.Perplexity](t, "--perplexity", file, "--chunk-tokens", "64", "--limit", "3")
	}
	words := measure(strings.Repeat("Anna has 3 apples and buys 2 apples. How many apples does Anna have? ", 40))
	noise := measure(strings.Repeat("zq xk vjw qqp zzx kxv jjq wvz xqk pzj ", 60))
	if words.Chunks != 3 || words.Tokens != 3*31 || !(words.Perplexity > 1) || !(noise.Perplexity > words.Perplexity) {
		t.Errorf("%+v, noise %+v", words, noise)
	}
	for _, args := range [][]string{{"--tasks", "word1"}, {"--chunk-tokens", "3"}, {"--chunk-tokens", "4096"}} {
		args = append([]string{"eval", "--perplexity", file, "--cache-tokens", "4096"}, args...)
		if status, _, stderr := invoke(args...); status != 1 || !strings.Contains(stderr, "perplexity") {
			t.Errorf("%v: status %d, %q", args, status, stderr)
		}
	}
}

func TestEvalCompare(t *testing.T) {
	c := evalJSON[eval.Comparison](t, "--compare", "dense,sparse,kv=fp8-576+deterministic", "--tasks", "word1",
		"--limit", "2")
	if len(c.Reports) != 3 || len(c.Agreement) != 3 {
		t.Fatalf("%+v", c)
	}
	for i, want := range []struct {
		plan, layout string
	}{{"dense", "bf16-1152"}, {"sparse", "bf16-1152"}, {"kv=fp8-576+deterministic", "fp8-576"}} {
		r := c.Reports[i]
		if r.Plan != want.plan || r.By.Layout != want.layout || r.Total.Exact != 2 || c.Agreement[0][i] != 1 ||
			r.About == "" {
			t.Errorf("%d: %+v, agreement %v", i, r, c.Agreement)
		}
	}
	status, stdout, stderr := invoke("eval", "--compare", "sparse,kv=fp8", "--tasks", "talk", "--limit", "1",
		"--cache-tokens", "4096")
	if status != 0 || !strings.Contains(stdout, "agreement") ||
		!strings.Contains(stdout, "talk         1   100.0   100.0") || stderr != "" {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
}

// In a file of questions the model answers one item, and the other has no right answer: a wrong answer is counted as a
// result and does not make the command fail.
func TestEvalFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "mine.jsonl")
	text := `{"messages": [{"role": "user", "content": "Goodbye"}], "answer": "Goodbye!"}
{"messages": [{"role": "user", "content": "Goodbye"}], "answer": "See you."}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, dir} {
		r := evalJSON[eval.Report](t, path)
		if len(r.Tasks) != 1 || r.Tasks[0].Task != "mine" || r.Total.Items != 2 || r.Total.Exact != 1 ||
			len(r.Failures) != 1 || r.Failures[0].Got != "Goodbye!" {
			t.Errorf("%s: %+v", path, r)
		}
	}
	if status, stdout, _ := invoke("eval", file, "--cache-tokens", "4096"); status != 0 ||
		!strings.Contains(stdout, "wrong: 1 of 2 items:\n  mine:2\n") {
		t.Errorf("status %d\n%s", status, stdout)
	}
	if status, _, stderr := invoke("eval", "--tasks", "mi*", file); status != 1 ||
		!strings.Contains(stderr, "--tasks selects files of a folder") {
		t.Errorf("--tasks with a file: status %d, %s", status, stderr)
	}
}

func TestEvalAsksServers(t *testing.T) {
	status := http.StatusOK
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(status)
		if strings.HasSuffix(req.URL.Path, "/models") {
			_, _ = w.Write([]byte(`{"data": [{"id": "other"}]}`))
			return
		}
		_, _ = w.Write([]byte(`{"choices": [{"finish_reason": "stop", "message": {"content": "Goodbye!"}}]}`))
	}))
	defer h.Close()
	r := evalJSON[eval.Report](t, "--url", h.URL, "--tasks", "talk", "--limit", "2")
	// Only the second item of the task, the one that says goodbye, is answered exactly.
	if r.By.Model != "other" || r.By.URL != h.URL+"/v1" || r.Total.Items != 2 || r.Total.Exact != 1 ||
		len(r.Rows) != 0 {
		t.Errorf("%+v", r)
	}
	status = http.StatusServiceUnavailable
	code, stdout, stderr := invoke("eval", "--url", h.URL, "--name", "other", "--tasks", "talk", "--limit", "2")
	if code != 1 || !strings.Contains(stderr, "2 of 2 requests failed") || !strings.Contains(stdout, "503") {
		t.Errorf("status %d\n%s%s", code, stdout, stderr)
	}
}

// With --repeat all items are asked as often as requested, and the mean and the spread of the runs are printed. The
// server answers the only item correctly in the first of three runs.
func TestEvalRepeats(t *testing.T) {
	var asked atomic.Int32
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/models") {
			_, _ = w.Write([]byte(`{"data": [{"id": "other"}]}`))
			return
		}
		answer := "Goodbye!"
		if asked.Add(1) > 1 {
			answer = "No."
		}
		fmt.Fprintf(w, `{"choices": [{"finish_reason": "stop", "message": {"content": %q}}]}`, answer)
	}))
	defer h.Close()
	file := filepath.Join(t.TempDir(), "mine.jsonl")
	text := `{"messages": [{"role": "user", "content": "Goodbye"}], "answer": "Goodbye!"}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := evalJSON[eval.Repeats](t, "--url", h.URL, "--repeat", "3", file)
	exact := r.Total.Exact
	if asked.Load() != 3 || len(r.Reports) != 3 || r.Different != 1 || exact.Least != 0 || exact.Most != 1 ||
		math.Abs(exact.Mean-1./3) > 1e-9 || math.Abs(exact.Deviation-math.Sqrt(1./3)) > 1e-9 {
		t.Errorf("asked %d times: %+v", asked.Load(), r)
	}
	asked.Store(0)
	status, stdout, stderr := invoke("eval", "--url", h.URL, "--repeat", "3", file)
	if status != 0 || !strings.Contains(stdout, "3 runs") || !strings.Contains(stdout, "33.3 ± 57.7 (0.0 to 100.0)") {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
	asked.Store(0)
	if one := evalJSON[eval.Report](t, "--url", h.URL, file); one.Total.Exact != 1 || asked.Load() != 1 {
		t.Errorf("without --repeat asked %d times: %+v", asked.Load(), one)
	}
}

func TestEvalRefusals(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--url", "http://127.0.0.1:1", "--compare", "dense"}, "--compare"},
		{[]string{"--compare", "thick"}, "thick"},
		{[]string{"--compare", "kv=fp3", "--tasks", "talk"},
			"supported: bf16, fp8 (fp8-656), fp8-576, f32; try kv=bf16\n"},
		{[]string{"--tasks", "sums"}, "find_one_1024"},
		{[]string{"--limit", "-1", "--tasks", "talk"}, "--limit -1: want 0"},
		{[]string{"--repeat", "0", "--tasks", "talk"}, "--repeat is 0; want 1 or more"},
		{[]string{"--repeat", "2", "--compare", "kv=bf16", "--tasks", "talk"}, "--repeat is 2"},
		{[]string{"--repeat", "2", "--perplexity", "x.txt"}, "--repeat is 2"},
		{[]string{"nowhere.jsonl"}, "nowhere.jsonl"},
		{[]string{"--kv", "fp3", "--tasks", "talk"}, "fp3"},
		{[]string{"--compare", "dense+deterministic", "--tasks", "talk", "--cache-tokens", "4096"},
			"sparrow: plan dense+deterministic: dense attention cannot run: deterministic mode computes " +
				"every row with the same arithmetic\n"},
		{[]string{"--url", "not a url"}, "not a url"},
	} {
		status, stdout, stderr := invoke(append([]string{"eval"}, c.args...)...)
		if status != 1 || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: status %d, %q; want it to say %q", c.args, status, stderr, c.want)
		}
	}
	if _, help, _ := invoke("eval", "--help"); !strings.Contains(help, "dense-prompt") {
		t.Errorf("the help names no plans:\n%s", help)
	}
}

func TestPerplexityWantsText(t *testing.T) {
	for text, want := range map[string]string{"a\x00b": "byte 1 is 0", "a\xffb": "byte 1, 0xff, is not UTF-8"} {
		file := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if status, _, stderr := invoke("eval", "--perplexity", file); status != 1 || !strings.Contains(stderr, want) {
			t.Errorf("status %d, no %q in %s", status, want, stderr)
		}
	}
	if err := checkText([]byte("é\ufffd")); err != nil {
		t.Error(err)
	}
}
