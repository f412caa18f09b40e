package metric

import (
	"github.com/prometheus/client_golang/prometheus"

	"sparrow/internal/kv/event"
)

// Events is a publisher of cache events with counters.
type Events interface {
	Stats() event.Stats
}

// AddEvents adds the metrics of a publisher of cache events.
func (s *Set) AddEvents(from Events) { s.registry.MustRegister(eventCollector{from}) }

type eventCollector struct{ from Events }

// Describe sends nothing, as in collector.
func (c eventCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the publisher's metrics.
func (c eventCollector) Collect(out chan<- prometheus.Metric) {
	stats := c.from.Stats()
	for _, m := range []struct {
		kind       prometheus.ValueType
		name, help string
		v          float64
	}{
		{prometheus.GaugeValue, "subscribers", "Subscribers of cache events.", float64(stats.Subscribers)},
		{prometheus.CounterValue, "batches_total", "Batches of cache events published.", float64(stats.Batches)},
		{prometheus.CounterValue, "dropped_total", "Batches that a slow subscriber lost.", float64(stats.Dropped)},
		{prometheus.CounterValue, "replays_total", "Replays of kept batches.", float64(stats.Replays)},
		{prometheus.CounterValue, "snapshots_total", "Lists of all cached pages sent to subscribers that joined or " +
			"missed too many events.",
			float64(stats.Snapshots)},
		{prometheus.CounterValue, "refused_total", "Connections and requests for cache events that were " +
			"refused.", float64(stats.Refused)},
	} {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc("sparrow_kv_events_"+m.name, m.help, nil, nil), m.kind,
			m.v)
	}
}
