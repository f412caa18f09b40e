package engine

import (
	"testing"
	"time"
)

func TestWaitsAreEstimated(t *testing.T) {
	var w waits
	now := time.Unix(1000, 0)
	check := func(what, tenant string, want time.Duration) {
		t.Helper()
		if got := w.estimate(tenant, now); got != want {
			t.Errorf("%s: estimated wait %v, want %v", what, got, want)
		}
	}
	check("nothing waits", "a", 0)
	for range 40 {
		w.queue("a", now)
	}
	check("nothing is known", "a", 0)
	now = now.Add(time.Second)
	check("no request was admitted for a second", "a", 41*time.Second)
	for range 20 {
		now = now.Add(500 * time.Millisecond)
		w.admit("a", now)
	}
	check("two requests per second are admitted and 20 wait", "a", 21*500*time.Millisecond)
	check("another tenant is next", "b", 500*time.Millisecond)
	w.queue("b", now)
	check("two tenants take turns", "b", 3*500*time.Millisecond)
	check("at most all waiting requests come first", "a", 22*500*time.Millisecond)
	now = now.Add(4 * time.Second)
	check("admissions have become slower", "a", 22*4*time.Second)
	for range 20 {
		w.leave("a")
	}
	w.leave("b")
	check("no request waits any more", "a", 0)
	if len(w.tenants) != 0 {
		t.Errorf("%d tenants are kept, want 0", len(w.tenants))
	}
	w.queue("a", now)
	check("old admissions do not count", "a", 0)
}
