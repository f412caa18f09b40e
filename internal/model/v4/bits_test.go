package v4_test

import (
	"fmt"
	"slices"
	"testing"

	"sparrow/internal/model/v4"
	"sparrow/internal/step"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testmodel"
	"sparrow/plan"
)

// A namedPolicy holds a cache layout, a kernel that reads it, and a name.
type namedPolicy struct {
	name   string
	policy plan.Policy
}

// policies lists all layouts with their kernels.
var policies = []namedPolicy{
	{"exact entries", plan.Policy{KV: "f32"}},
	{"584-byte pages through a workspace", plan.Policy{KV: "fp8"}},
	{"584-byte pages in place", plan.Policy{KV: "fp8", Prefill: "v4-paged"}},
	{"deterministic", plan.Policy{Deterministic: true}},
	{"four-bit indexer keys", plan.Policy{KV: "v4-584", FP4Index: true}},
}

// chosen returns the policies of a test run: two of them, or all with -long.
func chosen() []namedPolicy {
	if *long {
		return policies
	}
	return []namedPolicy{policies[1], policies[4]}
}

// compared returns the folder of the model whose bits are compared: the smallest one, with a layer of each kind, or
// with -long the one of the reference outputs, with two layers of each kind. TestV4Exact of package verify compares
// chunks of the latter with those outputs.
func compared(t *testing.T) string {
	t.Helper()
	if *long {
		return oracle
	}
	return testmodel.V4(t)
}

// thorough reports whether every case runs. That is so with -long, and on a GPU, where the cases take little time.
func thorough(b *steps.Bench) bool { return *long || b.Config.Hardware.Arch == plan.SM90 }

// A prompt gives the same logits and the same cache bytes with any division into chunks, also at every boundary of a
// group of 4, of a group of 128, of the window and of a page.
func TestChunkedEqualsWhole(t *testing.T) {
	testChunkedEqualsWhole(t, steps.Open[*v4.Model](t, compared(t), "cpu"), policies)
}

func testChunkedEqualsWhole(t *testing.T, m *v4.Model, policies []namedPolicy) {
	for _, p := range policies {
		t.Run(p.name, func(t *testing.T) {
			b := steps.New(t, m, p.policy)
			// 300 tokens contain the end of a page, two groups of 128, and more groups of 4 than are selected. 640
			// tokens contain two ends of pages.
			type cut struct {
				tokens int
				chunks []int
			}
			cuts := []cut{{300, []int{11, 129}}} // each kind of boundary is cut once
			if !thorough(b) && p.policy.KV != "v4-584" {
				cuts = []cut{{300, []int{129}}} // other cases cut small groups
			}
			switch main := p.policy.KV == "fp8" && p.policy.Prefill == ""; {
			case main && thorough(b):
				cuts = []cut{{300, []int{1, 3, 4, 5}}, {640, []int{127, 128, 129, 255, 256, 257}}}
			case main:
				cuts = []cut{{140, []int{1}}, {300, []int{3}}, {640, []int{127, 256}}}
			}
			for _, x := range cuts {
				b.Reset()
				want := b.Chunks(b.Sequence(1, x.tokens), 0)
				bytes := b.Bytes()
				for _, c := range x.chunks {
					b.Reset()
					b.SameBits(fmt.Sprintf("chunks of %d", c), b.Chunks(b.Sequence(1, x.tokens), c), want)
					b.SameBytes(fmt.Sprintf("chunks of %d", c), b.Bytes(), bytes)
				}
			}
		})
	}
}

// A prefix computed as a prompt and the rest token by token gives the same caches and logits as a whole prompt, for
// any prefix modulo 4 and modulo 128.
func TestDecodeEqualsPrefill(t *testing.T) {
	testDecodeEqualsPrefill(t, steps.Open[*v4.Model](t, compared(t), "cpu"), chosen())
}

func testDecodeEqualsPrefill(t *testing.T, m *v4.Model, policies []namedPolicy) {
	for _, p := range policies {
		t.Run(p.name, func(t *testing.T) {
			b := steps.New(t, m, p.policy)
			prefixes := []int{1, 2, 3, 4, 5, 125, 126, 127, 128, 129, 254, 255, 256, 257, 258, 259, 260}
			switch {
			case p.policy.KV != "fp8" || p.policy.Prefill != "":
				prefixes = []int{3, 127, 257}
			case !thorough(b):
				prefixes = []int{1, 2, 3, 4, 125, 128, 254, 257}
			}
			for _, n := range prefixes {
				b.Reset()
				total := n + 6
				want := b.Chunks(b.Sequence(2, total), 0)
				bytes := b.Bytes()
				b.Reset()
				s := b.Sequence(2, total)
				got := b.Step(s.Work(plan.ModeExtend, n))
				got = append(got, b.Decode(s, 2)...)
				got = append(got, b.Step(s.Work(plan.ModeVerify, 4))...)
				b.SameBits(fmt.Sprintf("%d tokens and 6 more", n), got, want)
				b.SameBytes(fmt.Sprintf("%d tokens and 6 more", n), b.Bytes(), bytes)
			}
		})
	}
}

// A row's bits are the same alone and in any batch, with prompts, decodes and verifies. Lengths are around every
// boundary; a prompt of 1 token has an empty compressed stream in a batch with full ones.
func TestBatchedEqualsAlone(t *testing.T) {
	testBatchedEqualsAlone(t, steps.Open[*v4.Model](t, compared(t), "cpu"), chosen())
}

func testBatchedEqualsAlone(t *testing.T, m *v4.Model, policies []namedPolicy) {
	lengths := []int{1, 3, 4, 127, 128, 131, 255, 256, 300}
	// After their prompts some sequences decode, some verify, and one continues its prompt.
	next := func(s *steps.Sequence, i int) step.Work {
		switch i % 3 {
		case 1:
			return s.Work(plan.ModeVerify, 3)
		case 2:
			return s.Work(plan.ModeExtend, 5)
		}
		return s.Work(plan.ModeDecode, 1)
	}
	for _, p := range policies {
		t.Run(p.name, func(t *testing.T) {
			b := steps.New(t, m, p.policy)
			if thorough(b) {
				b.BatchedEqualsAlone(lengths, next)
				return
			}
			b.BatchedEqualsAlone([]int{1, 3, 4, 127, 128, 256, 300}, next)
		})
	}
}

// Attention over the gathered workspace and over pages gives the same bits: the values of 584-byte entries are exact in
// bf16, and both kernels read them in the same order.
func TestWorkspaceEqualsPages(t *testing.T) {
	m := steps.Open[*v4.Model](t, compared(t), "cpu")
	lengths := []int{2, 130, 700}
	var want [][][]float32
	var bytes [][]byte
	flat := steps.New(t, m, plan.Policy{KV: "fp8"})
	for _, n := range lengths {
		flat.Reset()
		want = append(want, flat.Chunks(flat.Sequence(4, n), 301))
		bytes = append(bytes, flat.Bytes())
	}
	paged := steps.New(t, m, plan.Policy{KV: "fp8", Prefill: "v4-paged"})
	if flat.Config.Prefill != plan.V4Flat || paged.Config.Prefill != plan.V4Paged {
		t.Fatalf("prefill by %v and %v", flat.Config.Prefill, paged.Config.Prefill)
	}
	for i, n := range lengths {
		paged.Reset()
		paged.SameBits(fmt.Sprintf("%d tokens", n), paged.Chunks(paged.Sequence(4, n), 0), want[i])
		paged.SameBytes(fmt.Sprintf("%d tokens", n), paged.Bytes(), bytes[i])
	}
}

// A small memory limit divides segments into launches and scores into chunks; the division changes no bit.
func TestSlicingKeepsBits(t *testing.T) {
	m := steps.Open[*v4.Model](t, compared(t), "cpu")
	chosen := policies
	if !*long {
		chosen = []namedPolicy{policies[1], policies[2], policies[4]}
	}
	for _, p := range chosen {
		t.Run(p.name, func(t *testing.T) {
			whole := steps.New(t, m, p.policy)
			const n = 400
			uncut, err := whole.Runner.Run([]step.Work{whole.Sequence(1, n).Work(plan.ModeExtend, n)})
			if err != nil {
				t.Fatal(err)
			}
			var want [][]float32
			for i := range n {
				want = append(want, slices.Clone(uncut.Row(i)))
			}
			facts, policy := m.Facts(), p.policy
			facts.Context, policy.MaxTransient = n, uncut.Plan.TransientBytes*2/3
			cfg, _, err := plan.Resolve(whole.Config.Hardware, facts, policy)
			if err != nil {
				t.Fatal(err)
			}
			sliced := steps.Of(t, m, cfg, step.Limits{Rows: n, Requests: 1, Prompts: 1, PromptLogits: n})
			res, err := sliced.Runner.Run([]step.Work{sliced.Sequence(1, n).Work(plan.ModeExtend, n)})
			if err != nil {
				t.Fatal(err)
			}
			cuts := 0
			for _, seg := range res.Plan.Segments {
				cuts += len(seg.Launches) - 1 + max(seg.Indexer.Chunks-1, 0)
			}
			if cuts == 0 {
				t.Fatal("nothing was cut; the reserve was meant to")
			}
			var got [][]float32
			for i := range want {
				got = append(got, res.Row(i))
			}
			sliced.SameBits(fmt.Sprintf("%d cuts", cuts), got, want)
		})
	}
}
