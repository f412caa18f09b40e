package metric

import (
	"github.com/prometheus/client_golang/prometheus"

	"sparrow/internal/batch"
)

// AddBatches adds the metrics of files and batches.
func (s *Set) AddBatches(from *batch.Store) { s.registry.MustRegister(batchCollector{from}) }

type batchCollector struct{ from *batch.Store }

// Describe sends nothing, as in collector.
func (c batchCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the store's metrics.
func (c batchCollector) Collect(out chan<- prometheus.Metric) {
	stats := c.from.Stats()
	write := func(kind prometheus.ValueType, name, help string, v float64, labels ...string) {
		var names, values []string
		if len(labels) == 2 {
			names, values = labels[:1], labels[1:]
		}
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc("sparrow_batch_"+name, help, names, nil), kind, v,
			values...)
	}
	write(prometheus.GaugeValue, "store_bytes", "Bytes of files and batches.", float64(stats.Used))
	write(prometheus.GaugeValue, "store_budget_bytes", "Maximum bytes of files and batches.", float64(stats.Budget))
	write(prometheus.GaugeValue, "lines_running", "Lines of batches that are running.", float64(stats.Flying))
	write(prometheus.GaugeValue, "lines_left", "Lines of batches that have not ended.", float64(stats.Left))
	for state, n := range stats.Batches {
		write(prometheus.GaugeValue, "batches", "Batches in the store, by state.", float64(n), "state", string(state))
	}
	for class, n := range stats.Lines {
		write(prometheus.CounterValue, "lines_total", "Lines of batches that have ended, by outcome.", float64(n),
			"outcome", class.String())
	}
}
