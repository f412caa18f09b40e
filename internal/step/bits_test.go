package step_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"sparrow/internal/cuda/op"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/step"
	"sparrow/internal/testkit/gpu"
	"sparrow/internal/testkit/testflag"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
	"sparrow/plan"
)

// long enables test cases whose properties other tests already imply. make long sets it.
var long = testflag.Long

// setting is a cache layout and the kernels that read the layout.
type setting struct {
	name   string
	policy plan.Policy
}

// settings lists the settings for a CPU.
var settings = []setting{
	{"exact float32 rows", plan.Policy{KV: "f32"}},
	{"bf16 pages", plan.Policy{KV: "bf16"}},
	{"656-byte pages", plan.Policy{KV: "fp8-656"}},
	{"576-byte pages", plan.Policy{KV: "fp8-576"}},
	{"656-byte prefill over 576-byte pages", plan.Policy{KV: "fp8-576", Prefill: "sparse-block", Decode: "sparse-raw"}},
	{"rows gathered from 656-byte pages", plan.Policy{KV: "fp8-656", Prefill: "sparse-flat"}},
	{"rows gathered from 576-byte pages", plan.Policy{KV: "fp8-576", Prefill: "sparse-flat", Decode: "sparse-raw"}},
	{"dense off, 656-byte pages", plan.Policy{KV: "fp8-656", Dense: plan.SwitchOff}},
}

// bench holds a model, its configuration and the free pages of its cache.
type bench struct {
	*testing.T
	m      model.Model
	cfg    plan.Config
	record plan.Record
	run    *step.Runner
	// recorded is the kinds of data that the passes of run may record.
	recorded plan.Record
	next     int32
}

const benchPages = 120

func open(t *testing.T, checkpoint, kernels string) model.Model {
	t.Helper()
	src, err := family.Open("../../testdata/oracle/" + checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	backends := kernel.NewRegistry(cpu.Backends(), op.Backends(), ref.Backends())
	o := gpu.Options()
	o.Workers = 1
	dev, err := backends.Open(kernels, o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close(); src.Close() })
	return m
}

func newBench(t *testing.T, m model.Model, p plan.Policy) *bench {
	t.Helper()
	hw, err := model.Hardware(m.Device())
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), p)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, m: m, cfg: cfg}
	b.reset()
	return b
}

// reset clears the cache and marks all pages as free.
func (b *bench) reset() {
	b.Helper()
	if err := b.m.Allocate(&b.cfg, benchPages); err != nil {
		b.Fatal(err)
	}
	b.next = 1
	// Passes without graphs look up the cache when they run, so the runner stays valid after the cache is cleared;
	// captured passes contain cache addresses, so they need a new runner.
	if _, captures := b.m.Device().(kernel.Capturer); b.run != nil && b.recorded == b.record && !captures {
		return
	}
	if b.run != nil {
		b.run.Close()
	}
	limits := step.Limits{Rows: 700, Requests: 8, Context: min(b.cfg.Model.Context, 512), PromptLogits: 700,
		Draws: true, Record: b.record}
	run, err := step.New(b.m, b.cfg, limits)
	if err != nil {
		b.Fatal(err)
	}
	b.run, b.recorded = run, b.record
}

// pages allocates scattered pages for n tokens.
func (b *bench) pages(n int) []int32 {
	out := make([]int32, (n+b.cfg.Page-1)/b.cfg.Page)
	for i := range out {
		out[i] = b.next * 37 % benchPages
		b.next++
	}
	return out
}

// prompt returns n tokens that depend on the seed.
func (b *bench) prompt(seed, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((i*i*7 + i*31*seed + seed*977) % b.m.Config().Vocab)
	}
	return out
}

// step runs works in one pass and returns the requested rows of logits, each [vocabulary].
func (b *bench) step(works ...step.Work) [][]float32 {
	b.Helper()
	res, err := b.run.Run(works)
	if err != nil {
		b.Fatal(err)
	}
	var out [][]float32
	for i := range len(res.Logits) / max(res.Vocab, 1) {
		out = append(out, append([]float32(nil), res.Row(i)...))
	}
	return out
}

// whole runs a prompt alone in one step and returns the logits of every position.
func (b *bench) whole(tokens []int32) [][]float32 {
	b.Helper()
	return b.step(step.Work{Kind: plan.ModeExtend, Tokens: tokens, Pages: b.pages(len(tokens)), Logits: len(tokens)})
}

func (b *bench) sameBits(what string, got, want [][]float32) {
	b.Helper()
	if len(got) != len(want) {
		b.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	for r := range want {
		for i := range want[r] {
			if math.Float32bits(got[r][i]) != math.Float32bits(want[r][i]) {
				b.Fatalf("%s: row %d logit %d is %v, want %v bitwise", what, r, i, got[r][i], want[r][i])
			}
		}
	}
}

// The logits of a row are bitwise equal whether its sequence is computed alone or in a batch, mixed with decodes, in
// chunks or whole, in every layout. index_topk is 128; the prompts are shorter, equally long and longer.
func TestRowBitsDoNotDependOnTheBatch(t *testing.T) { testRowBits(t, "cpu", settings) }

// gpuSettings returns the settings for a GPU, which supports no cache with float32 rows. It skips the test if there is
// no GPU.
func gpuSettings(t *testing.T) []setting {
	t.Helper()
	gpu.Need(t)
	return settings[1:]
}

func TestGPURowBitsDoNotDependOnTheBatch(t *testing.T) { testRowBits(t, gpu.Name(), gpuSettings(t)) }

func testRowBits(t *testing.T, kernels string, settings []setting) {
	for _, checkpoint := range []string{"deepseek_v32-fp8-1", "glm_moe_dsa-1"} {
		m := open(t, checkpoint, kernels)
		for _, s := range settings {
			t.Run(checkpoint+"/"+s.name, func(t *testing.T) {
				if kernels == "cpu" && checkpoint == "glm_moe_dsa-1" && !*long && s.name != "656-byte pages" {
					t.Skip("only make long runs this case: other cases test these rows with another checkpoint, and " +
						"this checkpoint with 656-byte rows")
				}
				skipLayout(t, kernels, s)
				b := newBench(t, m, s.policy)
				lengths := []int{90, 128, 129, 300}
				var alone [][][]float32
				for i, n := range lengths {
					alone = append(alone, b.whole(b.prompt(i, n)))
				}
				chunks := []int{1, 7, 64, 128, 200}
				switch {
				case kernels != "cpu" || *long:
				case checkpoint == "glm_moe_dsa-1" || s.name != "656-byte pages":
					chunks = []int{23, 200} // the 656-byte pages of the other models test more sizes
				default:
					chunks = []int{7, 23, 128} // the last chunk of size 23 has one token
				}
				b.batched(lengths, alone)
				b.chunked(lengths[3], alone[3], chunks)
				b.mixed(lengths, alone)
			})
		}
	}
}

// skipLayout skips a test on a CPU, unless make long runs it, if another setting has the same kernels for other rows.
func skipLayout(t *testing.T, kernels string, s setting) {
	t.Helper()
	if kernels == "cpu" && !*long && (s.policy.KV == "bf16" || s.policy.KV == "f32" ||
		s.policy.KV == "fp8-576" && s.policy.Prefill != "sparse-block") {
		t.Skip("only make long runs this case: other cases test other rows with the same kernels")
	}
}

// batched runs all prompts in one step and compares their logits with those of lone runs.
func (b *bench) batched(lengths []int, alone [][][]float32) {
	b.Helper()
	b.reset()
	var works []step.Work
	var want [][]float32
	for i, n := range lengths {
		works = append(works, step.Work{Kind: plan.ModeExtend, Tokens: b.prompt(i, n), Pages: b.pages(n), Logits: n})
		want = append(want, alone[i]...)
	}
	b.sameBits("batched", b.step(works...), want)
}

// chunked runs one prompt in chunks and compares its logits with those of the whole prompt.
func (b *bench) chunked(n int, alone [][]float32, chunks []int) {
	b.Helper()
	for _, chunk := range chunks {
		b.reset()
		tokens, pages := b.prompt(3, n), b.pages(n)
		var got [][]float32
		for at := 0; at < n; at += chunk {
			part := tokens[at:min(at+chunk, n)]
			got = append(got,
				b.step(step.Work{Kind: plan.ModeExtend, Tokens: part, Cached: at, Pages: pages, Logits: len(part)})...)
		}
		b.sameBits(fmt.Sprintf("chunks of %d", chunk), got, alone)
	}
}

// mixed decodes one sequence in a batch with a verification and a prompt, and compares each with its result alone.
func (b *bench) mixed(lengths []int, alone [][][]float32) {
	b.Helper()
	long, short := b.prompt(3, lengths[3]+4), b.prompt(0, lengths[0]+1)
	prefix := func() (p, q []int32) {
		b.reset()
		p, q = b.pages(len(long)), b.pages(len(short))
		b.step(step.Work{Kind: plan.ModeExtend, Tokens: long[:lengths[3]], Pages: p},
			step.Work{Kind: plan.ModeExtend, Tokens: short[:lengths[0]], Pages: q})
		return p, q
	}
	p, q := prefix()
	verify := step.Work{Kind: plan.ModeVerify, Tokens: long[lengths[3]:], Cached: lengths[3], Pages: p, Logits: 4}
	decode := step.Work{Kind: plan.ModeDecode, Tokens: short[lengths[0]:], Cached: lengths[0], Pages: q, Logits: 1}
	want := append(b.step(verify), b.step(decode)...)
	want = append(want, alone[2]...)
	p, q = prefix()
	verify.Pages, decode.Pages = p, q
	extend := step.Work{Kind: plan.ModeExtend, Tokens: b.prompt(2, lengths[2]), Pages: b.pages(lengths[2]),
		Logits: lengths[2]}
	b.sameBits("mixed with decodes", b.step(verify, decode, extend), want)
}

// In deterministic mode, the logits of an output token that is recomputed as part of a prompt are bitwise equal to the
// first result. Therefore preemption and prefix reuse do not change results.
func TestDeterministicPrefillEqualsDecode(t *testing.T) { testDeterministic(t, "cpu", settings) }

func TestGPUDeterministicPrefillEqualsDecode(t *testing.T) {
	testDeterministic(t, gpu.Name(), gpuSettings(t))
}

func testDeterministic(t *testing.T, kernels string, settings []setting) {
	m := open(t, "deepseek_v32-fp8-1", kernels)
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			if s.policy.KV != "bf16" { // no other case that this mode accepts has the flat kernel
				skipLayout(t, kernels, s)
			}
			p := s.policy
			p.Deterministic = true
			if p.Prefill != "" {
				// Two kernels may round differently, so the planner refuses the pair.
				hw, _ := model.Hardware(m.Device())
				if _, _, err := plan.Resolve(hw, m.Facts(), p); !errors.Is(err, plan.E13) {
					t.Fatalf("got error %v, want E13", err)
				}
				return
			}
			b := newBench(t, m, p)
			for _, n := range []int{100, 126, 128, 129, 200} {
				b.reset()
				tokens, pages := b.prompt(5, n+6), b.pages(n+6)
				got := b.step(step.Work{Kind: plan.ModeExtend, Tokens: tokens[:n], Pages: pages, Logits: n})
				for i := n; i < n+4; i++ {
					got = append(got,
						b.step(step.Work{Kind: plan.ModeDecode, Tokens: tokens[i : i+1], Cached: i, Pages: pages,
							Logits: 1})...)
				}
				got = append(got,
					b.step(step.Work{Kind: plan.ModeVerify, Tokens: tokens[n+4:], Cached: n + 4, Pages: pages,
						Logits: 2})...)
				b.reset()
				b.sameBits(fmt.Sprintf("%d tokens and 6 more", n), got, b.whole(tokens))
			}
		})
	}
}

// If a selection would contain every key, dense attention gives the result of sparse attention up to rounding.
func TestDenseEqualsSparseUpToTopK(t *testing.T) {
	for _, checkpoint := range []string{"deepseek_v32-1", "glm_moe_dsa-1"} {
		m := open(t, checkpoint, "cpu")
		dense, sparse := newBench(t, m, plan.Policy{KV: "f32"}),
			newBench(t, m, plan.Policy{KV: "f32", Dense: plan.SwitchOff})
		// The rows of these prompts attend to every number of keys up to index_topk. The last rows end at different
		// offsets in tiles, pages and blocks.
		for _, n := range []int{1, 2, 3, 7, 15, 17, 32, 33, 63, 64, 65, 100, 127, m.Config().Indexer.TopK} {
			// Pages are allocated from page 1 again, so every row that is read was written for this prompt.
			dense.next, sparse.next = 1, 1
			got, want := dense.whole(dense.prompt(1, n)), sparse.whole(sparse.prompt(1, n))
			for r := range want {
				for i := range want[r] {
					if d := math.Abs(float64(got[r][i] - want[r][i])); d > 1e-3 {
						t.Fatalf("%s: %d tokens, row %d: logit %d is %v dense and %v sparse", checkpoint, n, r, i,
							got[r][i], want[r][i])
					}
				}
			}
		}
	}
}

// The user chooses the prefill kernel sparse-flat over FP8 rows. Decode must stay paged over the FP8 pages, and a
// decode batch must not change the layout of the next prompt.
func TestExplicitFlatPrefillKeepsDecodePaged(t *testing.T) {
	m := open(t, "deepseek_v32-1", "cpu")
	b := newBench(t, m, plan.Policy{KV: "fp8-656", Prefill: "sparse-flat"})
	tokens := b.prompt(1, 200)
	pages := b.pages(201)
	extend := func() *plan.Plan {
		res, err := b.run.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: tokens, Pages: pages, Logits: 1}})
		if err != nil {
			t.Fatal(err)
		}
		return res.Plan
	}
	before := extend()
	res, err := b.run.Run([]step.Work{
		{Kind: plan.ModeDecode, Tokens: tokens[:1], Cached: 200, Pages: pages, Logits: 1}})
	if err != nil {
		t.Fatal(err)
	}
	d := res.Plan.Segments[0]
	if d.Kernel != plan.SparseBlock || d.Transform != plan.TransformPaged || d.Convert != plan.ConvertNone {
		t.Errorf("decode runs %v, %v, convert %v; want sparse-block, paged, none", d.Kernel, d.Transform, d.Convert)
	}
	after := extend()
	if before.Key != after.Key {
		t.Errorf("a decode batch changed the plan of the next prompt from %v to %v", before.Key, after.Key)
	}
	s := after.Segments[len(after.Segments)-1]
	if s.Kernel != plan.SparseFlat || s.Transform != plan.TransformRagged || s.Convert != plan.ConvertGatherBF16 {
		t.Errorf("prompt runs %v, %v, convert %v; want sparse-flat, ragged, gather-bf16", s.Kernel, s.Transform,
			s.Convert)
	}
}

// A small reserve of transient memory divides segments into several launches, or scores into several chunks. The logits
// are bitwise equal with and without this division.
func TestSlicingKeepsBits(t *testing.T) { testSlicing(t, "cpu", settings) }

func TestGPUSlicingKeepsBits(t *testing.T) { testSlicing(t, gpu.Name(), gpuSettings(t)) }

func testSlicing(t *testing.T, kernels string, settings []setting) {
	m := open(t, "deepseek_v32-fp8-1", kernels)
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			skipLayout(t, kernels, s)
			whole := newBench(t, m, s.policy)
			var want [][]float32
			for i, n := range []int{300, 129} {
				want = append(want, whole.whole(whole.prompt(i, n))...)
			}
			works := []step.Work{}
			for i, n := range []int{300, 129} {
				works = append(works, step.Work{Kind: plan.ModeExtend, Tokens: whole.prompt(i, n),
					Pages: whole.pages(n), Logits: n})
			}
			uncut, err := whole.run.Run(works)
			if err != nil {
				t.Fatal(err)
			}
			facts, p := m.Facts(), s.policy
			facts.Context, p.MaxTransient = 300, uncut.Plan.TransientBytes*2/3
			cfg, _, err := plan.Resolve(whole.cfg.Hardware, facts, p)
			if kernels == gpu.Name() && errors.Is(err, plan.E17) {
				t.Skipf("the smallest reserve of a GPU holds all these rows: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			sliced := &bench{T: t, m: m, cfg: cfg}
			sliced.reset()
			res, err := sliced.run.Run(works)
			if err != nil {
				t.Fatal(err)
			}
			cuts := 0
			for _, seg := range res.Plan.Segments {
				cuts += len(seg.Launches) - 1 + max(seg.Indexer.Chunks-1, 0)
			}
			if cuts == 0 {
				t.Fatal("no segment was divided, want a division because of the small reserve")
			}
			var got [][]float32
			for i := range want {
				got = append(got, res.Row(i))
			}
			sliced.sameBits(fmt.Sprintf("%d cuts", cuts), got, want)
		})
	}
}
