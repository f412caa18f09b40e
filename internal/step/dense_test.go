package step_test

import (
	"testing"

	"sparrow/internal/cuda/op"
	"sparrow/internal/model"
	"sparrow/internal/step"
	"sparrow/internal/testkit/archive"
	"sparrow/internal/testkit/gpu"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/plan"
)

// openDense loads a reference checkpoint of a model without an indexer.
func openDense(t *testing.T, kernels string) model.Model {
	t.Helper()
	const name = "deepseek_v3-1"
	o := gpu.Options()
	o.Workers = 1
	dev, err := kernel.NewRegistry(cpu.Backends(), op.Backends()).Open(kernels, o)
	if err != nil {
		t.Fatal(err)
	}
	return loadOn(t, archive.Unpack(t, "../../testdata/oracle/"+name+".tar.gz")+"/"+name, dev)
}

// In a model without an indexer, the logits of a row are bitwise equal alone and in a batch, mixed with decodes, in
// chunks and as a whole prompt. The prompts are shorter than, as long as, and longer than the threshold of expanded
// keys.
func TestDenseModelRowBitsDoNotDependOnTheBatch(t *testing.T) {
	testDenseRowBits(t, openDense(t, "cpu"), []setting{
		{"bf16 pages", plan.Policy{KV: "bf16", DenseThreshold: 128}},
		{"656-byte pages", plan.Policy{KV: "fp8-656", Dense: plan.SwitchOff}},
	})
}

// On a GPU the keys of a row are divided among the SMs. The division depends only on the length of the row.
func TestGPUDenseModelRowBitsDoNotDependOnTheBatch(t *testing.T) {
	gpuSettings(t)
	var list []setting
	for _, kv := range []string{"bf16", "fp8-656", "fp8-576"} {
		for _, split := range []plan.KeySplit{plan.SplitWhole, plan.Split256} {
			list = append(list, setting{kv + ", " + split.Says(),
				plan.Policy{KV: kv, DenseThreshold: 128, SplitKeys: split}})
		}
	}
	list = append(list, setting{"dense off", plan.Policy{KV: "fp8-656", Dense: plan.SwitchOff}})
	testDenseRowBits(t, openDense(t, gpu.Name()), list)
}

func testDenseRowBits(t *testing.T, m model.Model, settings []setting) {
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			b := newBench(t, m, s.policy)
			lengths := []int{90, 128, 129, 300}
			var alone [][][]float32
			for i, n := range lengths {
				alone = append(alone, b.whole(b.prompt(i, n)))
			}
			b.batched(lengths, alone)
			b.chunked(lengths[3], alone[3], []int{1, 7, 200})
			b.mixed(lengths, alone)
		})
	}
}

// In deterministic mode, the logits of a token that is computed as part of a prompt are bitwise equal to those when it
// was generated.
func TestDenseModelDeterministicPrefillEqualsDecode(t *testing.T) {
	testDenseDeterministic(t, openDense(t, "cpu"), plan.Policy{KV: "fp8-576", Deterministic: true})
}

func TestGPUDenseModelDeterministicPrefillEqualsDecode(t *testing.T) {
	gpuSettings(t)
	m := openDense(t, gpu.Name())
	for _, kv := range []string{"bf16", "fp8-656", "fp8-576"} {
		testDenseDeterministic(t, m, plan.Policy{KV: kv, Deterministic: true})
	}
}

func testDenseDeterministic(t *testing.T, m model.Model, p plan.Policy) {
	t.Helper()
	b := newBench(t, m, p)
	const n = 200
	tokens, pages := b.prompt(5, n+6), b.pages(n+6)
	got := b.step(step.Work{Kind: plan.ModeExtend, Tokens: tokens[:n], Pages: pages, Logits: n})
	for i := n; i < n+4; i++ {
		got = append(got, b.step(step.Work{Kind: plan.ModeDecode, Tokens: tokens[i : i+1], Cached: i, Pages: pages,
			Logits: 1})...)
	}
	got = append(got, b.step(step.Work{Kind: plan.ModeVerify, Tokens: tokens[n+4:], Cached: n + 4, Pages: pages,
		Logits: 2})...)
	b.reset()
	b.sameBits("206 tokens", got, b.whole(tokens))
}
