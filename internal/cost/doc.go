// Package cost is the one model of time: how long work takes, for everything above that decides by time.
//
// A Fit is the only regression. It observes features with their time and predicts the time of others. A Model has fits
// of the batches of an engine: it observes the work of a batch (Work) and its time, and predicts the time of another
// batch. sched bounds batches with it, spec fits passes of target and drafting layer, and internal/sim/fleet fits the
// costs of real servers. Choices between alternatives with different bits never depend on learned times; docs/plan.md
// lists all choices by time.
//
// The table has figures that were measured before, each for a named machine: times that plans compare (Choices), rates
// that estimates of steps and placements of experts are computed from (GPU, Host, Bus, Link).
// docs/benchmarks/record-cpu.md and docs/benchmarks/record-h200.md hold them with their commands. There times are
// microseconds and rates are bytes or operations in a microsecond, unless a comment says otherwise; a megabyte in a
// microsecond is a terabyte a second. Fits take seconds.
package cost
