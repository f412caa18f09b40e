package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Compared holds one result of another engine and of this one, in tokens per second.
type Compared struct {
	Test    string  `json:"test"` // "prefill" or "decode"
	Context int     `json:"context"`
	Theirs  float64 `json:"theirs"`
	Ours    float64 `json:"ours"`
	Ratio   float64 `json:"ratio"`
	Wanted  float64 `json:"wanted,omitempty"` // target of the project: minimum ratio ours / theirs; 0 if there is none
}

// wanted holds the project's targets, the minimum ratio to llama.cpp's tokens per second for the preset v32-mini, by
// test and depth of context.
var wanted = map[string]map[int]float64{
	"prefill": {0: 3, 2048: 10, 4096: 15, 8192: 30},
	"decode":  {0: 1.5, 2048: 2.5, 4096: 3.5, 8192: 5},
}

// wantedQuantised holds the targets for GGUF files with quantised weights, by test and depth of context.
var wantedQuantised = map[string]map[int]float64{
	"prefill": {0: 8, 4096: 18},
	"decode":  {0: 1.5, 4096: 3, 8192: 5},
}

// llamaTest holds the fields that are read from one result of llama-bench, printed with -o jsonl.
type llamaTest struct {
	Prompt   int     `json:"n_prompt"`
	Generate int     `json:"n_gen"`
	Depth    int     `json:"n_depth"`
	Rate     float64 `json:"avg_ts"`
	Type     string  `json:"model_type"` // such as "deepseek32 ?B Q4_K - Medium"
}

// wanted returns the target of a test, or 0 if it has no target.
func (t *llamaTest) wanted(c *Compared) float64 {
	if strings.Contains(t.Type, " Q") {
		return wantedQuantised[c.Test][c.Context]
	}
	return wanted[c.Test][c.Context]
}

// Against adds to the report a comparison with results of llama-bench, a sequence of JSON objects. A test at a depth
// that the report does not contain is an error, so that no test is omitted.
func (r *Report) Against(results io.Reader) error {
	d := json.NewDecoder(results)
	for {
		var t llamaTest
		if err := d.Decode(&t); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("bench: results of llama-bench: %w", err)
		}
		c := Compared{Test: "prefill", Context: t.Depth, Theirs: t.Rate}
		if t.Generate > 0 {
			c.Test = "decode"
		}
		if t.Prompt > 0 && t.Generate > 0 || t.Prompt+t.Generate == 0 || !(t.Rate > 0) {
			return fmt.Errorf("bench: results of llama-bench: a test has %d prompt and %d generated tokens at %v "+
				"tokens/s; run it with -p and -n, not -pg", t.Prompt, t.Generate, t.Rate)
		}
		cell := r.cell(t.Depth, 1)
		if cell == nil {
			return fmt.Errorf("bench: results of llama-bench are at depth %d, which was not measured here with "+
				"batch 1; give the same contexts", t.Depth)
		}
		// llama-bench reports means, so the median of all steps is compared with them, not the best step.
		ours := cell.Prefill
		if c.Test == "decode" {
			ours = cell.Decode
		}
		if ours == nil {
			return fmt.Errorf("bench: results of llama-bench have a %s test at depth %d, which was not measured here: "+
				"with --prompts, the default on a GPU, no prefill chunks are measured; leave this test out", c.Test,
				t.Depth)
		}
		c.Ours = ours.middleRate()
		c.Ratio, c.Wanted = c.Ours/c.Theirs, t.wanted(&c)
		r.Peer = append(r.Peer, c)
	}
	if len(r.Peer) == 0 {
		return errors.New("bench: no results of llama-bench; run it with -o jsonl")
	}
	for _, c := range r.Peer {
		if c.Wanted > 0 {
			r.Targets = append(r.Targets,
				Verdict{What: fmt.Sprintf("%s at context %d against llama.cpp", c.Test, c.Context),
					Wanted: fmt.Sprintf("%g x", c.Wanted),
					Got:    fmt.Sprintf("%.1f x (%.1f against %.1f tokens/s)", c.Ratio, c.Ours, c.Theirs),
					Met:    c.Ratio >= c.Wanted})
		}
	}
	return nil
}
