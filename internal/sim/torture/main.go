// Command torture runs simulations of the engine (package sim), seed after seed, until one violates an invariant or the
// time is up; `make torture` runs it. For a violation it prints the command that repeats it.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"sparrow/internal/sim"
)

func main() {
	seed := flag.Uint64("seed", 0, "the first seed; 0 takes one from the time")
	count := flag.Int("count", 0, "how many seeds to run; 0 runs until the duration is over")
	duration := flag.Duration("duration", time.Minute, "how long to run")
	requests := flag.Int("requests", sim.DefaultRequests, "approximate number of requests per seed")
	workers := flag.Int("workers", runtime.NumCPU(), "number of concurrent seeds")
	flag.Parse()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	c := campaign{next: *seed, requests: *requests, end: time.Now().Add(*duration), begun: time.Now()}
	if *count > 0 {
		c.last = *seed + uint64(*count)
	}
	fmt.Printf("torture: seeds from %d on\n", *seed)
	var running sync.WaitGroup
	for range *workers {
		running.Go(c.work)
	}
	running.Wait()
	c.print()
	if c.failed {
		os.Exit(1)
	}
}

// campaign is many runs.
type campaign struct {
	requests   int
	begun, end time.Time
	last       uint64 // seed to stop before; 0 runs until end

	mu      sync.Mutex
	next    uint64
	seeds   int
	all     sim.Report
	printed time.Time
	failed  bool
}

// take returns the next seed, if there is one.
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
			fmt.Printf("seed %d violated an invariant: %v\nrepeat it with:\n\tgo run ./internal/sim/torture -count 1 "+
				"-requests %d -seed %d\n", seed, err, c.requests, seed)
		}
		tell := time.Since(c.printed) > 30*time.Second
		c.mu.Unlock()
		if tell {
			c.print()
		}
	}
}

// patience is the maximum time of a seed; normally it takes less than a second.
const patience = 2 * time.Minute

// run simulates a seed. If it does not end it is abandoned, because the engine loops endlessly.
func (c *campaign) run(seed uint64) (report sim.Report, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		report, err = sim.Run(seed, c.requests)
	}()
	select {
	case <-done:
		return report, err
	case <-time.After(patience):
		return sim.Report{}, fmt.Errorf("it has not ended after %v", patience)
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
