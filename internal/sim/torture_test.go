package sim

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

var (
	tortureSeed     = flag.Uint64("seed", 0, "first seed of TestTorture; 0 takes a seed from the time")
	tortureCount    = flag.Int("count", 0, "number of seeds of TestTorture; 0 runs until the duration is over")
	tortureDuration = flag.Duration("duration", 0, "maximum duration of TestTorture")
	tortureRequests = flag.Int("requests", DefaultRequests, "approximate number of requests per seed")
	tortureWorkers  = flag.Int("workers", runtime.NumCPU(), "number of concurrent seeds")
)

// TestTorture runs simulations, seed after seed, until one violates an invariant or the time is up; `make torture` runs
// it. For a violation it prints the command that repeats it.
func TestTorture(t *testing.T) {
	if *tortureDuration == 0 && *tortureCount == 0 {
		t.Skip("TestSeeds runs some seeds; make torture runs more")
	}
	seed := *tortureSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	c := campaign{next: seed, requests: *tortureRequests, end: time.Now().Add(*tortureDuration), begun: time.Now()}
	if *tortureCount > 0 {
		c.last = seed + uint64(*tortureCount)
	}
	fmt.Printf("torture: seeds from %d on\n", seed)
	var running sync.WaitGroup
	for range *tortureWorkers {
		running.Go(c.work)
	}
	running.Wait()
	c.print()
	if c.failed {
		t.Fail()
	}
}

// campaign simulates many seeds.
type campaign struct {
	requests   int
	begun, end time.Time
	last       uint64 // seed before which the campaign stops; 0 means that it runs until end

	mu      sync.Mutex
	next    uint64
	seeds   int
	all     Report
	printed time.Time
	failed  bool
}

// take returns the next seed and reports whether there is one.
func (c *campaign) take() (uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed || c.last > 0 && c.next >= c.last || c.last == 0 && time.Now().After(c.end) {
		return 0, false
	}
	c.next++
	return c.next - 1, true
}

func (c *campaign) work() {
	for {
		seed, ok := c.take()
		if !ok {
			return
		}
		report, err := c.run(seed)
		c.mu.Lock()
		c.seeds++
		c.all.Add(report)
		if err != nil {
			c.failed = true
			fmt.Printf("seed %d violated an invariant: %v\nrepeat it with:\n\t%s -requests %d\n", seed, err,
				repeat(seed), c.requests)
		}
		tell := time.Since(c.printed) > 30*time.Second
		c.mu.Unlock()
		if tell {
			c.print()
		}
	}
}

// repeat returns the command that runs a seed again.
func repeat(seed uint64) string {
	return fmt.Sprintf("go test ./internal/sim -count=1 -run TestTorture -v -args -count 1 -seed %d", seed)
}

// patience is the maximum real time of a seed, which normally takes less than a second.
const patience = 2 * time.Minute

// run simulates the scenario of a seed. A simulation that does not end in time is abandoned, because its engine loops
// endlessly.
func (c *campaign) run(seed uint64) (report Report, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		report, err = Run(seed, c.requests)
	}()
	select {
	case <-done:
		return report, err
	case <-time.After(patience):
		return Report{}, fmt.Errorf("the simulation has not ended after %v", patience)
	}
}

// print prints the totals so far.
func (c *campaign) print() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.printed = time.Now()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	took, r := time.Since(c.begun), &c.all
	fmt.Printf("%6.0f s: %d seeds, %d requests (%d finished, %d cancelled, %d failed, %d bad, %d refused), "+
		"%d faults, %d devices lost, %d passes (%.0f a minute), %d preempted, %d drafts accepted, %d tokens cached, "+
		"%v of virtual time; %d goroutines, %d MiB\n", took.Seconds(), c.seeds, r.Requests, r.Finished, r.Cancelled,
		r.Failed, r.Bad, r.Refused, r.Faults, r.Lost, r.Steps, float64(r.Steps)/took.Minutes(), r.Preempted, r.Accepted,
		r.Cached, r.Virtual.Round(time.Minute), runtime.NumGoroutine(), memory.HeapInuse>>20)
}
