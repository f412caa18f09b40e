package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const pullCommit = "00112233445566778899aabbccddeeff00112233"

// startHub serves the files of a folder as a model on a hub, and sets the environment to use it and an empty cache.
func startHub(t *testing.T, files map[string][]byte) (h *httptest.Server, cache string) {
	t.Helper()
	var siblings []any
	for name, text := range files {
		sum := sha256.Sum256(text)
		siblings = append(siblings, map[string]any{"rfilename": name, "size": len(text),
			"lfs": map[string]any{"sha256": hex.EncodeToString(sum[:]), "size": len(text)}})
	}
	h = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/models/acme/tiny/revision/main" {
			json.NewEncoder(w).Encode(map[string]any{"sha": pullCommit, "siblings": siblings})
			return
		}
		name, _ := strings.CutPrefix(r.URL.Path, "/acme/tiny/resolve/"+pullCommit+"/")
		text, ok := files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
	}))
	t.Cleanup(h.Close)
	cache = filepath.Join(t.TempDir(), "hub")
	for name, v := range map[string]string{"HF_ENDPOINT": h.URL, "HF_HUB_CACHE": cache, "HF_TOKEN": "t",
		"HF_HUB_OFFLINE": ""} {
		t.Setenv(name, v)
	}
	return h, cache
}

func oracleFiles(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{"README.md": []byte("x")}
	for _, name := range []string{"config.json", "generation_config.json", "model.safetensors"} {
		text, err := os.ReadFile(filepath.Join(oracle, "deepseek_v32-1", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = text
	}
	return files
}

// A model is pulled by its name, and then served by the same name.
func TestAPulledModelIsServedByItsName(t *testing.T) {
	_, cache := startHub(t, oracleFiles(t))
	out, _ := mustDrive(t, "", "pull", "acme/tiny", "--dry-run")
	for _, want := range []string{"acme/tiny at commit " + pullCommit + ": deepseek_v32", "3 files of ",
		"model.safetensors\n", "disk     fits", "memory   fits"} {
		if !strings.Contains(out, want) {
			t.Errorf("the dry run lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "README") {
		t.Errorf("a file that is not needed is listed:\n%s", out)
	}
	if _, err := os.Stat(cache); err == nil {
		t.Error("the dry run wrote to the cache")
	}
	if status, _, stderr := invoke("inspect", "acme/tiny"); status != 1 ||
		!strings.Contains(stderr, "'sparrow pull acme/tiny'") {
		t.Errorf("before it is pulled: status %d, %q", status, stderr)
	}
	out, _ = mustDrive(t, "", "pull", "acme/tiny")
	folder := filepath.Join(cache, "models--acme--tiny", "snapshots", pullCommit)
	if !strings.HasSuffix(out, "folder   "+folder+"\n\ntry      sparrow serve --model acme/tiny\n") {
		t.Errorf("%s", out)
	}
	if out, _ = mustDrive(t, "", "inspect", "acme/tiny"); !strings.Contains(out, "deepseek_v32") {
		t.Errorf("inspect: %s", out)
	}
	s := startServer(t, "--model", "acme/tiny")
	resp, err := http.Get(s.addressOf(t) + "/v1/models/acme/tiny")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"acme/tiny"`) {
		t.Errorf("status %d: %s", resp.StatusCode, text)
	}
	if !strings.Contains(s.out.String(), "model    acme/tiny: deepseek_v32, "+folder) {
		t.Errorf("serve says %s", s.out)
	}
	s.end(t)

	// A model whose blobs were deleted from the cache is reported as missing before any file is opened.
	if err := os.Rename(filepath.Join(cache, "models--acme--tiny", "blobs"), filepath.Join(cache, "x")); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := invoke("run", "--model", "acme/tiny", "hi"); status != 1 ||
		!strings.Contains(stderr, "'sparrow pull acme/tiny' downloads the rest") {
		t.Errorf("status %d, %q", status, stderr)
	}
}

func TestPullAsJSON(t *testing.T) {
	startHub(t, oracleFiles(t))
	for _, args := range [][]string{{"--dry-run"}, nil} {
		out, _ := mustDrive(t, "", append([]string{"pull", "acme/tiny", "--json"}, args...)...)
		var r pullReport
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.Family != "deepseek_v32" || r.Weights == 0 ||
			r.Commit != pullCommit || len(r.Files) != 3 || r.Missing != r.Bytes {
			t.Errorf("%v: %+v, %v", args, r, err)
		}
	}
}

// A GGUF model is pulled, inspected and served by the name of its quantization.
func TestAPulledQuantIsServedByItsName(t *testing.T) {
	t.Setenv("HOME", t.TempDir()) // so that folders of other engines are not found
	file := filepath.Join(t.TempDir(), "tiny-UD-Q8_0.gguf")
	mustDrive(t, "", "quantize", "builtin", file, "--type", "q8_0")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, cache := startHub(t, map[string][]byte{"config.json": []byte("{}"), "UD-Q8_0/tiny-UD-Q8_0.gguf": text,
		"tiny-Q4_0.gguf": text[:1000]})
	status, out, stderr := invoke("pull", "acme/tiny")
	if status != 1 || !strings.Contains(stderr, "choose one, such as: sparrow pull acme/tiny:Q4_0") ||
		!strings.Contains(out, "UD-Q8_0        fits\n") {
		t.Errorf("without a name: status %d, %q\n%s", status, stderr, out)
	}
	mustDrive(t, "", "pull", "acme/tiny", "--dry-run")
	if status, _, stderr := invoke("inspect", "acme/tiny:Q8_0"); status != 1 ||
		!strings.Contains(stderr, "'sparrow pull acme/tiny:Q8_0'") {
		t.Errorf("before it is pulled: status %d, %q", status, stderr)
	}
	out, _ = mustDrive(t, "", "pull", "acme/tiny:Q8_0")
	at := filepath.Join(cache, "models--acme--tiny", "snapshots", pullCommit, "UD-Q8_0", "tiny-UD-Q8_0.gguf")
	if !strings.HasSuffix(out, "folder   "+at+"\n\ntry      sparrow serve --model acme/tiny:Q8_0\n") {
		t.Errorf("%s", out)
	}
	if out, _ = mustDrive(t, "", "inspect", "acme/tiny:UD-Q8_0"); !strings.Contains(out, "Q8_0") {
		t.Errorf("inspect: %s", out)
	}
	s := startServer(t, "--model", "acme/tiny:Q8_0")
	if !strings.Contains(s.out.String(), "model    acme/tiny:Q8_0: deepseek_v32, "+at) {
		t.Errorf("serve says %s", s.out)
	}
	s.end(t)
	if status, _, stderr := invoke("inspect", "acme/tiny:Q4_0"); status != 1 ||
		!strings.Contains(stderr, "is not one of UD-Q8_0") {
		t.Errorf("another: status %d, %q", status, stderr)
	}

	// A file that another program has already downloaded is offered and not downloaded again.
	studio := filepath.Join(os.Getenv("HOME"), ".lmstudio", "models", "acme", "tiny", "tiny-Q4_0.gguf")
	if err := errors.Join(os.MkdirAll(filepath.Dir(studio), 0o755),
		os.WriteFile(studio, text[:1000], 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"inspect", "acme/tiny:Q4_0"}, {"pull", "acme/tiny:Q4_0"}} {
		if status, _, stderr := invoke(args...); status != 1 || !strings.Contains(stderr, "LM Studio ") ||
			!strings.Contains(stderr, studio) {
			t.Errorf("%v: status %d, %q", args, status, stderr)
		}
	}
	mustDrive(t, "", "pull", "acme/tiny:Q4_0", "--force")
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		weights, gpus, host int64
		want                string
	}{{10, 0, 0, ""}, {10, 0, 10, "fits"}, {11, 0, 10, "does not fit"}, {10, 10, 5, "fits"},
		{12, 10, 5, "fits with experts in RAM"}, {16, 10, 5, "does not fit"}} {
		if got := verdict(c.weights, c.gpus, c.host); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestPullRefuses(t *testing.T) {
	files := oracleFiles(t)
	files["config.json"] = []byte(`{"model_type":"llama"}`)
	h, cache := startHub(t, files)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"pull"}, "want one name"},
		{[]string{"pull", "tiny"}, "want organisation/name"},
		{[]string{"pull", "acme/other"}, "check the spelling"},
		{[]string{"pull", "acme/tiny", "--jobs", "0"}, "--jobs 0"},
		{[]string{"pull", "acme/tiny"}, "--force downloads it anyway"},
		{[]string{"pull", "acme/tiny", "--dry-run"}, "cannot run acme/tiny"},
	} {
		if status, _, stderr := invoke(c.args...); status != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: status %d, %q; want %q", c.args, status, stderr, c.want)
		}
	}
	if _, err := os.Stat(cache); err == nil {
		t.Error("something was written")
	}
	mustDrive(t, "", "pull", "acme/tiny", "--force")
	t.Setenv("HF_HUB_OFFLINE", "1")
	if status, _, stderr := invoke("pull", "acme/tiny"); status != 1 || !strings.Contains(stderr, "HF_HUB_OFFLINE") {
		t.Errorf("offline: status %d, %q", status, stderr)
	}
	t.Setenv("HF_HUB_OFFLINE", "0")
	t.Setenv("HF_ENDPOINT", strings.Replace(h.URL, "127.0.0.1", "example.org", 1))
	if status, _, stderr := invoke("pull", "acme/tiny"); status != 1 || !strings.Contains(stderr, "unencrypted") {
		t.Errorf("a token without encryption: status %d, %q", status, stderr)
	}
}

// If the user stops a download, the command prints that and keeps the downloaded data. A model that is larger than the
// memory of the machine is downloaded only with --force.
func TestPullComparesWithTheMemory(t *testing.T) {
	r := &pullReport{Model: "acme/huge", Weights: 3 << 40, Memory: 1 << 40}
	cmd := pullCommand()
	cmd.SetOut(io.Discard)
	err := (&pullFlags{}).announce(cmd, r)
	if err == nil || !strings.Contains(err.Error(), "3.00 TiB") || !strings.Contains(err.Error(), "1.00 TiB") {
		t.Errorf("%v", err)
	}
	if err := (&pullFlags{force: true}).announce(cmd, r); err != nil {
		t.Errorf("--force: %v", err)
	}
	r.Weights = 1 << 39
	if err := (&pullFlags{}).announce(cmd, r); err != nil {
		t.Errorf("half of the memory: %v", err)
	}
	r.Memory = 0
	if err := (&pullFlags{}).announce(cmd, r); err != nil {
		t.Errorf("a memory that is not known: %v", err)
	}
}

func TestAnInterruptedPullEndsWithStatus130(t *testing.T) {
	files := oracleFiles(t)
	h, cache := startHub(t, files)
	ctx, stop := context.WithCancel(context.Background())
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/model.safetensors") {
			w.Write(files["model.safetensors"][:1000])
			w.(http.Flusher).Flush()
			stop()
			<-r.Context().Done()
			return
		}
		http.Redirect(w, r, h.URL+r.URL.Path, http.StatusFound)
	}))
	defer slow.Close()
	t.Setenv("HF_ENDPOINT", slow.URL)
	var out, side bytes.Buffer
	if status := run(ctx, []string{"pull", "acme/tiny"}, &out, &side); status != 130 ||
		!strings.Contains(side.String(), "run the command again to continue") {
		t.Errorf("status %d: %s", status, &side)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "models--acme--tiny", "refs", "*")); len(left) > 0 {
		t.Errorf("%v says that the model is there", left)
	}
}
