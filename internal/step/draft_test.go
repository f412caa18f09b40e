package step_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/cuda/op"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/model/synth"
	"sparrow/internal/step"
	"sparrow/internal/testkit/gpu"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
	"sparrow/plan"
)

// draftyFolder writes a random checkpoint with a random drafting layer.
func draftyFolder(t testing.TB, preset string) string {
	t.Helper()
	text, err := synth.PresetConfig(preset)
	if err != nil {
		t.Fatal(err)
	}
	one := 1
	c, err := synth.New(preset, text, synth.Options{Seed: 9, NextN: &one})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), preset)
	if err := c.Write(t.Context(), dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// loadDrafting loads the checkpoint of draftyFolder.
func loadDrafting(t *testing.T, preset, kernels string, wrap func(kernel.Device) kernel.Device) model.Model {
	t.Helper()
	src, err := family.Open(draftyFolder(t, preset))
	if err != nil {
		t.Fatal(err)
	}
	o := gpu.Options()
	o.Workers = 1
	dev, err := kernel.NewRegistry(cpu.Backends(), op.Backends(), ref.Backends()).Open(kernels, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close(); src.Close() })
	if wrap != nil {
		dev = wrap(dev)
	}
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Native verification reads each block of keys once for all rows of a request; split verification works row by row.
// Both give logits bitwise equal to those of plain decoding.
func TestNativeAndSplitVerifyAgree(t *testing.T) {
	testVerifyPaths(t, "cpu", "v32-tiny", settings[2:3], 2, 3, 4)
	testVerifyPaths(t, "cpu", "glm-tiny", settings[2:3], 8, 9)
	if *long { // other layouts of rows
		testVerifyPaths(t, "cpu", "v32-tiny", []setting{settings[0], settings[1], settings[3]}, 3)
		testVerifyPaths(t, "cpu", "glm-tiny", settings[2:3], 4)
	}
}

func TestGPUNativeAndSplitVerifyAgree(t *testing.T) {
	testVerifyPaths(t, gpu.Name(), "v32-tiny", gpuSettings(t), 2, 3, 4, 6, 8)
}

func testVerifyPaths(t *testing.T, kernels, preset string, layouts []setting, rows ...int) {
	m := loadDrafting(t, preset, kernels, nil)
	for _, s := range layouts {
		for _, n := range rows {
			t.Run(fmt.Sprintf("%s %s %d rows", preset, s.name, n), func(t *testing.T) {
				policy := s.policy
				policy.Speculation.Tokens = n
				const cached = 300
				native, nativePlan := verify(t, m, policy, cached, n, nil)
				split, splitPlan := verify(t, m, policy, cached, n,
					func(hw *plan.Hardware) { hw.NativeNextN = nil })
				if nativePlan != plan.IndexerPagedNative || splitPlan != plan.IndexerPagedSplit {
					t.Errorf("the indexer paths are %v for native and %v for split verification", nativePlan, splitPlan)
				}
				b := newBench(t, m, policy)
				b.sameBits("native and split verify", native, split)
				b.sameBits("verify and decode", native, decoded(b, cached, n))
			})
		}
	}
}

// verify runs two prompts and verifies n tokens after each. It returns the rows of logits and the indexer path that
// ran.
func verify(t *testing.T, m model.Model, p plan.Policy, cached, n int, change func(*plan.Hardware)) ([][]float32,
	plan.IndexerKind) {
	t.Helper()
	hw, err := model.Hardware(m.Device())
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&hw)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), p)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, m: m, cfg: cfg}
	b.reset()
	long, short := b.prompt(1, cached+n), b.prompt(2, 20+n)
	a, c := b.pages(cached+n), b.pages(20+n)
	b.step(step.Work{Kind: plan.ModeExtend, Tokens: long[:cached], Pages: a},
		step.Work{Kind: plan.ModeExtend, Tokens: short[:20], Pages: c})
	res, err := b.run.Run([]step.Work{
		{Kind: plan.ModeVerify, Tokens: long[cached:], Cached: cached, Pages: a, Logits: n},
		{Kind: plan.ModeVerify, Tokens: short[20:], Cached: 20, Pages: c, Logits: n}})
	if err != nil {
		t.Fatal(err)
	}
	var out [][]float32
	for i := range 2 * n {
		out = append(out, slices.Clone(res.Row(i)))
	}
	return out, res.Plan.Segments[0].Indexer.Kind
}

// decoded computes the rows of verify by decoding one token at a time.
func decoded(b *bench, cached, n int) [][]float32 {
	b.Helper()
	var out [][]float32
	for _, q := range []struct{ seed, cached int }{{1, cached}, {2, 20}} {
		tokens := b.prompt(q.seed, q.cached+n)
		pages := b.pages(q.cached + n)
		b.step(step.Work{Kind: plan.ModeExtend, Tokens: tokens[:q.cached], Pages: pages})
		for i := q.cached; i < q.cached+n; i++ {
			out = append(out,
				b.step(step.Work{Kind: plan.ModeDecode, Tokens: tokens[i : i+1], Cached: i, Pages: pages,
					Logits: 1})...)
		}
	}
	return out
}

// drafted runs a prompt in chunks, with a drafting pass after each chunk, and then a chain of drafts. It returns the
// logits of every draft.
func drafted(b *bench, cuts ...int) [][]float32 {
	b.Helper()
	tokens := b.prompt(3, 200)
	pages := b.pages(220)
	var out [][]float32
	pass := func(w step.Draft, chained bool) {
		res, err := b.run.Draft([]step.Draft{w}, chained)
		if err != nil {
			b.Fatal(err)
		}
		if w.Logits {
			out = append(out, slices.Clone(res.Row(0)))
		}
	}
	at := 0
	for _, n := range append(cuts, 190-sum(cuts)) {
		b.step(step.Work{Kind: plan.ModeExtend, Tokens: tokens[at : at+n], Cached: at, Pages: pages})
		pass(step.Draft{Kind: plan.ModeExtend, Tokens: tokens[at+1 : at+n+1], Cached: at, Pages: pages,
			Logits: at+n == 190}, false)
		at += n
	}
	pass(step.Draft{Kind: plan.ModeDraft, Tokens: tokens[191:192], Cached: 190, Pages: pages, Logits: true}, true)
	pass(step.Draft{Kind: plan.ModeDraft, Tokens: tokens[192:193], Cached: 191, Pages: pages, Logits: true}, true)
	// Two tokens are accepted, and their rows are computed again from the target's hidden states.
	b.step(step.Work{Kind: plan.ModeVerify, Tokens: tokens[190:194], Cached: 190, Pages: pages, Logits: 4})
	pass(step.Draft{Kind: plan.ModeDraft, Tokens: tokens[191:194], Cached: 190, Pages: pages, Logits: true}, false)
	return out
}

func sum(list []int) (n int) {
	for _, v := range list {
		n += v
	}
	return n
}

// Drafts do not depend on how the prompt was divided into chunks, and the CPU kernels make drafts equal to those of the
// reference kernels. The test uses unrounded cache rows, because with rounded rows a difference in the last bit can
// change a selection and thus the logits.
func TestDraftsDependOnTheSequenceAlone(t *testing.T) {
	for _, preset := range []string{"v32-tiny", "glm-tiny"} {
		fast, plain := loadDrafting(t, preset, "cpu", nil), loadDrafting(t, preset, "ref", nil)
		for _, s := range settings[:4] {
			t.Run(preset+" "+s.name, func(t *testing.T) {
				policy := s.policy
				if preset == "glm-tiny" && policy.KV != "fp8-656" && !*long {
					t.Skip("only make long runs this case: another case tests these rows with another model")
				}
				policy.Speculation.Tokens = 4
				b := newBench(t, fast, policy)
				whole := drafted(b)
				if len(whole) != 4 {
					t.Fatalf("%d rows of draft logits", len(whole))
				}
				b.reset()
				b.sameBits("chunked drafts", drafted(b, 64, 1, 100), whole)
				if policy.KV != "f32" {
					return
				}
				for i, row := range drafted(newBench(t, plain, policy)) {
					far, norm := 0.0, 0.0
					for j := range row {
						far += math.Pow(float64(row[j]-whole[i][j]), 2)
						norm += math.Pow(float64(row[j]), 2)
					}
					if far > 1e-3*norm {
						t.Errorf("draft %d: the logits of the fast kernels have a relative difference of %v from the "+
							"reference", i,
							math.Sqrt(far/norm))
					}
				}
			})
		}
	}
}

// lengths is a device that checks that no length in the arguments of an operation is negative.
type lengths struct {
	kernel.Device
	seen, least int32
}

func (l *lengths) look(t kernel.Tensor) error {
	v := make([]int32, t.Rows)
	if err := kernel.ReadI32(l.Device, v, t); err != nil {
		return err
	}
	for _, n := range v {
		l.seen++
		l.least = min(l.least, n)
	}
	return nil
}

func (l *lengths) Do(op kernel.Op) error {
	var err error
	switch a := op.(type) {
	case kernel.ScoreArgs:
		err = l.look(a.Lens)
	case kernel.SelectArgs:
		err = l.look(a.Lens)
	case kernel.SparseArgs:
		err = l.look(a.Lens)
	}
	if err != nil {
		return err
	}
	return l.Device.Do(op)
}

// Padding requests of length 0 in verification and draft batches have rows at negative positions. These rows must read
// and write no key, and no operation may get a negative length. The runner forms no such requests, so the test runs the
// passes on the model directly.
func TestPaddedRowsHaveNoNegativeLength(t *testing.T) {
	watch := &lengths{}
	m := loadDrafting(t, "v32-tiny", "cpu", func(d kernel.Device) kernel.Device { watch.Device = d; return watch })
	for _, mode := range []plan.Mode{plan.ModeVerify, plan.ModeDraft} {
		b := newBench(t, m, plan.Policy{KV: "fp8-656", Speculation: plan.Speculation{Tokens: 2}})
		tokens, pages := b.prompt(1, 150), b.pages(160)
		arena, err := kernel.NewArena(m.Device(), 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		work := m.Bind(arena, 140)
		mark := arena.Mark()
		run := func(batch plan.Batch, in model.Input) error {
			p, err := plan.Build(b.cfg, batch)
			if err != nil {
				return err
			}
			in.Plan, in.Config, in.Batch.Batch, in.PageTokens = p, &b.cfg, &batch, b.cfg.Page
			arena.Reset(mark)
			pass, err := work.Arrange(p, &b.cfg, arena)
			if err != nil || !arena.Fits() {
				return fmt.Errorf("%d bytes: %w", arena.High(), err)
			}
			block := make([]int32, p.InputWords)
			if err := pass.Prepare(&in, block); err != nil {
				return err
			}
			if err := kernel.WriteI32(m.Device(), pass.Inputs(), block); err != nil {
				return err
			}
			program, err := pass.Program()
			if err == nil {
				err = program.Run(0, program.Len())
			}
			pass.Ended(err)
			return err
		}
		prompt := model.Input{Tokens: [][]int32{tokens[:140]}}
		prompt.Tables = [][]int32{pages}
		if err := run(plan.NewBatch(plan.ModeExtend, plan.ExtendRequest(140, 0)), prompt); err != nil {
			t.Fatal(err)
		}
		watch.seen, watch.least = 0, 0
		batch := plan.NewBatch(mode, plan.Request{Seq: 140, N: 2, Logits: 1}, plan.Request{Seq: 0, N: 2})
		in := model.Input{Tokens: [][]int32{{1, 2}, {3, 4}}, Hidden: [][]int32{{138, 139}, {0, 0}}}
		in.Tables = [][]int32{pages, {}}
		// A verification begins at the end of the cached tokens: here two rows at positions 0 and 1 of an empty
		// sequence, which need a page.
		if mode == plan.ModeVerify {
			in.Tables[1] = b.pages(2)
		} else {
			batch.Pass = plan.PassDraft
		}
		if err := run(batch, in); err != nil {
			t.Errorf("%v: %v", mode, err)
		}
		if watch.seen == 0 || watch.least < 0 {
			t.Errorf("mode %v: %d lengths were checked, the smallest is %d", mode, watch.seen, watch.least)
		}
	}
}

func TestDraftRefuses(t *testing.T) {
	m := loadDrafting(t, "v32-tiny", "cpu", nil)
	b := newBench(t, m, plan.Policy{Speculation: plan.Speculation{Tokens: 3}})
	tokens, pages := b.prompt(1, 10), b.pages(20)
	b.step(step.Work{Kind: plan.ModeExtend, Tokens: tokens, Pages: pages})
	for _, c := range []struct {
		name    string
		work    step.Draft
		chained bool
		want    string
	}{
		{"no rows", step.Draft{Kind: plan.ModeDraft, Pages: pages}, false, "no tokens"},
		{"rows that were not computed", step.Draft{Kind: plan.ModeDraft, Tokens: tokens, Pages: pages, From: 1}, false,
			"work 1"},
		{"more rows than were computed", step.Draft{Kind: plan.ModeDraft, Tokens: append(tokens, 1), Pages: pages},
			false, "computed only 10 rows"},
		{"a chain without a previous pass", step.Draft{Kind: plan.ModeDraft, Tokens: tokens[:1], Pages: pages,
			Logits: true},
			true, "previous pass had 0 drafts"},
		{"more drafts than are verified", step.Draft{Kind: plan.ModeDraft, Tokens: tokens, Pages: pages, Logits: true,
			Sampled: 1, Right: make([]step.Range, 3)}, false,
			"3 drafts in Right; the configuration verifies at most 2"},
		{"drafts among tokens that the host knows", step.Draft{Kind: plan.ModeDraft, Tokens: tokens, Pages: pages,
			Logits: true,
			Right:  make([]step.Range, 1)}, false, "no token is read from the target"},
		{"tokens of a row that does not exist", step.Draft{Kind: plan.ModeDraft, Tokens: tokens, Pages: pages,
			Logits: true, Sampled: 5}, false, "no such row"},
		{"a decode", step.Draft{Kind: plan.ModeDecode, Tokens: tokens[:1], Pages: pages}, false,
			"does not support mode decode"},
		{"a token outside the vocabulary", step.Draft{Kind: plan.ModeDraft, Tokens: []int32{99999}, Pages: pages},
			false, "99999"},
		{"positions that the model does not have", step.Draft{Kind: plan.ModeDraft, Tokens: tokens, Cached: 1 << 30,
			Pages: pages},
			false, "positions"},
	} {
		if _, err := b.run.Draft([]step.Draft{c.work}, c.chained); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	plain := newBench(t, m, plan.Policy{})
	plain.step(step.Work{Kind: plan.ModeExtend, Tokens: tokens, Pages: pages})
	if _, err := plain.run.Draft([]step.Draft{{Kind: plan.ModeDraft, Tokens: tokens, Pages: pages}},
		false); err == nil || !strings.Contains(err.Error(), "no cache") {
		t.Errorf("drafting in a configuration without drafts: error %v", err)
	}
	if v, p := m.PageBytes(&b.cfg), m.PageBytes(&plain.cfg); v <= p {
		t.Errorf("a page takes %d bytes with the drafting layer, %d without", v, p)
	}
	headless := open(t, "deepseek_v32-1", "cpu")
	h := newBench(t, headless, plan.Policy{})
	tokens = h.prompt(1, 10)
	h.step(step.Work{Kind: plan.ModeExtend, Tokens: tokens, Pages: pages})
	if _, err := h.run.Draft([]step.Draft{{Kind: plan.ModeDraft, Tokens: tokens, Pages: pages}}, false); err == nil ||
		!strings.Contains(err.Error(), "eh_proj") {
		t.Errorf("drafting without a drafting layer: error %v", err)
	}
}
