package kernels

import (
	"math"
	"slices"
	"time"

	"sparrow/bench/peak"
	"sparrow/kernel"
)

// timing collects the times of one operation and of its ceilings.
type timing struct {
	c      Case
	op     *Op
	dev    kernel.Device
	reader *peak.Reader
	loop   peak.Loop

	calls   int
	spent   time.Duration // in all rounds
	times   []float64     // microseconds of a run, one for each sample
	moments []moment      // one for each round
	read    float64       // best plain reading of the memory, GB/s
}

// moment is what one round saw: the best sample, and what one core reached in registers just before or just after. On
// a shared machine the matrix unit changes for seconds between two rates, the higher more than twice the lower, so a
// product is compared with its own moment.
type moment struct {
	micros float64
	rate   float64 // 0 where no loop was timed
}

const (
	// enough is how long a round of short operations lasts.
	enough = 12 * time.Millisecond
	// sample is the least that is timed at once, so that the clock's steps do not show. It is short, because on a
	// shared machine a sample that nobody disturbed must be among them.
	sample = 50 * time.Microsecond
	// inRegisters is how long a loop over registers runs.
	inRegisters = time.Millisecond
)

// A slow operation is timed in fewer rounds than asked, once it has taken this long.
const (
	patience = 3 * time.Second
	fewest   = 3
)

// A moment counts as one of the best when its rate in registers is at least nearPeak of the best rate known. Cases
// that are judged by that rate get more rounds, some time apart, until settled of their moments do or until they have
// waited for long.
const (
	nearPeak = 0.9
	settled  = 5
	apart    = 100 * time.Millisecond
	waiting  = 20 * time.Second
)

// timeRounds times the operations turn by turn. What the loop reached at best, in this run, is in best.
func timeRounds(runs []*timing, rounds int, best *float64) error {
	for i := range rounds {
		for _, t := range runs {
			if i >= fewest && t.spent > patience {
				continue
			}
			if err := t.round(best); err != nil {
				return err
			}
		}
	}
	for begin := time.Now(); time.Since(begin) < waiting; time.Sleep(apart) {
		waits := false
		for _, t := range runs {
			if !t.c.OfPeak || rounds < settled || t.atPeak(*best) >= settled {
				continue
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

// atPeak is how many rounds met the matrix unit at its best. Where there is no loop to tell, all did.
func (t *timing) atPeak(best float64) int {
	n := 0
	for _, m := range t.moments {
		if m.rate >= nearPeak*best || m.rate == 0 {
			n++
		}
	}
	return n
}

// round times the ceilings and the operation once.
func (t *timing) round(best *float64) error {
	begin := time.Now()
	defer func() { t.spent += time.Since(begin) }()
	if err := t.readMemory(); err != nil {
		return err
	}
	m := moment{micros: math.Inf(1), rate: t.inRegisters()}
	for spent, samples := time.Duration(0), 0; spent < enough || samples < t.least(); {
		start := time.Now()
		for range max(t.calls, 1) {
			if err := t.op.Run(t.dev); err != nil {
				return err
			}
		}
		took := time.Since(start)
		spent += took
		if t.calls == 0 { // the first run only tells how many make a sample
			t.calls = int(min(max(sample/max(took, 1), 1), 1000))
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

// least is how many samples a round has at least. What is judged by its rate in registers is timed as its peers in
// other libraries are, again and again: the first sample of a round meets caches that another operation has filled.
func (t *timing) least() int {
	if t.c.OfPeak {
		return 3
	}
	return 1
}

// readMemory times plain reading of the operation's memory. A short read is repeated like a short operation.
func (t *timing) readMemory() error {
	for spent := time.Duration(0); len(t.op.Memory) > 0 && spent < enough; {
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

// inRegisters times the loop over registers, where the operation has one to be compared with.
func (t *timing) inRegisters() float64 {
	if t.loop.Tier == "" || t.op.FLOPs == 0 {
		return 0
	}
	return t.loop.Rate(inRegisters)
}

// best is the fastest moment among those that met the matrix unit at its best.
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

// result turns the rounds into rates.
func (t *timing) result(threads int) Result {
	slices.Sort(t.times)
	at := func(q float64) float64 { return t.times[int(math.Round(q*float64(len(t.times)-1)))] }
	m := t.best()
	r := Result{Name: t.c.Name, Shape: t.c.Shape, Backend: t.dev.Name(), Threads: threads, Micros: m.micros,
		Median: at(0.5), Spread: (at(0.9) - at(0.1)) / at(0.5)}
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
