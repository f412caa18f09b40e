package engine

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"sparrow/internal/kv/tier"
	"sparrow/internal/testmodel"
)

// Invariants of this file: a prompt whose beginning was evicted from the device and returns from a tier gets logits
// bitwise equal to those of a lone run; if a transfer fails or is cancelled, the prompt is computed; in the end all
// memory of the device and the host is released.

// tiered returns a configuration with a small cache and tiers. Unless o sets a time limit, requests wait for pages
// without a limit, so that results do not depend on the load of the machine.
func tiered(kv string, pages, page int, o tier.Options) Config {
	if o.Wait == 0 {
		o.Wait = time.Hour
	}
	return Config{Policy: deterministic(kv), CacheTokens: pages * page, StepTokens: 2 * page, Tiers: o,
		Weights: tier.Weights{Whole: &tier.Fingerprint{}}}
}

// emptied checks that the tiers of a stopped engine hold no pages and no fetches.
func emptied(t testing.TB, e *Engine) {
	t.Cleanup(func() { // cleanups run in reverse order, so this one, registered first, runs after the engine is closed
		if pages, fetches := e.loop.tiers.stack.Held(); pages != 0 || fetches != 0 {
			t.Errorf("%d pages of host memory and %d fetches were not released", pages, fetches)
		}
	})
}

// startTiered starts an engine like start, and calls emptied for it.
func startTiered(t testing.TB, dir string, c Config, hooks ...func(*Engine)) *Engine {
	t.Helper()
	e := still(t, dir, c)
	emptied(t, e)
	_, run := running(t, e, hooks...)
	run()
	return e
}

// families lists the models and the cache layouts of their pages.
var families = []struct {
	name     string
	dir      func(testing.TB) string
	kv       string
	page     int // page size in tokens
	prompts  int
	pages    int // number of full pages of a prompt
	racesToo bool
}{
	{"v32-f32", testmodel.V32, "f32", 64, 4, 5, false}, {"v32-bf16", testmodel.V32, "bf16", 64, 4, 5, false},
	{"v32-fp8-656", testmodel.V32Draft, "fp8-656", 64, 4, 5, true},
	{"v32-fp8-576", testmodel.V32, "fp8-576", 64, 4, 5, false},
	{"glm-bf16", testmodel.GLMDraft, "bf16", 64, 2, 3, false}, {"glm-fp8", testmodel.GLMDraft, "fp8", 64, 2, 3, false},
	{"v3-fp8-656", testmodel.V3Draft, "fp8-656", 64, 2, 3, false},
	{"v4-f32", testmodel.V4, "f32", 256, 2, 2, false}, {"v4-fp8", testmodel.V4Draft, "fp8", 256, 2, 2, false},
	{"v41-fp8", testmodel.V41, "fp8", 256, 2, 2, false},
	{"next-bf16", testmodel.Next, "bf16", 256, 2, 2, false}, {"next-fp8", testmodel.Next, "fp8", 256, 2, 2, false},
}

func TestAPrefixThatComesBackHasTheBitsOfRecomputing(t *testing.T) {
	for _, f := range families {
		if standIn != nil && (f.kv == "f32" || f.page == 256) {
			continue // a GPU has no cache with float32 rows and does not support all operations of V4
		}
		t.Run(f.name, func(t *testing.T) {
			if raceEnabled && !f.racesToo {
				t.Skip("the test of another family covers the same races")
			}
			if slices.Contains([]string{"v32-bf16", "v32-fp8-576", "glm-bf16", "glm-fp8", "v4-f32", "v41-fp8",
				"next-fp8"}, f.name) {
				repeats(t, "other cases cover this layout, or a family whose pages are copied in the same way")
			}
			var list []Request
			for i := range f.prompts {
				list = append(list, Request{ID: fmt.Sprint(i), Prompt: tokens(i, f.pages*f.page+f.page/2),
					Sampling: greedy(), MaxTokens: 4, IgnoreEOS: true, Trace: true})
			}
			wantRows := keepLogits()
			want := lone(t, f.dir(t), Config{Policy: deterministic(f.kv)}, list, wantRows.watch)
			for name, o := range map[string]tier.Options{
				"host": {HostBytes: 1 << 28}, "disk": {DiskDir: t.TempDir(), DiskBytes: 1 << 30},
			} {
				if name == "disk" && f.name != "v32-fp8-656" && !*everything && standIn == nil {
					continue // a disk tier stores the bytes of a page like a host tier, whatever the layout
				}
				gotRows := keepLogits()
				e := startTiered(t, f.dir(t), tiered(f.kv, f.pages+1, f.page, o), gotRows.watch, checked(t))
				for round := range 2 { // each prompt evicts the pages of the previous prompt
					gotRows.rows = map[rowKey]uint64{}
					for i, r := range list {
						got := generate(t, e, r)
						sameTokens(t, fmt.Sprintf("%s: request %d", name, i), got.Choices[0], want[i].Choices[0])
						if all := f.pages * f.page; round == 1 && (got.Usage.CachedTokens != all ||
							got.Trace.Restored.Tokens+got.Trace.Match.Tokens != all) {
							t.Errorf("%s: request %d: %d tokens cached, restored %+v, match %v", name, i,
								got.Usage.CachedTokens,
								got.Trace.Restored, got.Trace.Match)
						}
					}
					sameRows(t, gotRows, wantRows)
				}
				st := e.Stats().Tiers
				if st.Tokens < int64(f.pages*f.page) || st.Tiers[0].Hits == 0 || st.Slow != 0 {
					t.Errorf("%s: %+v", name, st)
				}
			}
		})
	}
}

// A page that was evicted from the device to a tier is found by any request of the same tenant whose prompt begins with
// the tokens of the page, and by no request of another tenant.
func TestTiersKeepTenantsApart(t *testing.T) {
	h := &heard{salts: map[string]bool{}}
	e := startTiered(t, testmodel.V32(t), tiered("", 8, 64, tier.Options{HostBytes: 1 << 28, OnHost: h}))
	ask := func(tenant string, prompt []int32) (int, *Trace) {
		r := generate(t, e, Request{Prompt: prompt, Sampling: greedy(), MaxTokens: 1, Tenant: tenant, Trace: true})
		return r.Usage.CachedTokens, r.Trace
	}
	ask("a", tokens(1, 400))
	ask("a", tokens(2, 500)) // evicts the pages of the first prompt
	if n, trace := ask("b", tokens(1, 400)); n != 0 || trace.Restored.Stop != "host: not held" {
		t.Errorf("another tenant found %d tokens: %+v", n, trace.Restored)
	}
	ask("a", tokens(3, 500))
	if n, trace := ask("a", slices.Concat(tokens(1, 320), tokens(9, 90))); n != 320 || trace.Restored.Tokens != 320 ||
		trace.Restored.Tiers["host"] != 320 {
		t.Errorf("the tenant itself found %d tokens: %+v", n, trace.Restored)
	}
	e.Close(t.Context())
	if !h.salts["a"] || h.salts[""] { // listeners get the tenants of pages
		t.Errorf("pages of tenants %v are in host memory, want tenant a", h.salts)
	}
}

var sequences = flag.Int("tier-sequences", 0,
	"sequences of the test that evicts, restores and cancels at random; 0 is 90, or 150 with -long")

// Every answer equals that of a lone run, and everything is released. Random prompts with few different prefixes run
// many at a time, and some are cancelled at a random time. The cache and the tiers are far too small for all prompts,
// and files of the tiers are truncated, overwritten and removed.
func TestRandomEvictionsRestoresAndCancellationsLeakNothing(t *testing.T) {
	n := 90
	if *everything {
		n = 150
	}
	if *sequences > 0 {
		n = *sequences
	}
	if raceEnabled {
		n /= 4
	}
	dir := t.TempDir()
	c := tiered("fp8-656", 24, 64, tier.Options{HostBytes: 24 * 51000, DiskDir: dir, DiskBytes: 40 * 51000})
	c.MaxRunning, c.StepTokens = 8, 256
	e := startTiered(t, testmodel.V32Draft(t), c, checked(t))
	random := rand.New(rand.NewPCG(21, 4))
	prompts := make([]Request, 24)
	for i := range prompts {
		p := slices.Concat(tokens(i%6, 64*(1+i%4)), tokens(40+i, 20+13*i))
		prompts[i] = Request{Prompt: p, Sampling: greedy(), MaxTokens: 3, IgnoreEOS: true,
			Tenant: []string{"", "x"}[i/3%2]}
	}
	want := lone(t, testmodel.V32Draft(t), Config{Policy: deterministic("fp8-656")}, prompts)
	var wait sync.WaitGroup
	slots := make(chan struct{}, 12)
	for range n {
		which, cancel, damage := random.IntN(len(prompts)), random.IntN(4) == 0, random.IntN(20) == 0
		after := time.Duration(random.IntN(8000)) * time.Microsecond
		if damage {
			spoil(t, dir, random)
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			j := open(t, e, prompts[which])
			if cancel {
				time.Sleep(after)
				j.Cancel()
			}
			got, err := j.whole()
			if err != nil {
				t.Error(err)
			} else if a := got.Choices[0]; a.Finish != FinishCancelled {
				sameTokens(t, fmt.Sprintf("prompt %d", which), a, want[which].Choices[0])
			}
		})
	}
	wait.Wait()
	st := e.Stats()
	if st.Tiers.RestoredPages == 0 || st.Tiers.Tiers[0].Hits == 0 || st.Tiers.Tiers[0].Evicted == 0 || st.Aborted == 0 {
		t.Errorf("want restored pages, hits, evictions and cancelled requests: %+v", st.Tiers)
	}
	t.Logf("%d requests, %d cancelled: %+v", st.Requests, st.Aborted, st.Tiers)
}

// spoil damages a file of a disk cache: it truncates, overwrites or removes the file.
func spoil(t *testing.T, dir string, random *rand.Rand) {
	files, err := filepath.Glob(filepath.Join(dir, "*.page"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		return
	}
	path := files[random.IntN(len(files))]
	switch random.IntN(3) {
	case 0:
		err = os.Truncate(path, int64(random.IntN(50000)))
	case 1:
		var f *os.File
		if f, err = os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			_, err = f.WriteAt([]byte{1, 2, 3, 4, 5}, int64(random.IntN(50000)))
			err = errors.Join(err, f.Close())
		}
	case 2:
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the engine may have removed the file
		t.Error(err)
	}
}

// A flush also empties the tiers. Pages that are being read from a tier are not used.
func TestFlushingEmptiesTheTiers(t *testing.T) {
	dir := t.TempDir()
	e := startTiered(t, testmodel.V32(t), tiered("", 8, 64, tier.Options{HostBytes: 1 << 26, DiskDir: dir,
		DiskBytes: 1 << 26}))
	ask := func(seed int) int {
		return generate(t, e, Request{Prompt: tokens(seed, 400), Sampling: greedy(), MaxTokens: 1}).Usage.CachedTokens
	}
	ask(1)
	ask(2)
	if n := ask(1); n != 384 {
		t.Fatalf("%d tokens came back from the tiers", n)
	}
	if err := e.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range e.Stats().Tiers.Tiers {
		if c.Pages != 0 {
			t.Errorf("tier %s holds %d pages, want 0", c.Tier, c.Pages)
		}
	}
	if n := ask(1) + ask(2); n != 0 {
		t.Errorf("%d tokens were found after the flush, want 0", n)
	}
}
