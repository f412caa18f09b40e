package sparrow

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sparrow/internal/kv/tier"
	"sparrow/internal/testkit/await"
	"sparrow/internal/testkit/respserver"
	"sparrow/internal/testmodel"
	"sparrow/plan"
	"sparrow/sample"
	"sparrow/weight"
)

// If the weights were edited in a byte that the fingerprint does not cover, no pages computed with the old weights are
// reused from the disk or from a store.
func TestEditedWeightsGetNoPagesOfTheOldOnes(t *testing.T) {
	notUnderRace(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(testmodel.V32(t))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.safetensors")
	store := respserver.Start(t)
	r := Request{Tokens: make([]int32, 400), MaxTokens: 4, IgnoreEOS: true, Sampling: sample.Default()}
	for i := range r.Tokens {
		r.Tokens[i] = int32(i*7%600 + 2)
	}
	r.Sampling.Temperature = 0
	tiers := map[string]tier.Options{
		"disk":  {DiskDir: t.TempDir(), DiskBytes: 1 << 28, Wait: time.Hour},
		"store": {StoreURL: store.URL(), Wait: time.Hour},
	}
	cached := func(name string) (tokens int) {
		e := start(t, Config{Model: dir, Policy: plan.Policy{Deterministic: true}, Tiers: tiers[name]})
		out, err := e.Generate(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		st := e.Stats().Tiers
		if !st.Identified {
			t.Errorf("%s: the digest of the weights was not computed", name)
		}
		await.True(t, "pages are kept", func() bool { s := e.Stats().Tiers.Tiers[0]; return s.Stored+s.Hits >= 6 })
		if err := e.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		return out.Usage.CachedTokens
	}
	for name := range tiers {
		if n := cached(name); n != 0 {
			t.Errorf("%s: %d tokens came from an empty cache", name, n)
		}
		if n := cached(name); n != 384 {
			t.Errorf("%s: %d tokens came from stored pages, want 384", name, n)
		}
	}
	before, at := sampledAt(t, path)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 1
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if after, _ := sampledAt(t, path); after != before {
		t.Fatal("the edited byte is covered by the fingerprint")
	}
	for name := range tiers {
		if n := cached(name); n != 0 {
			t.Errorf("%s: %d tokens came from pages of the weights before the edit", name, n)
		}
	}
}

// sampledAt returns the fingerprint of a file and the offset of a byte that the fingerprint does not cover.
func sampledAt(t *testing.T, path string) (sum [32]byte, at int64) {
	t.Helper()
	c, err := weight.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	x, _ := c.Tensor("lm_head.weight")
	// The byte is after the first 1024 bytes, which are covered, and far before the middle of the tensor.
	return c.Fingerprint(), x.Offset + 3000
}
