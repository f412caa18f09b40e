package verify_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/cuda/op"
	"sparrow/internal/testkit/archive"
	"sparrow/internal/testkit/gpu"
	"sparrow/kernel"
	"sparrow/plan"
)

// On a GPU the reference checkpoints agree with the reference device with the same rounding, in every cache layout,
// with whole prompts and with chunks.
func TestGPUOracle(t *testing.T) {
	for _, name := range checkpoints {
		for _, kv := range []string{"bf16", "fp8-656", "fp8-576"} {
			for _, chunk := range []int{0, 61} {
				onGPU(t, name, kv, chunk, nil)
			}
		}
	}
}

// DeepSeek-V4 on a GPU agrees with the reference device, with chunks around the boundaries of groups of 4 and of 128,
// and of the window. The longest prompt is tested only with large chunks, so that it has few passes.
func TestGPUOracleV4(t *testing.T) {
	for _, chunk := range []int{0, 127, 128, 129} {
		onGPU(t, v4, "fp8", chunk, nil)
	}
	for _, chunk := range []int{1, 3, 4, 5} {
		onGPU(t, v4, "fp8", chunk, []string{"short", "at_topk"})
	}
}

// GLM-5.3-Flash on a GPU agrees with the reference device in both layouts, over rows in place, over gathered rows and
// with deterministic arithmetic. Prompts are whole or in chunks around the boundaries of pools and of 64 positions.
func TestGPUOracleNext(t *testing.T) {
	gpu.Need(t)
	dir := unpacked(t, glmNext)
	for _, p := range []plan.Policy{{KV: "bf16"}, {KV: "fp8"}, {KV: "fp8", Prefill: "sparse-flat"},
		{KV: "fp8", Deterministic: true}} {
		for _, chunk := range []int{0, 127} {
			onGPUFrom(t, dir, glmNext, p, chunk, nil)
		}
	}
	for _, prefill := range []string{"", "sparse-flat"} {
		onGPUFrom(t, dir, glmNext, plan.Policy{KV: "fp8", Prefill: prefill}, 3, []string{"short"})
	}
}

// DeepSeek-V4.1 on a GPU agrees with the reference device, with whole prompts and with chunks that cut pairs, windows
// and pages.
func TestGPUOracleV41(t *testing.T) {
	gpu.Need(t)
	dir := unpacked(t, "deepseek_v41-1")
	for _, chunk := range []int{0, 64, 127} {
		onGPUFrom(t, dir, "deepseek_v41-1", plan.Policy{KV: "fp8"}, chunk, nil)
	}
	for _, chunk := range []int{1, 3} {
		onGPUFrom(t, dir, "deepseek_v41-1", plan.Policy{KV: "fp8"}, chunk, []string{"short"})
	}
}

// A DSpark head on a GPU gives the drafts, confidences and logits after accepted drafts of the independent
// implementation, in addition to the checks of all checkpoints. Prompts end inside a window or fill it, and run whole
// and in chunks.
func TestGPUOracleDSpark(t *testing.T) {
	gpu.Need(t)
	dir := filepath.Join(archive.Unpack(t, "../testdata/oracle/deepseek_v4-dspark-1.tar.gz"), "deepseek_v4-dspark-1")
	for chunk, cases := range map[int][]string{0: {"short", "window"}, 127: {"group"}} {
		t.Run(fmt.Sprintf("chunks of %d", chunk), func(t *testing.T) {
			t.Parallel()
			dev := gpu.Open(t)
			t.Cleanup(func() { dev.Close() })
			golden := someCases(t, dir, cases)
			r := runBeside(t, dir, dev, plan.Policy{KV: "fp8"}, chunk, &golden)
			var text strings.Builder
			if err := r.Print(&text); err != nil {
				t.Fatal(err)
			}
			t.Log(text.String())
			for _, c := range r.Cases {
				for _, p := range c.Problems {
					t.Errorf("%s: %s", c.Name, p)
				}
				if b := c.Blocks; b == nil || b.Blocks < 10 || b.Forced != 8 || 5*b.DraftsEqual < 4*b.Drafts {
					t.Errorf("%s: drafts %+v; want those of 10 blocks or more, four of five equal, and 8 forced steps",
						c.Name, b)
				}
			}
		})
	}
}

// Models without an indexer agree with the reference device on a GPU in every layout. Prompts are whole or in chunks,
// in expanded form and, if they are long, in latent space. Decodes are in latent space at every length.
func TestGPUOracleDense(t *testing.T) {
	gpu.Need(t)
	for _, c := range dense {
		t.Run(c.name, func(t *testing.T) {
			dir := unpacked(t, c.name)
			for _, kv := range []string{"bf16", "fp8-656", "fp8-576"} {
				for _, x := range []struct{ chunk, threshold int }{{0, 0}, {61, 100}} {
					onGPUFrom(t, dir, "", plan.Policy{KV: kv, DenseThreshold: x.threshold}, x.chunk, nil)
				}
			}
		})
	}
}

// Ranks that are streams of one GPU agree with the reference device. The checkpoints run one after the other, because
// ranks of two checkpoints in one process waited for each other until their timeout. With a division by requests the
// longest prompt is omitted, because it takes the reference a long time.
func TestGPURanksOracle(t *testing.T) {
	gpu.Need(t)
	for _, c := range gpuRanks {
		t.Run(c.name+"/"+c.kv+"/"+c.how.String(), func(t *testing.T) {
			golden := folder(c.name)
			if c.how == plan.ByRequests {
				golden = someCases(t, golden, []string{"short", "at_topk"})
			}
			besideRanks(t, c.name, golden, c.kv, c.chunk, c.ranks, c.how,
				func() (kernel.Device, error) { return op.Open(0) })
		})
	}
}

// onGPU verifies the named cases of a checkpoint, or all cases if none are named.
func onGPU(t *testing.T, name, kv string, chunk int, cases []string) {
	onGPUFrom(t, folder(name), name, plan.Policy{KV: kv}, chunk, cases)
}

// onGPUFrom verifies cases of a checkpoint in a folder.
func onGPUFrom(t *testing.T, dir, name string, p plan.Policy, chunk int, cases []string) {
	gpu.Need(t)
	what := fmt.Sprintf("%s/%s/chunks of %d", name, p.KV, chunk)
	if p.Deterministic {
		what += ", deterministic"
	}
	if p.Prefill != "" {
		what += ", prefill " + p.Prefill
	}
	t.Run(strings.TrimPrefix(what, "/"), func(t *testing.T) {
		t.Parallel()
		dev := gpu.Open(t)
		t.Cleanup(func() { dev.Close() })
		golden := dir
		if cases != nil {
			golden = someCases(t, golden, cases)
		}
		r := runBeside(t, dir, dev, p, chunk, &golden)
		var text strings.Builder
		if err := r.Print(&text); err != nil {
			t.Fatal(err)
		}
		t.Log(text.String())
		for _, c := range r.Cases {
			for _, p := range c.Problems {
				t.Errorf("%s: %s", c.Name, p)
			}
		}
	})
}

// someCases returns a folder with the golden outputs of some of a checkpoint's cases, and with its weights.
func someCases(t *testing.T, dir string, names []string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	var golden struct {
		Cases []map[string]any `json:"cases"`
	}
	if err == nil {
		err = json.Unmarshal(text, &golden)
	}
	golden.Cases = slices.DeleteFunc(golden.Cases, func(c map[string]any) bool {
		return !slices.Contains(names, c["name"].(string))
	})
	if err == nil {
		text, err = json.Marshal(golden)
	}
	to := t.TempDir()
	if err == nil {
		err = os.WriteFile(filepath.Join(to, "golden.json"), text, 0o644)
	}
	for _, name := range []string{"golden.safetensors", "config.json", "model.safetensors"} {
		from, absent := filepath.Abs(filepath.Join(dir, name))
		if err == nil {
			err = absent
		}
		if err == nil {
			err = os.Symlink(from, filepath.Join(to, name))
		}
	}
	if err != nil || len(golden.Cases) != len(names) {
		t.Fatalf("cases %v: %d found, %v", names, len(golden.Cases), err)
	}
	return to
}
