package sched

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sparrow/internal/kv"
	"sparrow/internal/testkit/await"
)

// For any arrivals, cancellations, shared prefixes and shortages of pages: the invariants of fake hold in every step,
// every sequence finishes, first admissions keep the order of arrival, and at the end no page is held.
func TestEverySequenceFinishes(t *testing.T) {
	preempted, right, wrong, recorded := int64(0), 0, 0, 0
	rapid.Check(await.Untimed(t), func(t *rapid.T) {
		size := rapid.IntRange(1, 8).Draw(t, "page tokens")
		pages := rapid.IntRange(2, 24).Draw(t, "pages")
		window := kv.Window{}
		if rapid.Bool().Draw(t, "windows") {
			window = kv.Window{Pages: 1, Tokens: rapid.IntRange(1, 12).Draw(t, "window tokens")}
			window.Pages = window.PerSequence(size) + rapid.IntRange(0, 12).Draw(t, "window pages")
		}
		grain := rapid.IntRange(1, size).Filter(func(n int) bool { return size%n == 0 }).Draw(t, "grain")
		f, err := newRanked(rapid.IntRange(1, 3).Draw(t, "ranks"), pages, size, window, Limits{Grain: grain,
			BatchTokens: rapid.IntRange(grain, 40).Draw(t, "step tokens"),
			MaxRunning:  rapid.IntRange(1, 12).Draw(t, "max running"),
			MaxPrompts:  rapid.IntRange(1, 5).Draw(t, "max prompts"),

			PromptLogits: rapid.IntRange(max(5, grain), 20).Draw(t, "prompt logits"),
			RecordRows:   rapid.IntRange(grain, 20).Draw(t, "record rows"),
		})
		if err != nil {
			t.Fatal(err)
		}
		list := drawSequences(t, pages*size)
		wanted := map[*Sequence]int{}
		for _, d := range list {
			if d.q.Logits > 0 {
				wanted[d.q] = d.q.Logits
			}
		}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		cancels := rapid.Bool().Draw(t, "cancels")
		if rapid.Bool().Draw(t, "drafts") {
			f.guess = func(*Sequence) int { return random.IntN(8) }
		}
		for next := 0; next < len(list) || len(f.goals) > 0; {
			for next < len(list) && random.IntN(3) > 0 {
				if err := f.add(list[next].q, list[next].goal); err != nil {
					t.Fatal(err)
				}
				next++
			}
			if cancels && random.IntN(8) == 0 {
				if all := f.sched.All(); len(all) > 0 {
					f.remove(all[random.IntN(len(all))])
				}
			}
			waits := f.sched.Waiting()+f.sched.Running() > 0
			items, err := f.step()
			if err != nil {
				t.Fatal(err)
			}
			if len(items) == 0 && waits {
				t.Fatalf("an empty step although %d sequences run and %d wait", f.sched.Running(), f.sched.Waiting())
			}
			if f.steps > 100_000 {
				t.Fatalf("%d sequences are left after %d steps", len(f.goals), f.steps)
			}
		}
		checkOrder(t, f)
		for _, pool := range f.pools {
			if st := pool.Stats(); st.Used != 0 || st.Sequences != 0 || f.sched.Running()+f.sched.Waiting() != 0 {
				t.Fatalf("at the end: pool %+v, %d sequences run, %d wait", st, f.sched.Running(), f.sched.Waiting())
			}
		}
		for q, n := range f.recorded {
			recorded += n
			if most := len(q.Tokens); n > most {
				t.Fatalf("%d rows of a sequence with %d tokens were recorded", n, most)
			}
		}
		for q, n := range wanted {
			if got := f.scored[q]; got != n && !cancels {
				t.Fatalf("a sequence requested %d rows of logits and got %d", n, got)
			}
		}
		preempted += f.sched.Preemptions()
		right, wrong = right+f.right, wrong+f.wrong
	})
	if preempted == 0 {
		t.Error("no sequence was ever preempted: the pools are too large for this test")
	}
	if recorded == 0 {
		t.Error("no row was ever recorded")
	}
	if right == 0 || wrong == 0 {
		t.Errorf("%d drafts were accepted and %d rejected, want some of each", right, wrong)
	}
}

// Drafts use the rows and pages that remain in a step, and take none from other sequences.
func TestDraftsTakeWhatIsLeft(t *testing.T) {
	f, err := newFake(4, 4, Limits{BatchTokens: 8, MaxRunning: 4, MaxPrompts: 2})
	if err != nil {
		t.Fatal(err)
	}
	old := mustAdd(t, f, &Sequence{Tokens: prompt(0, 3)}, 16)
	mustStep(t, f)
	f.draft(old, 7)
	if len(old.Drafts) != 7 || len(old.Pages()) != 3 {
		t.Fatalf("%d drafts have %d pages, want 7 drafts on 3 pages", len(old.Drafts), len(old.Pages()))
	}
	young := mustAdd(t, f, &Sequence{Tokens: prompt(50, 7)}, 8)
	items := mustStep(t, f)
	// Because the prompt waits, the drafts release their pages. The page of the next token has no free slots for
	// drafts, so no draft is verified, and the prompt is admitted and gets all rows except that of the decode.
	if it := find(items, old); it == nil || it.Drafts != 0 || len(it.Pages) != 1 {
		t.Errorf("the decode's item is %+v, want no draft and one page", it)
	}
	if it := find(items, young); it == nil || len(it.Tokens) != 7 {
		t.Errorf("the prompt's item is %+v, want all of its tokens", it)
	}
	f.draft(old, 7)
	if items = mustStep(t, f); find(items, old).Drafts != 3 {
		t.Errorf("the decode's item is %+v, want the three drafts that its page holds", find(items, old))
	}
}

// A token that needs a page takes one from drafts before any sequence is preempted.
func TestDraftsGiveWayBeforeAnybodyIsPreempted(t *testing.T) {
	f, err := newFake(4, 4, Limits{BatchTokens: 20, MaxRunning: 4})
	if err != nil {
		t.Fatal(err)
	}
	old := mustAdd(t, f, &Sequence{Tokens: prompt(0, 2)}, 16)
	young := mustAdd(t, f, &Sequence{Tokens: prompt(50, 4)}, 8)
	mustStep(t, f) // computes both prompts
	f.draft(old, 7)
	if len(old.Pages()) != 3 || f.pool.Available() != 0 {
		t.Fatalf("%d pages with drafts, %d pages available; want 3 and 0", len(old.Pages()), f.pool.Available())
	}
	items := mustStep(t, f)
	if it := find(items, young); it == nil || !it.Decode {
		t.Fatalf("the younger sequence's item is %+v, want its token", it)
	}
	if it := find(items, old); it == nil || len(it.Pages) > 2 {
		t.Errorf("the older sequence's item is %+v, want at most two pages", it)
	}
	if n := f.sched.Preemptions(); n != 0 {
		t.Errorf("%d sequences were preempted for drafts", n)
	}
}

type drawn struct {
	q    *Sequence
	goal int
}

// drawSequences generates random sequences with common prefixes, some of them in groups in which the other sequences
// wait for the first sequence.
func drawSequences(t *rapid.T, capacity int) []drawn {
	var list []drawn
	for len(list) < 20 {
		n := rapid.IntRange(1, max(capacity*2/3, 1)).Draw(t, "prompt")
		family, own := rapid.Int32Range(0, 2).Draw(t, "family"), rapid.IntRange(0, n).Draw(t, "own")
		goal := rapid.IntRange(n, capacity).Draw(t, "goal")
		tokens := make([]int32, n)
		for i := range tokens {
			tokens[i] = family
			if i >= own {
				tokens[i] = int32(len(list))
			}
		}
		salt := []byte(rapid.SampledFrom([]string{"", "", "a"}).Draw(t, "salt"))
		first := &Sequence{Tokens: slices.Clone(tokens), Salt: salt}
		if rapid.Bool().Draw(t, "scored") {
			first.Logits = rapid.IntRange(0, n).Draw(t, "logits")
		}
		for _, s := range []*Span{&first.Record, &first.Replay} {
			if rapid.IntRange(0, 2).Draw(t, "spans") == 0 {
				s.From = rapid.IntRange(0, goal).Draw(t, "from")
				s.To = s.From + rapid.IntRange(1, goal+1).Draw(t, "rows")
			}
		}
		list = append(list, drawn{first, goal})
		for range rapid.IntRange(0, 2).Draw(t, "more") {
			list = append(list, drawn{&Sequence{Tokens: slices.Clone(tokens), Salt: salt, After: first}, goal})
		}
	}
	return list
}

// checkOrder checks that sequences run for the first time in the order of arrival, except sequences that wait for a
// common prompt, or for rows of records or logits in a batch, and except short sequences.
func checkOrder(t *rapid.T, f *fake) {
	latest := int64(0)
	for _, q := range f.order {
		if q.After != nil || !free(q) || f.loose[q] {
			continue
		}
		if q.age < latest {
			t.Fatalf("sequence %d first ran after sequence %d", q.age, latest)
		}
		latest = q.age
	}
}

func mustAdd(t *testing.T, f *fake, q *Sequence, goal int) *Sequence {
	t.Helper()
	if err := f.add(q, goal); err != nil {
		t.Fatal(err)
	}
	return q
}

func mustStep(t *testing.T, f *fake) []Item {
	t.Helper()
	items, err := f.step()
	if err != nil {
		t.Fatal(err)
	}
	return items
}

func prompt(first int32, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = first + int32(i)
	}
	return out
}

func find(items []Item, q *Sequence) *Item {
	for i := range items {
		if items[i].Seq == q {
			return &items[i]
		}
	}
	return nil
}

func newTestFake(t *testing.T, pages, size int, l Limits) *fake {
	t.Helper()
	f, err := newFake(pages, size, l)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAShortPromptPassesALongOne(t *testing.T) {
	f := newTestFake(t, 200, 64, Limits{BatchTokens: 512, MaxRunning: 64})
	long := mustAdd(t, f, &Sequence{Tokens: prompt(0, 4000)}, 4001)
	mustStep(t, f)
	short := mustAdd(t, f, &Sequence{Tokens: prompt(9000, 40)}, 41)
	items := mustStep(t, f)
	if it := find(items, short); it == nil || !it.Last {
		t.Fatalf("the step after the arrival of the short prompt does not have the whole prompt: %+v", it)
	}
	if it := find(items, long); it == nil || it.Last || len(it.Tokens) != 512-40 {
		t.Errorf("the long prompt got %d tokens; want all tokens that the short prompt leaves", len(it.Tokens))
	}
}

func TestSequencesWithTheSamePromptShareItsPages(t *testing.T) {
	f := newTestFake(t, 40, 16, Limits{BatchTokens: 64, MaxRunning: 8})
	first := mustAdd(t, f, &Sequence{Tokens: prompt(0, 100)}, 110)
	others := []*Sequence{}
	for range 3 {
		others = append(others, mustAdd(t, f, &Sequence{Tokens: prompt(0, 100), After: first}, 110))
	}
	for !first.computed {
		if items := mustStep(t, f); len(items) != 1 {
			t.Fatalf("%d sequences are in the step before the first prompt is computed", len(items))
		}
	}
	items := mustStep(t, f)
	for i, q := range others {
		if it := find(items, q); it == nil || it.Cached != 96 || q.Match.Tokens != 96 {
			t.Errorf("sequence %d matched %v; want 96 tokens", i, q.Match)
		}
	}
}

func TestASequenceIsNotHeldUpByOneThatIsGone(t *testing.T) {
	f := newTestFake(t, 40, 16, Limits{BatchTokens: 16, MaxRunning: 8})
	first := mustAdd(t, f, &Sequence{Tokens: prompt(0, 100)}, 110)
	second := mustAdd(t, f, &Sequence{Tokens: prompt(0, 100), After: first}, 110)
	mustStep(t, f)
	f.remove(first)
	if it := find(mustStep(t, f), second); it == nil || it.Cached != 16 {
		t.Errorf("got item %+v; want the second sequence to continue after the page that the first computed", it)
	}
}

// The lookups of a sequence that waits for pages are counted only once.
func TestWaitingCountsNoLookups(t *testing.T) {
	f := newTestFake(t, 8, 16, Limits{BatchTokens: 64, MaxRunning: 8})
	mustAdd(t, f, &Sequence{Tokens: prompt(0, 100)}, 120)
	mustAdd(t, f, &Sequence{Tokens: prompt(500, 100)}, 101)
	for range 10 {
		mustStep(t, f)
	}
	if st := f.pool.Stats(); st.Lookups != 1 || f.sched.Waiting() != 1 {
		t.Errorf("%d lookups, %d waiting sequences; want one of each", st.Lookups, f.sched.Waiting())
	}
}

func TestBadSequencesAndLimitsAreRefused(t *testing.T) {
	f := newTestFake(t, 4, 16, Limits{BatchTokens: 8, MaxRunning: 64})
	if l := f.sched.Limits(); l.MaxRunning != 8 || l.Grain != 1 {
		t.Errorf("%d sequences may run in steps of 8 tokens, and prompts are cut at multiples of %d; want 8 and 1",
			l.MaxRunning, l.Grain)
	}
	q := &Sequence{Tokens: prompt(0, 64)}
	three := prompt(0, 3)
	add := func(q Sequence) error { return f.sched.Add(&q) }
	for want, err := range map[string]error{
		"has no tokens":                                   add(Sequence{}),
		"has 65 tokens, but a pool holds 64":              add(Sequence{Tokens: prompt(0, 65)}),
		"requests logits for the last -1 of its 3 tokens": add(Sequence{Tokens: three, Logits: -1}),
		"requests logits for the last 4 of its 3 tokens":  add(Sequence{Tokens: three, Logits: 4}),
		"requests logits for its last 2 tokens, but the limit of prompt logits per batch is 0": add(
			Sequence{Tokens: three, Logits: 2}),
		"records positions {2 1} and replays {0 0}, which are not valid ranges": add(
			Sequence{Tokens: three, Record: Span{2, 1}}),
		"records positions {0 0} and replays {-1 1}, which are not valid ranges": add(
			Sequence{Tokens: three, Replay: Span{-1, 1}}),
		"records or replays rows, but the limit of recorded rows per batch is 0": add(
			Sequence{Tokens: three, Replay: Span{0, 1}}),
		"was already added": errors.Join(f.sched.Add(q), f.sched.Add(q)),
	} {
		if !errors.Is(err, ErrSequence) || err.Error() != ErrSequence.Error()+": the sequence "+want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	f.sched.Remove(q)
	f.sched.Remove(q) // removing it again has no effect
	pool, err := kv.New(kv.Config{Pages: 1, PageTokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []Limits{{}, {BatchTokens: 1}, {MaxRunning: 1}, {BatchTokens: 1, MaxRunning: 1, MaxPrompts: -1},
		{BatchTokens: 9, MaxRunning: 1, Grain: 2}, {BatchTokens: 9, MaxRunning: 1, Grain: -1}} {
		if _, err := New([]*kv.Pool{pool}, l); !errors.Is(err, ErrLimits) {
			t.Errorf("limits %+v: error %v", l, err)
		}
	}
	if pool, err = kv.New(kv.Config{Pages: 1, PageTokens: 16}); err != nil {
		t.Fatal(err)
	}
	for _, l := range []Limits{{BatchTokens: 15}, {BatchTokens: 16, PromptLogits: 15},
		{BatchTokens: 16, RecordRows: 15}} {
		l.MaxRunning, l.Grain = 1, 16
		if _, err := New([]*kv.Pool{pool}, l); !errors.Is(err, ErrLimits) ||
			!strings.Contains(err.Error(), "at most 15") {
			t.Errorf("limits %+v: error %v", l, err)
		}
	}
}

// However many sequences decode and draft, a prompt that is cut only at multiples of Limits.Grain advances in every
// batch.
func TestDecodesLeaveTokensForWholeGroupsOfAPrompt(t *testing.T) {
	f := newTestFake(t, 300, 16, Limits{BatchTokens: 32, MaxRunning: 64, Grain: 16})
	if got := f.sched.Limits().MaxRunning; got != 17 {
		t.Fatalf("%d sequences may run in steps of 32 tokens, want 17, so that 16 tokens are left for a prompt", got)
	}
	f.guess = func(*Sequence) int { return 7 }
	var long *Sequence
	for i := range int32(40) {
		if i == 16 {
			long = mustAdd(t, f, &Sequence{Tokens: prompt(5000, 100)}, 101)
		}
		mustAdd(t, f, &Sequence{Tokens: prompt(100*i, 3)}, 90)
	}
	decodes, steps := 0, 0
	for done := false; !done; {
		items := mustStep(t, f)
		it := find(items, long)
		if it == nil && steps > 0 {
			t.Fatalf("the prompt is not in a step of %d sequences, after %d of its steps", len(items), steps)
		}
		if it != nil {
			steps++
			decodes = max(decodes, len(items)-1)
			done = it.Last
		}
	}
	if decodes != 16 {
		t.Errorf("at most %d sequences decoded beside the prompt, want 16", decodes)
	}
}

// If a caller lets a sequence outgrow the pool, Schedule panics instead of waiting forever.
func TestASequenceThatOutgrowsThePoolPanics(t *testing.T) {
	f := newTestFake(t, 2, 4, Limits{BatchTokens: 8, MaxRunning: 2})
	mustAdd(t, f, &Sequence{Tokens: prompt(0, 8)}, 100)
	mustStep(t, f)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f.sched.Schedule()
}

func TestScheduleAllocatesNothingForDecodes(t *testing.T) {
	f := newTestFake(t, 600, 64, Limits{BatchTokens: 64, MaxRunning: 16})
	var list []*Sequence
	for i := range int32(16) {
		q := &Sequence{Tokens: append(make([]int32, 0, 4000), prompt(1000*i, 30)...)}
		list = append(list, mustAdd(t, f, q, 4000))
	}
	for !slices.ContainsFunc(list, func(q *Sequence) bool { return len(q.Tokens) > 200 }) {
		mustStep(t, f)
	}
	if n := testing.AllocsPerRun(200, func() {
		for i := range f.sched.Schedule() {
			it := &f.sched.next.items[i]
			if err := f.sched.Done(it); err != nil {
				t.Fatal(err)
			}
			it.Seq.Tokens = append(it.Seq.Tokens, 7)
		}
	}); n != 0 {
		t.Errorf("%v allocations in a step, want 0", n)
	}
}

// Admission reserves the page that a running prompt's first sampled token needs. The pool has three pages of four
// tokens, and the prompts have eight and three tokens. Both prompts would fit, but the ninth token of the older
// sequence would then preempt the younger sequence.
func TestAdmissionKeepsThePageOfTheNextToken(t *testing.T) {
	f := newTestFake(t, 3, 4, Limits{BatchTokens: 20, MaxRunning: 4})
	old := mustAdd(t, f, &Sequence{Tokens: prompt(0, 8)}, 10)
	young := mustAdd(t, f, &Sequence{Tokens: prompt(50, 3)}, 4)
	if items := mustStep(t, f); find(items, old) == nil || find(items, young) != nil {
		t.Errorf("%d items; want only the older sequence", len(items))
	}
	for len(f.goals) > 0 {
		mustStep(t, f)
	}
	if n := f.sched.Preemptions(); n != 0 {
		t.Errorf("%d preemptions", n)
	}
}

// A chunk may take every window page that no other prompt needs, including the last one.
func TestAChunkTakesTheLastWindowPage(t *testing.T) {
	window := kv.Window{Pages: 4, Tokens: 4}
	limits := Limits{BatchTokens: 32, MaxRunning: 4}
	f, err := newWindowed(20, 4, window, limits)
	if err != nil {
		t.Fatal(err)
	}
	alone := mustAdd(t, f, &Sequence{Tokens: prompt(0, 16)}, 17)
	if it := find(mustStep(t, f), alone); it == nil || len(it.Tokens) != 16 {
		t.Errorf("the first chunk is %+v, want the sixteen tokens that four window pages hold", it)
	}
	for len(f.goals) > 0 {
		mustStep(t, f)
	}
}
