package engine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"sparrow/internal/spec"
	"sparrow/internal/testmodel"
	"sparrow/plan"
)

// Invariants of this file: a model with linear attention, whose states cannot be rewound, is served like other models.
// Other requests in the batch, chunks, preemption, failed steps and cancellation do not change any bit of the logits; a
// cached prefix is used up to the last snapshot of the state.

// nextModel returns the folder of a model with linear attention. It skips the test in cases that the model does not
// support.
func nextModel(t *testing.T) string {
	t.Helper()
	if *ranks > 1 || placing != nil {
		t.Skip("glm5_next runs only on one device that holds all experts")
	}
	if raceEnabled {
		t.Skip("the tests of DeepSeek-V4 cover the same races")
	}
	return testmodel.Next(t)
}

func TestLinearAttentionServesACrowdToTheBit(t *testing.T) {
	list := long(8)
	dir, cfg := nextModel(t), Config{Policy: deterministic("bf16")}
	wantRows, gotRows := keepLogits(), keepLogits()
	want := lone(t, dir, cfg, list, wantRows.watch)
	cfg.CacheTokens, cfg.StepTokens, cfg.MaxRunning = 6*256, 150, 8
	e, run := prepared(t, dir, cfg, gotRows.watch, checked(t))
	got := jointly(t, e, list, run)
	if t.Failed() {
		return
	}
	for i := range list {
		for j := range want[i].Choices {
			sameTokens(t, fmt.Sprintf("request %d choice %d", i, j), got[i].Choices[j], want[i].Choices[j])
		}
	}
	sameRows(t, gotRows, wantRows)
	crowded(t, e)
}

func TestEveryWayToAPromptOfLinearAttentionGivesTheSameBits(t *testing.T) {
	dir := nextModel(t)
	lengths := []int{1, 3, 4, 5, 63, 64, 65, 255, 256, 257, 515}
	list := make([]Request, len(lengths))
	for i, n := range lengths {
		list[i] = Request{ID: fmt.Sprint(n), Prompt: tokens(n, n), Sampling: greedy(), MaxTokens: 5, IgnoreEOS: true}
	}
	policy := deterministic("fp8")
	each := func(c Config, list []Request, hooks ...func(*Engine)) (*logitsOf, []*response) {
		c.Policy = policy
		rows := keepLogits()
		e := start(t, dir, c, append(hooks, rows.watch)...)
		var out []*response
		for _, r := range list {
			out = append(out, generate(t, e, r))
		}
		return rows, out
	}
	whole, _ := each(Config{NoReuse: true, StepTokens: 1024}, list)
	chunked, _ := each(Config{NoReuse: true, StepTokens: 100}, list)
	sameRows(t, chunked, whole)
	// Every prompt runs twice: the second run finds its full pages in the cache.
	cached, answers := each(Config{}, slices.Concat(list, list))
	sameRows(t, cached, whole)
	for i, r := range answers[len(list):] {
		if want := (lengths[i] - 1) / 256 * 256; r.Usage.CachedTokens != want {
			t.Errorf("second run of a prompt of %d tokens: %d tokens came from the cache, want %d", lengths[i],
				r.Usage.CachedTokens, want)
		}
	}
	for _, off := range []bool{false, true} {
		again, _ := each(Config{NoReuse: off}, list, restarting(2))
		sameRows(t, again, whole)
	}
	// Over gathered rows too, prompts give the same bits in chunks and after cached pages. Generated tokens that are
	// computed again as a prompt do not, because decodes read rows in place.
	policy = plan.Policy{KV: "fp8", Prefill: "sparse-flat"}
	whole, _ = each(Config{NoReuse: true, StepTokens: 1024}, list)
	chunked, _ = each(Config{NoReuse: true, StepTokens: 100}, list)
	sameRows(t, chunked, whole)
	cached, _ = each(Config{}, slices.Concat(list, list))
	sameRows(t, cached, whole)
}

// A step that fails in the middle makes the states of its sequences unusable. The sequences start over and get the same
// answers.
func TestAFailedBatchRestartsLinearAttention(t *testing.T) {
	var list []Request
	for i := range 2 {
		list = append(list, Request{ID: fmt.Sprint(i), Prompt: tokens(i, 700+i), Sampling: greedy(), MaxTokens: 3,
			IgnoreEOS: true})
	}
	dir, cfg := nextModel(t), Config{Policy: deterministic("fp8")}
	wantRows, gotRows := keepLogits(), keepLogits()
	lone(t, dir, cfg, list, wantRows.watch)
	cfg.StepTokens = 600
	e, run := faulty(t, dir, cfg, &halfway{begin: 2, layer: 1}, gotRows.watch, checked(t))
	jointly(t, e, list, run)
	sameRows(t, gotRows, wantRows)
	if st := e.Stats(); st.Isolated != 1 || st.Preempted != 2 || st.Failed != 0 {
		t.Errorf("the items of %d batches ran one by one, %d sequences restarted, %d requests failed; want 1, 2, 0",
			st.Isolated,
			st.Preempted, st.Failed)
	}
}

// Requests that are cancelled during their prompt or their answer change no bit of other requests with a common prefix.
// This holds for requests in the same batch, and for later requests that use the snapshots.
func TestGivenUpRequestsOfLinearAttentionChangeNoBits(t *testing.T) {
	list := long(6)
	dir, cfg := nextModel(t), Config{Policy: deterministic("fp8")}
	wantRows, gotRows := keepLogits(), keepLogits()
	lone(t, dir, cfg, list, wantRows.watch)
	cfg.CacheTokens, cfg.StepTokens, cfg.MaxRunning = 8*256, 150, 8
	e, run := prepared(t, dir, cfg, gotRows.watch, checked(t))
	var left []*Job
	random := rand.New(rand.NewPCG(5, 2))
	for i := range 12 {
		r := list[i%len(list)]
		r.ID, r.Prompt, r.MaxTokens = "left", append(slices.Clone(r.Prompt), tokens(i, 90)...), 1+random.IntN(20)
		left = append(left, open(t, e, r))
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		for i, j := range left {
			for range i % 4 { // the test reads this many tokens before it cancels the request
				if j.Next().Last {
					break
				}
			}
			j.Cancel()
		}
	})
	for range 2 {
		jointly(t, e, list, run)
	}
	wait.Wait()
	maps.DeleteFunc(gotRows.rows, func(k rowKey, _ uint64) bool { return k.id == "left" })
	sameRows(t, gotRows, wantRows)
	if st := e.Stats(); st.Aborted == 0 || st.Failed != 0 {
		t.Errorf("%d requests cancelled, %d failed; want some cancelled and none failed", st.Aborted, st.Failed)
	}
}

// In a conversation of 50 turns, with other conversations running, at least 95 % of the tokens computed by an earlier
// turn are reused with the default number of snapshots. The first turns reuse less: over 20 turns the share is 90 %.
func TestAConversationReusesItsSnapshots(t *testing.T) {
	dir := nextModel(t)
	e := start(t, dir, Config{Policy: deterministic("bf16"), CacheTokens: 80 * 256, StepTokens: 512, MaxRunning: 4})
	var history []int32
	reused, could, turns, least := 0, 0, 20, 0.9
	if *everything {
		turns, least = 50, 0.95
	}
	for turn := range turns {
		history = append(history, tokens(100+turn, 180)...)
		r := generate(t, e, Request{Prompt: slices.Clone(history), Sampling: greedy(), MaxTokens: 20, IgnoreEOS: true})
		if turn > 0 {
			reused, could = reused+r.Usage.CachedTokens, could+len(history)-180
		}
		history = append(history, r.Choices[0].Tokens...)
		if turn%5 == 0 { // another conversation runs and uses pages and snapshots
			generate(t, e, Request{Prompt: tokens(turn, 300), Sampling: greedy(), MaxTokens: 1})
		}
	}
	if share := float64(reused) / float64(could); share < least {
		t.Errorf("%d of %d tokens were reused, %.1f %%", reused, could, 100*share)
	}
}

// Drafts change no bit of any answer, whatever is accepted, rejected, preempted or reused.
func TestADraftingCrowdOfLinearAttention(t *testing.T) {
	nextModel(t)
	list := long(6)
	dir, cfg := testmodel.NextDraft(t), Config{Policy: deterministic("fp8"), Draft: spec.Off()}
	wantRows, gotRows := keepLogits(), keepLogits()
	want := lone(t, dir, cfg, list, wantRows.watch)
	cfg.Draft, cfg.CacheTokens, cfg.StepTokens, cfg.MaxRunning = drafts(t, 3), 6*256, 150, 8
	e, run := prepared(t, dir, cfg, gotRows.watch, oracle(want, list), checked(t))
	compare(t, list, jointly(t, e, mixedDrafts(list, 3), run), want)
	for k, v := range wantRows.rows {
		if gotRows.rows[k] != v {
			t.Fatalf("the logits of %+v differ from the logits of a lone run without drafts", k)
		}
	}
	if st := e.Stats(); st.CachedTokens == 0 || st.Preempted == 0 {
		t.Errorf("%d reused tokens, %d preemptions; want some of each", st.CachedTokens, st.Preempted)
	}
	guessed(t, e)
}
