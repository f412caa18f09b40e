package main

import "runtime"

// fewWorkers is the largest number of workers for which one more processor helps. With 16 workers decode steps took
// longer with one more (docs/benchmarks/record-cpu.md).
const fewWorkers = 4

// spareProcessor lets one more goroutine run than there are workers, and returns a function that undoes this. Without
// it, workers use all of Go's processors during a step, and the network is polled only by a timer, every 10 ms, which
// delays requests and answers. With one more processor the operating system divides the cores between workers and
// connections. A number in the environment takes precedence.
func (f *engineFlags) spareProcessor() (undo func()) {
	n := runtime.GOMAXPROCS(0)
	if processorsGiven() || n > fewWorkers || f.workers > 0 && f.workers < n {
		return func() {}
	}
	f.processors = n
	if f.workers == 0 {
		f.workers, f.spared = n, true // kept if the model is opened again
	}
	runtime.GOMAXPROCS(f.workers + 1)
	return func() { runtime.GOMAXPROCS(n) }
}
