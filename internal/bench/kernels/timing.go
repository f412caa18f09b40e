package kernels

import (
	"context"
	"math"
	"time"

	"sparrow/internal/bench/harness"
	"sparrow/internal/bench/peak"
	"sparrow/kernel"
)

// timing collects the times of one operation and of the ceilings it is compared with.
type timing struct {
	c      Case
	op     *Op
	dev    kernel.Device
	reader *peak.Reader
	loop   peak.Loop

	enough  time.Duration // duration of a round of a short operation
	calls   int
	spent   time.Duration // time of all rounds
	times   []float64     // microseconds per run, one value per sample
	moments []moment      // one entry per round
	read    float64       // best rate of plain reads of the operation's memory, GB/s
}

// moment is the result of one round: the time of its best sample, and the rate of one core's register loop measured
// directly before or after it. On a shared machine the matrix unit alternates every few seconds between two rates,
// which differ by more than a factor of two. A GEMM is therefore compared with the rate of its own round.
type moment struct {
	micros float64
	rate   float64 // GFLOP/s of the register loop; 0 if it was not timed
}

const (
	// duration of a round of a short operation
	enough = 12 * time.Millisecond
	// sampleTime is the minimum duration of a sample. It is long compared with the clock's resolution, and short enough
	// that on a shared machine other programs do not disturb every sample.
	sampleTime = 50 * time.Microsecond
	// inRegisters is the duration of one measurement of the register loop.
	inRegisters = time.Millisecond
)

// An operation that has been timed for timeLimit gets fewer rounds than configured.
const (
	timeLimit = 3 * time.Second
	fewest    = 3
)

// A round counts as at the peak if the rate of its register loop is at least nearPeak of the best rate measured. Cases
// that are compared with that rate get more rounds, with pauses between them, until settled rounds were at the peak or
// the time limit is reached.
const (
	nearPeak   = 0.9
	settled    = 5
	roundPause = 100 * time.Millisecond
	waiting    = 20 * time.Second
)

// timeRounds times the operations alternately, in rounds. best is the best rate of the register loop so far, and is
// updated.
func timeRounds(ctx context.Context, runs []*timing, rounds int, best *float64) error {
	for i := range rounds {
		for _, t := range runs {
			if i >= fewest && t.spent > timeLimit {
				continue
			}
			if ctx.Err() != nil {
				return nil
			}
			if err := t.round(best); err != nil {
				return err
			}
		}
	}
	for begin := time.Now(); time.Since(begin) < waiting; time.Sleep(roundPause) {
		waits := false
		for _, t := range runs {
			if !t.c.OfPeak || rounds < settled || t.atPeak(*best) >= settled {
				continue
			}
			if ctx.Err() != nil {
				return nil
			}
			waits = true
			if err := t.round(best); err != nil {
				return err
			}
		}
		if !waits {
			return nil
		}
	}
	return nil
}

// atPeak returns the number of rounds at the peak rate of the matrix unit. Without a register loop it returns all
// rounds.
func (t *timing) atPeak(best float64) int {
	n := 0
	for _, m := range t.moments {
		if m.rate >= nearPeak*best || m.rate == 0 {
			n++
		}
	}
	return n
}

// round times the ceilings and the operation in one round.
func (t *timing) round(best *float64) error {
	begin := time.Now()
	defer func() { t.spent += time.Since(begin) }()
	if err := t.readMemory(); err != nil {
		return err
	}
	m := moment{micros: math.Inf(1), rate: t.inRegisters()}
	for spent, samples := time.Duration(0), 0; spent < t.enough || samples < t.least(); {
		start := time.Now()
		for range max(t.calls, 1) {
			if err := t.op.Run(t.dev); err != nil {
				return err
			}
		}
		took := time.Since(start)
		spent += took
		if t.calls == 0 { // the first run only determines the number of calls per sample
			t.calls = int(min(max(sampleTime/max(took, 1), 1), 1000))
			continue
		}
		us := float64(took.Nanoseconds()) / 1e3 / float64(t.calls)
		t.times = append(t.times, us)
		m.micros = min(m.micros, us)
		samples++
	}
	m.rate = max(m.rate, t.inRegisters())
	t.moments = append(t.moments, m)
	*best = max(*best, m.rate)
	return nil
}

// least returns the minimum number of samples of a round. Operations that are compared with the peak rate get several,
// because in the first sample of a round the CPU caches still hold the data of another operation.
func (t *timing) least() int {
	if t.c.OfPeak {
		return 3
	}
	return 1
}

// readMemory times plain reading of the operation's memory. A short read is repeated for the duration t.enough.
func (t *timing) readMemory() error {
	for spent := time.Duration(0); len(t.op.Memory) > 0 && spent < t.enough; {
		for _, streams := range peak.Streams {
			mem := t.op.Memory
			if t.op.Turn != nil {
				mem = t.op.Turn()
			}
			d, err := t.reader.TimeStreams(mem, streams)
			if err != nil {
				return err
			}
			spent += d
			t.read = max(t.read, float64(len(mem))/d.Seconds()/1e9)
		}
	}
	return nil
}

// inRegisters times the register loop and returns its GFLOP/s, or 0 if the operation is not compared with it.
func (t *timing) inRegisters() float64 {
	if t.loop.Tier == "" || t.op.FLOPs == 0 {
		return 0
	}
	return t.loop.Rate(inRegisters)
}

// best returns the fastest of the rounds at the peak rate of the matrix unit.
func (t *timing) best() moment {
	top := 0.0
	for _, m := range t.moments {
		top = max(top, m.rate)
	}
	out := moment{micros: math.Inf(1)}
	for _, m := range t.moments {
		if m.rate >= nearPeak*top && m.micros < out.micros {
			out = m
		}
	}
	return out
}

// result returns the times and rates of the operation.
func (t *timing) result(threads int) Result {
	all, m := harness.Summarise(t.times), t.best()
	r := Result{Name: t.c.Name, Shape: t.c.Shape, Backend: t.dev.Name(), Threads: threads, Micros: m.micros,
		Median: all.Median, Spread: all.Spread}
	if t.op.FLOPs > 0 {
		r.GFLOPs = t.op.FLOPs / r.Micros / 1e3
	}
	if m.rate > 0 {
		r.PeakGF = m.rate / 1e9 * float64(threads)
		r.PeakShare = r.GFLOPs / r.PeakGF
	}
	if t.op.Bytes > 0 {
		r.GBs = t.op.Bytes / r.Micros / 1e3
	}
	if t.read > 0 {
		r.StreamGBs = t.read
		r.StreamShare = r.GBs / r.StreamGBs
	}
	return r
}
