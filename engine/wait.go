package engine

import (
	"strings"
	"time"
)

// waits estimates how long a new request waits, from the number of waiting requests and the recent rate of admissions.
// Waiting choices of requests that have begun are not counted, because they take turns with later requests.
type waits struct {
	tenants  map[string]int // number of requests of each tenant that have not begun
	jobs     int            // number of requests of all tenants that have not begun
	since    time.Time      // time since which at least one request has waited
	admitted int            // number of requests admitted since then
	recent   [16]time.Time  // ring of the times of the latest admissions since then
}

// queue counts a request that begins to wait.
func (w *waits) queue(tenant string, now time.Time) {
	if w.jobs == 0 {
		w.since, w.admitted = now, 0
	}
	if w.tenants == nil {
		w.tenants = map[string]int{}
	}
	w.tenants[tenant]++
	w.jobs++
}

// admit counts a request that begins to run.
func (w *waits) admit(tenant string, now time.Time) {
	w.leave(tenant)
	w.recent[w.admitted%len(w.recent)] = now
	w.admitted++
}

// leave removes a request that no longer waits.
func (w *waits) leave(tenant string) {
	w.jobs--
	if w.tenants[tenant]--; w.tenants[tenant] == 0 {
		delete(w.tenants, tenant)
	}
}

// estimate returns the expected wait of a request of a tenant. Tenants take turns, so each other tenant is counted with
// at most as many requests as the tenant itself has in the queue.
func (w *waits) estimate(tenant string, now time.Time) time.Duration {
	jobs, owners, own := w.jobs, len(w.tenants), w.tenants[tenant]
	for name, n := range w.tenants {
		if strings.HasPrefix(name, backgroundKey) { // background requests run after all other requests
			jobs, owners = jobs-n, owners-1
		}
	}
	if jobs == 0 {
		return 0
	}
	ahead := min(jobs, own*owners) + 1
	return time.Duration(ahead) * w.interval(now)
}

// interval returns the time between two admissions: the mean of the latest intervals, or the time since the last
// admission if that is longer.
func (w *waits) interval(now time.Time) time.Duration {
	if w.admitted == 0 {
		return now.Sub(w.since)
	}
	size := len(w.recent)
	first, n, last := w.since, w.admitted, w.recent[(w.admitted-1)%size]
	if w.admitted >= size {
		first, n = w.recent[w.admitted%size], size-1
	}
	return max(last.Sub(first)/time.Duration(n), now.Sub(last))
}
