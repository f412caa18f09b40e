package engine

import (
	"fmt"
	"slices"
	"testing"

	"sparrow/internal/testmodel"
	"sparrow/kv/tier"
)

// Invariants of this file: a prompt whose beginning was evicted from the device and comes back from a tier gets the
// logits of a lone run to the bit; whatever fails or is cancelled on the way, it is computed; in the end neither the
// device nor host memory holds anything for anybody.

// tiered is a small cache in front of tiers.
func tiered(kv string, pages, page int, o tier.Options) Config {
	return Config{Policy: deterministic(kv), CacheTokens: pages * page, StepTokens: 2 * page, Tiers: o,
		ModelName: "test"}
}

// emptied checks, when an engine has stopped, that its tiers hold nothing.
func emptied(t testing.TB, e *Engine) {
	t.Cleanup(func() { // runs after the engine was closed: cleanups run in reverse, so this is registered first
		if pages, fetches := e.tiers.stack.Held(); pages != 0 || fetches != 0 {
			t.Errorf("%d pages of host memory and %d fetches are left behind", pages, fetches)
		}
	})
}

// startTiered is start with emptied.
func startTiered(t testing.TB, dir string, c Config, hooks ...func(*Engine)) *Engine {
	t.Helper()
	e := still(t, dir, c)
	emptied(t, e)
	_, run := running(t, e, hooks...)
	run()
	return e
}

// families are the models and cache layouts that pages are made of.
var families = []struct {
	name string
	dir  func(testing.TB) string
	kv   string
	page int
}{
	{"v32-f32", testmodel.V32, "f32", 64}, {"v32-bf16", testmodel.V32, "bf16", 64},
	{"v32-fp8", testmodel.V32Draft, "fp8", 64}, {"v32-fp8-576", testmodel.V32, "fp8-576", 64},
	{"glm-bf16", testmodel.GLMDraft, "bf16", 64}, {"glm-fp8", testmodel.GLMDraft, "fp8", 64},
	{"v4-f32", testmodel.V4, "f32", 256}, {"v4-fp8", testmodel.V4, "fp8", 256},
	{"v4-draft", testmodel.V4Draft, "fp8", 256},
}

func TestAPrefixThatComesBackHasTheBitsOfRecomputing(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			if raceEnabled && f.name != "v32-fp8" && f.name != "v4-fp8" {
				t.Skip("the others show the same races")
			}
			var list []Request
			for i := range 4 {
				list = append(list, Request{ID: fmt.Sprint(i), Prompt: tokens(i, 5*f.page+f.page/2), Sampling: greedy(),
					MaxTokens: 4, IgnoreEOS: true, Trace: true})
			}
			wantRows := keepLogits()
			want := lone(t, f.dir(t), Config{Policy: deterministic(f.kv)}, list, wantRows.watch)
			for name, o := range map[string]tier.Options{
				"host": {HostBytes: 1 << 30}, "disk": {DiskDir: t.TempDir(), DiskBytes: 1 << 30},
			} {
				gotRows := keepLogits()
				e := startTiered(t, f.dir(t), tiered(f.kv, 8, f.page, o), gotRows.watch, checked(t))
				for range 2 { // every prompt evicts the one before
					gotRows.rows = map[rowKey]uint64{}
					for i, r := range list {
						got := generate(t, e, r)
						sameTokens(t, fmt.Sprintf("%s: request %d", name, i), got.Choices[0], want[i].Choices[0])
						if m := got.Trace.Restored; e.Stats().Requests > 4 && got.Usage.CachedTokens != 5*f.page {
							t.Errorf("%s: request %d: %d tokens cached, %+v, %v", name, i, got.Usage.CachedTokens, m,
								got.Trace.Match)
						}
					}
					sameRows(t, gotRows, wantRows)
				}
				st := e.Stats().Tiers
				if st.Tokens == 0 || st.Tiers[0].Hits == 0 || st.Slow != 0 {
					t.Errorf("%s: %+v", name, st)
				}
			}
		})
	}
}

// A page that left is found by whoever begins with it, and by nobody of another tenant.
func TestTiersKeepTenantsApart(t *testing.T) {
	e := startTiered(t, testmodel.V32(t), tiered("", 8, 64, tier.Options{HostBytes: 1 << 28}))
	ask := func(tenant string, prompt []int32) (int, *Trace) {
		r := generate(t, e, Request{Prompt: prompt, Sampling: greedy(), MaxTokens: 1, Tenant: tenant, Trace: true})
		return r.Usage.CachedTokens, r.Trace
	}
	ask("a", tokens(1, 400))
	ask("a", tokens(2, 500)) // the first one leaves
	if n, trace := ask("b", tokens(1, 400)); n != 0 || trace.Restored.Stop != "no tier holds the next page (host)" {
		t.Errorf("another tenant found %d tokens: %+v", n, trace.Restored)
	}
	ask("a", tokens(3, 500))
	if n, trace := ask("a", slices.Concat(tokens(1, 320), tokens(9, 90))); n != 320 || trace.Restored.Tokens != 320 ||
		trace.Restored.Tiers["host"] != 320 {
		t.Errorf("the same tenant found %d tokens: %+v", n, trace.Restored)
	}
}
