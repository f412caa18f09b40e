package main

import (
	"encoding/json"
	"fmt"
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
		"GLM-4.7-Flash": "glm-4.7-flash", "DeepSeek-V4-Flash": "deepseek-v4-flash",
		"DeepSeek-V4-Flash-0731 and": "deepseek-v4-flash-0731", "DeepSeek-V4-Flash-Base": "=deepseek-v4-flash-base",
		"GLM-5.3-Flash": "=glm-5.3-flash", "DeepSeek-V4.1-Flash": "deepseek-v4.1-flash", "DeepSeek-V3,": "deepseek-v3",
		"DeepSeek-V3.2,": "deepseek-v3.2", "GLM-5, 5.1, 5.2 in FP8": "=glm-5-fp8",
		"DeepSeek-V4-Pro,": "deepseek-v4-pro",
		"Kimi-K2,":         "kimi-k2", "GLM-5, 5.1, 5.2 in BF16": "=glm-5",
	} {
		_, rest, ok := strings.Cut(table, "| "+row)
		cells := strings.Split(strings.SplitN(rest, "\n", 2)[0], "|")
		if !ok || len(cells) < 4 {
			t.Fatalf("no row of %s", row)
		}
		if released, ok := strings.CutPrefix(name, "="); ok {
			name = releasedFolder(t, released)
		}
		checkStated(t, row, name, "cpu", cells[2])
		switch {
		case strings.Contains(cells[3], "refused"):
		case strings.Contains(cells[3], "none"):
			checkStated(t, row, name, "h200", "8 GiB")
		default:
			checkStated(t, row, name, "h200", cells[3])
		}
	}
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

// checkStated inspects a model on a machine with the memory that is the first number of a cell, in GiB or TiB. Without
// a GPU 2 % less is refused.
func checkStated(t *testing.T, row, model, device, cell string) {
	t.Helper()
	number, unit, _ := strings.Cut(strings.TrimSpace(cell), " ")
	gib, err := strconv.ParseFloat(strings.TrimSuffix(number, ","), 64)
	if err != nil {
		t.Fatalf("%s: %v", row, err)
	}
	if strings.HasPrefix(unit, "TiB") {
		gib *= 1024
	}
	hw := func(share float64) string { return fmt.Sprintf("%s,%.1fG", device, share*gib) }
	if status, _, stderr := invoke("inspect", model, "--hw", hw(1)); status != 0 {
		t.Errorf("%s: the README says %s, inspect: %s", row, cell, stderr)
	}
	if device != "cpu" {
		return
	}
	if status, _, _ := invoke("inspect", model, "--hw", hw(0.98)); status == 0 {
		t.Errorf("%s: the README says %s, and inspect accepts 2 %% less", row, cell)
	}
}
