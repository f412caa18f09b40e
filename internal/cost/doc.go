// Package cost predicts times. All decisions in the project that depend on time use it.
//
// A Fit is a regression: it observes features together with their time, and predicts the time of other features. A
// Model contains fits for the batches of an engine: it observes the work of a batch (Work) and its time, and predicts
// the time of another batch. Package sched limits the times of batches with it, spec fits the times of forward and
// draft passes, and internal/sim/fleet fits the costs of real servers. Choices between methods whose results are not
// bitwise equal never depend on learned times; docs/plan.md lists all choices that depend on times.
//
// The table (table.go) contains figures that were measured on named machines: times that plans compare (Choices), and
// rates for estimates of steps and placements of experts (GPU, Host, Bus, Link). docs/benchmarks/record-cpu.md and
// docs/benchmarks/record-h200.md list them with their commands. In the table times are in microseconds and rates in
// bytes or operations per microsecond, unless a comment states otherwise; a megabyte per microsecond is a terabyte per
// second. Fits use seconds.
package cost
