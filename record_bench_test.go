//go:build unix

package sparrow

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"sparrow/internal/spec"
)

// BenchmarkRecording measures the cost of recording at batch 16 on the built-in model: 16 answers of 100 tokens after
// cached prompts of 600, in alternating turns with and without recording. Rows are written as JSON, as in a server. The
// benchmark compares the processor time of the process, because other programs on the machine affect it little; it uses
// one worker, so that no worker spins while it waits.
func BenchmarkRecording(b *testing.B) {
	e, err := Open(context.Background(), Config{Draft: spec.Off(), Workers: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close(context.Background())
	turn := func(r *Record) time.Duration {
		var all sync.WaitGroup
		begun := processorTime(b)
		for i := range 16 {
			all.Go(func() {
				s, err := e.Stream(context.Background(), Request{Tokens: tokens(i, 600), MaxTokens: 100,
					Sampling: greedy(), IgnoreEOS: true, Record: r})
				if err != nil {
					b.Error(err)
					return
				}
				var buf []byte
				for ev := range s.All() {
					if ev.Recorded != nil {
						buf = ev.Recorded.AppendJSON(buf[:0])
					}
				}
			})
		}
		all.Wait()
		return processorTime(b) - begun
	}
	for _, c := range []struct {
		name string
		r    *Record
	}{{"selections", &Record{Selections: true}},
		{"everything", &Record{Selections: true, Scores: true, Experts: true}}} {
		b.Run(c.name, func(b *testing.B) {
			turn(nil)
			turn(c.r)
			var off, on []time.Duration
			for range max(b.N, 11) {
				off, on = append(off, turn(nil)), append(on, turn(c.r))
			}
			// Other load on the machine only adds to the time of a turn, so the shortest times with and without
			// recording are compared.
			b.ReportMetric(100*(slices.Min(on).Seconds()/slices.Min(off).Seconds()-1), "%more")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// processorTime returns the processor time that the process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
