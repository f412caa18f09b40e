package main

import "runtime"

// fewWorkers is the largest number of workers for which spareProcessor increases GOMAXPROCS. With 16 workers, decode
// steps took longer with the increase (docs/benchmarks/record-cpu.md).
const fewWorkers = 4

// spareProcessor increases GOMAXPROCS to one more than the number of workers, and returns a function that undoes this.
// Otherwise the workers occupy all of Go's processors during a step. The network is then polled only every 10 ms, which
// delays requests and answers. GOMAXPROCS in the environment takes precedence.
func (f *engineFlags) spareProcessor() (undo func()) {
	n := runtime.GOMAXPROCS(0)
	if processorsGiven() || n > fewWorkers || f.workers > 0 && f.workers < n {
		return func() {}
	}
	f.processors = n
	if f.workers == 0 {
		f.workers, f.spared = n, true // workers stay the same if the model is opened again
	}
	runtime.GOMAXPROCS(f.workers + 1)
	return func() { runtime.GOMAXPROCS(n) }
}
