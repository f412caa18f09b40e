package model

import (
	"context"
	"slices"
	"time"

	"sparrow/internal/step"
)

// overlap times decode steps of a GPU that are enqueued while the previous step runs, and whose tokens the previous
// step samples. As in phase, all steps write to the same slots.
func (b *bench) overlap(ctx context.Context, p *Phase, j *job) error {
	if len(j.before) > 0 && !j.few {
		return nil // not measured: the states are copied between steps, when no step may run
	}
	enqueue := func() (step.Pending, error) {
		if err := j.begin(); err != nil {
			return step.Pending{}, err
		}
		p, err := b.runner.Start(j.works)
		j.end()
		return p, err
	}
	before, err := enqueue()
	if err != nil {
		return err
	}
	for i := range j.works {
		j.works[i].Sampled = i + 1
	}
	defer func() {
		for i := range j.works {
			j.works[i].Sampled = 0
		}
	}()
	var times []float64
	for begin := time.Now(); err == nil && len(times) < most && time.Since(begin) < b.o.Budget; {
		if err = ctx.Err(); err != nil {
			break
		}
		start := time.Now()
		var next step.Pending
		if next, err = enqueue(); err != nil {
			break
		}
		_, err = before.Wait()
		before = next
		times = append(times, float64(time.Since(start).Nanoseconds())/1e6)
	}
	if _, late := before.Wait(); err == nil {
		err = late
	}
	if err != nil || len(times) <= warm {
		return err
	}
	times = times[warm:]
	slices.Sort(times)
	p.OverlapMs = times[len(times)/2]
	p.Busy = p.SpanMs / p.OverlapMs
	return nil
}

// warm is the number of steps before the measurement: the second step of a shape is captured as a CUDA graph.
const warm = 4
