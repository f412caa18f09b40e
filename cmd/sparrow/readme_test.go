package main

import (
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
