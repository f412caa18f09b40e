package plan

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestStartRefusals checks the refusals of Resolve that the numbered cases of the dispatch spec do not cover.
func TestStartRefusals(t *testing.T) {
	ours := func(hw string, tweaks ...tweak) *setup { return newSetup(t, hw, tweaks...) }
	p := wish
	v4 := family(t, "deepseek_v4")
	for _, c := range []struct {
		name string
		s    *setup
		code Code
	}{
		{"our hopper kernels with an odd index_topk", ours("sm90", func(s *setup) { s.model.K = 100 }), E07},
		{"130 heads on hopper", ours("sm90", heads(130)), E08},
		{"65 index heads on hopper", ours("sm90", func(s *setup) { s.model.IndexHeads = 65 }), E08},
		{"tree drafts in our catalogue",
			ours("cpu", p(func(p *Policy) { p.Speculation = Speculation{Steps: 2, Branches: 2} })), E11},
		{"deterministic with two arithmetics",
			ours("sm90", kv("fp8"), kernelsOf("sparse-flat", "sparse-block"),
				p(func(p *Policy) { p.Deterministic = true })), E13},
		{"deterministic v4 with a flat prefill",
			ours("sm90", v4, kernelsOf("v4-flat", ""), p(func(p *Policy) { p.Deterministic = true })), E13},
		{"a reserve below one row", ours("sm90", p(func(p *Policy) { p.MaxTransient = 100000 })), E17},
		{"bf16 for v4", ours("cpu", v4, kv("bf16")), E05},
		{"a dsa layout for v4", ours("cpu", v4, kv("fp8-656")), E05},
		{"a dsa kernel for v4", ours("cpu", v4, kernelsOf("sparse-block", "")), E02},
		{"a flat prefill with the sparse prefill off", ours("cpu", v4, kernelsOf("v4-flat", ""),
			p(func(p *Policy) { p.V4SparsePrefill = SparsePrefillOff })), E02},
		{"hardware without an architecture", &setup{model: model(t, "deepseek_v32", 16)}, E01},
	} {
		t.Run(c.name, func(t *testing.T) { c.s.refused(t, c.code) })
	}
	t.Run("E02 of the reference names the flag that takes plain kernels", func(t *testing.T) {
		for _, sides := range [][2]string{{"reference", ""}, {"", "Reference"}} {
			e := ours("sm90", kernelsOf(sides[0], sides[1])).refused(t, E02)
			if e.Try != "--kernels ref" || strings.Contains(e.Supported, "reference") {
				t.Errorf("%v: %v", sides, e)
			}
		}
	})
	t.Run("a policy has only what the server sets", func(t *testing.T) {
		if n := reflect.TypeFor[Policy]().NumField(); n > 15 {
			t.Errorf("%d fields, want at most 15: wishes about other engines belong to public.Policy", n)
		}
	})
	t.Run("E17 states the fraction that would work", func(t *testing.T) {
		e := ours("sm90", p(func(p *Policy) { p.MaxTransient = 1000 })).refused(t, E17)
		if !strings.Contains(e.Supported, "static fraction of at most 0.9") {
			t.Errorf("supported %q", e.Supported)
		}
	})
	for _, c := range []struct {
		name string
		s    *setup
	}{
		{"hopper without multiprocessors", ours("sm90", func(s *setup) { s.hw.SMs = 0 })},
		{"a missing kernel that does not exist", ours("cpu", func(s *setup) { s.hw.Missing = []Kernel{200} })},
		{"negative threshold", ours("cpu", p(func(p *Policy) { p.DenseThreshold = -1 }))},
		{"negative drafts", ours("cpu", drafts(-1))},
		{"no family", ours("cpu", func(s *setup) { s.model.Family = FamilyUnset })},
		{"no heads", ours("cpu", heads(0))},
		{"no index_topk", ours("cpu", func(s *setup) { s.model.K = 0 })},
		{"no index heads", ours("cpu", func(s *setup) { s.model.IndexHeads = 0 })},
		{"no layers", ours("cpu", func(s *setup) { s.model.Layers = 0 })},
		{"no context", ours("cpu", func(s *setup) { s.model.Context = 0 })},
		{"no head widths", ours("cpu", func(s *setup) { s.model.VDim = 0 })},
		{"no window", ours("cpu", v4, func(s *setup) { s.model.Window = 0 })},
		{"too few ratios", ours("cpu", v4, func(s *setup) { s.model.Ratios = s.model.Ratios[:3] })},
		{"a shared first layer", ours("cpu", func(s *setup) { s.model.Share.Pattern = "SF" })},
	} {
		t.Run("bad input: "+c.name, func(t *testing.T) {
			if _, _, err := Resolve(c.s.hw, c.s.model, c.s.policy); err == nil {
				t.Error("no error")
			}
		})
	}
}

// TestBatchRefusals checks that inconsistent batches, and batches that contradict their plan, are refused.
func TestBatchRefusals(t *testing.T) {
	ours := newSetup(t, "sm90", kv("fp8")).resolve(t)
	padded := func(n int, b Batch) Batch { b.PaddedRows = n; return b }
	table := func(n int, b Batch) Batch { b.TablePages = n; return b }
	for _, c := range []struct {
		name string
		cfg  Config
		b    Batch
		code Code
	}{
		{"no mode", ours, NewBatch(ModeUnset, DecodeRequest(5)), E20},
		{"an unknown mode", ours, NewBatch(99, DecodeRequest(5)), E20},
		{"an unknown graph mode", ours, inGraph(9, decode(5)), E20},
		{"a mixed batch without kinds", ours, NewBatch(ModeMixed, Request{Seq: 5}), E20},
		{"an idle request in a mixed batch", ours, NewBatch(ModeMixed, Request{Kind: ModeIdle}), E20},
		{"a decode request in an extend batch", ours, NewBatch(ModeExtend, DecodeRequest(5)), E20},
		{"requests in an idle batch", ours, NewBatch(ModeIdle, DecodeRequest(5)), E26},
		{"an empty decode", ours, NewBatch(ModeDecode), E26},
		{"lengths that do not add up", ours, NewBatch(ModeExtend, Request{Seq: 10, Prefix: 3, Extend: 6}), E26},
		{"an extend of nothing", ours, NewBatch(ModeExtend, ExtendRequest(0, 7)), E26},
		{"a negative length", ours, decode(-1), E26},
		{"a negative prefix", ours, NewBatch(ModeExtend, Request{Seq: 2, Prefix: -1, Extend: 3}), E26},
		{"a decode with a prefix", ours, NewBatch(ModeDecode, Request{Seq: 5, Prefix: 4}), E26},
		{"padding that has keys", ours, NewBatch(ModeDecode, Request{Seq: 5, Padding: true}), E26},
		{"a prompt as padding", ours, NewBatch(ModeExtend, Request{Padding: true}), E26},
		{"a decode of two tokens", ours, NewBatch(ModeDecode, Request{Seq: 5, N: 2}), E26},
		{"keys beyond int32", ours, Batch{Mode: ModeDecode, Requests: repeat(3, DecodeRequest(1<<30))}, E26},
		{"less padding than rows", ours, padded(1, decode(5, 6)), E26},
		{"padding that cuts a request", ours, padded(5, NewBatch(ModeVerify, VerifyRequest(2, 5), VerifyRequest(2, 5))),
			E26},
		{"padding of a mixed batch", ours, padded(64, NewBatch(ModeMixed, DecodeRequest(5), VerifyRequest(2, 9))), E26},
		{"padding of a prompt in our catalogue", ours, padded(64, extend(5)), E26},
		{"a table too narrow", ours, table(1, decode(65)), E26},
		{"negative free bytes", ours, Batch{Mode: ModeDecode, Requests: repeat(1, DecodeRequest(1)), FreeBytes: -1},
			E26},
		{"a captured prompt", ours, inGraph(GraphCapture, extend(5)), E25},
		{"a piecewise prompt in our catalogue", ours, inGraph(GraphPiecewise, extend(5)), E25},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Build(c.cfg, c.b)
			wantError(t, err, c.code)
			if p != nil {
				t.Error("a plan came with the error")
			}
			if _, other := ShapeOf(c.cfg, c.b); other != nil && other.Error() != err.Error() ||
				other == nil && c.b.PaddedRows == 0 { // whether padding fits is checked by segment
				t.Errorf("its shape is refused with %v, its plan with %v", other, err)
			}
		})
	}
}

// A range of rows lies within a pass if all of its rows do; a range of no rows always does.
func TestRangesLieWithinTheRows(t *testing.T) {
	for first := -2; first <= 5; first++ {
		for n := -2; n <= 5; n++ {
			for rows := range 5 {
				want := n >= 0
				for row := first; row < first+n; row++ {
					want = want && row >= 0 && row < rows
				}
				if got := within(first, n, rows); got != want {
					t.Errorf("%d rows from %d on are within %d rows: %v, want %v", n, first, rows, got, want)
				}
			}
		}
	}
}

// Captured graphs exist on GPUs only, for batches of decode, verify or draft rows; piecewise graphs exist in the public
// catalogue only. A refusal names the requested and the supported value, and its suggestion works.
func TestGraphsNeedADevice(t *testing.T) {
	configs := map[string]Config{}
	for _, hw := range HardwareNames() {
		if hw != "gfx95" {
			configs[hw] = newSetup(t, hw, drafts(2)).resolve(t)
		}
	}
	portable := newSetup(t, "sm90", drafts(2))
	portable.hw.Portable = true
	configs["sm90 with portable kernels"] = portable.resolve(t)
	batches := map[string]Batch{"extend": extend(100), "decode": decode(5, 4000), "verify": verify(5, 9000),
		"draft": draft(50), "idle": {Mode: ModeIdle}, "split-prefill": NewBatch(ModeSplitPrefill, ExtendRequest(70, 0)),
		"mixed": NewBatch(ModeMixed, ExtendRequest(5, 0), DecodeRequest(6))}
	for name, cfg := range configs {
		for mode, b := range batches {
			for _, g := range []GraphMode{GraphNone, GraphCapture, GraphReplay, GraphPiecewise} {
				what := fmt.Sprintf("%s on %s in graph mode %s", mode, name, g)
				p, err := Build(cfg, inGraph(g, b))
				fits := g == GraphNone || g != GraphPiecewise && cfg.Hardware.Arch != CPU &&
					(b.Mode.DecodeLike() || b.Mode == ModeIdle)
				if fits {
					if err != nil || p.Graph != g {
						t.Errorf("%s: %v", what, err)
					}
					continue
				}
				e := wantError(t, err, E25)
				if p != nil || !strings.Contains(e.Asked, mode) {
					t.Errorf("%s: plan %v, asked for %q", what, p, e.Asked)
				}
				asked, supported, try := "captured graph", "captured graphs of decode, verify and draft", "eager batch"
				switch {
				case cfg.Hardware.Arch == CPU:
					asked, supported, try = fmt.Sprintf("graph mode %s on cpu, which has no graphs", g),
						"eager batches on cpu", "--graph none"
				case g == GraphPiecewise:
					asked, supported, try = "piecewise graph", "eager prompts", "--graph none"
				}
				if !strings.Contains(e.Asked, asked) || !strings.Contains(e.Supported, supported) ||
					!strings.Contains(e.Try, try) {
					t.Errorf("%s: %v", what, e)
				}
			}
		}
	}
	if len(configs) != 11 {
		t.Errorf("%d configurations: %v", len(configs), slices.Sorted(maps.Keys(configs)))
	}
}

// TestRunRefusals checks that the refusals which other packages raise contain their code and their numbers.
func TestRunRefusals(t *testing.T) {
	for _, c := range []struct {
		err   *Error
		code  Code
		texts []string
	}{
		{ErrDraftHeadMissing("tiny", 61, "model.layers.61.eh_proj.weight"), E15, []string{"tiny", "61",
			"model.layers.61.eh_proj.weight"}},
		{ErrTableRange(3, 70, 64), E22, []string{"request 3", "page 70", "63"}},
		{ErrCarryMissing(3, 2), E23, []string{"layer 3", "layer 2"}},
		{ErrLength("tables", 3, 4), E26, []string{"tables", "3", "4"}},
		{ErrLayout("fp8-576 rows", "fp8-656 rows"), E27, []string{"fp8-576", "fp8-656"}},
		{ErrKernelStatus(ModeDecode, 12), E28, []string{"decode", "12"}},
	} {
		t.Run(string(c.code), func(t *testing.T) {
			if !errors.Is(c.err, c.code) || errors.Is(c.err, E01) {
				t.Errorf("%v is not %s alone", c.err, c.code)
			}
			for _, w := range append(c.texts, string(c.code), c.code.Title()) {
				if !strings.Contains(c.err.Error(), w) {
					t.Errorf("%q lacks %q", c.err.Error(), w)
				}
			}
		})
	}
	for code, title := range codeTitles {
		if title == "" || code.Error() == "" || !strings.HasPrefix(code.Error(), string(code)) {
			t.Errorf("code %s is worded %q", code, code.Error())
		}
	}
}

func TestLayerSharing(t *testing.T) {
	t.Run("glm-5.2 computes on 21 of 78 layers", func(t *testing.T) {
		m := model(t, "glm-5.2", 16)
		var full []int
		for l := range m.Layers {
			if !m.Share.Shared(l) {
				full = append(full, l)
			}
		}
		want(t, "computing layers", len(full), 21)
		wantInts(t, "first and last", []int{full[0], full[1], full[2], full[3], full[20]}, []int{0, 1, 2, 6, 74})
	})
	for _, c := range []struct {
		name  string
		share LayerShare
		want  string // the indexer kinds of layers 0 to 7
	}{
		{"none", LayerShare{}, "FFFFFFFF"},
		{"a factor wins over everything", LayerShare{Factor: 2, Pattern: "FFFF", Freq: 4}, "FSFSFSFS"},
		{"types win over a pattern", LayerShare{Types: []bool{false, true}, Pattern: "FFS"}, "FSFFFFFF"},
		{"a pattern may be shorter than the model", LayerShare{Pattern: "FSS"}, "FSSFFFFF"},
		{"a frequency with an offset", LayerShare{Freq: 4, Offset: 3}, "FFFSSSFS"},
		{"a frequency alone", LayerShare{Freq: 2}, "FFSFSFSF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := []byte("FFFFFFFF")
			for l := range got {
				if c.share.Shared(l) {
					got[l] = 'S'
				}
			}
			want(t, "layers", string(got), c.want)
		})
	}
	t.Run("dense rows of a shared layer need no carry", func(t *testing.T) {
		cfg := newSetup(t, "cpu", family(t, "glm-5.2")).resolve(t)
		s := only(t, build(t, cfg, extend(10)))
		ix, err := cfg.IndexerAt(s, 3, false)
		if err != nil || ix.Kind != IndexerNone {
			t.Errorf("%v, %v", ix, err)
		}
		if ix, _ := cfg.IndexerAt(s, 2, false); ix.Kind != IndexerKOnly {
			t.Errorf("layer 2: %v", ix)
		}
	})
	t.Run("the draft layer owns its indexer", func(t *testing.T) {
		cfg := newSetup(t, "cpu", family(t, "glm-5.2")).resolve(t)
		s := only(t, build(t, cfg, NewBatch(ModeDraft, DraftRequest(2, 90))))
		if ix, err := cfg.IndexerAt(s, 78, false); err != nil || ix.Kind != IndexerPagedSplit {
			t.Errorf("%v, %v", ix, err)
		}
	})
	t.Run("layers of linear attention and v4's drafting layers have no indexer", func(t *testing.T) {
		for name, layers := range map[string]map[int]IndexerKind{
			"glm5_next": {0: IndexerNone, 2: IndexerNone, 3: IndexerPagedSplit, 44: IndexerNone,
				45: IndexerPagedSplit},
			"deepseek_v4":   {42: IndexerPagedSplit, 43: IndexerNone},
			"v4-flash-0731": {43: IndexerNone, 45: IndexerNone},
			"deepseek_v41": {1: IndexerNone, 2: IndexerPagedSplit, 3: IndexerCarry, 39: IndexerCarry,
				40: IndexerNone},
			"deepseek_v3":          {0: IndexerNone, 60: IndexerNone, 61: IndexerNone},
			"deepseek_v32":         {0: IndexerPagedSplit, 61: IndexerPagedSplit},
			"deepseek_v4-pro-0813": {0: IndexerNone, 2: IndexerPagedSplit, 61: IndexerNone},
		} {
			for _, hw := range []string{"cpu", "sm90"} {
				cfg := newSetup(t, hw, family(t, name)).resolve(t)
				s := only(t, build(t, cfg, decode(9000)))
				for layer, kind := range layers {
					if ix, err := cfg.IndexerAt(s, layer, true); err != nil || ix.Kind != kind {
						t.Errorf("layer %d of %s on %s: %v, %v; want %v", layer, name, hw, ix, err, kind)
					}
					says := cfg.Model.LayerSays(layer)
					if strings.Contains(says, "linear") != cfg.Model.LinearAt(layer) {
						t.Errorf("layer %d of %s reads %q", layer, name, says)
					}
				}
			}
		}
	})
	t.Run("v4 layers without the ratio-4 stream have no indexer", func(t *testing.T) {
		cfg := newSetup(t, "cpu", family(t, "deepseek_v4")).resolve(t)
		s := only(t, build(t, cfg, decode(9000)))
		for layer, kind := range map[int]IndexerKind{0: IndexerNone, 2: IndexerPagedSplit, 3: IndexerNone} {
			if ix, err := cfg.IndexerAt(s, layer, false); err != nil || ix.Kind != kind {
				t.Errorf("layer %d: %v, %v, want %s", layer, ix, err, kind)
			}
		}
	})
	t.Run("a negative layer is refused", func(t *testing.T) {
		cfg := newSetup(t, "cpu").resolve(t)
		if _, err := cfg.IndexerAt(&Segment{}, -1, true); err == nil {
			t.Error("no error")
		}
	})
}

// For every number of verified rows, the notice about drafts states what the plan does.
func TestTheNoticeAboutDraftsIsWhatPlansDo(t *testing.T) {
	for _, c := range []struct{ hw, family string }{{"cpu", "deepseek_v32"}, {"sm90", "deepseek_v32"},
		{"cpu", "deepseek_v4"}, {"sm90", "deepseek_v4"}, {"cpu", "deepseek_v41"}} {
		for _, deterministic := range []bool{false, true} {
			s := newSetup(t, c.hw, family(t, c.family), wish(func(p *Policy) { p.Deterministic = deterministic }))
			s.model.Block, s.model.NextN, s.policy.Speculation.Tokens = 0, 1, 9
			cfg, notices, err := Resolve(s.hw, s.model, s.policy)
			if err != nil {
				t.Fatal(err)
			}
			var whole, groups, single []string
			for rows := 2; rows <= 9; rows++ {
				b := Batch{Mode: ModeVerify, Requests: []Request{VerifyRequest(rows, 9000)}}
				x := only(t, build(t, cfg, b)).Indexer
				switch {
				case x.Kind == IndexerPagedSplit:
					single = append(single, strconv.Itoa(rows))
				case x.NextN == rows:
					whole = append(whole, strconv.Itoa(rows))
				default:
					groups = append(groups, fmt.Sprintf("of %d in groups of %d", rows, x.NextN))
				}
			}
			var parts []string
			if whole != nil {
				parts = append(parts, "those of "+strings.Join(whole, ", ")+" rows at once")
			}
			if parts = append(parts, groups...); single != nil {
				parts = append(parts, "of "+strings.Join(single, ", ")+" rows row by row")
			}
			want := "; scores: " + strings.Join(parts, ", ")
			if !slices.ContainsFunc(notices, func(n Notice) bool { return strings.HasSuffix(n.Text, want) }) {
				t.Errorf("%s on %s, deterministic %v: no notice ends with %q: %v", c.family, c.hw, deterministic, want,
					notices)
			}
		}
	}
}

// The documents list all error codes, and no others.
func TestDocumentsListTheCodes(t *testing.T) {
	for path, pattern := range map[string]string{"../docs/plan.md": `(?m)^\| (E[0-9]+) \|`,
		"../docs/spec/dispatch.md": `\b(E[0-9][0-9])\b`} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), "## 18. Conditions that deserve a clear error")
		if after == "" {
			after = string(text)
		}
		after, _, _ = strings.Cut(after, "## 19.")
		listed := map[Code]bool{}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(after, -1) {
			listed[Code(m[1])] = true
		}
		for code := range codeTitles {
			if !listed[code] {
				t.Errorf("%s does not list %s", path, code)
			}
			delete(listed, code)
		}
		if len(listed) > 0 {
			t.Errorf("%s lists %v, which nothing raises", path, listed)
		}
	}
}
