package step_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/step"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/plan"
	"sparrow/sample"
)

// blockBench is a model with a DSpark head and sequences of several lengths, whose prompts are computed.
type blockBench struct {
	*testing.T
	m      model.Model
	cfg    plan.Config
	run    *step.Runner
	drafts []step.Draft
}

func newBlockBench(t *testing.T, lengths ...int) *blockBench {
	t.Helper()
	src, err := family.Open(testmodel.V4Spark(t))
	if err != nil {
		t.Fatal(err)
	}
	dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close(); src.Close() })
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &blockBench{T: t, m: m}
	b.cfg = configure(t, m, plan.Policy{Speculation: plan.Speculation{Tokens: 6}})
	if b.run, err = step.New(m, b.cfg, step.Limits{Rows: 512, Requests: len(lengths), Context: 1024}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.run.Close)
	page := int32(0)
	for i, n := range lengths {
		state, err := m.(model.Stateful).NewState()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(state.Release)
		pages := []int32{page + 1, page}
		page += 2
		prompt := make([]int32, n+1)
		for k := range prompt {
			prompt[k] = int32((k*k*7 + k*31*i + 2) % 640)
		}
		if _, err := b.run.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: prompt[:n], Pages: pages,
			State: state}}); err != nil {
			t.Fatal(err)
		}
		b.drafts = append(b.drafts, step.Draft{Kind: plan.ModeDraft, Tokens: prompt[n:], Cached: n - 1, Pages: pages,
			State: state, Logits: true})
	}
	return b
}

// blocks drafts, and returns everything that the block of each work with logits contains.
func (b *blockBench) blocks(works ...step.Draft) []string {
	b.Helper()
	for i := range works {
		works[i].From = 0
	}
	res, err := b.run.Draft(works, false)
	if err != nil {
		b.Fatal(err)
	}
	var out []string
	for i := range works {
		if !works[i].Logits {
			continue
		}
		var text strings.Builder
		for place := range b.cfg.Model.Block {
			row, sure := res.Drafted(len(out), place)
			token, _, _ := res.Best(row)
			fmt.Fprintf(&text, "%d %x", token, math.Float32bits(sure))
			for _, v := range res.Row(row) {
				fmt.Fprintf(&text, " %x", math.Float32bits(v))
			}
		}
		out = append(out, text.String())
	}
	return out
}

// A block has the same bits alone and in a batch, whatever the lengths of the others, and drafting again changes
// nothing: blocks leave no state behind.
func TestBlocksAreTheSameInCompany(t *testing.T) {
	b := newBlockBench(t, 1, 127, 130, 300)
	var alone []string
	for _, w := range b.drafts {
		alone = append(alone, b.blocks(w)...)
	}
	if all := b.blocks(slices.Clone(b.drafts)...); !slices.Equal(all, alone) {
		t.Error("blocks beside others differ from blocks alone")
	}
	some := slices.Clone(b.drafts)
	some[1].Logits = false // it has nothing to draft
	if got := b.blocks(some...); !slices.Equal(got, slices.Delete(slices.Clone(alone), 1, 2)) {
		t.Error("blocks beside a sequence without one differ")
	}
	slices.Reverse(some)
	slices.Reverse(alone)
	if got := b.blocks(some...); !slices.Equal(got, slices.Delete(slices.Clone(alone), 2, 3)) {
		t.Error("blocks in another order differ")
	}
}

// Tokens of a block are sampled with the given random numbers, each from logits that depend on the one before it.
func TestBlocksAreDrawn(t *testing.T) {
	b := newBlockBench(t, 20)
	w := b.drafts[0]
	w.Best = true
	var tokens [3][]int32
	for i, random := range []uint64{0, 1 << 62, 1<<63 + 12345} {
		w.Draws = nil
		for place := range b.cfg.Model.Block {
			w.Draws = append(w.Draws, sample.Draw{Inverse: 1, TopP: 1, Random: random * uint64(place+1)})
		}
		res, err := b.run.Draft([]step.Draft{w}, false)
		if err != nil {
			t.Fatal(err)
		}
		for place := range b.cfg.Model.Block {
			row, _ := res.Drafted(0, place)
			token, _, _ := res.Best(row)
			tokens[i] = append(tokens[i], token)
		}
	}
	if slices.Equal(tokens[0], tokens[1]) || slices.Equal(tokens[1], tokens[2]) {
		t.Errorf("%v; want other tokens by other numbers", tokens)
	}
	w.Draws = w.Draws[:2]
	if _, err := b.run.Draft([]step.Draft{w}, false); err == nil {
		t.Error("two sampling parameters for a block of five were not refused")
	}
}

// No number of blocks within limits needs more memory than Measure gives, in any layout.
func TestMeasureCoversBlocks(t *testing.T) {
	b := newBlockBench(t, 1)
	for _, kv := range []string{"fp8", "f32"} {
		cfg := configure(t, b.m, plan.Policy{KV: kv, Speculation: plan.Speculation{Tokens: 6}})
		for _, l := range []step.Limits{{Rows: 16, Requests: 16, Context: 512}, {Rows: 8, Requests: 3, Context: 300},
			{Rows: 512, Requests: 40, Context: 1024}} {
			given, err := step.Measure(b.m, cfg, l)
			if err != nil {
				t.Fatal(err)
			}
			for n := 1; n <= l.Requests; n++ {
				batch := plan.Batch{Pass: plan.PassBlock, Draws: n%2 == 0}
				for i := range n {
					q := plan.DraftRequest(5, 1+i*7%l.Context+5)
					q.Logits, q.Best = 5, n%3 > 0
					batch.Add(q)
				}
				need, err := step.Need(b.m, cfg, l, batch)
				if err != nil {
					t.Fatal(err)
				}
				if need > given {
					t.Errorf("%s: %d blocks need %d bytes, %+v gives %d", kv, n, need, l, given)
				}
			}
		}
	}
}

// Drafts that are not possible are refused: chains of blocks, and sequences without the window pages that blocks read.
func TestBlocksRefuse(t *testing.T) {
	b := newBlockBench(t, 300)
	w := b.drafts[0]
	if _, err := b.run.Draft([]step.Draft{w}, true); err == nil {
		t.Error("a chain of blocks was not refused")
	}
	w.Windows = []int32{-1, w.Pages[1]}
	if _, err := b.run.Draft([]step.Draft{w}, false); err == nil || !strings.Contains(err.Error(), "window page") {
		t.Errorf("a block without window pages: %v", err)
	}
	w.Windows = []int32{99999, w.Pages[1]}
	if _, err := b.run.Draft([]step.Draft{w}, false); err == nil {
		t.Error("a window page that is not there was not refused")
	}
}
