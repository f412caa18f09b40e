package engine

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/model/synth"
	"sparrow/internal/num"
	"sparrow/internal/spec"
	"sparrow/internal/testmodel"
	"sparrow/plan"
	"sparrow/weight"
)

// Invariants of this file: drafts for a model with a state and windows change no bit of any answer, whatever is
// accepted, rejected, preempted or reused. In cases with a known result, the drafting block computes what its
// definition requires.

func TestADraftingCrowdOfAStatefulModel(t *testing.T) {
	if raceEnabled {
		t.Skip("the test runs the step loop only, without other goroutines")
	}
	requests := 5
	if *everything || standIn != nil {
		requests = 6
	}
	for _, c := range []struct {
		kind, dir string
		n         int
	}{{"NextN", testmodel.V4Draft(t), 1}, {"NextN", testmodel.V4Draft(t), 3}, {"NextN", testmodel.V4Draft(t), 7},
		{"DSpark", testmodel.V4Spark(t), 5}, {"DSpark", testmodel.V4Spark(t), 2},
		{"DSpark of V4.1 ", testmodel.V41Spark(t), 5}} {
		n := c.n
		t.Run(fmt.Sprint(c.kind, n), func(t *testing.T) {
			switch {
			case n != 3 && n != 5:
				repeats(t, "three drafts, and five drafts of a block, differ only in their number from other cases")
			case c.kind == "DSpark":
				repeats(t, "TestRandomBatchesOfBlocks covers blocks in large batches")
			}
			list := long(requests)
			dir, cfg := c.dir, Config{Policy: deterministic("fp8"), Draft: spec.Off()}
			wantRows, gotRows := keepLogits(), keepLogits()
			want := lone(t, dir, cfg, list, wantRows.watch)
			cfg.Draft, cfg.CacheTokens, cfg.StepTokens, cfg.MaxRunning = drafts(t, n), 6*256, 150, 8
			e, run := prepared(t, dir, cfg, gotRows.watch, oracle(want, list), checked(t))
			compare(t, list, jointly(t, e, mixedDrafts(list, n), run), want)
			for k, v := range wantRows.rows {
				if gotRows.rows[k] != v {
					t.Fatalf("the logits of %+v differ from the logits of a lone run without drafts", k)
				}
			}
			if st := e.Stats(); st.CachedTokens == 0 || st.Preempted == 0 {
				t.Errorf("%d reused tokens, %d preemptions; want some of each", st.CachedTokens, st.Preempted)
			}
			guessed(t, e)
		})
	}
}

// In a model whose layers add nothing, the embedding of a token alone decides the next token: it is the token whose row
// of the output head equals that embedding. The drafting block then guesses right every time: if tokens count up it
// guesses from the next token's embedding (e_proj is the identity, h_proj is zero), and if a token repeats it guesses
// from the residual streams of the previous token (e_proj is zero, h_proj is the identity). Random blocks are hardly
// ever right.
func TestTheDraftingBlockReadsBothOfItsInputs(t *testing.T) {
	if raceEnabled {
		t.Skip("the test runs the step loop only, without other goroutines")
	}
	for one, by := range map[string]int32{"e_proj": 1, "h_proj": 0} {
		e := start(t, counting(t, one, int(by)),
			Config{Policy: plan.Policy{KV: "fp8"}, Draft: drafts(t, 4), StepTokens: 100}, checked(t))
		r := generate(t, e, Request{Prompt: tokens(3, 300), Sampling: greedy(), MaxTokens: 40, IgnoreEOS: true})
		last := tokens(3, 300)[299]
		for i, id := range r.Choices[0].Tokens {
			if want := (last + int32(i+1)*by) % 640; id != want {
				t.Fatalf("%s: token %d is %d, want %d", one, i, id, want)
			}
		}
		if u := r.Usage; u.DraftedTokens < 20 || u.AcceptedTokens != u.DraftedTokens {
			t.Errorf("%s: %d of %d drafts were accepted, want all", one, u.AcceptedTokens, u.DraftedTokens)
		}
	}
}

// counting writes a checkpoint for TestTheDraftingBlockReadsBothOfItsInputs: the token after x is x+by, and one matrix
// of the drafting block is the identity.
func counting(t *testing.T, identity string, by int) string {
	t.Helper()
	from, err := weight.Open(testmodel.V4Draft(t))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	embed, _ := from.Tensor("embed.weight")
	var sources []weight.Source
	for _, name := range from.Names() {
		x, _ := from.Tensor(name)
		data := append([]byte(nil), x.Data...)
		switch {
		case strings.HasSuffix(name, "wo_b.weight") || strings.HasSuffix(name, "w2.weight"),
			name == "mtp.0.e_proj.weight", name == "mtp.0.h_proj.weight":
			clear(data)
			if name == "mtp.0."+identity+".weight" {
				for i := range x.Shape[0] {
					binary.LittleEndian.PutUint16(data[2*i*(x.Shape[1]+1):], num.BF16(1))
				}
			}
		case name == "norm.weight" || strings.HasSuffix(name, "norm.weight") && strings.HasPrefix(name, "mtp.0.") &&
			strings.Count(name, ".") == 3:
			for i := range x.Shape[0] {
				binary.LittleEndian.PutUint16(data[2*i:], num.BF16(1))
			}
		case name == "head.weight":
			at := len(data) - by*2*x.Shape[1]
			copy(data, embed.Data[at:])
			copy(data[len(data)-at:], embed.Data[:at])
		}
		sources = append(sources, weight.SourceBytes(name, x.DType, x.Shape, data))
	}
	one := 1
	c, err := synth.New("counting", []byte(testmodel.V4Config), synth.Options{NextN: &one})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), c.ConfigJSON(), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := weight.CreateSharded(dir, sources, nil, 0); err != nil {
		t.Fatal(err)
	}
	return dir
}

// If a checkpoint has no drafting block, automatic drafting drafts nothing and reports why. A fixed number of drafts is
// refused.
func TestV4WithoutADraftingBlock(t *testing.T) {
	e := start(t, testmodel.V4(t), Config{Draft: spec.Auto()})
	if i := e.Info(); i.Drafts != 0 || i.NoDrafts != "this checkpoint has no draft layer" {
		t.Errorf("auto: %d drafts, %q", i.Drafts, i.NoDrafts)
	}
	if _, err := build(t, testmodel.V4(t), Config{Draft: drafts(t, 2)}); err == nil ||
		!strings.Contains(err.Error(), "mtp.0.") {
		t.Errorf("two drafts: %v", err)
	}
}
