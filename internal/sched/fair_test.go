package sched

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"sparrow/internal/kv"
	"sparrow/internal/testkit/await"
)

// flood adds n long sequences of one request, each up to goal tokens.
func flood(t *testing.T, f *fake, tenant string, request any, n, goal int) {
	t.Helper()
	for i := range n {
		q := &Sequence{Tokens: []int32{1, 2, int32(i + 3)}, Tenant: tenant, Request: request}
		if err := f.add(q, goal); err != nil {
			t.Fatal(err)
		}
	}
}

func step(t *testing.T, f *fake) []Item {
	t.Helper()
	items, err := f.step()
	if err != nil {
		t.Fatal(err)
	}
	return items
}

// A sequence of another tenant, or of another request of the same tenant, runs in the next batch, however many
// sequences one request has running and waiting. A request that has more than its share is reduced to its share, and
// later continues alone.
func TestFloodsDoNotLockOut(t *testing.T) {
	for name, c := range map[string]struct{ tenant, other string }{"tenants": {"a", "b"}, "requests": {"a", "a"}} {
		for limit, pages := range map[string]int{"places": 1000, "pages": 40} {
			t.Run(name+" by "+limit, func(t *testing.T) {
				f, err := newFake(pages, 4, Limits{BatchTokens: 64, MaxRunning: 8})
				if err != nil {
					t.Fatal(err)
				}
				flood(t, f, c.tenant, "flood", 64, 20)
				for range 10 {
					step(t, f)
				}
				had := f.sched.Running()
				late := &Sequence{Tokens: []int32{7, 8, 9}, Tenant: c.other, Request: "late"}
				if err := f.add(late, 8); err != nil {
					t.Fatal(err)
				}
				ran := false
				for _, it := range step(t, f) {
					ran = ran || it.Seq == late
				}
				if !ran {
					t.Errorf("the late sequence is not in the batch; %d sequences run, %d before it arrived",
						f.sched.Running(), had)
				}
				if n := f.sched.Running() - 1; n < min(had, 8)/2 {
					t.Errorf("%d sequences of the flood run, %d before: more sequences than its excess were suspended",
						n, had)
				}
				for len(f.goals) > 0 {
					step(t, f)
				}
			})
		}
	}
}

// A flow divides its tenant's share: the share of another tenant does not depend on the number of flows that it
// competes with.
func TestFlowsDivideTheShareOfTheirTenant(t *testing.T) {
	f, err := newFake(1000, 4, Limits{BatchTokens: 64, MaxRunning: 8})
	if err != nil {
		t.Fatal(err)
	}
	add := func(tenant, flow string, n int) {
		for i := range n {
			q := &Sequence{Tokens: []int32{1, 2, int32(i + 3)}, Tenant: tenant, Flow: flow, Request: i}
			if err := f.add(q, 60); err != nil {
				t.Fatal(err)
			}
		}
	}
	add("a", "x", 32)
	add("a", "y", 2)
	add("b", "", 32)
	for range 12 {
		step(t, f)
	}
	of := map[string]int{}
	for _, q := range f.sched.roster.running {
		of[q.Tenant+q.Flow]++
	}
	if of["ax"] != 2 || of["ay"] != 2 || of["b"] != 4 {
		t.Errorf("the running sequences are %v, want 2 of each flow of one tenant and 4 of the other tenant", of)
	}
}

// A sequence is not suspended if it would be admitted again before the waiting sequence: a flow that was served less
// keeps its places, although it has more places.
func TestSuspendedSequencesDoNotReturnAtOnce(t *testing.T) {
	f, err := newFake(1000, 4, Limits{BatchTokens: 64, MaxRunning: 4})
	if err != nil {
		t.Fatal(err)
	}
	add := func(flow string, n, prompt int) {
		for i := range n {
			q := &Sequence{Tokens: make([]int32, prompt), Flow: flow, Request: flow + string(rune('a'+i))}
			for at := range q.Tokens {
				q.Tokens[at] = int32(i + at*at%7)
			}
			if err := f.add(q, prompt+300); err != nil {
				t.Fatal(err)
			}
		}
	}
	add("x", 3, 3)
	add("y", 2, 200)
	for range 40 {
		step(t, f)
	}
	if n := f.sched.Preemptions(); n > 2 {
		t.Errorf("%d suspensions in 40 steps, want fewer", n)
	}
}

// Sequence q runs because another sequence of its tenant was suspended for it. If q is then suspended for another
// tenant, it does not take that tenant's place.
func TestAPromiseIsKeptOnce(t *testing.T) {
	f, err := newFake(1000, 4, Limits{BatchTokens: 64, MaxRunning: 3})
	if err != nil {
		t.Fatal(err)
	}
	add := func(tenant, flow string, first int32) {
		q := &Sequence{Tokens: []int32{first, 2, 3}, Tenant: tenant, Flow: flow, Request: first}
		if err := f.add(q, 300); err != nil {
			t.Fatal(err)
		}
	}
	add("a", "x", 1)
	add("a", "x", 2)
	add("c", "", 3)
	step(t, f)
	add("c", "", 4)  // first in the queue, but no sequence can be suspended for it
	add("a", "y", 5) // takes the place of the tenant's other flow
	step(t, f)
	add("b", "", 6) // takes the place of the sequence that was added before it
	for range 3 {
		step(t, f)
	}
	of := map[string]int{}
	for _, q := range f.sched.roster.running {
		of[q.Tenant]++
	}
	if of["a"] != 1 || of["b"] != 1 || of["c"] != 1 {
		t.Errorf("the running sequences are %v, want one of each tenant", of)
	}
}

// A sequence is suspended for another sequence of its tenant only if that sequence then has enough pages. Otherwise two
// tenants, each with a long prompt of a higher priority, would repeatedly cause suspensions, and no sequence would end.
func TestNobodyIsSuspendedInVain(t *testing.T) {
	f, err := newFake(20, 6, Limits{BatchTokens: 2, MaxRunning: 2, MaxPrompts: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range []*Sequence{
		{Tenant: "b", Priority: -1, Tokens: make([]int32, 37)}, {Tenant: "a", Priority: -1, Tokens: make([]int32, 36)},
		{Tenant: "b", Tokens: make([]int32, 69)}, {Tenant: "a", Tokens: make([]int32, 77)},
	} {
		for at := range q.Tokens {
			q.Tokens[at] = int32(i + at*at%7) // the prompts have no common prefixes
		}
		q.Request = i
		if err := f.add(q, len(q.Tokens)+2); err != nil {
			t.Fatal(err)
		}
		for range i {
			step(t, f)
		}
	}
	for len(f.goals) > 0 {
		if step(t, f); f.steps > 2000 {
			t.Fatalf("%d sequences are left after %d steps, %d suspensions", len(f.goals), f.steps,
				f.sched.Preemptions())
		}
	}
}

// A sequence is suspended for another sequence of its tenant only if that sequence can then run: more sequences of the
// tenant may be running than the limit of the waiting sequence allows, because the running sequences have other limits.
// Otherwise the suspended sequence would return in the same batch, begin again and take the only row that may be
// replayed, and no sequence would end.
func TestNobodyIsSuspendedForABoundThatIsExceeded(t *testing.T) {
	f := newTestFake(t, 10, 5, Limits{BatchTokens: 18, MaxRunning: 7, RecordRows: 1})
	older := mustAdd(t, f, &Sequence{Tokens: prompt(100, 20), Request: 1, Replay: Span{From: 0, To: 7}}, 22)
	younger := mustAdd(t, f, &Sequence{Tokens: prompt(200, 2), Request: 2, Priority: -1, Replay: Span{To: 3}}, 8)
	step(t, f)
	bounded := mustAdd(t, f, &Sequence{Tokens: prompt(300, 16), Request: 3, Priority: 1, Places: 1}, 18)
	for len(f.goals) > 0 {
		if step(t, f); f.steps > 200 {
			t.Fatalf("%d sequences are left after %d steps; they were suspended %d, %d and %d times", len(f.goals),
				f.steps, older.Preempted, younger.Preempted, bounded.Preempted)
		}
	}
}

// If no single suspension lets the first waiting sequence of a tenant run, the scheduler still considers the tenant's
// other waiting sequences.
func TestAnExceededBoundHidesNobody(t *testing.T) {
	f := newTestFake(t, 1000, 4, Limits{BatchTokens: 64, MaxRunning: 3})
	add := func(tenant string, request, priority, places int) *Sequence {
		return mustAdd(t, f, &Sequence{Tokens: prompt(int32(100*request), 3), Tenant: tenant, Request: request,
			Priority: priority, Places: places}, 40)
	}
	add("a", 1, -1, 0)
	add("a", 2, -1, 0)
	add("b", 3, 0, 0)
	step(t, f)
	add("b", 4, 0, 0) // first in the queue, but no sequence can be suspended for it
	add("a", 5, 1, 1)
	if middle := add("a", 6, 0, 0); find(step(t, f), middle) == nil {
		t.Error("a sequence of higher priority without a limit is not in the next batch")
	}
	for len(f.goals) > 0 {
		if step(t, f); f.steps > 500 {
			t.Fatalf("%d sequences are left after %d steps", len(f.goals), f.steps)
		}
	}
}

// A sequence of a higher priority runs in the next batch and is not suspended for sequences of lower priority of its
// tenant; other tenants keep their share.
func TestPriorityActsInsideATenant(t *testing.T) {
	f, err := newFake(1000, 4, Limits{BatchTokens: 64, MaxRunning: 8})
	if err != nil {
		t.Fatal(err)
	}
	flood(t, f, "a", "low", 32, 60)
	flood(t, f, "b", "other", 32, 60)
	for range 8 {
		step(t, f)
	}
	for i := range 16 {
		q := &Sequence{Tokens: []int32{1, 2, int32(i + 100)}, Tenant: "a", Request: "high", Priority: 5}
		if err := f.add(q, 60); err != nil {
			t.Fatal(err)
		}
	}
	step(t, f)
	running := func() map[string]int {
		of := map[string]int{}
		for _, q := range f.sched.roster.running {
			of[q.Tenant+q.Request.(string)]++
		}
		return of
	}
	if of := running(); of["ahigh"] == 0 {
		t.Errorf("the running sequences after one step are %v", of)
	}
	for range 10 {
		step(t, f)
	}
	if of := running(); of["ahigh"] != 4 || of["alow"] != 0 || of["bother"] != 4 {
		t.Errorf("the running sequences are %v, want 4 of the high priority and 4 of the other tenant", of)
	}
	for len(f.goals) > 0 {
		step(t, f)
	}
}

// If a tenant runs as many sequences as it may, its sequence of the highest priority still runs next.
func TestPriorityActsInsideABoundedTenant(t *testing.T) {
	f, err := newFake(1000, 4, Limits{BatchTokens: 64, MaxRunning: 16})
	if err != nil {
		t.Fatal(err)
	}
	add := func(n, priority int) {
		for i := range n {
			q := &Sequence{Tokens: []int32{1, 2, int32(i + 100*priority)}, Tenant: "a", Request: 10*priority + i,
				Places: 3, Priority: priority}
			if err := f.add(q, 40); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(8, 1)
	for range 5 {
		step(t, f)
	}
	add(2, 2)
	step(t, f)
	step(t, f) // each batch admits one sequence
	of := map[int]int{}
	for _, q := range f.sched.roster.running {
		of[q.Priority]++
	}
	if of[2] != 2 || of[1] != 1 {
		t.Errorf("the running sequences by priority are %v, want 2 of the higher and 1 of the lower priority", of)
	}
	for len(f.goals) > 0 {
		step(t, f)
		if n := f.sched.Running(); n > 3 {
			t.Fatalf("%d sequences of a tenant run, want at most 3", n)
		}
	}
}

// For each batch, at most as many sequences are suspended for other sequences of their tenants as the batch can begin
// prompts, because a place that stays empty computes nothing.
func TestSuspendedAreNoMoreThanPrompts(t *testing.T) {
	for prompts := 1; prompts <= 3; prompts++ {
		f := newTestFake(t, 1000, 4, Limits{BatchTokens: 64, MaxRunning: 30, MaxPrompts: prompts})
		add := func(priority int) {
			for i := range 5 {
				at := int32(100*i + 10*priority)
				mustAdd(t, f, &Sequence{Tokens: prompt(at, 3), Tenant: string(rune('a' + i)), Places: 1,
					Priority: priority}, 40)
			}
		}
		add(1)
		for range 8 {
			step(t, f)
		}
		add(2)
		if step(t, f); f.sched.Preemptions() != int64(prompts) {
			t.Errorf("%d sequences were suspended for a batch of up to %d prompts", f.sched.Preemptions(), prompts)
		}
	}
}

// Two large requests on an otherwise idle scheduler share it evenly.
func TestTwoFloodsShare(t *testing.T) {
	f, err := newFake(1000, 4, Limits{BatchTokens: 64, MaxRunning: 8})
	if err != nil {
		t.Fatal(err)
	}
	flood(t, f, "a", "first", 32, 60)
	step(t, f)
	step(t, f)
	flood(t, f, "b", "second", 32, 60)
	for range 8 {
		step(t, f)
	}
	of := map[string]int{}
	for _, q := range f.sched.roster.running {
		of[q.Tenant]++
	}
	if of["a"] != 4 || of["b"] != 4 {
		t.Errorf("%d sequences of one tenant run and %d of the other tenant, want 4 of each", of["a"], of["b"])
	}
}

// For sequences of any tenants and requests, all sequences end, the invariants of the fake hold, and no data of tenants
// without sequences remains.
func TestEveryoneEnds(t *testing.T) {
	suspended := int64(0)
	rapid.Check(await.Untimed(t), func(t *rapid.T) {
		size := rapid.IntRange(1, 8).Draw(t, "page tokens")
		pages := rapid.IntRange(4, 24).Draw(t, "pages")
		ranks := rapid.IntRange(1, 3).Draw(t, "ranks")
		f, err := newRanked(ranks, pages, size, kv.Window{}, Limits{
			BatchTokens:  rapid.IntRange(1, 40).Draw(t, "batch tokens"),
			PromptLogits: 8, KeepSuspended: rapid.Bool().Draw(t, "keep"),
			RecordRows: rapid.IntRange(1, 8).Draw(t, "record rows"),
			MaxRunning: rapid.IntRange(1, 8).Draw(t, "max running"),
			MaxPrompts: rapid.IntRange(1, 5).Draw(t, "prompts")})
		if err != nil {
			t.Fatal(err)
		}
		list := drawSequences(t, pages*size)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for next := 0; next < len(list) || len(f.goals) > 0; {
			for next < len(list) && random.IntN(3) > 0 {
				q := list[next].q
				q.Tenant, q.Request = string(rune('a'+random.IntN(3))), random.IntN(3)
				q.Flow, q.Priority = string(rune('a'+random.IntN(2))), random.IntN(3)-1
				if random.IntN(3) == 0 {
					q.Places = 1 + random.IntN(4)
				}
				if err := f.add(q, list[next].goal); err != nil {
					t.Fatal(err)
				}
				next++
			}
			if _, err := f.step(); err != nil {
				t.Fatal(err)
			}
			if f.steps > 20_000 {
				t.Fatalf("%d sequences are left after %d steps", len(f.goals), f.steps)
			}
		}
		if st := f.pool.Stats(); st.Used != 0 || st.Sequences != 0 || f.sched.Kept() != 0 {
			t.Fatalf("at the end: pool %+v, %d sequences have kept their pages", st, f.sched.Kept())
		}
		if a := &f.sched.roster.all; a.running != 0 || a.waiting != 0 || len(a.members) != 0 {
			t.Fatalf("at the end: %d sequences run, %d wait, %d tenants are stored", a.running, a.waiting,
				len(a.members))
		}
		suspended += f.sched.Preemptions()
	})
	if suspended == 0 {
		t.Error("no sequence was ever suspended")
	}
}

// A tenant with a limited number of places never runs more sequences than its limit, even while other places are free,
// and other tenants are admitted past its queue.
func TestPlacesOfATenantAreBounded(t *testing.T) {
	f, err := newFake(1000, 4, Limits{BatchTokens: 64, MaxRunning: 8})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		q := &Sequence{Tokens: []int32{1, 2, int32(i + 3)}, Tenant: "a", Request: i / 4, Places: 3}
		if err := f.add(q, 20); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		step(t, f)
	}
	if n := f.sched.Running(); n != 3 {
		t.Errorf("%d sequences run, want 3", n)
	}
	flood(t, f, "b", "other", 10, 20)
	for range 5 {
		step(t, f)
	}
	of := map[string]int{}
	for _, q := range f.sched.roster.running {
		of[q.Tenant]++
	}
	if of["a"] != 3 || of["b"] != 5 {
		t.Errorf("%d sequences of tenant a and %d of tenant b run, want 3 and 5", of["a"], of["b"])
	}
	for len(f.goals) > 0 {
		step(t, f)
	}
}

// A sequence that was suspended is suspended again only after it has computed more than before: sequences that need the
// same pages do not take them from each other in turns.
func TestSuspendedSequencesProgress(t *testing.T) {
	f := newTestFake(t, 10, 4, Limits{BatchTokens: 4, MaxRunning: 8})
	other := func(first int32) *Sequence {
		return mustAdd(t, f, &Sequence{Tokens: prompt(first, 24), Tenant: "a", Priority: 1}, 26)
	}
	low := mustAdd(t, f, &Sequence{Tokens: prompt(0, 20), Tenant: "a"}, 30)
	for range 7 {
		step(t, f)
	}
	first := other(100)
	if step(t, f); low.Preempted != 1 || low.reached < 20 {
		t.Fatalf("suspended %d times at position %d, want once after the prompt", low.Preempted, low.reached)
	}
	for first.state != stateGone || low.state != stateRunning {
		step(t, f)
	}
	second := other(200)
	for low.end() <= low.reached {
		if step(t, f); low.Preempted != 1 || second.state != stateWaiting {
			t.Fatalf("the sequence was suspended again at position %d of %d", low.end(), low.reached)
		}
	}
	if step(t, f); low.Preempted != 2 || second.state != stateRunning {
		t.Errorf("suspended %d times, want 2: position %d of %d is passed", low.Preempted, low.end(), low.reached)
	}
	for len(f.goals) > 0 {
		step(t, f)
	}
}
