package server

import (
	"testing"
	"time"

	"sparrow/api/openai"
)

// A tenant's budget grows up to the tokens of one minute, and the tokens of a refused request are returned. A share of
// few places is at least one place. The next place is expected when the oldest request has run as long as earlier
// requests did.
func TestQuotasAreExact(t *testing.T) {
	q, clock := quotaOf(t, "a requests=3 tokens=600 share=0.01")
	u := mustBegin(t, q, "a")
	if u.places != 1 {
		t.Errorf("%d places of 64 by a share of a hundredth", u.places)
	}
	left := func(want float64) {
		t.Helper()
		if got := u.quota.tokens; got != want {
			t.Errorf("%v tokens are left, want %v", got, want)
		}
	}
	if err := u.prompt(500); err != nil {
		t.Fatal(err)
	}
	left(100)
	u.output(40)
	left(60)
	u.refused()
	left(560)
	*clock = clock.Add(10 * time.Minute)
	u.output(1)
	left(599)
	u.quota.took = 10 * time.Second
	*clock = clock.Add(-10*time.Minute + 4*time.Second)
	if got := u.quota.untilPlace(*clock); got != 6*time.Second {
		t.Errorf("the next place is free in %v, want 6s", got)
	}
	u.quota.took = 0
	if got := u.quota.untilPlace(*clock); got != 4*time.Second {
		t.Errorf("where none has ended the next place is free in %v, want 4s", got)
	}
}

// A response that is removed from the store no longer counts for its tenant.
func TestRemovedResponsesAreNotCounted(t *testing.T) {
	s := newResponseStore(1 << 20)
	sizes := map[string]int{}
	for _, id := range []string{"resp_1", "resp_2"} {
		r := &stored{response: &openai.Response{ID: id}}
		sizes[id] = r.size()
		s.put("a", r)
	}
	if s.used != sizes["resp_1"]+sizes["resp_2"] || s.tenants["a"].used != s.used {
		t.Errorf("%d bytes, %d of the tenant; the responses have %v", s.used, s.tenants["a"].used, sizes)
	}
	if !s.remove("a", "resp_1") || s.remove("a", "resp_1") || s.used != sizes["resp_2"] ||
		s.tenants["a"].used != s.used {
		t.Errorf("%d bytes, %d of the tenant; %d are left", s.used, s.tenants["a"].used, sizes["resp_2"])
	}
	if !s.remove("a", "resp_2") || s.used != 0 || s.tenants["a"] != nil {
		t.Errorf("%d bytes are left", s.used)
	}
}
