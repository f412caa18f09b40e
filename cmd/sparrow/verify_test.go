package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/verify"
	"sparrow/weight"
)

func TestVerifyPasses(t *testing.T) {
	status, stdout, stderr := invoke("verify", oracle+"glm_moe_dsa-1", "--exact", "--chunk", "128", "--json")
	var r verify.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err, stderr)
	}
	if status != 0 || !r.Passed || !r.Exact || len(r.Cases) != 3 || r.Chunk != 128 || r.Layout != "f32-2304" {
		t.Errorf("status %d, report %+v", status, r)
	}
	for _, c := range r.Cases {
		if c.GreedyOf == 0 || c.GreedyEqual != c.GreedyOf || c.MaxError > 2e-3 {
			t.Errorf("case %s: %d of %d greedy tokens, largest error %g", c.Name, c.GreedyEqual, c.GreedyOf, c.MaxError)
		}
	}
}

func TestVerifyForPeople(t *testing.T) {
	status, stdout, stderr := invoke("verify", oracle+"deepseek_v32-1", "--kv", "fp8-576", "--prefill", "sparse-block",
		"--decode", "sparse-raw", "--dense", "off")
	if status != 0 {
		t.Fatal(stdout, stderr)
	}
	for _, w := range []string{"fp8-576 rows, prefill sparse-block, decode sparse-raw", "convert raw-to-block",
		"verdict", "at_topk", "ok"} {
		if !strings.Contains(stdout, w) {
			t.Errorf("%q is not in\n%s", w, stdout)
		}
	}
	if strings.Contains(stdout, "dense-mha") {
		t.Errorf("--dense off ran the dense form:\n%s", stdout)
	}
}

// spoiled returns a checkpoint in which the golden logits of one case were changed.
func spoiled(t *testing.T) string {
	t.Helper()
	const from = oracle + "deepseek_v32-1"
	dir := t.TempDir()
	for _, name := range []string{"config.json", "golden.json", "model.safetensors"} {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w, err := weight.OpenFile(filepath.Join(from, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var all []weight.Source
	for _, name := range w.Names() {
		x, _ := w.Tensor(name)
		data := slices.Clone(x.Data)
		if name == "short.logits" {
			data[4*17+3] ^= 0x80 // flips the sign of logit 17 at the first position
		}
		all = append(all, weight.SourceBytes(name, x.DType, x.Shape, data))
	}
	if err := weight.Create(filepath.Join(dir, "golden.safetensors"), all, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestVerifyFails(t *testing.T) {
	dir := spoiled(t)
	status, stdout, stderr := invoke("verify", dir, "--exact")
	if status != 1 || stderr != "" {
		t.Errorf("status %d, standard error %q; want 1 and nothing more than the table", status, stderr)
	}
	if !strings.Contains(stdout, "FAIL") || !strings.Contains(stdout, "short: largest") ||
		strings.Contains(stdout, "long: largest") {
		t.Errorf("the table does not say that case short alone failed:\n%s", stdout)
	}
	status, stdout, _ = invoke("verify", dir, "--exact", "--json")
	var r verify.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	if status != 1 || r.Passed {
		t.Errorf("with --json: status %d, passed %v", status, r.Passed)
	}
}

func TestVerifyRefuses(t *testing.T) {
	good := oracle + "deepseek_v32-1"
	bare := t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors"} {
		data, err := os.ReadFile(filepath.Join(good, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(bare, name), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args string
		want string
	}{
		{good + " --exact --kv bf16", "contradicts --kv bf16"},
		{good + " --chunk -1", "--chunk -1"},
		{good + " --kernels abacus", "abacus"},
		{good + " --dense perhaps", "--dense"},
		{good + " --kv fp9", "E05"},
		{good + " --kv bf16 --decode sparse-block", "E03"},
		{t.TempDir(), "config.json"},
		{bare, "golden.json"},
	} {
		if status, _, stderr := invoke(append([]string{"verify"}, strings.Fields(c.args)...)...); status != 1 ||
			!strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, %q; want %q", c.args, status, stderr, c.want)
		}
	}
}
