package verify_test

import (
	"fmt"
	"strings"
	"testing"

	"sparrow/internal/device/group"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/testkit/strict"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
	"sparrow/plan"
	"sparrow/verify"
)

// openRanks loads a checkpoint on several ranks and checks that all ranks have the same bits in memory that is read.
func openRanks(t *testing.T, name, kernels string, ranks int, how plan.Division, o kernel.Options) model.Model {
	t.Helper()
	src, err := family.Open(folder(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	o.Workers = 1
	return onRanks(t, src, ranks, how, func() (kernel.Device, error) {
		return kernel.NewRegistry(cpu.Backends(), ref.Backends()).Open(kernels, o)
	})
}

// onRanks loads a checkpoint on ranks that open makes.
func onRanks(t *testing.T, src *family.Source, ranks int, how plan.Division,
	open func() (kernel.Device, error)) model.Model {
	t.Helper()
	var devs []kernel.Device
	for range ranks {
		dev, err := open()
		if err != nil {
			t.Fatal(err)
		}
		devs = append(devs, dev)
	}
	g, err := group.New(devs, group.Options{Compare: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	m, err := src.LoadRanks(g, how, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// besideRanks verifies cases of a checkpoint on ranks with bf16 activations, compared with the reference. golden is the
// folder of the golden outputs.
func besideRanks(t *testing.T, name, golden, kv string, chunk, ranks int, how plan.Division,
	open func() (kernel.Device, error)) {
	t.Helper()
	src, err := family.Open(folder(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	m := onRanks(t, src, ranks, how, open)
	hw, err := model.Hardware(m.Device())
	if err != nil {
		t.Fatal(err)
	}
	facts, err := family.Facts(src.Model)
	if err != nil {
		t.Fatal(err)
	}
	var cfg [2]plan.Config // configurations of the ranks and of the reference
	for i, f := range []plan.Model{m.Facts(), facts} {
		if cfg[i], _, err = plan.Resolve(hw, f, plan.Policy{KV: kv}); err != nil {
			t.Fatal(err)
		}
	}
	reference, err := verify.NewRanksReference(src, m.Device(), cfg[1])
	if err != nil {
		t.Fatal(err)
	}
	r, err := verify.Run(golden, m, verify.Options{Config: cfg[0], Chunk: chunk, Reference: reference})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
	if !r.Passed {
		t.Error("out of tolerance")
	}
}

// The rules of a GPU accept every operation of the oracle checkpoints on ranks, and with bf16 activations the answers
// equal those of the independent implementation as far as rounding allows.
func TestRanksByADevicesRules(t *testing.T) {
	for _, c := range gpuRanks {
		t.Run(c.name+"/"+c.how.String(), func(t *testing.T) {
			if c.long != "" && !*long {
				t.Skip("make long runs it: " + c.long)
			}
			besideRanks(t, c.name, someCases(t, folder(c.name), []string{"short"}), c.kv, c.chunk, c.ranks, c.how,
				func() (kernel.Device, error) {
					host, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 1})
					if err != nil {
						return nil, err
					}
					return strict.Open(host)
				})
		})
	}
}

// gpuRanks lists the checkpoints that are verified on ranks of a GPU, or by its rules.
var gpuRanks = []struct {
	name  string
	kv    string
	chunk int
	ranks int
	how   plan.Division
	long  string // names the similar cases that replace it without -long
}{
	{"deepseek_v32-1", "bf16", 0, 2, plan.ByHeads, ""},
	{"deepseek_v32-fp8-1", "fp8-656", 61, 4, plan.ByHeads, ""}, // two of the four heads are padding
	{"deepseek_v32-fp8-1", "fp8-656", 61, 2, plan.ByRequests, "these rows by heads, GLM-5 by requests"},
	{"glm_moe_dsa-1", "fp8-656", 0, 2, plan.ByHeads, "these rows of DeepSeek-V3.2"},
	{"glm_moe_dsa-1", "fp8-576", 61, 2, plan.ByRequests, ""},
	{v4, "fp8", 129, 2, plan.ByHeads, ""},
	{v4, "fp8", 129, 2, plan.ByRequests, ""},
}

// Ranks that share a model agree with the independent implementation as one device does. Heads or requests, experts and
// vocabulary are divided, FP8 weights are cut between blocks and inside them, and prompts run whole and in chunks. The
// checkpoints have two heads (DeepSeek-V4's two groups of two), so on four ranks by heads the heads of two ranks are
// padding.
func TestRanks(t *testing.T) {
	for _, c := range []struct {
		name  string
		kv    string
		ranks int
		how   plan.Division
		chunk int
		long  string // names the case that replaces it without -long
	}{
		{"deepseek_v32-1", "f32", 2, plan.ByHeads, 0, "four ranks"},
		{"deepseek_v32-1", "f32", 4, plan.ByHeads, 64, "four ranks with FP8 weights"},
		{"deepseek_v32-fp8-1", "f32", 2, plan.ByHeads, 64, ""},
		{"deepseek_v32-fp8-1", "f32", 4, plan.ByHeads, 0, ""},
		{"glm_moe_dsa-1", "f32", 2, plan.ByHeads, 64, ""},
		{"glm_moe_dsa-1", "f32", 4, plan.ByHeads, 0, "two ranks"},
		{v4, "f32", 2, plan.ByHeads, 129, ""},
		{v4, "f32", 4, plan.ByHeads, 0, "four ranks of DeepSeek-V3.2, two of this by requests"},
		{"deepseek_v32-1", "fp8", 2, plan.ByHeads, 0, "TestRanksByADevicesRules has these rows"},
		{"deepseek_v32-1", "f32", 2, plan.ByRequests, 64, ""},
		{"deepseek_v32-1", "f32", 4, plan.ByRequests, 0, "two ranks"},
		{"deepseek_v32-fp8-1", "f32", 4, plan.ByRequests, 0, "four ranks of GLM-5, and FP8 weights by heads"},
		{"glm_moe_dsa-1", "f32", 2, plan.ByRequests, 0, "four ranks"},
		{"glm_moe_dsa-1", "f32", 4, plan.ByRequests, 64, ""},
		{v4, "f32", 2, plan.ByRequests, 0, ""},
		{v4, "f32", 4, plan.ByRequests, 129, "two ranks"},
		{"deepseek_v41-1", "f32", 2, plan.ByHeads, 129, ""},
		{"deepseek_v41-1", "f32", 2, plan.ByRequests, 0, "two ranks by heads"},
		{"deepseek_v32-1", "fp8", 4, plan.ByRequests, 64, "two ranks by heads, four in float32"},
	} {
		t.Run(fmt.Sprintf("%s/%s/%d ranks %v", c.name, c.kv, c.ranks, c.how), func(t *testing.T) {
			if c.long != "" && !*long {
				t.Skip("make long runs it: " + c.long)
			}
			if c.name == "deepseek_v41-1" {
				c.name = unpacked(t, c.name)
			}
			m := openRanks(t, c.name, "cpu", c.ranks, c.how, kernel.Options{Precise: c.kv == "f32"})
			if got := m.Facts(); got.Ranks != c.ranks || got.Division != c.how {
				t.Fatalf("%d ranks %v", got.Ranks, got.Division)
			}
			golden := c.name
			if c.chunk == 0 || c.ranks > 2 { // two ranks verify the longest case of each family in chunks
				golden = shorter(t, c.name)
			}
			run(t, golden, m, plan.Policy{KV: c.kv}, c.chunk)
		})
	}
}
