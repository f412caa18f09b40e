package step_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/step"
	"sparrow/internal/testkit/await"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/plan"
	choices "sparrow/record"
)

func TestMain(m *testing.M) { testmodel.Run(m) }

// modelFamily holds a model and the policies under which its plans are tested.
type modelFamily struct {
	name       string
	checkpoint func(testing.TB) string
	policies   []plan.Policy
	kinds      []plan.Mode // modes of requests to the target; V4 does not support draft rows in the target
}

// families lists the models for which the tests check that a plan determines the launches.
var families = []modelFamily{
	{"deepseek_v32", testmodel.V32Draft, policiesOf(settings), append(promptsAndDecodes, plan.ModeDraft)},
	{"glm_moe_dsa", testmodel.GLMDraft, policiesOf(settings), append(promptsAndDecodes, plan.ModeDraft)},
	{dense, testmodel.V3Draft, []plan.Policy{{KV: "bf16", Deterministic: true}, {KV: "f32"},
		{KV: "fp8-656", MaxTransient: 8 << 20}, {KV: "fp8-576", DenseThreshold: denseKeys}},
		append(promptsAndDecodes, plan.ModeDraft)},
	{"deepseek_v4", testmodel.V4Draft, []plan.Policy{{}, {KV: "f32"}, {Deterministic: true}}, promptsAndDecodes},
}

// dense is the name of the family without an indexer. denseKeys is a threshold of expanded keys that the rows of the
// tests exceed.
const (
	dense     = "dense deepseek_v3"
	denseKeys = 16
)

var promptsAndDecodes = []plan.Mode{plan.ModeExtend, plan.ModeDecode, plan.ModeVerify}

// policiesOf returns the policies of settings, and variants that score other numbers of rows at once or divide segments
// into several launches.
func policiesOf(list []setting) []plan.Policy {
	out := []plan.Policy{{KV: "bf16", Deterministic: true}, {KV: "fp8-656", MaxTransient: 8 << 20}}
	for _, s := range list {
		out = append(out, s.policy)
	}
	return out
}

// recorded loads a checkpoint on a device that records operations.
func recorded(t testing.TB, dir string) *recordModel {
	t.Helper()
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close(); src.Close() })
	rec := &recordDevice{dev: dev}
	m, err := src.Load(rec, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &recordModel{Model: m, dev: rec}
}

// each is the number of pages of a request.
const each = 5

// part is one request of a batch, without the properties that plans must not depend on: its tokens, its pages and,
// unless it is a prompt, its length.
type part struct {
	kind           plan.Mode
	rows           int
	from, to       int // smallest and largest number of cached tokens; equal for a prompt
	logits         int
	best           bool // only the best token of each row of logits is requested
	draft, predict bool // the drafting layer runs for this part; the drafting layer computes drafts for it
	records        int  // number of recorded rows, at most rows
	replays        int  // number of rows with replayed selections and experts
}

// scenario holds a batch and the number of drafting passes after it.
type scenario struct {
	parts  []part
	chain  int // number of drafting passes after the first pass
	record plan.Record
	replay plan.Replay
}

// drawScenario generates a random batch of one mode, or of all modes. The plan of a batch changes if a length exceeds
// the number of keys that an indexer selects, and at the ends of the first pages. The lengths of most parts stay
// between two such values, so that shapes are equal; other parts have arbitrary lengths.
func drawScenario(rt *rapid.T, cfg *plan.Config, kinds []plan.Mode, keeps int) scenario {
	mode := rapid.SampledFrom(append(kinds, plan.ModeMixed)).Draw(rt, "mode")
	ends := []int{0, keeps, cfg.Page, 2 * cfg.Page, max(keeps, 2*cfg.Page) + cfg.Page}
	slices.Sort(ends)
	classes := [][2]int{{1, 2*cfg.Page - 8}}
	for i := range ends[1:] {
		if from, to := ends[i]+1, ends[i+1]-8; from < to { // the last 8 tokens are left for the rows of the passes
			classes = append(classes, [2]int{from, to})
		}
	}
	class := rapid.SampledFrom(classes).Draw(rt, "lengths")
	var s scenario
	for range rapid.IntRange(1, 3).Draw(rt, "requests") {
		p := part{kind: mode, rows: 1, from: class[0], to: class[1], draft: cfg.N > 1 && rapid.Bool().Draw(rt, "draft")}
		if mode == plan.ModeMixed {
			p.kind = rapid.SampledFrom(kinds).Draw(rt, "kind")
		}
		switch p.kind {
		case plan.ModeExtend:
			p.from = rapid.SampledFrom([]int{0, 0, 1, keeps - 1, keeps, cfg.Page}).Draw(rt, "prefix")
			p.to = p.from
			p.rows = rapid.SampledFrom([]int{1, 2, keeps, keeps + 1, keeps + 9}).Draw(rt, "rows")
		case plan.ModeVerify, plan.ModeDraft:
			p.rows = rapid.IntRange(1, cfg.N).Draw(rt, "rows")
		}
		p.logits = rapid.IntRange(0, min(p.rows, 2)).Draw(rt, "logits")
		p.best = rapid.Bool().Draw(rt, "best")
		p.predict = p.draft && rapid.Bool().Draw(rt, "predict")
		p.records = rapid.IntRange(0, min(p.rows, 5)).Draw(rt, "records")
		p.replays = rapid.IntRange(0, min(p.rows, 3)).Draw(rt, "replays")
		s.parts = append(s.parts, p)
	}
	s.chain = rapid.IntRange(0, max(cfg.N-2, 0)).Draw(rt, "chain")
	recording := rapid.IntRange(0, 3).Draw(rt, "record")
	s.record = plan.Record{Hidden: recording == 1, Selections: recording >= 1, Scores: recording == 2,
		Experts: recording == 3}
	replaying := rapid.IntRange(0, 3).Draw(rt, "replay")
	s.replay = plan.Replay{Selections: replaying&1 != 0, Experts: replaying&2 != 0}
	return s
}

// drawOther returns mostly the same scenario, otherwise a scenario that differs in a property that shapes must
// distinguish.
func drawOther(rt *rapid.T, s scenario) scenario {
	parts := slices.Clone(s.parts)
	p := &parts[rapid.IntRange(0, len(parts)-1).Draw(rt, "other part")]
	switch rapid.SampledFrom([]string{"", "", "", "best", "logits", "rows", "prefix", "prefix", "record", "records",
		"replays"}).Draw(rt,
		"difference") {
	case "best":
		p.best = !p.best
	case "logits":
		p.logits = (p.logits + 1) % (min(p.rows, 2) + 1)
	case "rows":
		if p.kind == plan.ModeExtend {
			p.rows++
		}
	case "prefix":
		if p.kind == plan.ModeExtend {
			p.from, p.to = p.from+1, p.to+1
		}
	case "record":
		s.record.Hidden = !s.record.Hidden
	case "records":
		p.records = (p.records + 1) % (min(p.rows, 5) + 1)
	case "replays":
		p.replays = (p.replays + 1) % (min(p.rows, 3) + 1)
	}
	s.parts = parts
	return s
}

// rowsOf returns the smallest number of workspace rows that all scenarios fit into, so that a pass fails if it needs
// more memory than was measured for its rows.
func rowsOf(m *recordModel, cfg *plan.Config, list ...scenario) (rows int) {
	if _, ok := m.Model.(model.Windowed); ok {
		rows = cfg.Page // behind computes at most one page of rows
	}
	for _, s := range list {
		n := 0
		for _, p := range s.parts {
			n += p.rows
		}
		rows = max(rows, n)
	}
	return rows
}

// runScenario runs a scenario with random lengths, tokens and pages, in a workspace of the given number of rows, and
// returns the operations that its passes enqueued.
func runScenario(rt *rapid.T, m *recordModel, cfg plan.Config, s scenario, rows int) []recordPass {
	rt.Helper()
	shape := cfg.Model.Choices()
	s.replay.Experts = s.replay.Experts && shape.Mixing() > 0 // some models have no experts
	run, err := step.New(m, cfg, step.Limits{Rows: rows, Requests: 3, Prompts: 3, Context: each * cfg.Page,
		PromptLogits: 3, Record: s.record, Replay: s.replay})
	if err != nil {
		rt.Fatal(err)
	}
	defer run.Close()
	places := rapid.Permutation(numbers(3*each)).Draw(rt, "pages")
	seed := rapid.IntRange(1, 1000).Draw(rt, "tokens")
	works := make([]step.Work, len(s.parts))
	for i, p := range s.parts {
		w := &works[i]
		w.Kind, w.Logits, w.Best, w.Cached = p.kind, p.logits, p.best, rapid.IntRange(p.from, p.to).Draw(rt, "cached")
		w.Pages = places[each*i:][:(w.Cached+p.rows+s.chain)/cfg.Page+1]
		tokens := make([]int32, w.Cached+p.rows)
		for j := range tokens {
			tokens[j] = int32((j*j*7 + j*31*seed + i*977) % m.Config().Vocab)
		}
		w.Tokens = tokens[w.Cached:]
		// Which rows are recorded and replayed is part of the input data of a batch, not of its shape.
		w.Record, w.RecordFrom = s.record, rapid.IntRange(0, p.rows-p.records).Draw(rt, "recorded from")
		w.RecordTo = w.RecordFrom + p.records
		if n := p.replays; n > 0 && s.replay != (plan.Replay{}) {
			first := w.Cached + rapid.IntRange(0, p.rows-n).Draw(rt, "replayed from")
			w.Replay = replayOf(rt, shape, s.replay, first, n)
		}
		if w.State, err = behind(m, run, tokens[:w.Cached], w.Pages); err != nil {
			rt.Fatal(err)
		}
		if w.State != nil {
			defer w.State.Release()
		}
	}
	m.Passes = nil
	if _, err := run.Run(works); err != nil {
		rt.Fatal(err)
	}
	var drafts, chained []step.Draft
	for i, p := range s.parts {
		if !p.draft {
			continue
		}
		w := &works[i]
		d := step.Draft{Kind: plan.ModeDraft, Tokens: w.Tokens, Cached: w.Cached, Pages: w.Pages, State: w.State,
			Logits: p.predict, Best: p.best, From: i}
		if p.kind == plan.ModeExtend {
			d.Kind = plan.ModeExtend
		}
		if p.predict {
			chained = append(chained, step.Draft{Kind: plan.ModeDraft, Tokens: w.Tokens[:1],
				Cached: w.Cached + p.rows, Pages: w.Pages, State: w.State,
				Logits: true, Best: p.best, From: len(drafts)})
		}
		drafts = append(drafts, d)
	}
	if len(drafts) > 0 {
		if _, err := run.Draft(drafts, false); err != nil {
			rt.Fatal(err)
		}
	}
	for range s.chain {
		if len(chained) == 0 {
			break
		}
		if _, err := run.Draft(chained, true); err != nil {
			rt.Fatal(err)
		}
		for i := range chained {
			chained[i].From, chained[i].Cached = i, chained[i].Cached+1
		}
	}
	return m.Passes
}

// replayOf returns choices for n rows from a position on: the first visible keys of each row, and the first experts.
func replayOf(t rapid.TB, s choices.Shape, what plan.Replay, first, n int) *choices.Replay {
	t.Helper()
	rows := make([]choices.Row, n)
	for i := range rows {
		r := &rows[i]
		r.Position = first + i
		for l := range s.Layers {
			if what.Selections && s.Selects(l) {
				x := choices.Layer{Layer: l, Keys: r.Position + 1}
				if x.All = s.Visible(l, x.Keys) <= s.TopK || x.Keys <= s.Dense; !x.All {
					x.Selected = choices.AppendPositions(nil, numbers(s.TopK), max(s.Layers[l].Group, 1))
				}
				r.Layers = append(r.Layers, x)
			}
			if what.Experts && s.Layers[l].Experts {
				r.Experts = append(r.Experts, choices.Experts{Layer: l, IDs: choices.AppendIDs(nil, numbers(s.Chosen)),
					Weights: choices.AppendFloats(nil, make([]float32, s.Chosen))})
			}
		}
	}
	out, err := choices.NewReplay(rows, s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// behind returns the state of a sequence after its first tokens, or nil if the model has no states. Whole pages count
// as computed, because the contents of the cache do not change launches; behind computes the tokens after them.
func behind(m *recordModel, run *step.Runner, tokens, pages []int32) (model.State, error) {
	windowed, ok := m.Model.(model.Windowed)
	if !ok {
		return nil, nil
	}
	page := run.Config().Page
	whole := len(tokens) / page * page
	s, err := windowed.Restore(whole, pages[:whole/page])
	if err != nil || whole == len(tokens) {
		return s, err
	}
	_, err = run.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: tokens[whole:], Cached: whole, Pages: pages,
		State: s}})
	return s, err
}

func numbers(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// A plan determines its launches: two batches of equal shape, planned and laid out separately, enqueue equal lists of
// operations. All tensor shapes, strides and addresses and all numeric arguments are equal, for any lengths, pages and
// tokens. Also, no pass allocates, writes, reads or waits, no pass reads the input block in host memory after it was
// copied, and every array of the block is filled.
func TestEqualShapesEnqueueEqualOperations(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			m := recorded(t, f.checkpoint(t))
			keeps := keepsOf(m)
			modes, compared, drawn, most := map[string]int{}, 0, 0, math.MaxInt
			if !*long {
				m.Dry(true)
				most = 40
			}
			rapid.Check(await.Untimed(t), func(rt *rapid.T) {
				if drawn++; drawn > most {
					return
				}
				policy := rapid.SampledFrom(f.policies).Draw(rt, "policy")
				policy.Speculation.Tokens = rapid.IntRange(1, 4).Draw(rt, "verified")
				cfg := configure(rt, m, policy)
				s := drawScenario(rt, &cfg, f.kinds, keeps)
				other := drawOther(rt, s)
				// Both scenarios use a workspace of equal size, because addresses in the workspace are compared.
				rows := rowsOf(m, &cfg, s, other)
				a, b := runScenario(rt, m, cfg, s, rows), runScenario(rt, m, cfg, other, rows)
				for i := range min(len(a), len(b)) {
					if a[i].Plan.Shape != b[i].Plan.Shape {
						continue
					}
					compared++
					modes[fmt.Sprintf("%v %v", a[i].Plan.Pass, a[i].Plan.Mode)]++
					sameCalls(rt, a[i].Calls, b[i].Calls)
				}
				m.Check(rt)
			})
			t.Logf("%d passes compared: %v", compared, modes)
			if compared < 25 {
				t.Error("too few passes were compared")
			}
		})
	}
}

// keepsOf returns the largest number of tokens up to which a row selects every token.
func keepsOf(m *recordModel) int {
	keeps := m.Config().Indexer.TopK
	if _, ok := m.Model.(model.Windowed); ok {
		keeps *= 4 // V4 selects groups of four tokens
	}
	return cmp.Or(keeps, denseKeys)
}

// configure resolves a policy for CPUs and allocates a cache for it.
func configure(t rapid.TB, m model.Model, policy plan.Policy) plan.Config {
	t.Helper()
	return configureOn(t, m, "cpu", policy)
}

// configureOn resolves a policy for the given hardware and allocates a cache for it.
func configureOn(t rapid.TB, m model.Model, hardware string, policy plan.Policy) plan.Config {
	t.Helper()
	hw, err := plan.HardwareFor(hardware)
	if err != nil {
		t.Fatal(err)
	}
	facts := m.Facts()
	if policy.MaxTransient > 0 {
		facts.Context = 64 * each // the reserve must hold at least one row of the longest context
	}
	cfg, _, err := plan.Resolve(hw, facts, policy)
	if err == nil {
		err = m.Allocate(&cfg, 3*each)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func sameCalls(t rapid.TB, a, b []string) {
	t.Helper()
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) {
			t.Fatalf("the passes have %d and %d operations, want equal numbers", len(a), len(b))
		}
		if a[i] != b[i] {
			t.Fatalf("operation %d:\n%s\n%s", i, a[i], b[i])
		}
	}
	if !slices.ContainsFunc(a, func(s string) bool { return len(s) > 20 }) {
		t.Fatal("no operation was recorded")
	}
}

// The inputs of a pass are copied before its operations are enqueued: results are bitwise equal if the input block is
// overwritten after its copy, and if the caller changes tokens and page tables while the device runs.
func TestResultsDoNotDependOnHostMemory(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			m := recorded(t, f.checkpoint(t))
			policy := plan.Policy{Speculation: plan.Speculation{Tokens: 3}}
			want := hostMemory(t, m.Model, policy, false)
			got := hostMemory(t, m, policy, true)
			b := &bench{T: t}
			b.sameBits("overwritten", got, want)
			if len(got) != 7 || len(m.Passes) < 6 {
				t.Errorf("%d rows of logits, %d passes were recorded", len(got), len(m.Passes))
			}
			m.Check(t)
		})
	}
}

// hostMemory runs a prompt, a decode, drafts and a verification. If change is set, it overwrites the inputs after each
// pass has started.
func hostMemory(t *testing.T, m model.Model, policy plan.Policy, change bool) (out [][]float32) {
	t.Helper()
	cfg := configure(t, m, policy)
	run, err := step.New(m, cfg, step.Limits{Rows: 128, Requests: 2, Context: each * cfg.Page})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	var state model.State
	if s, ok := m.(model.Stateful); ok {
		if state, err = s.NewState(); err != nil {
			t.Fatal(err)
		}
	}
	token := func(at int) int32 { return int32(at * 37 % m.Config().Vocab) }
	keep := func(res step.Result, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(res.Logits) / res.Vocab {
			out = append(out, slices.Clone(res.Row(i)))
		}
	}
	target := func(kind plan.Mode, cached, n int) {
		t.Helper()
		w := step.Work{Kind: kind, Cached: cached, Pages: []int32{4, 2, 0}, Logits: min(n, 2), State: state}
		for i := range n {
			w.Tokens = append(w.Tokens, token(cached+i))
		}
		p, err := run.Start([]step.Work{w})
		if err != nil {
			t.Fatal(err)
		}
		if change {
			for i := range w.Tokens {
				w.Tokens[i] = 3
			}
			copy(w.Pages, []int32{1, 1, 1})
		}
		keep(p.Wait())
	}
	draft := func(kind plan.Mode, cached, n int, chained bool) {
		t.Helper()
		d := step.Draft{Kind: kind, Cached: cached, Pages: []int32{4, 2, 0}, State: state, Logits: true}
		for i := range n {
			d.Tokens = append(d.Tokens, token(cached+i+1))
		}
		keep(run.Draft([]step.Draft{d}, chained))
	}
	target(plan.ModeExtend, 0, 100)
	draft(plan.ModeExtend, 0, 100, false)
	draft(plan.ModeDraft, 100, 1, true)
	target(plan.ModeDecode, 100, 1)
	target(plan.ModeVerify, 101, 3)
	return out
}

// A result does not change while the next pass is prepared and runs: the loop reads step n after it has started step
// n+1.
func TestResultsOutliveTheNextStart(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			m := recorded(t, f.checkpoint(t))
			cfg := configure(t, m, plan.Policy{})
			run, err := step.New(m, cfg, step.Limits{Rows: 64, Requests: 3, Prompts: 3, Context: 2 * cfg.Page})
			if err != nil {
				t.Fatal(err)
			}
			defer run.Close()
			// works returns prompts of the given lengths, each with two rows of logits. A negative length requests only
			// the best tokens.
			works := func(lengths ...int) (out []step.Work) {
				for i, n := range lengths {
					w := step.Work{Kind: plan.ModeExtend, Pages: []int32{int32(i)}, Logits: 2, Best: n < 0}
					for j := range max(n, -n) {
						w.Tokens = append(w.Tokens, int32((j*37+n+500)%m.Config().Vocab))
					}
					if w.State, err = m.NewState(); err != nil {
						t.Fatal(err)
					}
					if w.State != nil {
						t.Cleanup(w.State.Release)
					}
					out = append(out, w)
				}
				return out
			}
			rows := func(res step.Result) (out [][]float32) {
				for i := range res.Plan.Logits {
					token, logit, sum := res.Best(i)
					out = append(out, slices.Clone(res.Row(i)), []float32{float32(token), logit, sum})
				}
				return out
			}
			alone, err := run.Run(works(-7, 11, -9))
			if err != nil {
				t.Fatal(err)
			}
			want := rows(alone)
			first, err := run.Start(works(-7, 11, -9))
			if err != nil {
				t.Fatal(err)
			}
			second, err := run.Start(works(20, -5, 12))
			if err != nil {
				t.Fatal(err)
			}
			res, err := first.Wait()
			if err != nil {
				t.Fatal(err)
			}
			(&bench{T: t}).sameBits("result read after the next start", rows(res), want)
			if res, err = second.Wait(); err != nil || res.Row(0) == nil || res.Row(2) != nil || res.Row(4) == nil {
				t.Errorf("rows of the second pass: %v", err)
			}
			for i := range want {
				if whole := i/2 == 2 || i/2 == 3; i%2 == 0 && (want[i] != nil) != whole {
					t.Errorf("row %d was returned whole: %v", i/2, want[i] != nil)
				}
			}
			// For a row that was returned whole, the best token is the first token with the largest logit.
			for i := 4; i < 8; i += 2 {
				best := slices.Max(want[i])
				if at := slices.Index(want[i], best); float32(at) != want[i+1][0] || best != want[i+1][1] {
					t.Errorf("best token %v with logit %v, but the largest logit of the row is token %d with %v",
						want[i+1][0], want[i+1][1], at, best)
				}
			}
		})
	}
}
