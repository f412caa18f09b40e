// Package estimate computes how long a step of DeepSeek-V3.2 or GLM-5 takes on one or several H200s, stage by stage.
//
// A config, a planned batch and a number of ranks flow in; times with their formulas flow out. They come from times of
// kernels that were measured on one H200 (docs/benchmarks-h200.md) and from stated speeds of links between GPUs.
// Nothing runs.
package estimate

// costs are the measured figures of one GPU: microseconds, and bytes or operations in a microsecond.
type costs struct {
	launch float64 // of a product or another kernel behind a kernel that it overlaps with
	// Products ("Products"): weights are read at a rate that 64 rows lower, many rows are bound by arithmetic.
	weights, fp8, bf16 float64
	rows64             float64 // share that 64 rows add to the time of reading weights
	// Experts ("Experts"): all four launches.
	experts, expertOps float64
	choose, chooseRow  float64 // choice, sort and launches, and a row's part of it
	// Sparse attention of decodes ("Sparse attention"): at least least, else first and each row's units of 64 heads.
	least, first, unit float64
	prompt             float64 // sparse attention of a prompt's row with 128 heads, gathered rows included
	denseOps           float64 // dense attention
	// Indexer ("Indexer and selection"): decodes read keys of 132 bytes, prompts are bound by arithmetic.
	keys, scoreOps float64
	pick, scores   float64 // a selection, and the rate at which it reads scores
	// Everything else of a layer: norms, residual sums, quantisation, rotation, rows stored.
	rest, restRow float64
	step          float64 // of a step, outside layers
}

// h200 is one H200.
var h200 = costs{
	launch: 1.8, weights: 4.0e6, fp8: 1.1e9, bf16: 0.65e9, rows64: 0.12,
	experts: 4.45e6, expertOps: 1.0e9, choose: 14, chooseRow: 0.02,
	least: 21, first: 10, unit: 0.78, prompt: 1.0, denseOps: 0.42e9,
	keys: 3.9e6, scoreOps: 1.1e9, pick: 5, scores: 3.3e6,
	rest: 18, restRow: 0.22, step: 40,
}

// links are stated, not measured here: NVLink of an HGX board with eight H200s.
type links struct {
	rate float64 // bytes in a microsecond that a GPU receives
	wait float64 // of an all-reduce before its bytes count: two launches' worth of signals between GPUs
}

var nvlink = links{rate: 0.45e6, wait: 8}
