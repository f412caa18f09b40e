package metric

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// slow caches the metrics of a collector for a second. Collectors of the process read a dozen files, and routers scrape
// every 50 ms.
type slow struct {
	from prometheus.Collector

	mu   sync.Mutex
	read time.Time
	last []prometheus.Metric
}

// Describe calls Describe of the collector.
func (s *slow) Describe(out chan<- *prometheus.Desc) { s.from.Describe(out) }

// Collect sends metrics that are at most a second old.
func (s *slow) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.read) >= time.Second {
		s.read, s.last = now, s.last[:0]
		fresh := make(chan prometheus.Metric, 256)
		go func() {
			defer close(fresh)
			s.from.Collect(fresh)
		}()
		for m := range fresh {
			s.last = append(s.last, m)
		}
	}
	for _, m := range s.last {
		out <- m
	}
}
