package peak

import (
	"time"

	"sparrow/internal/pool"
)

// Loop is a loop on registers that measures the peak arithmetic rate of one core with one instruction.
type Loop struct {
	// Tier is the tier of package vec whose GEMMs use this instruction.
	Tier string
	// Instruction is the name of the instruction.
	Instruction string
	// step is the number of floating-point operations of a round. rounds is the maximum number of rounds per call; a
	// call then occupies its processor for less than 100 microseconds.
	step   float64
	rounds int
	run    func(rounds int)
}

// LoopFor returns the loop of a tier; ok is false if it has none.
func LoopFor(tier string) (Loop, bool) {
	for _, l := range loops() {
		if l.Tier == tier {
			return l, true
		}
	}
	return Loop{}, false
}

// Rate runs the loop for about the time d and returns the best rate of a call, in floating-point operations per second.
func (l Loop) Rate(d time.Duration) float64 {
	best := time.Duration(1 << 62)
	for begin := time.Now(); ; {
		start := time.Now()
		l.run(l.rounds)
		best = min(best, time.Since(start))
		if time.Since(begin) >= d {
			return l.step * float64(l.rounds) / best.Seconds()
		}
	}
}

// piece is the number of bytes that a worker reads at a time. This takes a few microseconds, so that all workers end at
// nearly the same time.
const piece = 1 << 17

// Reader reads memory with several workers. Only one goroutine may use it at a time.
type Reader struct {
	pool    *pool.Pool
	mem     []byte
	streams int
}

// NewReader returns a reader and starts its workers.
func NewReader(workers int) *Reader { return &Reader{pool: pool.New(workers)} }

// Close stops the workers.
func (r *Reader) Close() error { return r.pool.Close() }

// Streams lists the numbers of concurrent streams that Time compares: one from front to back, or four.
var Streams = [2]int{1, 4}

// Time returns the time to read mem once, with the faster of the numbers of streams in Streams.
func (r *Reader) Time(mem []byte) (time.Duration, error) {
	best := time.Duration(1 << 62)
	for _, streams := range Streams {
		d, err := r.TimeStreams(mem, streams)
		if err != nil {
			return 0, err
		}
		best = min(best, d)
	}
	return best, nil
}

// TimeStreams returns the time to read mem once with the given number of streams.
func (r *Reader) TimeStreams(mem []byte, streams int) (time.Duration, error) {
	r.mem, r.streams = mem, streams
	start := time.Now()
	err := r.pool.Run((len(mem)+piece-1)/piece, r)
	return time.Since(start), err
}

// Do reads piece number item of the memory.
func (r *Reader) Do(_, item int) {
	p := r.mem[item*piece:]
	p = p[:min(len(p), piece)]
	if r.streams == 1 {
		read(p)
		return
	}
	n := len(p) / r.streams &^ (line - 1)
	if n > 0 {
		readFour(p, n)
	}
	read(p[r.streams*n:])
}

// line is the number of bytes that an iteration of the loops reads.
const line = 512
