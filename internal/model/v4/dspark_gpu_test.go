package v4_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model/synth"
	"sparrow/internal/model/v4"
	"sparrow/internal/step"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/sample"
)

// sparkBench returns a small model with a DSpark head, in the types of the releases, allocated for its drafts. Width
// and rank are parameters, so that the rows of the Markov head need not fill a tile.
func sparkBench(t *testing.T, dev kernel.Device, hidden, rank, vocab int) *steps.Bench {
	t.Helper()
	config := strings.NewReplacer(`"hidden_size": 64`, fmt.Sprintf(`"hidden_size": %d`, hidden),
		`"dspark_markov_rank": 16`, fmt.Sprintf(`"dspark_markov_rank": %d`, rank),
		`"vocab_size": 640`, fmt.Sprintf(`"vocab_size": %d`, vocab)).Replace(testmodel.V4SparkConfig)
	p := plan.Policy{KV: "fp8"}
	p.Speculation.Tokens = 6
	dir := releasedOf(t, config, synth.Options{Seed: 3, DType: synth.FP8})
	return steps.New(t, steps.OpenOn[*v4.Model](t, dir, dev), p)
}

// behind returns the block of drafts after the first n tokens of a sequence.
func behind(s *steps.Sequence, n int) step.Draft {
	return step.Draft{Kind: plan.ModeDraft, Tokens: s.Tokens[n : n+1], Cached: n - 1, Pages: s.Pages, State: s.State,
		Logits: true}
}

// blocks runs a draft pass and returns, for every draft of every work, the logits, then the token and the confidence.
func blocks(b *steps.Bench, works ...step.Draft) (out [][]float32) {
	b.Helper()
	res, err := b.Runner.Draft(works, false)
	if err != nil {
		b.Fatal(err)
	}
	for i := range works {
		for place := range b.Config.Model.Block {
			row, sure := res.Drafted(i, place)
			token, _, _ := res.Best(row)
			out = append(out, append(slices.Clone(res.Row(row)), float32(token), sure))
		}
	}
	return out
}

// Every operation of a model with a DSpark head agrees with the reference for equal inputs. The operations include
// taps, the data that the stages store for prompts and verified rows, and greedy and sampled blocks after few tokens,
// after whole windows and for several sequences at once.
func TestGPUDSparkOperationsAgreeWithTheReference(t *testing.T) {
	for _, c := range []struct{ hidden, rank, vocab int }{{64, 16, 640}, {192, 48, 1000}, {256, 256, 1297}} {
		both, found := besideTheReference(onGPU(t))
		b := sparkBench(t, both, c.hidden, c.rank, c.vocab)
		var works []step.Draft
		for i, n := range []int{1, 5, 130, 300} {
			s := b.Sequence(i+1, n+12)
			b.Chunks(&steps.Sequence{Tokens: s.Tokens[:n], Pages: s.Pages, State: s.State}, 131)
			blocks(b, behind(s, n))
			b.Step(s.Work(plan.ModeVerify, 6))
			works = append(works, behind(s, n+6))
		}
		blocks(b, works...)
		for i := range works {
			works[i].Draws = make([]sample.Draw, b.Config.Model.Block)
			for place := range works[i].Draws {
				works[i].Draws[place] = sample.Draw{Inverse: 1, TopP: 1, Random: uint64(place+i+1) << 60}
			}
		}
		blocks(b, works...)
		t.Logf("hidden %d, rank %d, vocabulary %d", c.hidden, c.rank, c.vocab)
		agree(t, found)
	}
}

// A block has the same bits alone and in a batch, with plain launches and with a captured graph.
func TestGPUBlocksAreTheSameInCompany(t *testing.T) {
	b := sparkBench(t, onGPU(t), 192, 48, 1000)
	var works []step.Draft
	var alone [][]float32
	for i, n := range []int{1, 127, 130, 300, 20, 77, 200} {
		s := b.Sequence(i+1, n+1)
		b.Chunks(&steps.Sequence{Tokens: s.Tokens[:n], Pages: s.Pages, State: s.State}, 131)
		works = append(works, behind(s, n))
		alone = append(alone, blocks(b, works[i])...)
	}
	for _, row := range alone {
		if v := row[len(row)-1]; math.IsNaN(float64(v)) || v == 0 {
			t.Errorf("a confidence of %v", v)
		}
	}
	for range 4 { // the pass is captured, and then the graph is replayed
		b.SameBits("alone, again", blocks(b, works[0]), alone[:b.Config.Model.Block])
		b.SameBits("beside others", blocks(b, works...), alone)
	}
}
