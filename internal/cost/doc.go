// Package cost is the only model of time in the tree; all decisions that depend on time use it.
//
// A Fit is the only regression. It observes features together with their time, and predicts the time of other features.
// A Model contains
// fits for the batches of an engine: it observes the work of a batch (Work) and its time, and predicts the time of
// another batch. sched bounds batches with it, spec fits passes of target and drafting layer, and internal/sim/fleet
// fits the costs of real servers. Choices between methods whose results are not bitwise equal never depend on learned
// times; docs/plan.md lists all choices by time.
//
// The table contains figures that were measured before, each on a named machine: times that plans compare (Choices),
// and rates for estimates of steps and placements of experts (GPU, Host, Bus, Link). docs/benchmarks/record-cpu.md and
// docs/benchmarks/record-h200.md list them with their commands. In the table times are in microseconds and rates in
// bytes or operations per microsecond, unless a comment states otherwise; a megabyte per microsecond is a terabyte per
// second. Fits use seconds.
package cost
