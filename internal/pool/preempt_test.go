package pool

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"sparrow/internal/testkit/await"
	"sparrow/internal/testkit/cputime"
	"sparrow/internal/vec"
)

// products is a task that keeps every worker in assembly until it is stopped.
type products struct {
	tier  *vec.Tier
	begun atomic.Bool
	stop  atomic.Bool
	x, w  []float32
	bytes []byte // bytes of narrow weights
	scale []float32
	y     [][]float32
}

const (
	preemptRows = 64
	preemptCols = 96
	preemptK    = 2048
)

func (p *products) Do(worker, _ int) {
	p.begun.Store(true)
	for !p.stop.Load() {
		p.tier.MatMulF32(p.y[worker], preemptCols, p.x, preemptK, preemptRows, p.w, preemptK, preemptCols, preemptK)
		p.tier.MatMulF32(p.y[worker], preemptCols, p.x, preemptK, 1, p.w, preemptK, preemptCols, preemptK)
		for _, rows := range []int{1, 16, preemptRows} {
			p.tier.MatMulBF16(p.y[worker], preemptCols, p.x, preemptK, rows, p.bytes, preemptK, preemptCols, preemptK)
			p.tier.MatMulFP8(p.y[worker], preemptCols, p.x, preemptK, rows, p.bytes, preemptK, preemptCols, preemptK,
				p.scale, preemptK/128, 0)
		}
	}
}

// Garbage collections do not wait long for assembly, which cannot be preempted: before the world stops, a collection
// waits for the longest uninterrupted assembly call on every worker. Without a preemptible call for each block that
// would take seconds.
func TestCollectionsDoNotWaitForProducts(t *testing.T) {
	bound := time.Duration(runtime.GOMAXPROCS(0)) * 200 * time.Millisecond
	for _, tier := range vec.Tiers() {
		t.Run(tier.Name, func(t *testing.T) {
			workers := runtime.GOMAXPROCS(0)
			p := open(t, workers)
			task := &products{
				tier:  tier,
				x:     make([]float32, preemptRows*preemptK),
				w:     make([]float32, preemptCols*preemptK),
				bytes: make([]byte, 2*preemptCols*preemptK),
				scale: make([]float32, preemptK/128),
			}
			for range workers {
				task.y = append(task.y, make([]float32, preemptRows*preemptCols))
			}
			ended := make(chan error, 1)
			go func() { ended <- p.Run(workers, task) }()

			await.True(t, "the workers compute", func() bool { return task.begun.Load() })
			var stats runtime.MemStats
			waits := make([]time.Duration, 15)
			for i := range waits {
				start := cputime.Process()
				runtime.ReadMemStats(&stats) // takes little more time than stopping the world
				waits[i] = cputime.Process() - start
				time.Sleep(5 * time.Millisecond)
			}
			runtime.GC()
			task.stop.Store(true)
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			best, worst := waits[0], waits[0]
			for _, w := range waits {
				best, worst = min(best, w), max(worst, w)
			}
			t.Logf("workers computed for %v to %v while the world was stopped", best, worst)
			over := 0
			for _, w := range waits {
				if w > bound {
					over++
				}
			}
			if over > len(waits)/2 {
				t.Fatalf("workers computed for over %v in %d of %d tries, up to %v", bound, over, len(waits), worst)
			}
		})
	}
}
