package peak

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"sparrow/internal/testkit/cputime"
	"sparrow/internal/vec"
)

// Every assembly tier of this machine has a loop, and a wider tier reaches at least half of the rate of a narrower one.
// A loop with a dependency between its instructions or with a wrong count would be slower.
func TestLoops(t *testing.T) {
	var all []Loop
	for _, tier := range vec.Tiers() {
		l, ok := LoopFor(tier.Name)
		if tier.Name == "go" {
			if ok {
				t.Error("plain Go has a register loop")
			}
			continue
		}
		if !ok {
			t.Errorf("tier %s has no loop", tier.Name)
			continue
		}
		all = append(all, l)
	}
	rates := make([]float64, len(all)) // best rate of each loop: other programs can only reduce it
	wrong := ""
	for tries := 0; tries == 0 || wrong != "" && tries < 200; tries++ {
		wrong = ""
		for i, l := range all {
			rates[i] = max(rates[i], l.Rate(5*time.Millisecond))
			if r := rates[i]; r < 1e9 || r > 1e13 {
				wrong = fmt.Sprintf("%s: %.3g operations per second are impossible", l.Instruction, r)
			}
			if i > 0 && rates[i-1] < rates[i]/2 {
				wrong = fmt.Sprintf("loop %d runs at %.3g operations per second, the narrower loop after it at %.3g",
					i-1, rates[i-1],
					rates[i])
			}
		}
	}
	for i, l := range all {
		t.Logf("%-7s %-16s %.1f GFLOP/s", l.Tier, l.Instruction, rates[i]/1e9)
	}
	if wrong != "" {
		t.Error(wrong)
	}
}

// One call of a loop is short, because a call cannot be preempted.
func TestLoopCallsAreShort(t *testing.T) {
	for _, l := range loops() {
		best := time.Duration(1 << 62)
		runtime.LockOSThread()
		for range 20 {
			start := cputime.Thread()
			l.run(l.rounds)
			best = min(best, cputime.Thread()-start)
		}
		runtime.UnlockOSThread()
		if best > 100*time.Microsecond {
			t.Errorf("%s: one call takes %v", l.Instruction, best)
		}
	}
}

// The reader reads memory of any size, also with more workers than pieces, and never beyond its end.
func TestReader(t *testing.T) {
	for _, workers := range []int{1, 3} {
		r := NewReader(workers)
		for _, n := range []int{0, 1, line - 1, line, 4*line + 7, piece - 1, piece, piece + 1, 3*piece + 4*line + 5} {
			d, err := r.Time(make([]byte, n))
			if err != nil || d < 0 || d > time.Minute {
				t.Errorf("reading %d bytes: time %v, error %v", n, d, err)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Reading twice as much memory takes longer, which shows that the loop reads all of its memory.
func TestReaderWalksItsMemory(t *testing.T) {
	r := NewReader(1)
	defer r.Close()
	mem := make([]byte, 64<<20)
	for i := range mem {
		mem[i] = byte(i)
	}
	least := func(p []byte) time.Duration {
		best := time.Duration(1 << 62)
		for range 5 {
			d, err := r.Time(p)
			if err != nil {
				t.Fatal(err)
			}
			best = min(best, d)
		}
		return best
	}
	if whole, part := least(mem), least(mem[:len(mem)/16]); whole < 3*part {
		t.Errorf("reading 64 MiB takes %v, reading a sixteenth of that %v", whole, part)
	}
}
