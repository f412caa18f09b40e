package sched

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// crowd adds long prompts, each with its own request, or with its own flow if flows is set, and runs some batches.
func crowd(t *testing.T, f *fake, n int, tenant func(i int) string, flows bool) {
	t.Helper()
	for i := range n {
		q := &Sequence{Tokens: prompt(int32(10_000*i), 4000), Tenant: tenant(i), Request: i}
		if flows {
			q.Flow = fmt.Sprint("connection ", i)
		}
		mustAdd(t, f, q, 4010)
	}
	for range 6 {
		step(t, f)
	}
}

// A short prompt of any tenant, scored or not, is computed whole in one of the next two batches. The number of long
// prompts in progress, of one tenant or of many, does not change this. This also holds for the first chunk of a long
// prompt if its tenant has no other prompt.
func TestLongPromptsHoldNoPlaces(t *testing.T) {
	one, each := func(int) string { return "a" }, func(i int) string { return fmt.Sprint(i) }
	for name, c := range map[string]struct {
		long   int
		tenant func(i int) string
		flows  bool
		late   Sequence
	}{
		"another tenant while four prompts run": {4, one, false, Sequence{Tokens: prompt(0, 30), Tenant: "b"}},
		"another tenant while many prompts run": {64, one, true, Sequence{Tokens: prompt(0, 30), Tenant: "b"}},
		"another flow while four prompts run": {4, one, true, Sequence{Tokens: prompt(0, 30), Tenant: "a",
			Flow: "late"}},
		"another flow while many prompts run": {64, one, true, Sequence{Tokens: prompt(0, 30), Tenant: "a",
			Flow: "late"}},
		"a request of the same flow":            {64, one, false, Sequence{Tokens: prompt(0, 30), Tenant: "a"}},
		"another tenant while many tenants run": {64, each, false, Sequence{Tokens: prompt(0, 30)}},
		"scores while four prompts run": {4, one, false, Sequence{Tokens: prompt(0, 30), Tenant: "b",
			Logits: 20}},
		"a long prompt of another tenant": {64, one, true, Sequence{Tokens: prompt(0, 4000), Tenant: "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTestFake(t, 10_000, 64, Limits{BatchTokens: 512, MaxRunning: 100, PromptLogits: 64})
			crowd(t, f, c.long, c.tenant, c.flows)
			want := min(len(c.late.Tokens), 512/DefaultMaxPrompts)
			late := mustAdd(t, f, &c.late, len(c.late.Tokens)+2)
			for range 2 {
				it := find(step(t, f), late)
				if it == nil {
					continue
				}
				if len(it.Tokens) < want {
					t.Errorf("the batch has %d tokens of the late prompt, want %d", len(it.Tokens), want)
				}
				return
			}
			t.Errorf("the late prompt is in neither of two batches; %d sequences run, %d wait", f.sched.Running(),
				f.sched.Waiting())
		})
	}
}

// Prompts in progress take turns for the places of a batch: each of two tenants gets one of two places, and inside a
// tenant its flows alternate, although they began in another order.
func TestPromptsInProgressTakeTurns(t *testing.T) {
	f := newTestFake(t, 1000, 64, Limits{BatchTokens: 64, MaxRunning: 10, MaxPrompts: 2})
	var all []*Sequence
	add := func(tenant, flow string) {
		all = append(all, mustAdd(t, f, &Sequence{Tokens: prompt(int32(10_000*len(all)), 1000), Tenant: tenant,
			Flow: flow, Request: len(all)}, 1001))
	}
	add("a", "x")
	add("a", "y")
	step(t, f)
	add("b", "")
	for find(step(t, f), all[2]) == nil { // computes batches until this prompt has begun
	}
	got := make([]int, len(all))
	for range 6 {
		items := step(t, f)
		for i, q := range all {
			if find(items, q) != nil {
				got[i]++
			}
		}
	}
	if want := []int{3, 3, 6}; !slices.Equal(got, want) {
		t.Errorf("the prompts were in %v of 6 batches, want %v", got, want)
	}
}

// A request with many sequences, such as one that scores continuations, does not block other requests.
func TestManySequencesOfARequestTakeTurns(t *testing.T) {
	f := newTestFake(t, 10_000, 64, Limits{BatchTokens: 512, MaxRunning: 300, PromptLogits: 64})
	for i := range 256 {
		q := &Sequence{Tokens: prompt(int32(1000*i), 200), Tenant: "a", Request: "scores", Logits: 100}
		mustAdd(t, f, q, 201)
	}
	for range 5 {
		step(t, f)
	}
	for i := range 8 { // each request arrives when the previous one has ended
		late := mustAdd(t, f, &Sequence{Tokens: prompt(int32(i), 300), Tenant: "a"}, 301)
		n := 0
		for ; f.goals[late] > 0; n++ {
			step(t, f)
		}
		if n > 4 {
			t.Errorf("a prompt of 300 tokens took %d batches of 512 tokens while one request was scored", n)
		}
	}
}

// Short prompts that arrive continuously do not starve long prompts of the same tenant, and long prompts do not starve
// short prompts.
func TestShortPromptsDoNotStarveLongOnes(t *testing.T) {
	f := newTestFake(t, 10_000, 64, Limits{BatchTokens: 512, MaxRunning: 100})
	long := mustAdd(t, f, &Sequence{Tokens: prompt(0, 4000), Tenant: "a", Flow: "long"}, 4001)
	for i := 0; f.goals[long] > 0; i++ {
		for j := range 2 {
			at := int32(100_000 + 1000*(2*i+j))
			mustAdd(t, f, &Sequence{Tokens: prompt(at, 120), Tenant: "a", Flow: fmt.Sprint(i, j)}, 122)
		}
		step(t, f)
		if i > 2*4000/(512/DefaultMaxPrompts) {
			t.Fatalf("after %d batches the long prompt has %d tokens left", i, long.left())
		}
	}
	if f.sched.Waiting() > 8 {
		t.Errorf("%d short prompts wait", f.sched.Waiting())
	}
}

// Long prompts of one tenant are computed a few at a time, because each would end late if all ran at once.
func TestLongPromptsOfATenantBeginOneAfterTheOther(t *testing.T) {
	f := newTestFake(t, 10_000, 64, Limits{BatchTokens: 512, MaxRunning: 100})
	crowd(t, f, 16, func(int) string { return "a" }, true)
	for f.sched.Waiting() > 0 {
		step(t, f)
		begun := 0
		for _, q := range f.sched.roster.running {
			if !q.ready {
				begun++
			}
		}
		if begun > DefaultMaxPrompts {
			t.Fatalf("%d long prompts are in progress", begun)
		}
	}
}

// The predicted time of a batch with a short prompt and long prompts is at most the time that decodes may wait. The
// batch of a first sequence contains nothing else, and the long prompts continue in the next batch.
func TestShortPromptsAreNotHeldUpByLongOnes(t *testing.T) {
	for _, c := range []struct {
		tenant      string
		least, most int
	}{{"a", 50, 200}, {"b", 30, 30}} {
		l := Limits{BatchTokens: 512, MaxRunning: 100, MaxStall: 200 * time.Millisecond}
		f := newTestFake(t, 10_000, 64, l)
		learn := func(items []Item) (rows int) {
			for i := range items {
				rows += len(items[i].Tokens)
			}
			f.sched.Took(f.sched.Load(), time.Duration(rows)*time.Millisecond)
			return rows
		}
		for i := range 4 {
			mustAdd(t, f, &Sequence{Tokens: prompt(int32(10_000*i), 4000), Tenant: "a"}, 4010)
		}
		for range 6 {
			if rows := learn(step(t, f)); rows != 512 {
				t.Fatalf("a batch of only long prompts has %d rows", rows)
			}
		}
		late := mustAdd(t, f, &Sequence{Tokens: prompt(500, 30), Tenant: c.tenant}, 32)
		items := step(t, f)
		if it := find(items, late); it == nil || !it.Last {
			t.Errorf("tenant %s: the next batch does not have the whole short prompt: %+v", c.tenant, it)
		}
		if rows := learn(items); rows < c.least || rows > c.most {
			t.Errorf("tenant %s: the batch of the short prompt has %d rows of 1 ms each, but only 200 ms are allowed",
				c.tenant, rows)
		}
		if rows := learn(step(t, f)); rows < 50 {
			t.Errorf("tenant %s: the batch after the short prompt has %d rows", c.tenant, rows)
		}
	}
}

// A short sequence that is suspended for a sequence of higher priority waits until that sequence runs. It does not
// overtake it as a short prompt, which would take the pages back.
func TestASuspendedSequenceOvertakesNobody(t *testing.T) {
	for _, keep := range []bool{false, true} {
		f := newTestFake(t, 10, 4, Limits{BatchTokens: 16, MaxRunning: 8, MaxPrompts: 2, KeepSuspended: keep,
			RecordRows: 1})
		short := mustAdd(t, f, &Sequence{Tokens: prompt(100, 4), Tenant: "b", Priority: -1}, 12)
		// Each batch computes one row of this prompt, so that its tenant is served least.
		long := mustAdd(t, f, &Sequence{Tokens: prompt(0, 20), Tenant: "a", Record: Span{To: 20}}, 21)
		step(t, f)
		high := mustAdd(t, f, &Sequence{Tokens: prompt(200, 12), Tenant: "b"}, 14)
		if f.sched.roster.canAdmit(high) || long.ready || len(short.Tokens) > 8 {
			t.Fatalf("keep %v: the pages suffice for all sequences, or the sequences are not in the intended states",
				keep)
		}
		if items := step(t, f); find(items, short) != nil || find(items, long) == nil || find(items, high) == nil {
			t.Errorf("keep %v: the batch after the suspension has the items %+v", keep, items)
		}
		for len(f.goals) > 0 {
			step(t, f)
		}
		if short.Preempted != 1 {
			t.Errorf("keep %v: the short sequence was suspended %d times, want once", keep, short.Preempted)
		}
	}
}
