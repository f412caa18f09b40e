package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/bench/kernels"
	"sparrow/internal/bench/model"
)

func TestBenchModelMeasuresTheBuiltInModel(t *testing.T) {
	dir := t.TempDir()
	picture, peer := filepath.Join(dir, "cost.svg"), filepath.Join(dir, "llama.jsonl")
	if err := os.WriteFile(peer, []byte(`{"n_prompt":0,"n_gen":8,"n_depth":1024,"avg_ts":1e-3}`), 0o644); err != nil {
		t.Fatal(err)
	}
	doc := filepath.Join(dir, "figures.md")
	if err := os.WriteFile(doc, []byte("before\n<!-- bench compare sparrow-tiny -->\nold\n<!-- end -->\nafter\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	out, _ := mustDrive(t, "", "bench", "model", "--contexts", "0,1k", "--batch", "1,2", "--chunk", "16", "--budget",
		"1ms", "--plot", picture, "--against", peer, "--write", doc, "--draft", "2", "--json")
	text, err := os.ReadFile(doc)
	if s := string(text); err != nil || strings.Contains(s, "old") ||
		!strings.HasPrefix(s, "before\n<!-- bench compare sparrow-tiny -->\n") ||
		!strings.HasSuffix(s, "\n<!-- end -->\nafter\n") || !strings.Contains(s, "| decode | 1024 | 2 |") {
		t.Errorf("%v: the document is now\n%s", err, s)
	}
	var r model.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(r.Cells) != 4 || r.Cells[1].Context != 1024 || r.Cells[3].Decode.Tokens != 2 || len(r.Peer) != 1 ||
		r.Drafts == nil || r.Drafts.Answers == 0 || r.Drafts.Accepted == 0 || r.Peer[0].Ratio < 1 || r.Commit == "" {
		t.Errorf("%s", out)
	}
	if svg, err := os.ReadFile(picture); err != nil || !strings.Contains(string(svg), "decode step, batch 2") {
		t.Errorf("%v: %s", err, svg)
	}
}

func TestBenchModelFailsWithAReason(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{`"many" is not a whole number`, []string{"--contexts", "many"}},
		{"--batch", []string{"--batch", "-1"}},
		{"a batch has 600", []string{"--batch", "600"}},
		{"--chunk -1", []string{"--chunk", "-1"}},
		{"--dummy", []string{"--dummy", "v33"}},
		{"give it together with --dummy", []string{"--dummy-experts", "Q2_K"}},
		{`type "Q9" is not supported; want one of Q4_0`, []string{"--dummy", "v4-tiny", "--dummy-experts", "Q9"}},
		{"experts cannot be of type MXFP4", []string{"--dummy", "v4-tiny", "--dummy-experts", "MXFP4"}},
		{"rows of 128 values, which are not whole blocks of Q2_K with 256 values",
			[]string{"--dummy", "v4-tiny", "--dummy-experts", "Q2_K"}},
		{"3 types", []string{"--dummy", "v4-tiny", "--dummy-experts", "Q4_0,Q4_0,Q4_0"}},
		{"the weights of deepseek-v3.2 take", []string{"--dummy", "deepseek-v3.2", "--kernels", "cpu"}},
		{"--against", []string{"--against", "/does/not/exist"}},
		{"/does/not/exist", []string{"/does/not/exist"}},
		{"--draft", []string{"--draft", "9"}},
		{"no kernels named", []string{"--kernels", "none"}},
	} {
		if _, _, err := drive("", append([]string{"bench", "model"}, c.args...)...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want it to say %q", c.args, err, c.want)
		}
	}
}

// Without prompts the command measures only decoding, and prints no line for a prompt of zero tokens.
func TestBenchModelWithoutPrompts(t *testing.T) {
	out, _ := mustDrive(t, "", "bench", "model", "--contexts", "0", "--batch", "1", "--prompts", "0", "--budget", "1ms")
	if !strings.Contains(out, "decode") || strings.Contains(out, "  prompt ") || strings.Contains(out, "  prefill ") {
		t.Error(out)
	}
}

// The command checks that the output file can be written before it measures anything.
func TestBenchLooksAtTheDocumentFirst(t *testing.T) {
	doc := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(doc, []byte("<!-- bench model other -->\n<!-- end -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"bench kernels --kernels cpu-none --write ", "<!-- bench kernels -->"},
		{"bench model --contexts 32k --write ", "<!-- bench model sparrow-tiny -->"},
	} {
		_, _, err := drive("", append(strings.Fields(c.args), doc)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to name %s", c.args, err, c.want)
		}
	}
}

func TestWriteSectionRefusesOtherDocuments(t *testing.T) {
	doc := filepath.Join(t.TempDir(), "doc.md")
	for _, text := range []string{"", "<!-- x -->\n", "<!-- y -->\n<!-- end -->\n", "<!-- end --><!-- x -->\n"} {
		if err := os.WriteFile(doc, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		err := writeSection(doc, "x", func(io.Writer) error { return nil })
		if got, _ := os.ReadFile(doc); err == nil || string(got) != text {
			t.Errorf("%q: %v, now %q", text, err, got)
		}
	}
}

func TestBenchKernelsOnCPU(t *testing.T) {
	out, _ := mustDrive(t, "", "bench", "kernels", "--only", "take,locate", "--threads", "1", "--replays", "1",
		"--json")
	var r kernels.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Results) != 2 || r.Results[0].Threads != 1 ||
		r.Commit == "" {
		t.Errorf("%v in %s", err, out)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"no case contains", []string{"--only", "nothing of this name"}},
		{"--threads 0", []string{"--threads", "0"}},
		{"cpu-none", []string{"--kernels", "cpu-none"}},
		{"cpu, the best of them on this machine; and cuda", []string{"--kernels", "gpu"}},
	} {
		if _, _, err := drive("", append([]string{"bench", "kernels"}, c.args...)...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want it to say %q", c.args, err, c.want)
		}
	}
}

// bench model runs a named shape with random weights and without files on any device: in FP8, with the packed experts
// of DeepSeek-V4, and with experts in GGUF types.
func TestBenchModelOfDrawnWeights(t *testing.T) {
	bytes := map[string]int64{}
	for _, c := range [][2]string{{"v32-tiny"}, {"v4-tiny"}, {"v4-tiny", "--dummy-experts=Q4_0,q8_0"}} {
		name := c[0]
		args := []string{"bench", "model", name, "--dummy", "--contexts", "100", "--batch", "2", "--chunk", "64",
			"--prompts", "150", "--budget", "10ms", "--json"}
		if c[1] != "" {
			args = append(args, c[1])
		}
		out, _ := mustDrive(t, "", args...)
		var r model.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		if r.Model != name || r.Load.Bytes == 0 || len(r.Cells) != 1 || r.Cells[0].Decode == nil ||
			r.Cells[0].Prefill != nil || len(r.Prompts) != 1 || r.Prompts[0].Time.Tokens != 150 {
			t.Errorf("%s", out)
		}
		bytes[name+c[1]] = r.Load.Bytes
	}
	if a, b := bytes["v4-tiny"], bytes["v4-tiny--dummy-experts=Q4_0,q8_0"]; b <= a {
		t.Errorf("experts of 4.5 and 8.5 bits make weights of %d bytes, those of 4.25 bits %d", b, a)
	}
}

// With --max-running, plans are those of a server with that setting.
func TestBenchModelPlansForTheGivenServer(t *testing.T) {
	f := benchModelFlags{memory: "0", attention: "auto", maxRunning: 16}
	if o, err := f.options(); err != nil || o.Policy.Running != 16 {
		t.Errorf("%v: the plan is made for %d sequences, want 16", err, o.Policy.Running)
	}
}
