package verify_test

import (
	"bytes"
	"strings"
	"testing"

	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/verify"
)

// Replay gives the same bits in chunks too, and the report counts the replayed rows.
func TestReplay(t *testing.T) {
	const name = "glm_moe_dsa-1" // layers of this checkpoint share selections
	m := open(t, name, "cpu", kernel.Options{})
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "fp8-656"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := verify.Run(folder(name), m, verify.Options{Config: cfg, Chunk: 61, Replay: true})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	if !r.Passed || !strings.Contains(text.String(), "replayed the choices of 723 rows") {
		t.Errorf("%s", &text)
	}
}
