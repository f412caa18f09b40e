package engine

import (
	"context"
	"fmt"
	"testing"

	"sparrow/internal/testmodel"
)

// A short request runs in the batch after its arrival, or at most one batch later, however many choices of its own or
// other tenants are running and waiting. The other choices continue and end too.
func TestFloodsDoNotDelayOthers(t *testing.T) {
	// The last two tenants flood the engine; the requests without a tenant come from two addresses.
	for _, tenant := range []string{"other", "flood", ""} {
		t.Run(tenant, func(t *testing.T) {
			iterations, came, ran := 0, map[string]int{}, map[string]int{} // the maps are indexed by request
			note := func(e *Engine) {
				e.cfg.Observe = func(bool) {
					iterations++
					for _, q := range e.loop.sched.All() {
						c := q.Owner.(*choice)
						id := c.job.request.ID
						if _, known := came[id]; !known {
							came[id] = iterations
						}
						if _, known := ran[id]; !known && c.ran {
							ran[id] = iterations
						}
					}
				}
			}
			e := start(t, testmodel.V32(t), Config{MaxRunning: 4, MaxQueue: 64, CacheTokens: 8192}, note)
			var floods []*Job
			for i := range 2 {
				r := Request{Prompt: tokens(100+i, 8), Sampling: greedy(), MaxTokens: 60, IgnoreEOS: true,
					Tenant: "flood", ID: fmt.Sprint("flood ", i)}
				if tenant == "" {
					r.Tenant, r.Source = "", "10.0.0.1"
				}
				r.Sampling.N, r.Sampling.Temperature = 32, 1
				floods = append(floods, open(t, e, r))
			}
			for range 40 {
				floods[0].Next() // both floods run now
			}
			for i := range 3 {
				collect(open(t, e, Request{Prompt: tokens(i, 12), Sampling: greedy(), MaxTokens: 3, IgnoreEOS: true,
					Tenant: tenant, Source: "10.0.0.2", ID: fmt.Sprint("late ", i)}))
			}
			for _, j := range floods {
				if _, last := collect(j); last.Err != nil {
					t.Error(last.Err)
				}
			}
			e.Close(context.Background()) // the loop uses the maps until it ends
			for i := range 3 {
				id := fmt.Sprint("late ", i)
				if ran[id] == 0 || ran[id]-came[id] > 1 {
					t.Errorf("request %s arrived in iteration %d and ran in iteration %d", id, came[id], ran[id])
				}
			}
			if e.Stats().Preempted == 0 {
				t.Error("no sequence of the flood was suspended")
			}
		})
	}
}
