package step_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sparrow/internal/attn"
	"sparrow/internal/model"
	"sparrow/internal/testkit/await"
	"sparrow/internal/testkit/planread"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// A plan describes the operations that run. The test uses random batches of every family, with plans for the CPU and
// for an H200 (whose operations are recorded but not run). The enqueued operations match the fields of the plan, and
// every reason in the plan is true for these operations and for the lengths of the rows.
func TestPlansSayWhatRuns(t *testing.T) {
	for _, f := range planned() {
		t.Run(f.name, func(t *testing.T) {
			m := recorded(t, f.checkpoint(t))
			m.Dry(false)
			keeps := keepsOf(m)
			seen := map[string]int{}
			batches := 0
			rapid.Check(await.Untimed(t), func(rt *rapid.T) {
				policy := rapid.SampledFrom(f.policies).Draw(rt, "policy")
				policy.Speculation.Tokens = rapid.IntRange(1, 6).Draw(rt, "verified")
				cfg := configureOn(rt, m, drawHardware(rt, m, policy), policy)
				for range 7 {
					s := drawScenario(rt, &cfg, f.kinds, keeps)
					for _, p := range runScenario(rt, m, cfg, s, rowsOf(m, &cfg, s)) {
						c := claims{TB: rt, cfg: &cfg, pass: &p, seen: seen, read: t}
						c.check()
						batches++
					}
				}
				m.Check(rt)
			})
			t.Logf("%d batches; reasons and how often each was checked: %v", batches, seen)
			if batches < 1000 {
				t.Errorf("%d batches, want at least 1000", batches)
			}
			if f.name == inLaunches && seen["launches"] == 0 {
				t.Error("no segment was divided into several launches")
			}
			for _, r := range reasonChecks {
				if r.rare || f.name == inLaunches {
					continue
				}
				expected := r.families == "" && f.name != dense || strings.Contains(r.families, f.name)
				if seen[r.prefix] == 0 && expected {
					t.Errorf("no plan gave the reason %q", r.prefix)
				}
			}
		})
	}
}

// inLaunches is the name of the family whose segments are divided into launches.
const inLaunches = "glm_moe_dsa in launches"

// planned returns the tested families: the list families, a family with sizes that plans for a GPU accept, and a family
// whose segments are divided into launches.
func planned() []modelFamily {
	// GPU kernels need selections of a multiple of 64 keys, so a larger model is used.
	gpu := families[0]
	gpu.name = "deepseek_v32 on an H200"
	gpu.checkpoint = func(t testing.TB) string { return draftyFolder(t, "v32-tiny") }
	// A reserve of little more than one row divides segments into launches.
	tight := families[1]
	tight.name, tight.policies = inLaunches, []plan.Policy{{KV: "fp8-656", MaxTransient: 128 << 10},
		{KV: "bf16", MaxTransient: 100 << 10}}
	return append(slices.Clone(families), gpu, tight)
}

// drawHardware selects random hardware whose plans for a model and a policy can run.
func drawHardware(rt *rapid.T, m model.Model, policy plan.Policy) string {
	k := m.Config().Indexer.TopK
	if _, v4 := m.(model.Windowed); policy.KV == "f32" || k == 0 || k%64 != 0 && !v4 {
		return "cpu"
	}
	return rapid.SampledFrom([]string{"cpu", "sm90", "sm90"}).Draw(rt, "hardware")
}

// claims compares the operations of one pass with its plan.
type claims struct {
	rapid.TB
	cfg  *plan.Config
	pass *recordPass
	seen map[string]int
	read testing.TB

	events map[*plan.Segment][]string // operations of all layers, by segment of the plan
}

func (c *claims) check() {
	p := c.pass.Plan
	c.events = map[*plan.Segment][]string{}
	planread.Check(c.read, p)
	want, got := c.expected(), happened(c.pass.Ops)
	if !slices.Equal(got, want) {
		c.Fatalf("%v pass of mode %v on %v:\nran   %q\nplan  %q", p.Pass, p.Mode, c.cfg.Hardware.Arch, got, want)
	}
	for i := range p.Segments {
		s := &p.Segments[i]
		for _, r := range s.Reasons {
			c.reason(s, r)
		}
	}
}

// happened returns a text for each enqueued operation that a plan determines, in order.
func happened(ops []kernel.Op) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, op := range ops {
		switch a := op.(type) {
		case kernel.IndexGatherArgs:
			add("gather %d index keys", a.Slots.Rows)
		case kernel.ScoreArgs:
			if a.Table.Given() {
				add("score %d rows over pages, %d at once", a.Q.Rows, max(a.NextN, 1))
			} else {
				add("score %d rows over gathered keys", a.Q.Rows)
			}
		case kernel.SelectArgs:
			if a.Scores.Given() {
				add("select for %d rows", a.Out.Rows)
			} else {
				add("select all for %d rows", a.Out.Rows)
			}
		case kernel.GatherArgs:
			add("gather %d rows as %v", a.Slots.Rows, a.Out.DType)
		case kernel.ConvertArgs:
			add("convert %d pages to %v", a.Pages.Rows, a.Out.Layout)
		case kernel.LocateArgs:
			if a.Table.Given() {
				add("locate %d rows in pages", a.Positions.Rows)
			} else {
				add("locate %d rows among gathered", a.Positions.Rows)
			}
		case kernel.SparseArgs:
			add("attend %d rows, %d heads over %v", a.Q.Rows, a.Heads, a.Pool.Layout)
		case kernel.DenseArgs:
			add("attend %d rows densely", a.Q.Rows)
		case kernel.LatentArgs:
			add("attend %d rows, %d heads over every key of %v", a.Q.Rows, a.Heads, a.Pool.Layout)
		case kernel.DualArgs:
			add("attend %d rows in place, compressed %v", a.Q.Rows, a.Extra.Given())
		case kernel.UnpackArgs:
			add("unpack %d entries", a.Slots.Rows)
		case kernel.FlatArgs:
			add("attend %d rows over %d entries", a.Q.Rows, a.KV.Rows)
		}
	}
	return out
}

// expected returns a text for each operation that the plan implies, layer by layer.
func (c *claims) expected() (out []string) {
	p, m := c.pass.Plan, &c.cfg.Model
	v4 := m.Family == plan.DeepSeekV4
	layers := []int{m.Layers} // the drafting layer follows the other layers
	if p.Pass == plan.PassTarget {
		layers = layers[:0]
		for i := range m.Layers {
			layers = append(layers, i)
		}
	}
	if v4 && p.Pass != plan.PassTarget {
		all := fmt.Sprintf("attend %d rows in place, compressed false", p.Input(plan.DraftRows).Rows)
		for i := range p.Segments {
			c.events[&p.Segments[i]] = []string{all}
		}
		return []string{all}
	}
	for _, layer := range layers {
		for i := range p.Segments {
			s := &p.Segments[i]
			for j := range s.Launches {
				l := &s.Launches[j]
				var list []string
				if v4 {
					list = c.dual(layer, s, l)
				} else {
					list = c.latent(layer, s, l)
				}
				c.events[s] = append(c.events[s], list...)
				out = append(out, list...)
			}
		}
	}
	return out
}

// selection returns texts for the operations that select the keys of the rows of a launch.
func (c *claims) selection(layer int, s *plan.Segment, l *plan.Launch) (out []string) {
	x, err := c.cfg.IndexerAt(s, layer, true)
	if err != nil {
		c.Fatal(err)
	}
	switch {
	case x.Kind == plan.IndexerCarry || x.Kind == plan.IndexerNone || !s.NeedIndices:
		return nil
	case !s.Scores():
		return []string{fmt.Sprintf("select all for %d rows", l.Rows)}
	case x.Kind == plan.IndexerRagged:
		out = append(out, fmt.Sprintf("gather %d index keys", l.Index.Count))
	}
	for first := 0; first < l.Rows; first += x.RowsPerChunk {
		n := min(x.RowsPerChunk, l.Rows-first)
		if x.Kind == plan.IndexerRagged {
			out = append(out, fmt.Sprintf("score %d rows over gathered keys", n))
		} else {
			out = append(out, fmt.Sprintf("score %d rows over pages, %d at once", n, x.NextN))
		}
		out = append(out, fmt.Sprintf("select for %d rows", n))
	}
	return out
}

// latent returns texts for the operations of one launch of MLA.
func (c *claims) latent(layer int, s *plan.Segment, l *plan.Launch) []string {
	switch s.Form {
	case plan.FormEmpty:
		return nil
	case plan.FormDenseMHA:
		return []string{fmt.Sprintf("gather %d rows as f32", l.Gather.Count), fmt.Sprintf("attend %d rows densely",
			l.Rows)}
	case plan.FormDenseMLA:
		return []string{fmt.Sprintf("attend %d rows, %d heads over every key of %v", l.Rows, c.cfg.Model.Heads,
			s.Layout)}
	}
	out := c.selection(layer, s, l)
	switch s.Convert {
	case plan.ConvertRawToBlock:
		out = append(out, fmt.Sprintf("convert %d pages to %v", l.Pages.Count, layout.FP8Row656))
	case plan.ConvertGatherBF16:
		out = append(out, fmt.Sprintf("gather %d rows as bf16", l.Gather.Count))
	}
	place := "in pages"
	if s.Transform == plan.TransformRagged {
		place = "among gathered"
	}
	return append(out, fmt.Sprintf("locate %d rows %s", l.Rows, place), fmt.Sprintf("attend %d rows, %d heads over %v",
		l.Rows, c.cfg.Model.Heads, c.reads(s)))
}

// reads returns the cache layout that the segment's kernel reads.
func (c *claims) reads(s *plan.Segment) string {
	switch {
	case s.Convert == plan.ConvertGatherBF16:
		return plan.BF16Row1152.String()
	case s.Kernel == plan.SparseBlock:
		return plan.FP8Row656.String()
	case s.Kernel == plan.SparseRaw:
		return plan.FP8Row576.String()
	}
	return s.Layout.String()
}

// dual returns texts for the operations of one launch of V4.
func (c *claims) dual(layer int, s *plan.Segment, l *plan.Launch) (out []string) {
	ratio := c.cfg.Model.Ratios[layer]
	out = c.selection(layer, s, l)
	if s.Form == plan.FormV4Paged {
		if ratio == 4 {
			out = append(out, fmt.Sprintf("locate %d rows in pages", l.Rows))
		}
		return append(out, fmt.Sprintf("attend %d rows in place, compressed %v", l.Rows, ratio > 0))
	}
	extra := 0
	switch ratio {
	case 4:
		extra = l.Groups.Count
	case 128:
		extra = l.Heavy.Count
	}
	out = append(out, fmt.Sprintf("unpack %d entries", l.Gather.Count))
	if extra > 0 {
		out = append(out, fmt.Sprintf("unpack %d entries", extra))
	}
	return append(out, fmt.Sprintf("attend %d rows over %d entries", l.Rows, l.Gather.Count+extra))
}

// keys returns the number of keys that each row of a segment attends to, computed from the input block. V4 rows attend
// to groups of four tokens.
func (c *claims) keys(s *plan.Segment) []int {
	at := attn.NewBlock(c.pass.Plan, c.pass.Block).Array(plan.Positions)
	if len(at) < s.FirstRow+s.Rows { // V4's drafting block has rows that no operation computes
		return nil
	}
	out := make([]int, s.Rows)
	for i, p := range at[s.FirstRow:][:s.Rows] {
		out[i] = int(p) + 1
	}
	return out
}

// some reports whether a launch of the segment has the given part.
func (c *claims) some(s *plan.Segment, part string) bool {
	return slices.ContainsFunc(c.events[s], func(e string) bool { return strings.Contains(e, part) })
}

func all(list []int, ok func(int) bool) bool {
	return !slices.ContainsFunc(list, func(v int) bool { return !ok(v) })
}

// reasonCheck decides whether a reason of a plan is true.
type reasonCheck struct {
	prefix   string
	families string // families whose plans must give the reason; empty means all families
	rare     bool   // the reason need not occur in every run
	holds    func(c *claims, s *plan.Segment, text string) bool
}

const mlaFamilies = "deepseek_v32 glm_moe_dsa"

// keptKeys returns the largest number of keys up to which a row needs no scores.
func (c *claims) keptKeys() int {
	if c.cfg.Model.Family == plan.DeepSeekV4 {
		return 4*c.cfg.Model.K + 3
	}
	return c.cfg.Model.K
}

// masks reports whether the reason "three rows run as four" is present exactly if three rows run as four.
func (c *claims) masks(s *plan.Segment, text string) bool {
	return strings.Contains(text, "3 rows use the kernel for 4 rows, with 1 masked") ==
		(c.cfg.Hardware.Arch == plan.SM90 &&
			s.Indexer.NextN == 3)
}

func (c *claims) scored(s *plan.Segment) bool { return c.some(s, "score ") }

// reasonChecks lists all reasons in plans of the catalogue's kernels. The first entry whose prefix matches applies.
var reasonChecks = []reasonCheck{
	{"nothing is selected: ", dense, false, func(c *claims, s *plan.Segment, _ string) bool {
		return c.cfg.Model.K == 0 && !c.some(s, "select") && !c.scored(s) &&
			(c.some(s, "over every key") || c.some(s, "densely"))
	}},
	{"dense: no row attends to more keys than the threshold", mlaFamilies, false, func(c *claims, s *plan.Segment,
		_ string) bool {
		return c.some(s, "densely") && all(c.keys(s), func(n int) bool { return n <= c.cfg.T })
	}},
	{"every key is read in the format of the cache", mlaFamilies, false, func(c *claims, s *plan.Segment,
		_ string) bool {
		n := 0
		for _, l := range s.Launches {
			n += l.Gather.Count
		}
		return c.some(s, "gather ") && n >= slices.Max(c.keys(s))
	}},
	{"the threshold is at most index_topk", mlaFamilies, false, func(c *claims, s *plan.Segment, _ string) bool {
		return all(c.keys(s), func(n int) bool { return n <= c.cfg.Model.K })
	}},
	{"the threshold is above index_topk", mlaFamilies, true, func(c *claims, s *plan.Segment, _ string) bool {
		return c.cfg.T > c.cfg.Model.K
	}},
	{"not dense: the rows attend to more than", mlaFamilies, false, func(c *claims, s *plan.Segment, _ string) bool {
		return !c.some(s, "densely") && all(c.keys(s), func(n int) bool { return n > c.cfg.T })
	}},
	{"not dense: ", mlaFamilies, false, func(c *claims, s *plan.Segment, text string) bool {
		return !c.some(s, "densely") && slices.Contains(c.cfg.DenseAgainst, strings.TrimPrefix(text, "not dense: "))
	}},
	{"prompt rows use the prefill kernel", "", false, func(c *claims, s *plan.Segment, text string) bool {
		return s.NextN == 0 && strings.HasSuffix(text, c.cfg.Prefill.String()) && c.some(s, "attend ")
	}},
	{"auto is ", mlaFamilies, true, func(c *claims, s *plan.Segment, _ string) bool { return s.NextN == 0 }},
	{"decode, verify and draft rows use the decode kernel", "", false, func(c *claims, s *plan.Segment, _ string) bool {
		return s.NextN > 0 && s.Kernel == c.cfg.Decode && !c.some(s, "gather ") && !c.some(s, "convert ") && !c.some(s,
			"unpack ")
	}},
	{"pages the batch refers to are rewritten from 576 to 656 bytes per token, exactly, by every launch of prompts",
		mlaFamilies, true, func(c *claims, s *plan.Segment, _ string) bool {
			pages, converted := 0, 0
			for _, l := range s.Launches {
				pages += l.Pages.Count
			}
			for _, e := range c.events[s] {
				converted += strings.Count(e, "convert ")
			}
			held := c.pass.Plan.Requests * c.pass.Plan.TablePages * len(s.Launches)
			return converted >= len(s.Launches) && converted%len(s.Launches) == 0 && pages > 0 && pages <= held
		}},
	{"deterministic: splits are fixed", "", false, func(c *claims, s *plan.Segment, _ string) bool {
		return !c.some(s, "densely") && (!c.some(s, "over pages") || c.some(s, "over pages, 1 at once"))
	}},
	{"indexer keys are stored; no row reads indices", "", true, func(c *claims, s *plan.Segment, _ string) bool {
		return !c.scored(s) && !c.some(s, "select")
	}},
	{"every visible key fits the selection", "", false, func(c *claims, s *plan.Segment, _ string) bool {
		return !c.scored(s) && c.some(s, "select all") && all(c.keys(s), func(n int) bool { return n <= c.keptKeys() })
	}},
	{"short variant: no request of the segment has more keys than a selection holds", "", false, func(c *claims,
		s *plan.Segment, _ string) bool {
		return !c.scored(s) && c.some(s, "select all") && all(c.keys(s), func(n int) bool { return n <= c.keptKeys() })
	}},
	{"index scores are computed over gathered index keys", "", false, func(c *claims, s *plan.Segment,
		_ string) bool {
		return c.some(s, "index keys") && c.some(s, "over gathered keys") && all(c.keys(s),
			func(n int) bool { return n > c.keptKeys() })
	}},
	{"scores over pages, each row separately", "", false, func(c *claims, s *plan.Segment, _ string) bool {
		return c.some(s, "over pages, 1 at once") && slices.Max(c.keys(s)) > c.keptKeys()
	}},
	{"scores over pages; each block of keys is read once for groups of", "", true, func(c *claims, s *plan.Segment,
		text string) bool {
		n, at := s.Indexer.NextN, fmt.Sprintf("groups of %d of a request: on ", s.Indexer.NextN)
		return c.some(s, fmt.Sprintf("over pages, %d at once", n)) && n > 1 && n < s.NextN && s.NextN%n == 0 &&
			strings.Contains(text, at) && c.masks(s, text)
	}},
	{"scores over pages; each block of keys is read once for all", "", false, func(c *claims, s *plan.Segment,
		text string) bool {
		return c.some(s, fmt.Sprintf("over pages, %d at once", s.NextN)) && c.masks(s, text)
	}},
	{"draft rows are always scored one by one", mlaFamilies, false, func(c *claims, s *plan.Segment, _ string) bool {
		return c.some(s, "over pages, 1 at once")
	}},
	{"no logits are requested and no layer " +
		"follows", mlaFamilies, false, func(c *claims, s *plan.Segment, _ string) bool {
		return len(c.events[s]) == 0
	}},
	{"V4 draft layers attend to the window only", "deepseek_v4", false, func(c *claims, s *plan.Segment,
		_ string) bool {
		return len(c.events[s]) == 1 && c.some(s, "compressed false")
	}},
}

// reason checks one reason of a segment.
func (c *claims) reason(s *plan.Segment, r plan.Reason) {
	var heads, padded, rows, keys, launches, limit int
	if n, _ := fmt.Sscanf(r.Text, "%d index heads are padded to %d", &heads, &padded); n == 2 {
		if heads != c.cfg.Model.IndexHeads || padded != s.Indexer.Heads || !slices.ContainsFunc(c.pass.Ops,
			func(op kernel.Op) bool {
				a, ok := op.(kernel.IndexQueryArgs)
				return ok && a.Heads == heads && a.Padded == padded
			}) {
			c.Fatalf("reason %q does not match the operations", r.Text)
		}
		return
	}
	if n, _ := fmt.Sscanf(r.Text, "%d rows in %d launches of at most %d rows", &rows, &launches, &limit); n == 3 {
		if rows != s.Rows || launches != len(s.Launches) {
			c.Fatalf("reason %q does not match the segment: %d rows in %d launches", r.Text, s.Rows, len(s.Launches))
		}
		c.seen["launches"]++
		return
	}
	if n, _ := fmt.Sscanf(r.Text, "scores of %d x %d in chunks of %d rows", &rows, &keys, &limit); n == 3 {
		if rows != s.Rows || !c.some(s, fmt.Sprintf("score %d rows", limit)) {
			c.Fatalf("reason %q does not match the operations", r.Text)
		}
		return
	}
	for _, check := range reasonChecks {
		if !strings.HasPrefix(r.Text, check.prefix) {
			continue
		}
		c.seen[check.prefix]++
		if !check.holds(c, s, r.Text) {
			c.Fatalf("%v rows: reason %q is false for keys %v and operations %q", s.Row, r.Text, c.keys(s), c.events[s])
		}
		return
	}
	c.Fatalf("no entry of reasonChecks matches the reason %q of a plan", r.Text)
}
