package engine

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"sparrow/internal/kv/tier"
	"sparrow/internal/spec"
	"sparrow/internal/step"
	"sparrow/internal/testmodel"
	"sparrow/plan"
)

// Invariants of this file: blocks of drafts change no bit of any answer. This holds for any length, any number of
// accepted drafts, chunked prompts, preempted or cancelled requests, and after a cached prefix. The data that the
// drafting stages store for a sequence does not depend on whether its tokens were computed or its pages were read from
// a tier.

// everyPattern returns a hook that replaces a drafter's guesses so that right and wrong guesses occur in every pattern.
// One guess in four is wrong; which one depends on the position and the prompt.
func everyPattern(answers []*response, list []Request) func(*Engine) {
	return guessing(answers, list, func(at, prompt int) bool {
		return rand.New(rand.NewPCG(uint64(at), uint64(prompt))).IntN(4) != 0
	})
}

// guessing returns a hook that replaces a drafter's guesses by the tokens of the answers, or by another token where
// right returns false.
func guessing(answers []*response, list []Request, right func(at, prompt int) bool) func(*Engine) {
	known := map[string]*response{}
	for i, r := range list {
		known[r.ID] = answers[i]
	}
	return func(e *Engine) {
		e.loop.passes.runner = &guesser{runner: e.loop.passes.runner, rewrite: func(w *step.Draft, row []float32) {
			c := e.at(w.Pages)
			if c == nil { // the choice ended while the pass ran
				return
			}
			prompt := len(c.job.request.Prompt)
			at := w.Cached + len(w.Tokens) + 1 - prompt
			if w.Sampled > 0 {
				at = len(c.seq.Tokens) - prompt + w.Sampled - 1
			}
			answer := known[c.job.request.ID].Choices[c.index].Tokens
			if at >= len(answer) {
				return
			}
			token := answer[at]
			if !right(at, prompt) {
				token = (token + 1) % int32(len(row))
			}
			for i := range row {
				row[i] = -50
			}
			row[token] = 50
		}}
	}
}

// lengthsOfBlocks returns prompts whose lengths have every remainder mod 4 and lie around the ends of windows and
// groups of 128.
func lengthsOfBlocks() []Request {
	var list []Request
	for _, n := range []int{1, 2, 3, 4, 119, 121, 122, 124, 125, 126, 127, 128, 129, 247, 250, 253, 255, 256} {
		list = append(list, Request{ID: fmt.Sprint(n), Prompt: tokens(n, n), Sampling: greedy(), MaxTokens: 40,
			IgnoreEOS: true})
	}
	return list
}

func TestBlocksAtEveryLength(t *testing.T) {
	notUnderRace(t)
	list := lengthsOfBlocks()
	dir, cfg := testmodel.V4Spark(t), Config{Policy: deterministic("fp8"), Draft: spec.Off()}
	wantRows, gotRows := keepLogits(), keepLogits()
	want := lone(t, dir, cfg, list, wantRows.watch)
	cfg.Draft = drafts(t, 5)
	seen := map[[2]int]bool{} // pairs of length mod 4 and number of accepted drafts
	e := start(t, dir, cfg, gotRows.watch, everyPattern(want, list), checked(t))
	before := e.loop.passes.runner
	var length, rows int
	e.loop.passes.runner = &tap{runner: before, after: func(works []step.Work, _ step.Result) {
		if rows > 1 { // the verified block had more than one row; this pass continues after its accepted drafts
			seen[[2]int{length % 4, works[0].Cached - length - 1}] = true
		}
		length, rows = works[0].Cached, len(works[0].Tokens)
		if works[0].Kind != plan.ModeVerify {
			rows = 0
		}
	}}
	for i, r := range list {
		rows = 0
		sameTokens(t, "prompt of "+r.ID, generate(t, e, r).Choices[0], want[i].Choices[0])
	}
	for k, v := range wantRows.rows {
		if gotRows.rows[k] != v {
			t.Fatalf("the logits of %+v differ from the logits of a run without drafts", k)
		}
	}
	for mod := range 4 {
		for a := range 6 {
			if !seen[[2]int{mod, a}] {
				t.Errorf("no verification after a length of %d mod 4 accepted %d drafts", mod, a)
			}
		}
	}
}

// Drafts that equal the target's tokens are always accepted.
func TestTrueBlocksAreAccepted(t *testing.T) {
	notUnderRace(t)
	list := lengthsOfBlocks()[8:12]
	dir := testmodel.V4Spark(t)
	want := lone(t, dir, Config{Policy: deterministic("fp8"), Draft: spec.Off()}, list)
	e := start(t, dir, Config{Policy: deterministic("fp8"), Draft: drafts(t, 5)},
		guessing(want, list, func(int, int) bool { return true }), checked(t))
	for i, r := range list {
		r.Trace = true
		got := generate(t, e, r)
		sameTokens(t, r.ID, got.Choices[0], want[i].Choices[0])
		// The prompt gives one token, and each full block gives six tokens: five accepted drafts and the token after
		// them. The last 3 of 40 tokens need a block of two drafts.
		if d, want := got.Trace.Drafts, []DraftCount{{7, 7}, {7, 7}, {6, 6}, {6, 6}, {6, 6}}; !slices.Equal(d, want) ||
			got.Usage.DraftedTokens != 32 || got.Usage.AcceptedTokens != 32 || got.Trace.Steps != 8 {
			t.Errorf("%d steps, drafts of the trace %v, usage %+v", got.Trace.Steps, d, got.Usage)
		}
	}
	if st := e.Stats(); st.Drafted < 50 || st.Accepted != st.Drafted {
		t.Errorf("%d of %d drafts were accepted, want all", st.Accepted, st.Drafted)
	}
}

// These flags select the random batches of TestRandomBatchesOfBlocks. Each number is the seed of one batch.
var (
	batches    = flag.Int("batches", 0, "random batches of drafted blocks; 0 is 2, or 12 with -long")
	firstBatch = flag.Int("first-batch", 0, "number of the first random batch")
)

// eight maps the tokens of prompts to a vocabulary of eight tokens, so that a random drafting head sometimes guesses
// the target's token.
func eight(list []Request) []Request {
	for i := range list {
		for j := range list[i].Prompt {
			list[i].Prompt[j] %= 8
		}
	}
	return list
}

// kept counts verified blocks by sequence length mod 128 and by the number of accepted drafts.
type kept [128][6]int

// watch makes an engine count its verified blocks in k.
func (k *kept) watch(e *Engine) {
	// Lengths of sequences at their previous verification, after which the next pass continues.
	lengths := map[*choice]int{}
	e.loop.passes.runner = &tap{runner: e.loop.passes.runner, before: func(works []step.Work) error {
		for _, w := range works {
			c := e.at(w.Pages)
			if n, ok := lengths[c]; ok && (w.Kind == plan.ModeVerify || w.Kind == plan.ModeDecode) {
				k[n%128][w.Cached-n-1]++
			}
			if delete(lengths, c); w.Kind == plan.ModeVerify && len(w.Tokens) > 1 {
				lengths[c] = w.Cached
			}
		}
		return nil
	}}
}

// missing returns the pairs that did not occur as text, or "" if all occurred.
func (k *kept) missing() string {
	text := ""
	for n := range k {
		for accepted, count := range k[n] {
			if count == 0 {
				text += fmt.Sprintf(" %d:%d", n, accepted)
			}
		}
	}
	if text != "" {
		text = "no verification with length mod 128 and accepted drafts" + text
	}
	return text
}

// drafted calls a function of the test with the works of each draft pass.
type drafted struct {
	runner
	look func(works []step.Draft)
}

func (d *drafted) StartDraft(works []step.Draft, chained bool) (step.Pending, error) {
	d.look(works)
	return d.runner.StartDraft(works, chained)
}

// For each sequence length mod 128, each number of accepted drafts occurs once: each block gets the number of right
// drafts that occurred least often for its length. Answers equal those of plain decoding.
func TestEveryLengthKeepsEveryNumber(t *testing.T) {
	notUnderRace(t)
	repeats(t, "TestBlocksAtEveryLength covers all lengths mod 4 with all numbers of accepted drafts")
	var list []Request
	for i := range 12 {
		n := 1 + 37*i
		list = append(list, Request{ID: fmt.Sprint(n), Prompt: tokens(n, n), Sampling: greedy(), MaxTokens: 330,
			IgnoreEOS: true})
	}
	dir, cfg := testmodel.V4Spark(t), Config{Policy: deterministic("fp8"), Draft: spec.Off()}
	want := lone(t, dir, cfg, list)
	var seen kept
	var length, right int
	cfg.Draft = drafts(t, 5)
	choose := func(e *Engine) {
		e.loop.passes.runner = &drafted{e.loop.passes.runner, func(works []step.Draft) {
			length = works[0].Cached + len(works[0].Tokens)
			counts := seen[length%128][:]
			right = slices.Index(counts, slices.Min(counts))
		}}
	}
	e := start(t, dir, cfg, choose, guessing(want, list, func(at, prompt int) bool {
		return at+prompt-length <= right // the first row of the block predicts the first draft
	}), seen.watch, checked(t))
	for i, r := range list {
		sameTokens(t, "prompt of "+r.ID, generate(t, e, r).Choices[0], want[i].Choices[0])
	}
	if text := seen.missing(); text != "" {
		t.Error(text)
	}
}

// Random batches with common prefixes, few pages, chunks and cancellations give the answers of plain decoding. A
// thousand batches take about 15 minutes on one core and cover nearly all pairs of length mod 128 and number of
// accepted drafts; TestEveryLengthKeepsEveryNumber covers all.
func TestRandomBatchesOfBlocks(t *testing.T) {
	notUnderRace(t)
	rounds := 2
	if *everything {
		rounds = 12
	}
	if *batches > 0 {
		rounds = *batches
	}
	dir := testmodel.V4Spark(t)
	var preempted, reused, aborted int64
	var seen kept
	for round := *firstBatch; round < *firstBatch+rounds && !t.Failed(); round++ {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			st := randomBatchOfBlocks(t, dir, round, true, func(c Config, hooks ...func(*Engine)) (*Engine, func()) {
				return prepared(t, dir, c, append(hooks, seen.watch)...)
			})
			preempted, reused, aborted = preempted+st.Preempted, reused+st.CachedTokens, aborted+st.Aborted
		})
	}
	if preempted == 0 || reused == 0 || aborted == 0 {
		t.Errorf("%d preemptions, %d reused tokens, %d cancelled; want some of each", preempted, reused, aborted)
	}
	t.Logf("%d preemptions, %d reused tokens, %d cancelled; %s", preempted, reused, aborted, seen.missing())
}

// The batches of TestRandomBatchesOfBlocks give the answers of plain decoding also on a device that computes while the
// host continues. On such a device, blocks are enqueued before the host knows the tokens before them. Half of the
// batches use guesses of every pattern in place of the head's. The others use the head's own guesses, which the next
// verification reads on the device.
func TestRandomBatchesOfBlocksAhead(t *testing.T) {
	notUnderRace(t)
	rounds := max(2, *batches)
	var st Stats
	for round := *firstBatch; round < *firstBatch+rounds && !t.Failed(); round++ {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			own := round%2 == 1
			dir := testmodel.V4Spark(t)
			if own {
				dir = testmodel.V4SparkEight(t)
			}
			got := randomBatchOfBlocks(t, dir, round, !own, func(c Config, hooks ...func(*Engine)) (*Engine, func()) {
				return overlapping(t, dir, c, hooks...)
			})
			st.DraftsAhead, st.Accepted = st.DraftsAhead+got.DraftsAhead, st.Accepted+got.Accepted
			st.Preempted, st.Overlapped = st.Preempted+got.Preempted, st.Overlapped+got.Overlapped
		})
	}
	if st.DraftsAhead == 0 || st.Accepted == 0 || st.Overlapped == 0 {
		t.Errorf("%d draft passes enqueued ahead, %d drafts accepted, %d passes overlapped", st.DraftsAhead,
			st.Accepted,
			st.Overlapped)
	}
	t.Logf("%d draft passes enqueued ahead, %d drafts accepted, %d passes overlapped, %d preemptions", st.DraftsAhead,
		st.Accepted, st.Overlapped, st.Preempted)
}

// If the tokens of blocks stay on the device, the next batch is enqueued while the blocks are drafted. A draft pass
// that fails afterwards makes decoding slower and changes no answer.
func TestBlocksThatTheHostHasNotSeen(t *testing.T) {
	notUnderRace(t)
	list := eight(drawing(plain(8, []int32{3}), false))
	for i := range list {
		list[i].MaxTokens, list[i].IgnoreEOS = 20+i, true
		list[i].Prompt = append(list[i].Prompt, tokens(2, 90)...)
	}
	list = eight(list)
	dir, cfg := testmodel.V4SparkEight(t), Config{Policy: deterministic("fp8"), Draft: spec.Off()}
	want := lone(t, dir, cfg, list)
	cfg.Draft, cfg.StepTokens = drafts(t, 5), 96
	e, run := overlapping(t, dir, cfg, checked(t))
	compare(t, list, jointly(t, e, list, run), want)
	guessed(t, e)
	if st := e.Stats(); 2*st.Overlapped < st.Steps || 2*st.DraftsAhead < st.Steps {
		t.Errorf("%d of %d passes overlapped, %d draft passes enqueued ahead", st.Overlapped, st.Steps, st.DraftsAhead)
	}
	e, run = overlapping(t, dir, cfg, checked(t),
		func(e *Engine) { e.loop.passes.runner = &failsLate{runner: e.loop.passes.runner, pass: plan.PassBlock} })
	compare(t, list, jointly(t, e, list, run), want)
	if st := e.Stats(); st.DraftsFailed == 0 || st.Failed > 0 || st.Isolated > 0 {
		t.Errorf("%d sequences stopped drafting, %d requests failed, %d batches were isolated", st.DraftsFailed,
			st.Failed, st.Isolated)
	}
}

// The drafter's confidence in a block is noted once the host has seen the block, even after the next batch was
// formed. A sequence whose block failed stops drafting.
func TestConfidencesOfBlocksAreNoted(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	for _, fails := range []bool{false, true} {
		e, _ := overlapping(t, testmodel.V4SparkEight(t), Config{Draft: drafts(t, 5)})
		j := open(t, e, eight([]Request{{Prompt: tokens(1, 20), Sampling: greedy(), MaxTokens: 40,
			IgnoreEOS: true}})[0])
		for e.loop.last == nil || e.loop.last.stage != stageDrafting {
			e.iterations(1)
		}
		c, last := j.choices[0], e.loop.last
		known := fmt.Sprintf("%+v", c.drafts)
		if fails {
			last.ahead.err = errFault
		}
		err := e.loop.drafter.see(last, nil)
		if noted := fmt.Sprintf("%+v", c.drafts) != known; !noted && !fails || (err != nil) != fails {
			t.Errorf("it fails: %v, %v; noted: %v", fails, err, noted)
		}
		if got := c.drafts.Active(); got == fails || c.drafted != 0 || e.Stats().DraftsFailed > 1 {
			t.Errorf("it fails: %v; the sequence drafts: %v, row %d of the pass", fails, got, c.drafted)
		}
		e.loop.last = nil
	}
}

// loneBatches keeps the answers of plain decoding to a random batch, by checkpoint and number: two tests have the same
// batches.
var loneBatches = map[string][]*response{}

// randomBatchOfBlocks compares the answers of one random batch with those of plain decoding. If guesses is set, it
// replaces the head's guesses by guesses of every pattern.
func randomBatchOfBlocks(t *testing.T, dir string, round int, guesses bool,
	over func(Config, ...func(*Engine)) (*Engine, func())) Stats {
	random := rand.New(rand.NewPCG(uint64(round), 11))
	var list []Request
	for i := range 3 + random.IntN(6) {
		r := Request{ID: fmt.Sprint(i), Prompt: append(tokens(random.IntN(3), random.IntN(2)*(256+random.IntN(60))),
			tokens(100*round+i, 1+random.IntN(140))...), Sampling: greedy(), MaxTokens: 1 + random.IntN(30),
			IgnoreEOS: random.IntN(2) == 0}
		if random.IntN(3) == 0 {
			r.Sampling = seeded(int64(i))
		}
		if random.IntN(2) == 0 { // the answer of this request needs one more page
			r.Prompt = append(tokens(random.IntN(3), 270), tokens(100*round+i, 225+random.IntN(17))...)
			r.MaxTokens = 30
		}
		list = append(list, r)
	}
	hooks := []func(*Engine){checked(t)}
	if !guesses {
		list = eight(list)
	}
	cfg := Config{Policy: deterministic("fp8"), Draft: spec.Off()}
	run := fmt.Sprint(dir, round)
	want := loneBatches[run]
	if want == nil {
		want = lone(t, dir, cfg, list)
		loneBatches[run] = want
	}
	if guesses {
		hooks = append(hooks, everyPattern(want, list))
	}
	cfg.Draft, cfg.MaxRunning = drafts(t, 1+random.IntN(5)), 3+random.IntN(4)
	cfg.CacheTokens, cfg.StepTokens = (5+random.IntN(2))*256, 30+random.IntN(120)
	if random.IntN(2) == 0 {
		cfg.Draft = spec.Auto()
	}
	e, begin := over(cfg, hooks...)
	var given *Job
	if random.IntN(2) == 0 { // one request of this batch is cancelled
		gone := Request{ID: "gone", Prompt: tokens(1, 300), Sampling: greedy(), MaxTokens: 200,
			IgnoreEOS: true, Draft: new(int)}
		if !guesses {
			gone = eight([]Request{gone})[0]
		}
		given = open(t, e, gone)
	}
	got := jointly(t, e, list, func() {
		begin()
		if given != nil {
			given.Cancel()
		}
	})
	compare(t, list, got, want)
	return e.Stats()
}

// proposals collects the blocks that a drafter proposed, by sequence length, as text: tokens and the bits of their
// confidences.
type proposals struct {
	runner
	mu  sync.Mutex
	all map[int]string
}

func (p *proposals) Draft(works []step.Draft, chained bool) (step.Result, error) {
	res, err := p.runner.Draft(works, chained)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range works {
		text := ""
		for place := range 5 {
			row, sure := res.Drafted(i, place)
			token, _, _ := res.Best(row)
			text += fmt.Sprintf("%d %08x ", token, math.Float32bits(sure))
		}
		p.all[works[i].Cached+len(works[i].Tokens)] = text
	}
	return res, err
}

func watchBlocks(p *proposals) func(*Engine) {
	p.all = map[int]string{}
	return func(e *Engine) { p.runner, e.loop.passes.runner = e.loop.passes.runner, p }
}

// The drafts of a sequence and the bits of their confidences do not depend on whether its prompt is computed whole or
// in chunks, or partly read from the cache or from a tier.
func TestWhatTheStagesRememberComesBack(t *testing.T) {
	notUnderRace(t)
	dir := testmodel.V4Spark(t)
	request := func(i int) Request {
		return Request{ID: fmt.Sprint(i), Prompt: tokens(i, 256+130), Sampling: greedy(), MaxTokens: 12,
			IgnoreEOS: true}
	}
	var want proposals
	cfg := Config{Policy: deterministic("fp8"), Draft: drafts(t, 5)}
	generate(t, start(t, dir, cfg, watchBlocks(&want)), request(1))
	for _, chunk := range []int{7, 129} {
		var got proposals
		cfg.StepTokens = chunk
		generate(t, start(t, dir, cfg, watchBlocks(&got)), request(1))
		if !maps.Equal(got.all, want.all) {
			t.Errorf("with steps of %d tokens the drafted blocks differ", chunk)
		}
	}
	for name, o := range map[string]tier.Options{
		"host": {HostBytes: 1 << 28}, "disk": {DiskDir: t.TempDir(), DiskBytes: 1 << 30},
	} {
		var got proposals
		c := tiered("fp8", 2, 256, o)
		c.Draft = drafts(t, 5)
		e := startTiered(t, dir, c, watchBlocks(&got), checked(t))
		for round, i := range []int{1, 1, 2, 1} { // computed, cached, another prompt, restored from the tier
			got.all = map[int]string{}
			if r := generate(t, e, request(i)); (round == 1 || round == 3) && r.Usage.CachedTokens != 256 {
				t.Errorf("%s, round %d: %d tokens were cached", name, round, r.Usage.CachedTokens)
			}
			if i == 1 && !maps.Equal(got.all, want.all) {
				t.Errorf("%s, round %d: the drafted blocks differ", name, round)
			}
		}
		if st := e.Stats().Tiers; st.Tokens == 0 {
			t.Errorf("%s: no page came from the tier", name)
		}
	}
}

// If the head drafts blocks, sampled answers still follow the target's distribution.
func TestSampledBlocksFollowTheTarget(t *testing.T) {
	notUnderRace(t)
	seeds := 1000
	if *everything {
		seeds = 2000
	}
	dir := testmodel.V4SparkEight(t)
	prompt := []int32{2, 3, 4, 5, 6, 7, 2, 4}
	params := seeded(0)
	params.Temperature, params.TopP = 0.9, 0.95
	law := lawOf(t, dir, prompt, params)
	e := start(t, dir, Config{Draft: drafts(t, 5), MaxQueue: seeds, NoReuse: true}, checked(t))
	counts := map[[3]int32]int{}
	var list []Request
	for seed := range seeds {
		p := params
		p.Seed = int64(seed)
		list = append(list, Request{Prompt: prompt, Sampling: p, MaxTokens: 3, IgnoreEOS: true})
	}
	for part := range slices.Chunk(list, 200) {
		for _, r := range together(t, e, part) {
			counts[[3]int32(r.Choices[0].Tokens)]++
		}
	}
	checkLaw(t, law, counts, seeds)
	guessed(t, e)
	if st := e.Stats(); float64(st.Accepted) < 0.1*float64(st.Drafted) {
		t.Errorf("only %d of %d drafts were accepted", st.Accepted, st.Drafted)
	}
}

// A configured number of drafts above the tokens of a block is refused. Automatic drafting drafts at most one block.
func TestBlocksBoundTheDrafts(t *testing.T) {
	if e := start(t, testmodel.V4Spark(t), Config{Draft: spec.Auto()}); e.Info().Drafts != 5 {
		t.Errorf("automatic drafting drafts up to %d tokens", e.Info().Drafts)
	}
	if _, err := build(t, testmodel.V4Spark(t), Config{Draft: drafts(t, 6)}); err == nil {
		t.Error("6 drafts of blocks of 5 were not refused")
	}
}
