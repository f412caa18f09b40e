package plan

import (
	"errors"
	"strings"
	"testing"
)

// Float32 cache entries of V4 exist for exact tests: they are accepted only on a CPU with the sparrow catalogue, and
// both phases read them in place.
func TestV4ExactEntries(t *testing.T) {
	hw, err := HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	m, err := ModelFor("deepseek_v4")
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range []string{"f32", "exact", "v4-f32-2048"} {
		c, _, err := Resolve(hw, m, Policy{KV: kv})
		if err != nil {
			t.Fatal(err)
		}
		if c.Layout != V4F32Row2048 || c.IndexLayout != IndexF32Row512 || c.Prefill != V4Paged || c.Decode != V4Paged ||
			c.Page != 256 || c.KV != F32 {
			t.Errorf("kv %s resolves to %v and %v, prefill %v, decode %v, pages of %d", kv, c.Layout, c.IndexLayout,
				c.Prefill, c.Decode, c.Page)
		}
	}
	c, _, err := Resolve(hw, m, Policy{ExactIndex: true})
	if err != nil || c.Layout != V4Row584 || c.IndexLayout != IndexF32Row512 {
		t.Errorf("exact keys beside 584-byte entries: %v, %v, %v", c.Layout, c.IndexLayout, err)
	}
	// A prefill that copies entries to a bf16 workspace is refused, because the copy would round them.
	if _, _, err := Resolve(hw, m, Policy{KV: "f32", Prefill: "v4-flat"}); !errors.Is(err, E03) {
		t.Errorf("exact entries through a workspace: got %v, want E03", err)
	}
	gpu, err := HardwareFor("sm90")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		hw Hardware
		p  Policy
	}{{gpu, Policy{KV: "f32"}}, {gpu, Policy{ExactIndex: true}}, {hw, Policy{KV: "bf16"}}, {hw,
		Policy{KV: "f32-2304"}}} {
		if _, _, err := Resolve(c.hw, m, c.p); !errors.Is(err, E05) {
			t.Errorf("%+v: got %v, want E05", c.p, err)
		}
	}
}

// Four-bit indexer keys are accepted for V4 on a CPU with 584-byte entries. Every other combination is refused, and the
// error names the alternatives.
func TestFP4Index(t *testing.T) {
	hw, err := HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := HardwareFor("sm90")
	if err != nil {
		t.Fatal(err)
	}
	m, err := ModelFor("deepseek_v4")
	if err != nil {
		t.Fatal(err)
	}
	old, err := ModelFor("deepseek_v32")
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := Resolve(hw, m, Policy{FP4Index: true})
	if err != nil || c.IndexLayout != IndexPage68 || c.Layout != V4Row584 || c.IndexLayout.BytesPerToken() != 68 {
		t.Errorf("resolves to %v beside %v, %v", c.IndexLayout, c.Layout, err)
	}
	for _, c := range []struct {
		hw Hardware
		m  Model
		p  Policy
	}{{gpu, m, Policy{}}, {hw, old, Policy{}}, {hw, m, Policy{KV: "f32"}}, {hw, m, Policy{ExactIndex: true}}} {
		c.p.FP4Index = true
		if _, _, err := Resolve(c.hw, c.m, c.p); !errors.Is(err, E05) {
			t.Errorf("%v of %v on %v: got %v, want E05", c.p, c.m.Family, c.hw.Arch, err)
		}
	}
}

// If the user gives no KV type, the reason states that the type is the default of the hardware, or the only type of
// DeepSeek-V4.
func TestTheReasonOfADefaultType(t *testing.T) {
	for family, want := range map[Family]string{DeepSeekV32: "kv type bf16 is the default of sm90",
		DeepSeekV4: "kv type bf16 is the type of " + DeepSeekV4.String()} {
		var n Notes
		if n.DefaultKV(BF16, &Hardware{Arch: SM90}, &Model{Family: family}); n.Reasons[0].Text != want {
			t.Errorf("%v: %q, want %q", family, n.Reasons[0].Text, want)
		}
	}
}

// If a rank has too many heads, the suggested number of ranks is rounded up.
func TestTooManyHeadsNameASize(t *testing.T) {
	for heads, want := range map[int]string{129: "size 2 times", 256: "size 2 times", 257: "size 3 times"} {
		if got := TooManyHeads(heads, 128); !strings.Contains(got, want) {
			t.Errorf("%d heads: %q, want %q", heads, got, want)
		}
	}
}
