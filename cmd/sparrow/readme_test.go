package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The README's first example: a fact in a log of 4,000 tokens, found through the sparse path, and the trace that
// shows it.
func TestFirstExampleOfTheReadme(t *testing.T) {
	out, trace := mustDrive(t, "", "run", "--trace", "--draft", "1", "--file", "../../examples/station.log",
		"What is the access code of Wanda?")
	if got := strings.TrimSpace(out); got != "The access code of Wanda is 2479." {
		t.Errorf("answer %q", got)
	}
	for _, want := range []string{"256 dense-prefill rows in 1 step: dense-mha",
		"3736 sparse-prefill rows in 8 steps: sparse-mla", "12 verify rows in 6 steps: sparse-mla",
		"6 drafted and 6 accepted"} {
		if !strings.Contains(trace, want) {
			t.Errorf("trace lacks %q:\n%s", want, trace)
		}
	}
	if n := strings.Count(trace, "plan "); n != 3 {
		t.Errorf("trace lists %d choices, want the 3 different ones:\n%s", n, trace)
	}
}

// The README's table states enough memory for each model, without a GPU and for the host of an H200, by the arithmetic
// of inspect.
func TestReadmeSaysWhatAModelNeeds(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## What a model needs")
	for row, name := range map[string]string{
		"GLM-4.7-Flash": "zai-org/GLM-4.7-Flash", "DeepSeek-V4-Flash": "deepseek-ai/DeepSeek-V4-Flash",
		"DeepSeek-V4-Flash-0731,": "DeepSeek-V4-Flash-DSpark", "DeepSeek-V4-Flash-Base": "DeepSeek-V4-Flash-Base",
		"GLM-5.3-Flash": "zai-org/GLM-5.3-Flash", "DeepSeek-V4.1-Flash": "DeepSeek-V4.1-Flash",
		"Kimi-K2-Thinking": "moonshotai/Kimi-K2-Thinking", "DeepSeek-V3,": "deepseek-ai/DeepSeek-R1",
		"DeepSeek-V3.2,": "DeepSeek-V3.2-Exp", "GLM-5-FP8,": "GLM-5-FP8", "DeepSeek-V4-Pro |": "DeepSeek-V4-Pro",
		"DeepSeek-V4-Pro-0813": "DeepSeek-V4-Pro-0813", "Kimi-K2-Instruct,": "Kimi-K2-Instruct",
		"GLM-5, 5.1, 5.2 in BF16": "GLM-5.1",
	} {
		_, rest, ok := strings.Cut(table, "| "+strings.TrimSuffix(row, "|"))
		if strings.HasSuffix(row, "|") { // a name that begins others, too
			_, rest, ok = strings.Cut(table, "| "+row)
			rest = "|" + rest
		}
		cells := strings.Split(strings.SplitN(rest, "\n", 2)[0], "|")
		if !ok || len(cells) < 5 {
			t.Fatalf("no row of %s", row)
		}
		checkCPU(t, row, name, cells[2], cells[3])
		host := cells[4]
		if strings.Contains(host, "none") {
			host = "8 GiB"
		}
		checkStated(t, row, name, "h200", host)
	}
	checkStated(t, "GLM-4.7-Flash", "zai-org/GLM-4.7-Flash", "cpu", "62 GiB") // and less is refused
}

// releasedFolder returns a folder with the config.json of a release.
func releasedFolder(t *testing.T, name string) string {
	t.Helper()
	var r struct {
		Config json.RawMessage `json:"config"`
	}
	text, err := os.ReadFile("../../internal/model/config/testdata/released/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	dir := t.TempDir()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), r.Config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// gibibytes parses the number at the start of a cell, in GiB or TiB.
func gibibytes(t *testing.T, row, cell string) float64 {
	t.Helper()
	number, unit, _ := strings.Cut(strings.TrimSpace(cell), " ")
	gib, err := strconv.ParseFloat(strings.TrimSuffix(number, ","), 64)
	if err != nil {
		t.Fatalf("%s: %v", row, err)
	}
	if strings.HasPrefix(unit, "TiB") {
		gib *= 1024
	}
	return gib
}

// checkStated inspects a model on a machine with the memory in a cell; 5 % less is refused.
func checkStated(t *testing.T, row, model, device, cell string) {
	t.Helper()
	gib := gibibytes(t, row, cell)
	hw := func(share float64) string { return fmt.Sprintf("%s,%.1fG", device, share*gib) }
	if status, _, stderr := invoke("inspect", model, "--hw", hw(1)); status != 0 {
		t.Errorf("%s: the README says %s, inspect: %s", row, cell, stderr)
	}
	if cell == "8 GiB" { // any machine has it
		return
	}
	if status, _, _ := invoke("inspect", model, "--hw", hw(0.95)); status == 0 {
		t.Errorf("%s: the README says %s, and inspect accepts 5 %% less", row, cell)
	}
}

// checkCPU compares the memory of a model on a machine without a GPU, and the weight bytes that a token reads.
func checkCPU(t *testing.T, row, model, memory, reads string) {
	t.Helper()
	var h struct {
		Host []struct {
			Bytes float64 `json:"bytes"`
		} `json:"host"`
		TokenBytes float64 `json:"token_bytes"`
	}
	_, stdout, stderr := invoke("inspect", model, "--hw", "cpu,4T", "--json")
	if err := json.Unmarshal([]byte(stdout), &h); err != nil {
		t.Fatalf("%s: %v, %s", row, err, stderr)
	}
	needed := 0.0
	for _, part := range h.Host {
		needed += part.Bytes / (1 << 30)
	}
	if got := gibibytes(t, row, memory); needed > got || needed < 0.98*got {
		t.Errorf("%s: the README says that it needs %s, inspect %.1f GiB", row, memory, needed)
	}
	if got := h.TokenBytes / (1 << 30); math.Abs(got/gibibytes(t, row, reads)-1) > 0.02 {
		t.Errorf("%s: the README says that a token reads %s, inspect %.1f GiB", row, reads, got)
	}
}

// Every named release has the sizes of its config.json.
func TestNamesOfReleases(t *testing.T) {
	for name, file := range map[string]string{"deepseek-ai/DeepSeek-V4-Flash-Base": "deepseek-v4-flash-base",
		"DeepSeek-V4-Flash-DSpark": "deepseek-v4-flash-dspark", "DeepSeek-R1": "deepseek-r1",
		"DeepSeek-V3.1": "deepseek-v3.1", "DeepSeek-V3.2-Exp": "deepseek-v3.2-exp", "zai-org/GLM-5-FP8": "glm-5-fp8",
		"GLM-5": "glm-5", "GLM-5.2-FP8": "glm-5.2-fp8", "GLM-5.3": "glm-5.3", "GLM-5.3-Flash": "glm-5.3-flash",
		"moonshotai/Kimi-K2-Instruct": "kimi-k2-instruct", "Kimi-K2-Thinking": "kimi-k2.5"} {
		size := func(model string) (s struct {
			Bytes  int64  `json:"total_bytes"`
			Format string `json:"format"`
		}) {
			status, stdout, stderr := invoke("inspect", model, "--json")
			if err := json.Unmarshal([]byte(stdout), &s); err != nil || status != 0 {
				t.Fatalf("%s: %v, %s", model, err, stderr)
			}
			return s
		}
		if got, want := size(name), size(releasedFolder(t, file)); got != want {
			t.Errorf("%s: %+v, its config.json %+v", name, got, want)
		}
	}
	if status, _, stderr := invoke("inspect", "nvidia/DeepSeek-V3.2-NVFP5"); status == 0 ||
		!strings.Contains(stderr, "there is no such folder") {
		t.Errorf("a name that is not known: status %d, %s", status, stderr)
	}
}
