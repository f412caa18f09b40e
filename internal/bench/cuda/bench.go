// Package bench times CUDA kernels and compares them with the peak rates of the device.
//
// A case is a kernel at a shape, with its minimum bytes and operations; peers.tsv contains the times of other engines.
// Results can be written as JSON. Before a case is timed, its outputs are filled with invalid values (poisoned) and the
// results are compared with the host's. Timing replays captured CUDA graphs whose launches rotate over several sets of
// inputs, together larger than the L2 cache. It reports the median of many replays with its spread. Inputs are random:
// zeros use less power and run faster.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"sparrow/internal/bench/harness"
	"sparrow/kernel/cuda"
)

// Rate is the kind of arithmetic that bounds a case.
type Rate int

// Kinds of arithmetic. Memory is for cases that are bound by memory bandwidth.
const (
	Memory Rate = iota
	BF16
	FP8
)

// Roofs holds the peak rates of a device.
type Roofs struct {
	BytesPerSecond float64 `json:"bytes_per_second"` // reads and writes together
	BF16           float64 `json:"bf16_flops"`       // operations per second
	FP8            float64 `json:"fp8_flops"`
}

// H200 returns peak rates of an H200: measured with a large copy and with a large bf16 GEMM on random data, and for FP8
// computed from the issue rate of its instructions.
func H200() Roofs { return Roofs{BytesPerSecond: 4.3e12, BF16: 790e12, FP8: 1650e12} }

// Case is one kernel at one shape.
type Case struct {
	harness.Case
	FLOPs    float64 // floating-point operations of one run
	Bytes    float64 // minimum bytes of device memory traffic in one run
	Rate     Rate
	SetBytes float64 // bytes of device memory of one set; 0 means Bytes
	// New allocates the inputs and outputs of one set from the holder. Sets do not share memory.
	New func(*holder) Set
}

// titled returns a case with the given name, and with a shape that is formatted from the arguments.
func titled(name, shape string, args ...any) harness.Case {
	return harness.Case{Name: name, Shape: fmt.Sprintf(shape, args...)}
}

// setBytes returns the bytes of device memory of one set.
func (c *Case) setBytes() float64 {
	if c.SetBytes > 0 {
		return c.SetBytes
	}
	return c.Bytes
}

// Set is one set of inputs and outputs of a case, with functions that use it.
type Set struct {
	// Launch enqueues the kernel once.
	Launch func(*cuda.Stream) error
	// Check compares the outputs with results computed on the host.
	Check func(*reader) error
}

// launching returns a set that launches a kernel with the given arguments.
func launching[A any](h *holder, kernel func(*cuda.Kernels, *cuda.Stream, *A) error, args *A,
	check func(*reader) error) Set {
	return Set{func(s *cuda.Stream) error { return kernel(h.rig.Kernels, s, args) }, check}
}

// heldSet is a set and its device memory.
type heldSet struct {
	Set
	*holder
}

// Rig holds the device, the kernels and the seed that sets are made with.
type Rig struct {
	Device  *cuda.Device
	Kernels *cuda.Kernels
	Stream  *cuda.Stream
	Seed    uint64 // different for every set
}

// Options configures a run.
type Options struct {
	Replays int // timed graph replays; 0 means 20
	// Pause is the idle time before each timed replay. Without it, heavy cases reach the power limit, which lowers the
	// clock.
	Pause time.Duration
	// Check checks the results without timing, for tools such as compute-sanitizer that examine each launch.
	Check    bool
	Progress harness.Progress
}

const (
	warm    = 3 // replays that are not timed, before the timed ones
	l2Times = 3 // bytes of all sets together, as a multiple of the L2 cache
)

// Result is the result of one case.
type Result struct {
	Name      string  `json:"name"`
	Shape     string  `json:"shape"`
	Micros    float64 `json:"us"`     // median time
	MinMicros float64 `json:"us_min"` // fastest replay
	MaxMicros float64 `json:"us_max"` // slowest replay
	Spread    float64 `json:"spread"` // (90th - 10th percentile) / median
	TFLOPs    float64 `json:"tflops,omitempty"`
	GBs       float64 `json:"gb_per_s"`
	RoofUS    float64 `json:"roof_us"`    // minimum time at the peak rate
	RoofShare float64 `json:"roof_share"` // roof_us / us
	Peer      string  `json:"peer,omitempty"`
	PeerUS    float64 `json:"peer_us,omitempty"`
	PeerShare float64 `json:"peer_share,omitempty"` // peer_us / us; above 1 if the kernel is faster than the peer
	Sets      int     `json:"sets"`
	Launches  int     `json:"launches"` // launches per replay
	Checked   bool    `json:"checked"`
}

// Report holds the results of a whole run.
type Report struct {
	Device  cuda.Properties `json:"device"`
	Date    time.Time       `json:"date"`
	Commit  string          `json:"commit,omitempty"` // commit that the program was built from
	Pause   string          `json:"pause,omitempty"`  // idle time before each replay
	Roofs   Roofs           `json:"roofs"`
	Results []Result        `json:"results"`
}

// Run checks and times cases. The error lists the cases that failed; the other cases still run unless ctx ends.
func Run(ctx context.Context, d *cuda.Device, k *cuda.Kernels, cases []Case, o Options) (*Report, error) {
	if o.Replays == 0 {
		o.Replays = 20
	}
	known, err := peers()
	if err != nil {
		return nil, err
	}
	s, err := d.NewStream()
	if err != nil {
		return nil, err
	}
	rep := &Report{Device: d.Properties(), Date: time.Now().UTC(), Roofs: H200()}
	if o.Pause > 0 {
		rep.Pause = o.Pause.String()
	}
	err = harness.Each(ctx, cases, o.Progress, func(c Case) error {
		r, err := one(&Rig{Device: d, Kernels: k, Stream: s}, &c, o)
		if err != nil {
			return fmt.Errorf("bench: %s: %w", c.Title(), err)
		}
		if p, ok := known[c.peerKey()]; ok && !o.Check {
			r.Peer, r.PeerUS, r.PeerShare = p.Name, p.Micros, p.Micros/r.Micros
		}
		rep.Results = append(rep.Results, *r)
		return nil
	})
	return rep, errors.Join(err, s.Close())
}

// maxSets is the maximum number of sets of a case.
const maxSets = 64

// setCount returns the number of sets of setBytes bytes that are together larger than l2 bytes.
func setCount(setBytes, l2 float64) int {
	return int(max(1, min(maxSets, math.Ceil(l2/setBytes))))
}

// one checks and times one case.
func one(rig *Rig, c *Case, o Options) (res *Result, err error) {
	n := setCount(c.setBytes(), l2Times*float64(rig.Device.Properties().L2Bytes))
	var sets []heldSet
	defer func() {
		for _, s := range sets {
			err = errors.Join(err, s.free())
		}
	}()
	for i := range n {
		rig.Seed = uint64(i + 1)
		h := newHolder(rig)
		sets = append(sets, heldSet{c.New(h), h})
		if err := h.ready(); err != nil {
			return nil, err
		}
	}
	for _, s := range []heldSet{sets[0], sets[n-1]} {
		if err := checkOnce(rig.Stream, s); err != nil {
			return nil, err
		}
	}
	if o.Check {
		return &Result{Name: c.Name, Shape: c.Shape, Sets: n, Checked: true}, nil
	}
	launches := n
	if want := 20; n < want { // events have a low resolution, so several launches are timed together
		launches = n * ((want + n - 1) / n)
		if c.setBytes() > 1<<28 {
			launches = max(n, 4)
		}
	}
	times, err := replay(rig, sets, launches, o)
	if err != nil {
		return nil, err
	}
	r := summarise(c, times, H200())
	r.Sets, r.Launches, r.Checked = n, launches, true
	return r, nil
}

func checkOnce(stream *cuda.Stream, s heldSet) error {
	if err := s.poison(stream); err != nil {
		return err
	}
	if err := s.Launch(stream); err != nil {
		return err
	}
	if err := stream.Sync(); err != nil {
		return err
	}
	r := &reader{stream: stream}
	if err := s.Check(r); r.err == nil && err != nil {
		return fmt.Errorf("wrong result: %w", err)
	}
	return r.err
}

// replay captures the launches, which rotate over the sets, as a graph and times replays. It returns the microseconds
// per launch of each replay.
func replay(rig *Rig, sets []heldSet, launches int, o Options) (times []float64, err error) {
	s := rig.Stream
	g, err := s.Capture(func() error {
		for i := range launches {
			if err := sets[i%len(sets)].Launch(s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	var ev [2]*cuda.Event
	for i := range ev {
		if ev[i], err = rig.Device.NewEvent(); err != nil {
			return nil, err
		}
		defer func(e *cuda.Event) { err = errors.Join(err, e.Close()) }(ev[i])
	}
	for i := range warm + o.Replays {
		if i >= warm {
			time.Sleep(o.Pause)
		}
		d, err := timed(s, g, ev)
		if err != nil {
			return nil, err
		}
		if i >= warm {
			times = append(times, float64(d.Nanoseconds())/1000/float64(launches))
		}
	}
	return times, nil
}

// timed returns the device time of one replay.
func timed(s *cuda.Stream, g *cuda.Graph, ev [2]*cuda.Event) (time.Duration, error) {
	if err := ev[0].Record(s); err != nil {
		return 0, err
	}
	if err := g.Launch(s); err != nil {
		return 0, err
	}
	if err := ev[1].Record(s); err != nil {
		return 0, err
	}
	if err := ev[1].Sync(); err != nil {
		return 0, err
	}
	return ev[1].Since(ev[0])
}

// summarise computes a result from measured times.
func summarise(c *Case, times []float64, roofs Roofs) *Result {
	t := harness.Summarise(times)
	us := t.Median
	r := &Result{Name: c.Name, Shape: c.Shape, Micros: us, MinMicros: t.Min, MaxMicros: t.Max, Spread: t.Spread}
	r.GBs = c.Bytes / us / 1e3
	r.RoofUS = c.Bytes / roofs.BytesPerSecond * 1e6
	switch c.Rate {
	case BF16:
		r.RoofUS = max(r.RoofUS, c.FLOPs/roofs.BF16*1e6)
	case FP8:
		r.RoofUS = max(r.RoofUS, c.FLOPs/roofs.FP8*1e6)
	}
	if c.FLOPs > 0 {
		r.TFLOPs = c.FLOPs / us / 1e6
	}
	r.RoofShare = r.RoofUS / us
	return r
}

// Print writes the report as aligned text.
func (r *Report) Print(w io.Writer) error {
	head := fmt.Sprintf("%s, %s", r.Device, r.Date.Format(time.DateOnly))
	if r.Commit != "" {
		head += ", commit " + r.Commit
	}
	if r.Pause != "" {
		head += ", " + r.Pause + " of rest before each replay"
	}
	_, err := fmt.Fprintf(w, "%s\n%-26s %-34s %10s %7s %9s %8s %6s %9s\n", head, "kernel", "shape", "us", "spread",
		"TFLOP/s", "GB/s", "roof", "x peer")
	number := func(format string, v float64) string {
		if v == 0 {
			return ""
		}
		return fmt.Sprintf(format, v)
	}
	for _, x := range r.Results {
		_, e := fmt.Fprintf(w, "%-26s %-34s %10.2f %6.1f%% %9s %8.0f %5.0f%% %9s\n", x.Name, x.Shape, x.Micros,
			100*x.Spread, number("%.1f", x.TFLOPs), x.GBs, 100*x.RoofShare, number("%.2f", x.PeerShare))
		err = errors.Join(err, e)
	}
	return err
}
