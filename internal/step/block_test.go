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

// blockBench holds a model with a DSpark head and sequences of several lengths whose prompts were computed.
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
	if b.run, err = step.New(m, b.cfg, step.Limits{Rows: 512, Requests: len(lengths), Context: 1024,
		Draws: true}); err != nil {
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

// blocks runs a draft pass and returns, for each work with logits, the contents of its block as text.
func (b *blockBench) blocks(works ...step.Draft) []string {
	b.Helper()
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
			for _, v := range res.Row(row) { // Row is nil if only tokens are returned
				fmt.Fprintf(&text, " %x", math.Float32bits(v))
			}
		}
		out = append(out, text.String())
	}
	return out
}

// The tokens and confidences of a block are bitwise equal alone and in a batch with sequences of any length. Drafting
// again gives equal blocks, because blocks store no state.
func TestBlocksAreTheSameInCompany(t *testing.T) {
	b := newBlockBench(t, 1, 127, 130, 300)
	var alone []string
	for _, w := range b.drafts {
		alone = append(alone, b.blocks(w)...)
	}
	if all := b.blocks(slices.Clone(b.drafts)...); !slices.Equal(all, alone) {
		t.Error("blocks in a batch differ from blocks alone")
	}
	some := slices.Clone(b.drafts)
	some[1].Logits = false // this work computes no block
	if got := b.blocks(some...); !slices.Equal(got, slices.Delete(slices.Clone(alone), 1, 2)) {
		t.Error("blocks differ in a batch with a sequence that has no block")
	}
	slices.Reverse(some)
	slices.Reverse(alone)
	if got := b.blocks(some...); !slices.Equal(got, slices.Delete(slices.Clone(alone), 2, 3)) {
		t.Error("blocks in another order differ")
	}
}

// A block that is drafted before the host has the tokens of the verification is bitwise equal to the block that is
// drafted from the tokens on the host. This is tested with all numbers of drafts and of accepted drafts, before and
// after the window is full, with best and sampled tokens. A verification that reads its drafts on the device has the
// same logits as a verification whose drafts come from the host.
func TestBlocksBehindRightDrafts(t *testing.T) {
	lengths := []int{1, 3, 121, 125, 127, 254, 300}
	b := newBlockBench(t, lengths...)
	for round := range 6 {
		b.behindRightDrafts(lengths, round)
	}
}

func (b *blockBench) behindRightDrafts(lengths []int, round int) {
	b.Helper()
	verify, ahead, told := make([]step.Work, len(lengths)), make([]step.Draft, len(lengths)), slices.Clone(b.drafts)
	right, row := make([]int, len(lengths)), 0
	for i, n := range lengths {
		d := b.drafts[i]
		if err := d.State.Truncate(n); err != nil {
			b.Fatal(err)
		}
		drafts := (i + round) % 6
		right[i] = (i + 3*round) % (drafts + 1)
		w := step.Work{Kind: plan.ModeVerify, Tokens: slices.Clone(d.Tokens), Cached: n, Pages: d.Pages, State: d.State,
			Logits: drafts + 1, Best: true}
		a := step.Draft{Kind: plan.ModeDraft, Cached: n, Tokens: make([]int32, drafts+1), Sampled: row + 1,
			Pages: d.Pages, State: d.State, Logits: true, Best: true, From: i}
		for k := range drafts {
			w.Tokens = append(w.Tokens, int32(17*k+i))
			one := step.Range{Most: math.MaxInt32}
			if k >= right[i] {
				one = step.Range{Least: 1}
			}
			a.Right = append(a.Right, one)
		}
		if i%2 == 0 {
			for k := range drafts + 5 {
				a.Draws = append(a.Draws, sample.Draw{Inverse: 1, TopP: 1, Random: uint64(k+1) << 60})
			}
			told[i].Draws = a.Draws[right[i] : right[i]+5]
		}
		told[i].Best = true
		verify[i], ahead[i] = w, a
		row += drafts + 1
	}
	target, err := b.run.Run(verify)
	if err != nil {
		b.Fatal(err)
	}
	row = 0
	next := make([]step.Work, len(lengths))
	for i, n := range lengths {
		token, _, _ := target.Best(row + right[i])
		told[i].Tokens, told[i].Cached = []int32{token}, n+right[i]
		row += verify[i].Logits
		next[i] = step.Work{Kind: plan.ModeVerify, Tokens: []int32{token, 0, 0, 0}, Drafted: i + 1,
			Cached: n + right[i] + 1, Pages: verify[i].Pages, State: verify[i].State, Logits: 4}
	}
	continued := func() []float32 {
		for i := range next {
			if err := next[i].State.Truncate(next[i].Cached); err != nil {
				b.Fatal(err)
			}
		}
		res, err := b.run.Run(next)
		if err != nil {
			b.Fatal(err)
		}
		return slices.Clone(res.Logits)
	}
	got := b.blocks(ahead...)
	logits := continued()
	want := b.blocks(told...)
	res, err := b.run.Draft(told, false)
	if err != nil {
		b.Fatal(err)
	}
	for i := range next {
		for place := range 3 {
			row, _ := res.Drafted(i, place)
			next[i].Tokens[1+place], _, _ = res.Best(row)
		}
		next[i].Drafted = 0
		if got[i] != want[i] {
			b.Errorf("round %d: the block of sequence %d, %d of %d drafts accepted, differs from the block that the "+
				"host "+
				"describes", round, i, right[i], len(ahead[i].Right))
		}
	}
	if !slices.Equal(logits, continued()) {
		b.Errorf("round %d: a verification that reads its drafts on the device has different logits", round)
	}
}

// The tokens of a block are sampled with the given random numbers. Each token is sampled from logits that depend on the
// previous token.
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
		t.Errorf("tokens %v; want different tokens for different random numbers", tokens)
	}
	w.Draws = w.Draws[:2]
	if _, err := b.run.Draft([]step.Draft{w}, false); err == nil ||
		!strings.Contains(err.Error(), "2 sampling parameters for 0 drafts; want 5") {
		t.Errorf("two sampling parameters for a block of five: error %v", err)
	}
}

// In every cache layout, no batch of blocks within the limits needs more memory than Measure returns.
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

// Unsupported drafts are refused: chains of blocks, and sequences without the window pages that blocks read.
func TestBlocksRefuse(t *testing.T) {
	b := newBlockBench(t, 300)
	w := b.drafts[0]
	if _, err := b.run.Draft([]step.Draft{w}, true); err == nil || !strings.Contains(err.Error(), "in one pass") {
		t.Errorf("a chain of blocks: error %v", err)
	}
	w.Windows = []int32{-1, w.Pages[1]}
	if _, err := b.run.Draft([]step.Draft{w}, false); err == nil || !strings.Contains(err.Error(), "window page") {
		t.Errorf("a block without window pages: %v", err)
	}
	w.Windows = []int32{99999, w.Pages[1]}
	if _, err := b.run.Draft([]step.Draft{w}, false); err == nil {
		t.Error("a window page beyond the cache was not refused")
	}
}
