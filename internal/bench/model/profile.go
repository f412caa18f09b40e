package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sparrow/internal/model"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/plan"
)

// profile records the time of each stage and each kernel in a phase, on a device that times its launches. It uses the
// second of two rounds of steps.
func (b *bench) profile(p *Phase, steps int, one func(i int) error) (err error) {
	dev, ok := b.watch.Device.(kernel.Traceable)
	if !ok {
		return nil
	}
	t := dev.Tracer()
	if p.GapMs, p.SpanMs, err = b.gap(t, steps, one); err != nil {
		return err
	}
	if err := t.Trace(true); err != nil {
		return err
	}
	b.watch.tracer = t
	defer func() {
		b.watch.tracer = nil
		err = errors.Join(err, t.Trace(false))
	}()
	t.TraceLabel(int(Rest))
	var list []kernel.TracedLaunch
	for round := range 2 {
		for i := range steps {
			if err := one(i); err != nil {
				return err
			}
			part, err := t.Traced()
			if err != nil {
				return err
			}
			if round > 0 {
				list = append(list, part...)
			}
		}
	}
	p.Stages, p.Launches, p.DeviceMs = Stages{}, len(list), 0
	by := map[[2]string]*Kernel{}
	for _, l := range list {
		ms := float64(l.Time.Nanoseconds()) / 1e6
		p.Stages[l.Label] += ms
		p.DeviceMs += ms
		key := [2]string{l.Kernel, Stage(l.Label).String()}
		if by[key] == nil {
			by[key] = &Kernel{Name: key[0], Stage: key[1]}
		}
		by[key].Launches++
		by[key].Us += 1e3 * ms
	}
	p.Kernels = nil
	for _, k := range by {
		p.Kernels = append(p.Kernels, *k)
	}
	slices.SortFunc(p.Kernels, func(x, y Kernel) int {
		return cmp.Or(cmp.Compare(y.Us, x.Us), cmp.Compare(x.Name, y.Name))
	})
	return nil
}

// gap returns the time in which the device waits for the host during the steps of a phase: their total time minus span.
// span is the device's time from the first to the last launch, summed over the steps. Both are medians of a few rounds.
func (b *bench) gap(t kernel.Tracer, steps int, one func(i int) error) (gap, span float64, err error) {
	b.watch.spans = t
	defer func() { b.watch.spans = nil }()
	var gaps, spans []float64
	for range 5 {
		begin, device := time.Now(), time.Duration(0)
		for i := range steps {
			if err := one(i); err != nil {
				return 0, 0, err
			}
			if !b.watch.ended { // the pass fetches no results, so it has not ended yet
				if err := t.EndSpan(); err != nil {
					return 0, 0, err
				}
			}
			took, err := t.Span()
			if err != nil {
				return 0, 0, err
			}
			device += took
		}
		gaps = append(gaps, float64((time.Since(begin)-device).Nanoseconds())/1e6)
		spans = append(spans, float64(device.Nanoseconds())/1e6)
	}
	slices.Sort(gaps)
	slices.Sort(spans)
	return gaps[len(gaps)/2], spans[len(spans)/2], nil
}

// prompt times a whole prompt from an empty cache, in chunks. A token is sampled only after the last chunk.
func (b *bench) prompt(ctx context.Context, p *Prompt) error {
	tokens, chunks := b.tokens(p.Length), (p.Length+b.o.Chunk-1)/b.o.Chunk
	var state model.State // state of the sequence, if the model has one; nil before the first chunk
	release := func() {
		if state != nil {
			state.Release()
			state = nil
		}
	}
	defer release()
	run := func(i int) (err error) {
		if stateful, ok := b.model.(model.Stateful); ok && i == 0 {
			release()
			if state, err = stateful.NewState(); err != nil {
				return err
			}
		}
		at := i * b.o.Chunk
		n := min(b.o.Chunk, p.Length-at)
		w := step.Work{Kind: plan.ModeExtend, Tokens: tokens[at:][:n], Cached: at, Before: tokens[:at],
			Pages: b.pages[:(at+n+b.cfg.Page-1)/b.cfg.Page], Best: b.gpu, State: state}
		w.Windows = b.windows(0, len(w.Pages), 0, p.Length)
		if i == chunks-1 {
			w.Logits = 1
		}
		_, err = b.runner.Run([]step.Work{w})
		return err
	}
	p.Time = &Phase{Tokens: p.Length}
	err := b.repeat(ctx, p.Time, func() (time.Duration, Stages, error) {
		b.watch.take()
		begin := time.Now()
		for i := range chunks {
			if err := run(i); err != nil {
				return 0, Stages{}, err
			}
		}
		took := time.Since(begin)
		return took, shares(b.watch.take(), took), nil
	})
	if err == nil {
		err = b.profile(p.Time, chunks, run)
	}
	if err != nil {
		return fmt.Errorf("bench: a prompt of %d tokens: %w", p.Length, err)
	}
	return nil
}
