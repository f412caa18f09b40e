package plan

import (
	"slices"
	"testing"
)

// Properties of architectures follow from their names: compute capability, family of binaries and rate of the bus.
func TestPropertiesOfArchitectures(t *testing.T) {
	for _, c := range []struct {
		arch           Arch
		major          int
		bus            int64
		sm100, sm12x   bool
		cuda, graphics bool
	}{
		{CPU, 0, 0, false, false, false, false}, {SM80, 8, 25, false, false, true, false},
		{SM86, 8, 25, false, false, true, false}, {SM89, 8, 25, false, false, true, false},
		{SM90, 9, 54, false, false, true, false}, {SM100, 10, 54, true, false, true, false},
		{SM103, 10, 54, true, false, true, false}, {SM110, 11, 0, false, false, true, false},
		{SM120, 12, 54, false, true, true, false}, {SM121, 12, 0, false, true, true, false},
		{GFX95, 0, 0, false, false, false, true}, {ArchUnset, 0, 0, false, false, false, false},
	} {
		a := c.arch
		if a.Major() != c.major || a.BusRate() != c.bus*gb || a.SM100Family() != c.sm100 || a.SM12x() != c.sm12x ||
			a.CUDA() != c.cuda || a.AMD() != c.graphics {
			t.Errorf("%v: capability %d, bus %d, sm100 %v, sm12x %v, CUDA %v, AMD %v", a, a.Major(), a.BusRate(),
				a.SM100Family(), a.SM12x(), a.CUDA(), a.AMD())
		}
	}
}

// A chain verifies its drafts and the token before them. A requested number of tokens counts only without steps; if it
// differs from that of the steps, a notice says so.
func TestRowsOfAChain(t *testing.T) {
	for _, c := range []struct {
		s       Speculation
		want    int // 0 means an error
		notices int
	}{
		{Speculation{}, 1, 0}, {Speculation{Tokens: 4}, 4, 0}, {Speculation{Steps: 3}, 4, 0},
		{Speculation{Steps: 3, Tokens: 4}, 4, 0}, {Speculation{Steps: 3, Tokens: 5}, 4, 1},
		{Speculation{Steps: 3, Branches: 1}, 4, 0}, {Speculation{Steps: 3, Branches: 2}, 0, 0},
		{Speculation{Steps: -1}, 0, 0}, {Speculation{Branches: -1}, 0, 0}, {Speculation{Tokens: -1}, 0, 0},
	} {
		var notes Notes
		got, err := c.s.Chain(&notes)
		if got != c.want || (err != nil) != (c.want == 0) || len(notes.Notices) != c.notices {
			t.Errorf("%+v: %d rows, notices %v, error %v; want %d", c.s, got, notes.Notices, err, c.want)
		}
	}
}

// A model with one wrong property is refused.
func TestModelsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		family string
		change func(*Model)
	}{
		{"deepseek_v32", func(m *Model) { m.Family = FamilyUnset }},
		{"deepseek_v32", func(m *Model) { m.Family = Family(len(families.words)) }},
		{"deepseek_v32", func(m *Model) { m.Heads = 0 }}, {"deepseek_v32", func(m *Model) { m.K = 0 }},
		{"deepseek_v32", func(m *Model) { m.IndexHeads = 0 }}, {"deepseek_v32", func(m *Model) { m.Layers = 0 }},
		{"deepseek_v32", func(m *Model) { m.Context = 0 }}, {"deepseek_v32", func(m *Model) { m.QKDim = 0 }},
		{"deepseek_v32", func(m *Model) { m.VDim = 0 }}, {"deepseek_v32", func(m *Model) { m.Block = 1 }},
		{"deepseek_v32", func(m *Model) { m.Linear = make([]bool, m.Layers) }},
		{"deepseek_v4", func(m *Model) { m.Window = 0 }}, {"deepseek_v4", func(m *Model) { m.Block = -1 }},
		{"deepseek_v4", func(m *Model) { m.Block, m.NextN = 2, 0 }},
		{"deepseek_v4", func(m *Model) { m.Ratios = make([]int, m.Layers-1) }},
		{"deepseek_v3", func(m *Model) { m.K = 1 }}, {"deepseek_v3", func(m *Model) { m.IndexHeads = 1 }},
		{"glm5_next", func(m *Model) { m.Linear = make([]bool, m.Layers+1) }},
		{"deepseek_v41", func(m *Model) { m.Sharing.Blocks = 0 }},
		{"deepseek_v41", func(m *Model) { m.Sharing.BlockKeys = 0 }},
		{"deepseek_v41", func(m *Model) { m.Sharing.Candidates = m.Layers }},
		{"deepseek_v41", func(m *Model) { m.Sharing.Entries = nil }},
		{"deepseek_v41", func(m *Model) { m.Ratios = slices.Repeat([]int{4}, m.Layers) }},
		{"deepseek_v41", func(m *Model) { m.Sharing.Index = nil }},
	} {
		m, err := ModelFor(c.family)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.check(); err != nil {
			t.Fatalf("%s: %v", c.family, err)
		}
		if c.change(&m); m.check() == nil {
			t.Errorf("%s: a wrong model is accepted: %+v", c.family, m)
		}
	}
}

// A policy with a number that cannot be is refused, and the largest possible number of drafts is accepted.
func TestPoliciesThatCannotBe(t *testing.T) {
	hw, err := HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		family string
		p      Policy
		ok     bool
	}{
		{"deepseek_v32", Policy{}, true}, {"deepseek_v32", Policy{DenseThreshold: -1}, false},
		{"deepseek_v32", Policy{MaxTransient: -1}, false}, {"deepseek_v32", Policy{Running: -1}, false},
		{"deepseek_v32", Policy{SplitKeys: KeySplit(len(keySplits.words))}, false},
		{"deepseek-v4-flash-0731", Policy{Speculation: Speculation{Steps: 5}}, true},
		{"deepseek-v4-flash-0731", Policy{Speculation: Speculation{Steps: 6}}, false},
		{"glm5_next", Policy{Speculation: Speculation{Steps: mostVerified - 1}}, true},
		{"glm5_next", Policy{Speculation: Speculation{Steps: mostVerified}}, false},
	} {
		m, err := ModelFor(c.family)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Resolve(hw, m, c.p); (err == nil) != c.ok {
			t.Errorf("%s, %+v: error %v", c.family, c.p, err)
		}
	}
}
