// Package bench times CUDA kernels and compares them with the peak rates of the device.
//
// In flow cases: a kernel at a shape, its least bytes and operations, another engine's figure where one is
// known. Out flow results that marshal to JSON. Every case is checked against the host before it is timed, with its
// outputs poisoned first; timing replays captured graphs whose launches rotate over several sets of inputs, together
// larger than the L2 cache, and reports the median of many replays with its spread. Nothing is timed on zeros: they
// draw less power and run faster than real data.
package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"sparrow/kernel/cuda"
)

// Rate is the kind of arithmetic that bounds a case.
type Rate int

// The kinds. Memory cases have next to no arithmetic.
const (
	Memory Rate = iota
	BF16
	FP8
)

// Roofs are the ceilings results are measured against.
type Roofs struct {
	BytesPerSecond float64 `json:"bytes_per_second"` // read and written together
	BF16           float64 `json:"bf16_flops"`       // per second
	FP8            float64 `json:"fp8_flops"`
}

// H200 are the ceilings measured on an H200: a large copy, a large bf16 matrix product on random data, the issue rate
// of FP8 instructions.
func H200() Roofs { return Roofs{BytesPerSecond: 4.3e12, BF16: 790e12, FP8: 1650e12} }

// Peer is another engine's time for the same work on the same kind of GPU.
type Peer struct {
	Name   string
	Micros float64
}

// Case is one kernel at one shape.
type Case struct {
	Name     string
	Shape    string
	FLOPs    float64 // operations of one run
	Bytes    float64 // fewest bytes through device memory in one run
	Rate     Rate
	Peer     Peer
	SetBytes int64 // device memory of one set
	// New makes one set of inputs and outputs in memory of the holder. Different sets hold different memory.
	New func(*holder) Set
}

// Set is what a case does with one set of its inputs and outputs.
type Set struct {
	// Launch enqueues one run.
	Launch func(*cuda.Stream) error
	// Check compares the outputs of a finished run with the host's.
	Check func(*reader) error
}

// heldSet is a set and its device memory.
type heldSet struct {
	Set
	*holder
}

// Rig holds the device, the kernels and the settings with which sets are made.
type Rig struct {
	Device  *cuda.Device
	Kernels *cuda.Kernels
	Stream  *cuda.Stream
	Seed    uint64 // different for every set
}

// Options set how long to measure.
type Options struct {
	Replays int     // timed graph replays; 0 means 20
	Warm    int     // replays before them; 0 means 3
	L2Times float64 // how many times the L2 the sets together must hold; 0 means 3
	// idle time before each timed replay: without it the power limit lowers the clock during the heavy cases
	Pause time.Duration
	Roofs Roofs // zero means H200
	// Check compares results with the host's and times nothing: for tools that count or check each launch.
	Check bool
	// Progress is called before each case, if set.
	Progress func(name, shape string)
}

// Result is the result of one case.
type Result struct {
	Name      string  `json:"name"`
	Shape     string  `json:"shape"`
	Micros    float64 `json:"us"`     // median
	MinMicros float64 `json:"us_min"` // fastest replay
	MaxMicros float64 `json:"us_max"` // slowest replay
	Spread    float64 `json:"spread"` // (90th - 10th percentile) / median
	TFLOPs    float64 `json:"tflops,omitempty"`
	GBs       float64 `json:"gb_per_s"`
	RoofUS    float64 `json:"roof_us"`    // time at the ceiling
	RoofShare float64 `json:"roof_share"` // roof_us / us
	Peer      string  `json:"peer,omitempty"`
	PeerUS    float64 `json:"peer_us,omitempty"`
	PeerShare float64 `json:"peer_share,omitempty"` // peer_us / us: above 1 is faster than the peer
	Sets      int     `json:"sets"`
	Launches  int     `json:"launches"` // per replay
	Checked   bool    `json:"checked"`
}

// Report is a whole run.
type Report struct {
	Device  cuda.Properties `json:"device"`
	Date    time.Time       `json:"date"`
	Commit  string          `json:"commit,omitempty"` // of the program that measured
	Pause   string          `json:"pause,omitempty"`  // idle time before each replay
	Roofs   Roofs           `json:"roofs"`
	Results []Result        `json:"results"`
}

// Match keeps the cases whose name and shape, joined by a space, contain one of the filters; no filter keeps all.
func Match(cases []Case, filters []string) ([]Case, error) {
	var out []Case
	for _, c := range cases {
		if len(filters) == 0 || slices.ContainsFunc(filters, func(f string) bool {
			return strings.Contains(c.Name+" "+c.Shape, f)
		}) {
			out = append(out, c)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	var names []string
	for _, c := range cases {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	return nil, fmt.Errorf("bench: no case contains %q; kernels are %s", filters, strings.Join(names, ", "))
}

// Run checks and times cases. A case that fails is reported in the error and left out; the others still run, until
// the context ends.
func Run(ctx context.Context, d *cuda.Device, k *cuda.Kernels, cases []Case, o Options) (*Report, error) {
	if o.Replays == 0 {
		o.Replays = 20
	}
	if o.Warm == 0 {
		o.Warm = 3
	}
	if o.L2Times == 0 {
		o.L2Times = 3
	}
	if o.Roofs == (Roofs{}) {
		o.Roofs = H200()
	}
	s, err := d.NewStream()
	if err != nil {
		return nil, err
	}
	rep := &Report{Device: d.Properties(), Date: time.Now().UTC(), Roofs: o.Roofs}
	var errs []error
	if o.Pause > 0 {
		rep.Pause = o.Pause.String()
	}
	for i := range cases {
		if err := ctx.Err(); err != nil {
			errs = append(errs, fmt.Errorf("bench: stopped before %s %s: %w", cases[i].Name, cases[i].Shape, err))
			break
		}
		if o.Progress != nil {
			o.Progress(cases[i].Name, cases[i].Shape)
		}
		r, err := one(&Rig{Device: d, Kernels: k, Stream: s}, &cases[i], o)
		if err != nil {
			errs = append(errs, fmt.Errorf("bench: %s %s: %w", cases[i].Name, cases[i].Shape, err))
			continue
		}
		rep.Results = append(rep.Results, *r)
	}
	return rep, errors.Join(append(errs, s.Close())...)
}

// maxSets bounds the number of sets of small cases: their launches rotate through this many at least.
const maxSets = 64

// setCount is how many sets make the inputs larger than the cache.
func setCount(setBytes, l2 int64, times float64) int {
	if setBytes <= 0 {
		return maxSets
	}
	return max(1, min(maxSets, int(math.Ceil(times*float64(l2)/float64(setBytes)))))
}

// one checks and times one case.
func one(rig *Rig, c *Case, o Options) (res *Result, err error) {
	n := setCount(c.SetBytes, int64(rig.Device.Properties().L2Bytes), o.L2Times)
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
	if want := 20; n < want { // short cases need several launches because of the events' resolution
		launches = n * ((want + n - 1) / n)
		if c.SetBytes > 1<<28 {
			launches = max(n, 4)
		}
	}
	times, err := replay(rig, sets, launches, o)
	if err != nil {
		return nil, err
	}
	r := summarise(c, times, o.Roofs)
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

// replay captures the launches, rotating over the sets, and times replays of the graph. Times are microseconds per
// launch.
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
	for i := range o.Warm + o.Replays {
		if i >= o.Warm {
			time.Sleep(o.Pause)
		}
		d, err := timed(s, g, ev)
		if err != nil {
			return nil, err
		}
		if i >= o.Warm {
			times = append(times, float64(d.Nanoseconds())/1000/float64(launches))
		}
	}
	return times, nil
}

// timed is the device time of one replay.
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

// summarise turns times into a result.
func summarise(c *Case, times []float64, roofs Roofs) *Result {
	t := slices.Clone(times)
	slices.Sort(t)
	at := func(q float64) float64 { return t[int(math.Round(q*float64(len(t)-1)))] }
	us := at(0.5)
	r := &Result{Name: c.Name, Shape: c.Shape, Micros: us, MinMicros: t[0], MaxMicros: t[len(t)-1],
		Spread: (at(0.9) - at(0.1)) / us}
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
	if c.Peer.Micros > 0 {
		r.Peer, r.PeerUS, r.PeerShare = c.Peer.Name, c.Peer.Micros, c.Peer.Micros/us
	}
	return r
}

// Table is the report as aligned text.
func (r *Report) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s", r.Device, r.Date.Format(time.DateOnly))
	if r.Commit != "" {
		fmt.Fprintf(&b, ", commit %s", r.Commit)
	}
	if r.Pause != "" {
		fmt.Fprintf(&b, ", %s of rest before each replay", r.Pause)
	}
	b.WriteByte('\n')
	fmt.Fprintf(&b, "%-26s %-34s %10s %7s %9s %8s %6s %9s\n", "kernel", "shape", "us", "spread", "TFLOP/s", "GB/s",
		"roof", "x peer")
	for _, x := range r.Results {
		flops, peer := "", ""
		if x.TFLOPs > 0 {
			flops = fmt.Sprintf("%.1f", x.TFLOPs)
		}
		if x.PeerShare > 0 {
			peer = fmt.Sprintf("%.2f", x.PeerShare)
		}
		fmt.Fprintf(&b, "%-26s %-34s %10.2f %6.1f%% %9s %8.0f %5.0f%% %9s\n", x.Name, x.Shape, x.Micros, 100*x.Spread,
			flops, x.GBs, 100*x.RoofShare, peer)
	}
	return b.String()
}
