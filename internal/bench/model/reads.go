package model

import (
	"context"
	"fmt"
	"time"

	"sparrow/internal/bench/peak"
	"sparrow/internal/device/host"
	"sparrow/internal/unit"
	"sparrow/kernel"
)

// Reads compares the rate at which a decode step reads weights with that of plain reads by as many threads, timed
// alternately with the steps.
type Reads struct {
	Bytes     int64   `json:"bytes"`      // bytes of weights and scales that a step reads; a chosen expert counts once
	HeadBytes int64   `json:"head_bytes"` // bytes of the head's weight (the vocabulary)
	LayersMs  float64 `json:"layers_ms"`  // shortest time of a step without the head
	StreamGBs float64 `json:"stream_gbs"` // best rate of plain reads, GB/s
}

// GBs returns the rate at which the fastest step read weights, in GB/s; LayersGBs excludes the time and bytes of the
// head.
func (r *Reads) GBs(p *Phase) float64 { return float64(r.Bytes) / p.StepMs / 1e6 }
func (r *Reads) LayersGBs() float64   { return float64(r.Bytes-r.HeadBytes) / r.LayersMs / 1e6 }

// line returns a report line about the read rate of a decode step.
func (r *Reads) line(c *Cell) string {
	whole, layers := r.GBs(c.Decode), r.LayersGBs()
	return fmt.Sprintf("decode at context %d, batch %d reads %s of weights: %.0f %% of the stream read (%.1f of "+
		"%.1f GB/s); without the head %s, %.0f %% (%.1f GB/s)", c.Context, c.Batch, unit.Bytes(r.Bytes),
		100*whole/r.StreamGBs, whole, r.StreamGBs, unit.Bytes(r.Bytes-r.HeadBytes), 100*layers/r.StreamGBs, layers)
}

// counter stores the sizes of the weights that a CPU device has prepared, and counts the bytes that GEMMs read from
// them.
type counter struct {
	matrices map[kernel.Matrix]int64
	experts  map[kernel.Experts]int64 // mean bytes of an expert of the layer
	shapes   map[kernel.Matrix]string // shapes of GEMMs, by their first matrix
	largest  []byte                   // memory of the largest weight, for plain reads
	now      Reads                    // bytes read since the last reset
	seen     []bool                   // [experts] whether the current operation has counted the expert
}

func newCounter() *counter {
	return &counter{matrices: map[kernel.Matrix]int64{}, experts: map[kernel.Experts]int64{},
		shapes: map[kernel.Matrix]string{}}
}

// readPart is the number of bytes of one plain read, which takes milliseconds, like a GEMM. Reads rotate over the first
// readParts parts of the largest weight. Between two reads of a part, steps read all weights, so that the part is no
// longer in a CPU cache.
const readPart, readParts = 32 << 20, 4

// size returns the bytes of a weight. It keeps the memory of the largest weight in c.largest, for plain reads.
func (c *counter) size(w kernel.Weight) int64 {
	n := w.Data.Extent()
	if w.Scale.Given() {
		n += w.Scale.Extent()
	}
	if b := host.Bytes(w.Data); len(b) > len(c.largest) {
		c.largest = b
	}
	return n
}

// product adds the bytes of the weights of a GEMM to c.now, and returns them.
func (c *counter) product(ms []kernel.Matrix, vocab int) (n int64) {
	for _, m := range ms {
		n += c.matrices[m]
		if m.Out() == vocab {
			c.now.HeadBytes += c.matrices[m]
		}
	}
	c.now.Bytes += n
	return n
}

// shape returns the outputs and inputs of the matrices of a GEMM as text. The text is cached by the first matrix, so
// that steps do not allocate.
func (c *counter) shape(ms []kernel.Matrix) string {
	text, ok := c.shapes[ms[0]]
	if !ok {
		for i, m := range ms {
			if i > 0 {
				text += "+"
			}
			text += fmt.Sprint(m.Out())
		}
		text += fmt.Sprintf("x%d", ms[0].In())
		c.shapes[ms[0]] = text
	}
	return text
}

// chosen adds the bytes of the experts that tokens chose to c.now, and returns them.
func (c *counter) chosen(a kernel.ExpertArgs) (n int64) {
	c.seen = append(c.seen[:0], make([]bool, a.Experts.Count())...)
	for t := range a.IDs.Rows {
		for _, id := range host.RowI32(a.IDs, t) {
			if e, here := a.Part.Local(int(id), a.Experts.Count()); here && !c.seen[e] {
				c.seen[e] = true
				n += c.experts[a.Experts]
			}
		}
	}
	c.now.Bytes += n
	return n
}

// Prepare prepares a weight and records its size.
func (d *stopwatch) Prepare(w kernel.Weight, role kernel.Role) (kernel.Matrix, error) {
	m, err := d.Device.Prepare(w, role)
	if err == nil && d.reads != nil {
		d.reads.matrices[m] = d.reads.size(w)
	}
	return m, err
}

// PrepareExperts prepares experts and records the mean size of one expert.
func (d *stopwatch) PrepareExperts(w kernel.ExpertWeights) (kernel.Experts, error) {
	x, err := d.Device.PrepareExperts(w)
	if err == nil && d.reads != nil {
		n := int64(0)
		for _, list := range [][]kernel.Weight{w.Gate, w.Up, w.Down} {
			for _, m := range list {
				n += d.reads.size(m)
			}
		}
		d.reads.experts[x] = n / int64(max(1, x.Count()))
	}
	return x, err
}

// readsOf times plain reads alternately with decode steps, unless the weights are so small that they fit into CPU
// caches.
func (b *bench) readsOf(ctx context.Context, p *Phase, j *job) error {
	c := b.watch.reads
	if c == nil || len(c.largest) < 2*readParts*readPart {
		return nil
	}
	c.now = Reads{}
	if _, _, err := b.timed(j); err != nil {
		return err
	}
	r := c.now
	r.LayersMs = p.StepMs - p.Stages[Head]
	reader := peak.NewReader(b.o.Threads)
	defer reader.Close()
	best := time.Duration(1 << 62)
	begin := time.Now()
	part := 0
	for i := 0; i < fewest || time.Since(begin) < b.o.Budget; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		took, stages, err := b.timed(j)
		if err != nil {
			return err
		}
		ms := float64(took.Nanoseconds()) / 1e6
		if ms < p.StepMs {
			p.StepMs, p.Stages = ms, stages
		}
		r.LayersMs = min(r.LayersMs, ms-stages[Head])
		for _, streams := range peak.Streams {
			took, err := reader.TimeStreams(c.largest[part%readParts*readPart:][:readPart], streams)
			if err != nil {
				return err
			}
			best = min(best, took)
			part++
		}
	}
	p.TokensPerSecond = 1e3 * float64(p.Tokens) / p.StepMs
	r.StreamGBs = readPart / best.Seconds() / 1e9
	p.Reads = &r
	return nil
}
