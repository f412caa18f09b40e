package op_test

import (
	"testing"

	"sparrow/internal/cuda/image"
	"sparrow/layout"
	"sparrow/plan"
)

// cudaKernels lists the entry points of each attention kernel that the planner may choose on Hopper, by the layout that
// the kernel reads; entry points for gathered rows have no layout. Auto stands for other kernels, and the reference is
// plain Go.
var cudaKernels = map[plan.Kernel]map[layout.Kind][]string{
	plan.DenseRagged: {0: {"sparrow_dense_plan", "sparrow_dense_d128", "sparrow_dense_d192", "sparrow_dense_d256"}},
	plan.SparseFlat:  {layout.BF16Row1152: {"sparrow_sparse_bf16"}, layout.BF16Row1024: {"sparrow_sparse_flat"}},
	plan.SparseBlock: {layout.FP8Row656: {"sparrow_sparse_block"}},
	plan.SparseRaw:   {layout.FP8Row576: {"sparrow_sparse_raw"}},
	plan.V4Paged:     {layout.V4Row584: {"sparrow_sparse_entry"}},
	plan.V4Flat:      {0: {"sparrow_sparse_flat"}},
	plan.SparsePools: {layout.FP8Row528: {"sparrow_sparse_nope"}, layout.BF16Row1024: {"sparrow_sparse_flat"}},
	plan.DenseLatent: {layout.BF16Row1152: {"sparrow_latent_bf16"},
		layout.FP8Row656: {"sparrow_latent_block", "sparrow_latent_block_duo", "sparrow_latent_block_quad",
			"sparrow_latent_block_oct"},
		layout.FP8Row576: {"sparrow_latent_raw", "sparrow_latent_raw_duo"}},
}

// Every kernel that the planner may choose for Hopper exists, so `explain --hw sm90` names only kernels that are
// implemented.
func TestEveryKernelOfTheCatalogueExists(t *testing.T) {
	manifest, err := image.Load()
	if err != nil {
		t.Fatal(err)
	}
	hw, err := plan.HardwareFor("sm90")
	if err != nil {
		t.Fatal(err)
	}
	v32 := plan.Model{Family: plan.DeepSeekV32, Heads: 128, K: 2048, IndexHeads: 64, QKDim: 192, VDim: 128, Layers: 4,
		Context: 1 << 16, LayerSupportsDense: true}
	v4 := plan.Model{Family: plan.DeepSeekV4, Heads: 64, K: 512, IndexHeads: 64, QKDim: 512, VDim: 512, Layers: 2,
		Context: 1 << 16, Window: 128, Ratios: []int{4, 128}}
	dense := v32
	dense.Family, dense.K, dense.IndexHeads = plan.DeepSeekV3, 0, 0
	next, err := plan.ModelFor("glm5_next")
	if err != nil {
		t.Fatal(err)
	}
	chosen := map[plan.Kernel]bool{}
	for k := plan.KernelNone + 1; k < plan.FlashMLASparse; k++ {
		if k == plan.Auto {
			continue
		}
		for kind, names := range cudaKernels[k] {
			for _, name := range names {
				if im, _, err := manifest.Find(name); err != nil || im.Target != "sm_90a" {
					t.Errorf("%v over %v: kernel %s: %v", k, kind, name, err)
				}
			}
		}
		for _, model := range []plan.Model{v32, v4, dense, next} {
			for _, kv := range []string{"bf16", "fp8", "fp8-656", "fp8-576", "exact"} {
				cfg, _, err := plan.Resolve(hw, model, plan.Policy{KV: kv, Prefill: k.String()})
				if err != nil {
					continue // package plan reports which settings exclude each other
				}
				chosen[cfg.Prefill], chosen[cfg.Decode] = true, true
				kind, err := layout.ParseKind(cfg.Layout.String())
				if err != nil {
					t.Fatal(err)
				}
				if len(cudaKernels[cfg.Prefill]) == 0 {
					t.Errorf("%v, kv %s: prompts by %v, which has no CUDA kernel", model.Family, kv, cfg.Prefill)
				}
				if len(cudaKernels[cfg.Decode][kind]) == 0 {
					t.Errorf("%v, kv %s: decode by %v over %v, which no CUDA kernel reads", model.Family, kv,
						cfg.Decode, cfg.Layout)
				}
			}
		}
	}
	for k := range cudaKernels {
		if k != plan.DenseRagged && !chosen[k] {
			t.Errorf("%v is never chosen on sm90", k)
		}
	}
}
