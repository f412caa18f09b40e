package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sparrow/internal/model/estimate"
	"sparrow/internal/model/family"
	"sparrow/internal/model/inspect"
	"sparrow/internal/testkit/testflag"
)

// The README's first example works: the model finds a fact in a log of 4,000 tokens through the sparse path, and the
// trace shows the path. Only make long reads the whole log.
func TestFirstExampleOfTheReadme(t *testing.T) {
	file, sparse := "../../examples/station.log", "3736 sparse-prefill rows in 8 steps: sparse-mla"
	if !*testflag.Long {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(text), "\n")
		file, sparse = filepath.Join(t.TempDir(), "part.log"), "736 sparse-prefill rows in 2 steps: sparse-mla"
		if err := os.WriteFile(file, []byte(strings.Join(lines[35:75], "")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, trace := mustDrive(t, "", "run", "--trace", "--draft", "1", "--workers", "1", "--file", file,
		"What is the access code of Wanda?")
	if got := strings.TrimSpace(out); got != "The access code of Wanda is 2479." {
		t.Errorf("answer %q", got)
	}
	for _, want := range []string{"256 dense-prefill rows in 1 step: dense-mha",
		sparse, "12 verify rows in 6 steps: sparse-mla",
		"6 drafted and 6 accepted"} {
		if !strings.Contains(trace, want) {
			t.Errorf("trace lacks %q:\n%s", want, trace)
		}
	}
	if n := strings.Count(trace, "plan "); n != 3 {
		t.Errorf("trace lists %d choices, want the 3 different ones:\n%s", n, trace)
	}
}

// For each model the README's table states enough memory, without a GPU and for the host of an H200, as inspect
// computes it.
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
		if strings.HasSuffix(row, "|") { // the name is a prefix of other names
			_, rest, ok = strings.Cut(table, "| "+row)
			rest = "|" + rest
		}
		cells := strings.Split(strings.SplitN(rest, "\n", 2)[0], "|")
		if !ok || len(cells) < 5 {
			t.Fatalf("no row of %s", row)
		}
		t.Run(name, func(t *testing.T) { // at its end the model is closed, so that few are in memory at once
			m := listedModel(t, name)
			m.checkCPU(t, row, cells[2], cells[3])
			m.checkH200(t, row, cells[4])
			if row == "GLM-4.7-Flash" {
				m.checkStated(t, row, "cpu", "62 GiB") // less memory is refused
			}
		})
	}
}

// listed is a model whose tensors were listed once and are inspected for several machines, because listing takes most
// of the time.
type listed struct {
	name    string
	src     *family.Source
	summary *inspect.Summary
}

func listedModel(t *testing.T, name string) *listed {
	t.Helper()
	src, shape, assumed, err := inspected(name)
	if err != nil || !shape {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() { src.Close() })
	m := &listed{name, src, inspect.Of(src, nil)}
	m.summary.NoWeights, m.summary.Assumed = true, assumed
	return m
}

// on returns what inspect prints for the given --hw.
func (m *listed) on(hw string) (printable, error) {
	f := inspectFlags{hw: hw, gpuMemory: "0"}
	return f.fit(m.name, m.summary, m.src, nil)
}

// gibibytes returns the number at the start of a cell in GiB; the cell may be in GiB or TiB.
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

// checkStated checks that inspect accepts the model on a machine with the memory in a cell, and refuses it with 5 %
// less.
func (m *listed) checkStated(t *testing.T, row, device, cell string) {
	t.Helper()
	gib := gibibytes(t, row, cell)
	hw := func(share float64) string { return fmt.Sprintf("%s,%.1fG", device, share*gib) }
	if _, err := m.on(hw(1)); err != nil {
		t.Errorf("%s: the README says %s, inspect: %v", row, cell, err)
	}
	if _, err := m.on(hw(0.95)); err == nil {
		t.Errorf("%s: the README says %s, and inspect accepts 5 %% less", row, cell)
	}
}

// checkH200 compares the last cell, the least memory of an H200's host and the speed of one sequence with this memory,
// with the answer of inspect.
func (m *listed) checkH200(t *testing.T, row, cell string) {
	t.Helper()
	host, said, _ := strings.Cut(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(cell), "|")), "; ")
	gib := 8.0 // any machine has 8 GiB
	none := strings.HasPrefix(host, "none")
	if !none {
		gib = gibibytes(t, row, host)
		m.checkStated(t, row, "h200", host)
	}
	out, err := m.on(fmt.Sprintf("h200,%gG", gib))
	if err != nil {
		t.Errorf("%s: the README says %s, inspect: %v", row, host, err)
		return
	}
	f := out.(*estimate.Fit)
	if least := math.Ceil(float64(f.Least.Host) / (1 << 30)); none != (f.Experts.Resident == f.Experts.Experts) ||
		!none && least != gib {
		t.Errorf("%s: the README says %q, inspect that the host needs %g GiB and that the GPU holds %d of %d experts",
			row, host, least, f.Experts.Resident, f.Experts.Experts)
	}
	if f.Untimed != "" {
		if !strings.Contains(said, "speed not estimated") {
			t.Errorf("%s: the README says %q, inspect: %s", row, said, f.Untimed)
		}
		return
	}
	checkSpeed(t, row, said, f)
}

// checkSpeed compares "about N tokens/s" with the speed of one sequence in an answer.
func checkSpeed(t *testing.T, row, said string, f *estimate.Fit) {
	t.Helper()
	var tokens float64
	if n, err := fmt.Sscanf(said, "about %g token", &tokens); n != 1 || len(f.Speeds) == 0 ||
		math.Abs(f.Speeds[0].Tokens-tokens) > max(0.5, 0.02*tokens) {
		t.Errorf("%s: the README says %q (%v), inspect %+v tokens/s", row, said, err, f.Speeds)
	}
}

// The README's speeds with more memory than the least are those that inspect prints.
func TestReadmeSaysWhatMoreMemoryGives(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(text)), " ")
	const form = `Kimi-K2-Thinking decodes (\d+) instead of (\d+) tokens/s with (\d+) GiB`
	found := regexp.MustCompile(form).FindStringSubmatch(words)
	if found == nil {
		t.Fatalf("no text of the form %s", form)
	}
	m := listedModel(t, "moonshotai/Kimi-K2-Thinking")
	enough, err := m.on("h200," + found[3] + "G")
	if err != nil {
		t.Fatal(err)
	}
	f := enough.(*estimate.Fit)
	checkSpeed(t, m.name, "about "+found[1]+" tokens/s", f)
	least, err := m.on(fmt.Sprintf("h200,%.0fG", math.Ceil(float64(f.Least.Host)/(1<<30))))
	if err != nil {
		t.Fatal(err)
	}
	checkSpeed(t, m.name, "about "+found[2]+" tokens/s", least.(*estimate.Fit))
}

// checkCPU compares the memory that the model needs without a GPU, and the weight bytes that a token reads, with two
// cells.
func (m *listed) checkCPU(t *testing.T, row, memory, reads string) {
	t.Helper()
	var h struct {
		Host []struct {
			Bytes float64 `json:"bytes"`
		} `json:"host"`
		TokenBytes float64 `json:"token_bytes"`
	}
	out, err := m.on("cpu,4T")
	var text bytes.Buffer
	if err == nil {
		err = writeJSON(&text, out)
	}
	if err == nil {
		err = json.Unmarshal(text.Bytes(), &h)
	}
	if err != nil {
		t.Fatalf("%s: %v", row, err)
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
