package main

import (
	"strings"
	"testing"
)

func TestDraftFlag(t *testing.T) {
	const tiny = "../../testdata/oracle/deepseek_v32-1"
	for _, c := range []struct {
		name string
		args []string
		out  []string // parts of the output if the command succeeds
		err  []string // parts of the error if the command fails
	}{
		{"a number that is too large", []string{"run", "--draft", "8", "Goodbye"}, nil,
			[]string{"--draft", "1 to 7", "DSpark head at most its block, which is 5"}},
		{"a word that is none", []string{"serve", "--draft", "often"}, nil, []string{"--draft", "often", "auto, off"}},
		{"a checkpoint without the layer", []string{"run", "--model", tiny, "--draft", "2", "--raw", "x"}, nil,
			[]string{"E15", "model.layers.3.eh_proj.weight", "model.layers.3.enorm.weight"}},
		{"explain a chain", []string{"explain", "--family", "deepseek_v32", "--draft", "3", "--batch",
			"verify:4:100,5000"}, []string{"up to 3 drafts by layer 61 are verified as up to 4 rows",
			"paged-native, 4 rows per request at once"}, nil},
		{"explain a chain of another length", []string{"explain", "--family", "deepseek_v32", "--hw", "sm90", "--draft",
			"4", "--batch", "verify:5:5000"}, []string{"verified as up to 5 rows", "paged-split",
			"5 rows do not fill groups of [2 3 4], which would be scored at once"}, nil},
		{"explain drafts", []string{"explain", "--family", "glm-5.2", "--draft", "auto", "--batch", "draft:2:3000",
			"--layer", "78"}, []string{"up to 7 drafts by layer 78", "draft rows are always scored one by one",
			"in layer 78"}, nil},
		{"explain a model without the layer", []string{"explain", "--model", tiny, "--draft", "2"}, nil, []string{"E15",
			"model.layers.3"}},
		{"explain both ways to say it", []string{"explain", "--family", "deepseek_v32", "--draft", "2",
			"--draft-tokens", "4"}, nil, []string{"--draft 2", "--draft-tokens 4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, _, err := drive("", c.args...)
			if (err == nil) != (c.err == nil) {
				t.Fatalf("error %v\n%s", err, out)
			}
			for _, want := range c.out {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			for _, want := range c.err {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %v", want, err)
				}
			}
		})
	}
}

// An answer is the same with and without drafts, and the output of the comparison states that.
func TestDraftsChangeNoAnswer(t *testing.T) {
	out, _ := mustDrive(t, "", "eval", "--compare", "draft=off,draft=4", "--tasks", "word2,talk", "--limit", "3")
	for _, want := range []string{"drafts: off", "drafts: 4", "draft 1 accepted:", "tokens per verification"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "items with different outputs") {
		t.Errorf("drafts changed an answer:\n%s", out)
	}
}
