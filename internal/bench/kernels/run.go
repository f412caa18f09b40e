package kernels

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sparrow/internal/bench/harness"
	"sparrow/internal/bench/peak"
	"sparrow/internal/machine"
	"sparrow/kernel"
	"sparrow/kernel/ref"
)

// Case is one operation at one shape.
type Case struct {
	Name, Shape string
	Called      string // other names of the operation that Match accepts
	// Group names cases whose times are compared. They are timed alternately.
	Group string
	// Also lists backends that are measured in addition to the chosen ones, because targets need them.
	Also []string
	// Only selects the backends that have the operation; nil means all. Threads lists the thread counts of the case;
	// nil means those of Options.
	Only    func(backend string) bool
	Threads []int
	// OfPeak means that the case is compared with the peak rate of the matrix unit. Rounds are repeated until the unit
	// has run at this rate in enough of them.
	OfPeak bool
	// Make prepares inputs and outputs in host memory.
	Make func(*Rig) *Op
}

// Names returns the names by which the case is selected.
func (c Case) Names() harness.Case {
	return harness.Case{Name: c.Name, Shape: c.Shape, Called: c.Called}
}

// Op is an operation with its tensors in host memory, which every CPU backend can use.
type Op struct {
	// Run computes the whole shape once.
	Run func(kernel.Device) error
	// Check compares the outputs of Run with the reference.
	Check func(ref kernel.Device) error
	// Poison overwrites the outputs, so that Check detects results that were not written.
	Poison func()
	FLOPs  float64 // floating-point operations of one run
	Bytes  float64 // minimum bytes of weights or cached rows that one run reads
	Memory []byte  // memory of these bytes; the rate of plainly reading it is the ceiling
	// Turn, if not nil, returns the next part of Memory to read. Runs and plain reads rotate over the parts, so that
	// none is in a CPU cache.
	Turn func() []byte
}

// Options selects what to measure and for how long.
type Options struct {
	Backends []kernel.Backend // backends of this build, best first
	// Kernels lists the backends to measure; empty means the best one.
	Kernels []string
	Threads []int // thread counts; nil means 1 and 2
	Rounds  int   // rounds per case; 0 means 9
	// BigBytes is the number of bytes of the weights that are read from DRAM; 0 means 1 GiB, larger than any CPU cache.
	BigBytes int
	// Partial means that the user selected some cases. Targets of other cases are then not reported.
	Partial  bool
	OneDNN   float64 // GFLOP/s of oneDNN's bf16 GEMM on this machine; 0 if not measured
	Progress harness.Progress
	enough   time.Duration // duration of a round of a short operation; 0 means the constant enough, and tests set less
}

// Run checks and times the cases. The error lists the cases that failed; the other cases still run. If ctx ends, the
// interrupted case and later ones are omitted.
func Run(ctx context.Context, cases []Case, o Options) (*Report, error) {
	o = o.withDefaults()
	chosen, err := o.chosen()
	if err != nil {
		return nil, err
	}
	r := &Report{Machine: machine.Here(), Date: time.Now().UTC(), Rounds: o.Rounds}
	rig := newRig(o.BigBytes)
	return r, harness.Each(ctx, grouped(cases), o.Progress, func(g group) error {
		return runGroup(ctx, r, rig, g, chosen, o)
	})
}

func (o Options) withDefaults() Options {
	if len(o.Threads) == 0 {
		o.Threads = []int{1, 2}
	}
	if o.Rounds == 0 {
		o.Rounds = 9
	}
	if o.BigBytes == 0 {
		o.BigBytes = 1 << 30
	}
	o.enough = cmp.Or(o.enough, enough)
	return o
}

// chosen returns the backends that o.Kernels selects.
func (o *Options) chosen() ([]kernel.Backend, error) {
	var out []kernel.Backend
	var names []string
	for _, b := range o.Backends {
		names = append(names, b.Name)
		if slices.Contains(o.Kernels, b.Name) || len(o.Kernels) == 0 && len(out) == 0 && b.Available() == nil {
			out = append(out, b)
		}
	}
	if len(out) == 0 || len(o.Kernels) > len(out) {
		return nil, fmt.Errorf("bench: kernels %s are unknown; want %s; cpu, the best of them on this "+
			"machine; and cuda, those of a GPU", strings.Join(o.Kernels, ", "),
			strings.Join(names, ", "))
	}
	return out, nil
}

// group is a list of cases that are timed alternately.
type group []Case

// Names returns the names of the group's first case.
func (g group) Names() harness.Case { return g[0].Names() }

// grouped returns the cases by group, in the order of the first case of each group.
func grouped(cases []Case) []group {
	var out []group
	at := map[string]int{}
	for _, c := range cases {
		if i, ok := at[c.Group]; ok && c.Group != "" {
			out[i] = append(out[i], c)
			continue
		}
		at[c.Group] = len(out)
		out = append(out, group{c})
	}
	return out
}

// runGroup measures one group of cases on every backend with every number of threads.
func runGroup(ctx context.Context, r *Report, rig *Rig, group group, chosen []kernel.Backend, o Options) error {
	ops := make([]*Op, len(group))
	for i, c := range group {
		ops[i] = c.Make(rig)
	}
	if err := rig.failed(); err != nil {
		return fmt.Errorf("bench: %s: %w", group[0].Name, err)
	}
	var errs []error
	for _, b := range o.Backends {
		for _, n := range o.Threads {
			var cases []Case
			var mine []*Op
			for i, c := range group {
				if c.runsOn(b, n, chosen) {
					cases, mine = append(cases, c), append(mine, ops[i])
				}
			}
			if len(cases) > 0 && ctx.Err() == nil {
				errs = append(errs, timeGroup(ctx, r, cases, mine, b, n, o))
			}
		}
	}
	return errors.Join(errs...)
}

// runsOn reports whether a case is measured on a backend with a number of threads.
func (c *Case) runsOn(b kernel.Backend, threads int, chosen []kernel.Backend) bool {
	wanted := slices.Contains(c.Also, b.Name) && b.Available() == nil ||
		slices.ContainsFunc(chosen, func(x kernel.Backend) bool { return x.Name == b.Name })
	return wanted && (c.Only == nil || c.Only(b.Name)) && (len(c.Threads) == 0 || slices.Contains(c.Threads, threads))
}

// timeGroup checks the operations of a group on one device and times them alternately.
func timeGroup(ctx context.Context, r *Report, cases []Case, ops []*Op, b kernel.Backend, threads int, o Options) (
	err error) {
	dev, err := b.Open(kernel.Options{Workers: threads})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	reader := peak.NewReader(threads)
	defer func() { err = errors.Join(err, reader.Close()) }()
	loop, _ := peak.LoopFor(strings.TrimPrefix(b.Name, "cpu-"))
	var errs []error
	var runs []*timing
	for i, c := range cases {
		if ctx.Err() != nil {
			break // Run returns the error of ctx
		}
		if err := checked(ops[i], dev); err != nil {
			errs = append(errs, fmt.Errorf("bench: %s on %s: %w", c.Names().Title(), b.Name, err))
			continue
		}
		runs = append(runs, &timing{c: c, op: ops[i], dev: dev, reader: reader, loop: loop,
			enough: o.enough})
	}
	if err := timeRounds(ctx, runs, o.Rounds, r.bestPeak(loop.Tier)); err != nil {
		return errors.Join(append(errs, err)...)
	}
	if ctx.Err() != nil {
		return errors.Join(errs...) // too few rounds for a result
	}
	for _, t := range runs {
		r.Results = append(r.Results, t.result(threads))
	}
	return errors.Join(errs...)
}

// checked runs an operation once after Poison, and compares the result with the reference.
func checked(op *Op, dev kernel.Device) error {
	op.Poison()
	if err := op.Run(dev); err != nil {
		return err
	}
	if err := op.Check(&ref.Device{}); err != nil {
		return fmt.Errorf("wrong result: %w", err)
	}
	return nil
}
