package sched

import (
	"fmt"
	"testing"
	"time"
)

// beside returns a fake in which 30 sequences of tenant a decode.
func beside(t *testing.T, l Limits) *fake {
	t.Helper()
	l.BatchTokens, l.MaxRunning = 64, 40
	f := newTestFake(t, 1000, 4, l)
	flood(t, f, "a", "flood", 30, 200)
	for f.sched.Waiting() > 0 || f.sched.next.load.Prompts() > 0 {
		step(t, f)
	}
	return f
}

// The first sequence of a tenant has its own batch, so that its first token does not wait for the decodes of other
// tenants. The decodes continue in the next batch, whatever other sequences have arrived.
func TestFirstSequencesDoNotWaitForDecodes(t *testing.T) {
	f := beside(t, Limits{})
	b := mustAdd(t, f, &Sequence{Tokens: prompt(500, 8), Tenant: "b"}, 40)
	if items := step(t, f); len(items) != 1 || items[0].Seq != b || !items[0].Last {
		t.Fatalf("%d items in addition to the first sequence's", len(items)-1)
	}
	c := mustAdd(t, f, &Sequence{Tokens: prompt(600, 8), Tenant: "c"}, 40)
	if items := step(t, f); len(items) != 32 || find(items, c) == nil || find(items, b) == nil {
		t.Errorf("%d items in the next batch, want the flood, the first sequence, and the next one", len(items))
	}
	// The second sequence of a tenant does not count as a first sequence.
	mustAdd(t, f, &Sequence{Tokens: prompt(700, 8), Tenant: "b"}, 40)
	if items := step(t, f); len(items) != 33 {
		t.Errorf("%d items, want those of all running sequences", len(items))
	}
	// First sequences share a batch.
	mustAdd(t, f, &Sequence{Tokens: prompt(800, 4), Tenant: "d"}, 40)
	mustAdd(t, f, &Sequence{Tokens: prompt(900, 4), Tenant: "e"}, 40)
	if items := step(t, f); len(items) != 2 {
		t.Errorf("%d items, want two first sequences", len(items))
	}
}

// The first sequence does not wait for the prompts of other tenants if its prompt takes at most a quarter of the time
// of their batch. The other prompts may be many short prompts of a scored request or long prompts. This also holds for
// the flows of a single tenant, but not if there are other tenants.
func TestFirstSequencesDoNotWaitForPrompts(t *testing.T) {
	for name, c := range map[string]struct {
		other string // tenant of an additional sequence
		late  Sequence
		apart bool
	}{
		"a tenant": {"", Sequence{Tenant: "b"}, true},
		"a flow":   {"", Sequence{Tenant: "a", Flow: "late"}, true},
		"a flow while another tenant has sequences":   {"c", Sequence{Tenant: "a", Flow: "late"}, false},
		"a tenant while other tenants have sequences": {"c", Sequence{Tenant: "b"}, true},
		"a request of the flow":                       {"", Sequence{Tenant: "a", Flow: "scores"}, false},
		"scores of another tenant":                    {"", Sequence{Tenant: "b", Logits: 5}, false},
		"a prompt that takes longer":                  {"", Sequence{Tenant: "b", Tokens: prompt(9000, 60)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTestFake(t, 10_000, 4, Limits{BatchTokens: 512, MaxRunning: 64, PromptLogits: 512})
			for i := range 128 {
				mustAdd(t, f, &Sequence{Tokens: prompt(int32(100*i), 40), Logits: 20, Tenant: "a", Flow: "scores",
					Request: 1}, 42)
			}
			if c.other != "" {
				mustAdd(t, f, &Sequence{Tokens: prompt(50_000, 8), Tenant: c.other}, 60)
			}
			for range 5 {
				rows := 0
				for _, it := range step(t, f) {
					rows += len(it.Tokens)
				}
				f.sched.Took(f.sched.Load(), time.Duration(rows)*time.Millisecond)
			}
			if c.late.Tokens == nil {
				c.late.Tokens = prompt(20_000, 8)
			}
			late := mustAdd(t, f, &c.late, len(c.late.Tokens)+2)
			items := step(t, f)
			if apart := len(items) == 1 && items[0].Seq == late; apart != c.apart {
				t.Errorf("%d items, apart is %v, want %v", len(items), apart, c.apart)
			}
		})
	}
}

// Long prompts that wait, and are the first of their connections or tenants, do not prevent a short prompt from getting
// its own batch.
func TestShortFirstSequencesOvertakeLongOnes(t *testing.T) {
	for name, tenant := range map[string]func(i int) string{
		"connections": func(int) string { return "a" },
		"tenants":     func(i int) string { return fmt.Sprint("tenant ", i) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newTestFake(t, 100_000, 4, Limits{BatchTokens: 512, MaxRunning: 64})
			for i := range 12 {
				mustAdd(t, f, &Sequence{Tokens: prompt(int32(4000*i), 4000), Tenant: tenant(i), Flow: fmt.Sprint(i)},
					4002)
			}
			for range 5 {
				rows := 0
				for _, it := range step(t, f) {
					rows += len(it.Tokens)
				}
				f.sched.Took(f.sched.Load(), time.Duration(rows)*time.Millisecond)
			}
			late := mustAdd(t, f, &Sequence{Tokens: prompt(60_000, 8), Tenant: tenant(99), Flow: "late"}, 10)
			if items := step(t, f); len(items) != 1 || items[0].Seq != late {
				t.Errorf("%d items, want only the first sequence's", len(items))
			}
		})
	}
}

// A separate batch for a first sequence is formed only if it saves that sequence half of the time and does not delay
// decodes for longer than allowed.
func TestFirstSequencesApartHaveToPay(t *testing.T) {
	for name, c := range map[string]struct {
		prompt int
		stall  time.Duration
		apart  bool
	}{
		"a short prompt":             {8, 0, true},
		"a prompt that takes longer": {20, 0, false}, // longer than the decodes, by the initial estimates
		"beyond the limit":           {8, 40 * time.Millisecond, false},
		"within the limit":           {8, 200 * time.Millisecond, true},
	} {
		f := beside(t, Limits{MaxStall: c.stall})
		mustAdd(t, f, &Sequence{Tokens: prompt(500, c.prompt), Tenant: "b"}, 60)
		if step(t, f); f.apart != c.apart {
			t.Errorf("%s: apart is %v, want %v", name, f.apart, c.apart)
		}
	}
}

// flooded returns a fake in which one request holds all 4 places. Each of its sequences has several full pages and one
// partly filled page.
func flooded(t *testing.T, pages int) *fake {
	t.Helper()
	f := newTestFake(t, pages, 4, Limits{BatchTokens: 64, MaxRunning: 4, KeepSuspended: true})
	flood(t, f, "a", "flood", 4, 60)
	for range 15 {
		step(t, f)
	}
	return f
}

// A sequence that was suspended for another continues with its next token, and none of its tokens is computed again.
func TestSuspendedSequencesKeepTheirPages(t *testing.T) {
	f := flooded(t, 100)
	b := mustAdd(t, f, &Sequence{Tokens: prompt(500, 3), Tenant: "b"}, 4)
	step(t, f)
	if f.sched.Kept() != 1 {
		t.Fatalf("%d suspended sequences have kept their pages, want 1", f.sched.Kept())
	}
	q := f.sched.roster.kept[0]
	for f.goals[b] > 0 {
		step(t, f)
	}
	it := find(step(t, f), q)
	// One token was added after the suspension.
	if it == nil || !it.Decode || it.Cached != len(q.Tokens)-2 || f.sched.Kept() != 0 {
		t.Errorf("the suspended sequence continues with %+v", it)
	}
}

// A sequence that kept its pages continues in a batch with enough free recorded or replayed rows; otherwise it runs
// without a token and continues in a later batch.
func TestKeptSequencesWaitForRows(t *testing.T) {
	far := Span{From: 3, To: 1000} // includes all rows of the answer
	for name, span := range map[string]func(*Sequence){
		"recorded": func(q *Sequence) { q.Record = far },
		"replayed": func(q *Sequence) { q.Replay = far },
	} {
		for _, rows := range []int{1, 2} {
			f := newTestFake(t, 100, 4, Limits{BatchTokens: 64, MaxRunning: 2, KeepSuspended: true, RecordRows: rows})
			var own []*Sequence
			for i := range 2 {
				q := &Sequence{Tokens: prompt(int32(100*i), 3), Tenant: "a"}
				span(q)
				own = append(own, mustAdd(t, f, q, 10))
			}
			for range 3 {
				step(t, f)
			}
			b := mustAdd(t, f, &Sequence{Tokens: prompt(500, 3), Tenant: "b"}, 3)
			for f.goals[b] > 0 {
				step(t, f)
			}
			if f.sched.Kept() != 1 || f.sched.roster.kept[0] != own[1] {
				t.Fatalf("%s: %d sequences have kept their pages, want 1", name, f.sched.Kept())
			}
			items := step(t, f) // step checks the limits of recorded and replayed rows
			if find(items, own[0]) == nil || (find(items, own[1]) != nil) != (rows == 2) || f.sched.Kept() != 0 {
				t.Errorf("%s, %d rows: the batch has %d items, %d sequences have kept their pages", name, rows,
					len(items),
					f.sched.Kept())
			}
			for n := 0; len(f.goals) > 0; n++ {
				if step(t, f); n > 100 {
					t.Fatalf("%s, %d rows: %d sequences do not end", name, rows, len(f.goals))
				}
			}
		}
	}
}

// Kept pages are released if any other sequence needs pages, and their sequence is computed again.
func TestKeptPagesAreGivenUp(t *testing.T) {
	f := flooded(t, 24) // the request holds 20 of 24 pages
	b := mustAdd(t, f, &Sequence{Tokens: prompt(500, 13), Tenant: "b"}, 30)
	if find(step(t, f), b) == nil || f.sched.Kept() != 1 {
		t.Fatalf("%d sequences have kept their pages, want 1", f.sched.Kept())
	}
	for f.sched.Kept() > 0 {
		if step(t, f); f.goals[b] == 0 {
			t.Fatal("the admitted sequence has ended, and no sequence needed the kept pages, so the test checks " +
				"nothing")
		}
	}
	for len(f.goals) > 0 {
		step(t, f)
	}
	// The pages of a sequence that is removed while it waits are also released.
	f = flooded(t, 100)
	mustAdd(t, f, &Sequence{Tokens: prompt(500, 3), Tenant: "b"}, 40)
	step(t, f)
	f.remove(f.sched.roster.kept[0])
	if f.sched.Kept() != 0 || f.pool.Stats().Sequences != 4 {
		t.Errorf("%d sequences have kept their pages, %d sequences hold pages", f.sched.Kept(),
			f.pool.Stats().Sequences)
	}
}

// These sequences do not delay decodes: a preempted sequence already has its first token, and a sequence with scored,
// recorded or replayed rows does not wait only for a first token.
func TestOnlyFirstSequencesComeApart(t *testing.T) {
	for name, q := range map[string]*Sequence{
		"preempted": {Preempted: 1},
		"scored":    {Logits: 3},
		"recorded":  {Record: Span{To: 2}},
		"replayed":  {Replay: Span{To: 2}},
	} {
		f := beside(t, Limits{PromptLogits: 8, RecordRows: 8})
		q.Tokens, q.Tenant = prompt(500, 8), "b"
		mustAdd(t, f, q, 40)
		if items := step(t, f); f.apart || find(items, q) == nil || len(items) != 31 {
			t.Errorf("%s: %d items, apart is %v; want it in a batch with the 30 decoding sequences", name, len(items),
				f.apart)
		}
	}
}
