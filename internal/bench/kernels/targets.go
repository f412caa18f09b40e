package kernels

import (
	"fmt"
	"slices"
	"time"

	"sparrow/kernel"
	"sparrow/layout"
)

// pauseTime is the duration of the measurement of garbage collection pauses.
const pauseTime = 2 * time.Second

// Judge fills the table of targets from the results, and measures garbage collection pauses on the best backend.
func (r *Report) Judge(o Options) error {
	o = o.withDefaults()
	b, err := o.chosen()
	if err != nil {
		return err
	}
	j := judge{r: r, oneDNN: o.OneDNN, partial: o.Partial}
	j.products()
	j.indexer()
	j.attention()
	if o.Partial {
		return nil
	}
	threads := o.Threads[len(o.Threads)-1]
	if r.Pause, err = ProductPauses(b[0], threads, pauseTime); err != nil {
		return err
	}
	j.target("worst GC pause while all workers run", "under 20 ms", "", nil, func() (string, bool) {
		return fmt.Sprintf("%.2f ms in %d collections, %d threads in products", r.Pause.Worst, r.Pause.Collections,
			threads), r.Pause.Worst < 20
	})
	return nil
}

// judge compares results with targets.
type judge struct {
	r       *Report
	oneDNN  float64
	partial bool
}

// find returns the result of a case on the named backend, or with an empty name on the best measured backend.
func (j *judge) find(name, shape string, threads int, backend string) *Result {
	for i := range j.r.Results {
		x := &j.r.Results[i]
		if x.Name == name && x.Shape == shape && x.Threads == threads && (backend == "" || x.Backend == backend) {
			return x
		}
	}
	return nil
}

// target adds a row with the value that got computes from results, and whether it meets the target. If a result is nil,
// the row contains missing; in a partial run it is omitted.
func (j *judge) target(what, wanted, missing string, results []*Result, got func() (string, bool)) {
	v := Verdict{What: what, Wanted: wanted, Got: missing, Met: NotMeasured}
	if slices.Contains(results, nil) {
		if j.partial {
			return
		}
	} else if text, met := got(); met {
		v.Got, v.Met = text, Met
	} else {
		v.Got, v.Met = text, NotMet
	}
	j.r.Verdicts = append(j.r.Verdicts, v)
}

const left = "the case was omitted in this run"

// products adds the rows of the GEMM targets.
func (j *judge) products() {
	j.amx()
	for _, pair := range [][3]string{{"float32 rows", "multiply bf16", "multiply e4m3"},
		{"bf16 rows", "tiles bf16 x bf16", "tiles bf16 x e4m3"}} {
		bf16, fp8 := j.find(pair[1], gemmShape, 1, ""), j.find(pair[2], gemmShape, 1, "")
		j.target("FP8-block weights by "+pair[0]+", same size, one core", "70 % of our bf16", left,
			[]*Result{bf16, fp8}, func() (string, bool) {
				share := bf16.Micros / fp8.Micros
				return fmt.Sprintf("%.0f %% (%.0f against %.0f GFLOP/s, %s)", 100*share, fp8.GFLOPs, bf16.GFLOPs,
					fp8.Backend), share >= 0.70
			})
	}
	x := j.find("multiply f32", gemmShape, 1, "cpu-avx512")
	j.target("float32 product AVX-512, one core", "85 % of the register peak", "no cpu-avx512 here, or "+left,
		[]*Result{x}, func() (string, bool) {
			return fmt.Sprintf("%.0f %% (%.0f of %.0f GFLOP/s)", 100*x.PeakShare, x.GFLOPs, x.PeakGF),
				x.PeakShare >= 0.85
		})
	for _, p := range packings {
		for _, threads := range []int{1, 2} {
			x := j.find("multiply "+p.name, dramShape(1), threads, "")
			j.target(fmt.Sprintf("1-row product, %s weights out of DRAM, %d threads", p.name, threads),
				"75 % of the stream read", left, []*Result{x}, func() (string, bool) {
					return fmt.Sprintf("%.0f %% (%.1f of %.1f GB/s)", 100*x.StreamShare, x.GBs, x.StreamGBs),
						x.StreamShare >= 0.75
				})
		}
	}
	shares := map[kernel.DType]map[int]float64{kernel.BF16: {1: 0.90, 16: 0.80}, kernel.E4M3: {1: 0.90, 16: 0.75},
		kernel.E2M1x2: {1: 0.85, 16: 0.75}}
	for _, rows := range []int{1, 16} {
		for _, d := range streamed {
			for _, threads := range []int{1, 2} {
				x, share := j.find("multiply "+d.String(), dramShape(rows), threads, ""), shares[d][rows]
				j.target(fmt.Sprintf("%d-row product, %v weights out of DRAM, %d threads", rows, d, threads),
					fmt.Sprintf("%.0f %% of the stream read", 100*share), left, []*Result{x}, func() (string, bool) {
						return fmt.Sprintf("%.0f %% (%.1f of %.1f GB/s)", 100*x.StreamShare, x.GBs, x.StreamGBs),
							x.StreamShare >= share
					})
			}
		}
	}
}

// amx adds the row for a GEMM of two bf16 matrices. Models split float32 rows into two bf16 parts, which takes twice as
// long.
func (j *judge) amx() {
	x := j.find("tiles bf16 x bf16", gemmShape, 1, "cpu-amx")
	j.target("bf16 by bf16 product "+gemmShape+" on AMX, one core", "900 GFLOP/s, or 80 % of oneDNN's",
		"no cpu-amx here, or "+left, []*Result{x}, func() (string, bool) {
			got, need := fmt.Sprintf("%.0f GFLOP/s, %.0f %% of the register peak", x.GFLOPs, 100*x.PeakShare), 900.0
			if j.oneDNN > 0 {
				got += fmt.Sprintf(", %.0f %% of oneDNN's %.0f", 100*x.GFLOPs/j.oneDNN, j.oneDNN)
				need = min(need, 0.8*j.oneDNN)
			}
			return got, x.GFLOPs >= need
		})
}

// indexer adds the rows for index scores and for the selection.
func (j *judge) indexer() {
	x := j.find("scores fp8", scoreShape(1), 1, "")
	j.target(fmt.Sprintf("indexer scores, %s, one core", scoreShape(1)),
		"60 % of the stream read of the keys, or 25 % of the matrix peak, whichever binds", left, []*Result{x},
		func() (string, bool) {
			return fmt.Sprintf("%.0f %% of the stream read (%.1f of %.1f GB/s), %.0f %% of the peak",
				100*x.StreamShare, x.GBs, x.StreamGBs, 100*x.PeakShare), x.StreamShare >= 0.60 || x.PeakShare >= 0.25
		})
	one, two := j.find("select", selectShape(1), 1, ""), j.find("select", selectShape(1), 2, "")
	j.target(fmt.Sprintf("top-k %s, 2 cores", selectShape(1)), "at most 5 x one stream read of the scores", left,
		[]*Result{one, two}, func() (string, bool) {
			// The time is compared with the time in which one core reads the scores.
			read, both := float64(4*selectWidth)/one.StreamGBs/1e3, float64(4*selectWidth)/two.StreamGBs/1e3
			return fmt.Sprintf("%.1f x (%.1f us, one core reads in %.1f us, two in %.1f)", two.Micros/read,
				two.Micros, read, both), two.Micros <= 5*read
		})
}

// attention adds the row for sparse decode with two cache layouts, which were timed alternately.
func (j *judge) attention() {
	for _, threads := range []int{1, 2} {
		a, b := j.find("sparse "+layout.FP8Row656.String(), sparseShape(1), threads, ""),
			j.find("sparse "+layout.BF16Row1152.String(), sparseShape(1), threads, "")
		j.target(fmt.Sprintf("sparse decode, 16 heads, %d rows of 656 bytes against 1152, %d threads", topK, threads),
			"no slower", left, []*Result{a, b}, func() (string, bool) {
				return fmt.Sprintf("%.2f x the time (%.0f against %.0f us)", a.Micros/b.Micros, a.Micros, b.Micros),
					a.Micros <= b.Micros
			})
	}
}
