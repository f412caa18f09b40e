package verify

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/testkit/pair"
	"sparrow/internal/testkit/rounded"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/plan"
)

// Reference is the same checkpoint on the reference, which rounds where the device does.
//
// Devices with activations of float32 are compared with it operation by operation if rows of the cache are rounded:
// the effect of rounding on logits of random weights hides small faults, which equal inputs reveal. Whole passes are
// compared by tolerances (judge).
//
// For a device with activations of bf16, as GPUs have them (ref.Device.Rounded), three things are checked
// (judgeByReference):
//
//   - Operation by operation, with equal inputs: the results of the device equal those of the reference within 1 % of
//     their scale, and a head of a row of attention has a relative L2 error of at most 0.8 %. The choices of keys
//     and of experts are equal.
//   - As a whole: logits are within 1 % of their scale of those of the reference, which follows the choices of the
//     device; or, because one flipped rounding with random weights changes all later values, within twice the
//     distance between the reference and the reference with perturbed sums, as another order of terms would
//     perturb them. Choices that the reference would not have made have margins smaller than the differences of the
//     scores.
//   - Compared with the oracle: errors are at most twice those of the reference.
//
// For several ranks, each of which has a part of every operation, only the last of these is checked.
type Reference struct {
	both   *compared   // the device and the reference with equal inputs; nil for ranks
	own    *followed   // the reference; nil for activations of float32
	moved  *followed   // the reference with perturbed sums; nil for ranks and for activations of float32
	config plan.Config // configuration of the reference, if it judges ranks
}

// followed is the checkpoint on the reference, which follows the choices of the device.
type followed struct {
	model.Model
	dev *follower
}

// compared is the checkpoint on two devices.
type compared struct {
	model.Model
	recorder *recorder
	found    pair.Differences
}

// mostReferenceBytes is the maximum size of the weights of a checkpoint that is judged by the reference: plain Go
// multiplies about 7e8 numbers per second.
const mostReferenceBytes = 1 << 30

// NewReference loads a checkpoint on the reference, for comparison with the device on which the checkpoint was
// opened. The device loads its weights a second time.
func NewReference(src *family.Source, dev kernel.Device) (*Reference, error) {
	var r Reference
	var err error
	var second kernel.Device = &ref.Device{}
	if dev.Activation() == kernel.BF16 {
		if r.own, err = follow(src, dev, ref.Device{Rounded: true}); err != nil {
			return nil, err
		}
		if r.moved, err = follow(src, dev, ref.Device{Rounded: true, Moved: true}); err != nil {
			return nil, err
		}
		second = rounded.On(&ref.Device{Rounded: true}, dev.Hardware())
	}
	b := &compared{recorder: &recorder{Device: dev}}
	var both *pair.Device
	both = pair.On(b.recorder, second, func(c pair.Call) error {
		if err := errors.Join(c.First(), c.Second()); err != nil {
			return err
		}
		return both.Settle(c, b.found)
	})
	r.both = b
	b.Model, err = src.Load(both, nil)
	return &r, err
}

// NewRanksReference loads a checkpoint on the reference, for ranks with activations of bf16 that share it. config is
// resolved for the model as one device has it.
func NewRanksReference(src *family.Source, ranks kernel.Machine, config plan.Config) (*Reference, error) {
	own, err := follow(src, ranks, ref.Device{Rounded: true})
	return &Reference{own: own, config: config}, err
}

// follow loads a checkpoint on the reference.
func follow(src *family.Source, dev kernel.Machine, d ref.Device) (*followed, error) {
	if n := src.Weights.Bytes(); n > mostReferenceBytes {
		return nil, fmt.Errorf("verify: a device with activations of %v is judged by the reference, which computes in "+
			"plain Go; %d bytes of weights would take it days (at most %d are verified). Test such a checkpoint by "+
			"questions with known answers (sparrow eval --model)", dev.Activation(), n, int64(mostReferenceBytes))
	}
	f := &follower{Device: rounded.On(&d, dev.Hardware())}
	m, err := src.Load(f, nil)
	return &followed{m, f}, err
}

// Against is the comparison of a case with the reference.
type Against struct {
	Scale    float64 `json:"logit_scale"`    // largest logit of the reference
	Distance float64 `json:"distance"`       // median over positions of the largest difference, divided by Scale
	Floor    float64 `json:"distance_moved"` // the Distance of the reference with perturbed sums from the reference
	// Error and Noise are the errors of the reference against the oracle: see Case.MedianError and Case.LogitNoise.
	Error float64 `json:"reference_error"`
	Noise float64 `json:"reference_noise"`
	// Keys and Experts are the choices of the device that the reference would not have made.
	Keys    margins `json:"keys"`
	Experts margins `json:"experts"`
	// Operations has the differences operation by operation that are not zero.
	Operations map[string]OperationDifference `json:"operations"`
}

// OperationDifference is the difference between results of one kind of operation and the reference.
type OperationDifference struct {
	Calls   int     `json:"calls"`
	Unequal float64 `json:"unequal"` // share of the elements
	Worst   float64 `json:"worst"`   // largest difference, as a share of the largest value of its call
	Noise   float64 `json:"noise"`   // relative L2 error
	Row     float64 `json:"row"`     // relative L2 error of the worst row; for attention, of the worst head of a row
}

// compare runs a case on the reference and compares. out is the device's result.
func (r *Reference) compare(c *Case, g *Golden, out *outcome, o *Options, ratios []int) error {
	if r.own == nil {
		return r.beside(c, g, out, o)
	}
	r.own.dev.follow(nil)
	if r.both == nil {
		own, err := run(r.own.Model, r.config, g, options{chunk: o.Chunk})
		if err != nil {
			return err
		}
		alone := compare(g, own, c.TopK, ratios)
		c.checked = medianErrorColumn
		c.Rule = "the reference with the same rounding: errors against the oracle at most twice its own"
		c.judgeErrors(&alone)
		return nil
	}
	var own, beside, followed, moved *outcome
	r.both.recorder.made, r.both.found = choices{}, pair.Differences{}
	err := atOnce(func() (err error) {
		own, err = run(r.own.Model, o.Config, g, options{chunk: o.Chunk})
		return err
	}, func() (err error) {
		beside, err = run(r.both.Model, o.Config, g, options{chunk: o.Chunk})
		return err
	})
	if err != nil {
		return err
	}
	r.own.dev.follow(&r.both.recorder.made)
	r.moved.dev.follow(&r.both.recorder.made)
	err = atOnce(func() (err error) {
		followed, err = run(r.own.Model, o.Config, g, options{chunk: o.Chunk, given: out.greedy})
		return err
	}, func() (err error) {
		moved, err = run(r.moved.Model, o.Config, g, options{chunk: o.Chunk, given: out.greedy})
		return err
	})
	if err != nil {
		return err
	}
	alone := compare(g, own, c.TopK, ratios)
	a := &Against{Scale: scale(followed), Error: alone.MedianError, Noise: alone.LogitNoise,
		Keys: r.own.dev.keys, Experts: r.own.dev.route, Operations: map[string]OperationDifference{}}
	a.Distance, a.Floor = distance(out, followed)/a.Scale, distance(followed, moved)/a.Scale
	for name, d := range r.both.found {
		if d.Unequal > 0 {
			a.Operations[name] = OperationDifference{d.Calls, float64(d.Unequal) / float64(d.Elements), d.Worst,
				d.Noise(), d.Row}
		}
	}
	c.Reference = a
	c.judgeByReference(&alone, r.both.found)
	if !sameBits(out, beside) {
		c.addProblem("the passes give other bits than the same operations enqueued one by one")
	}
	return nil
}

// beside runs a case with float32 activations on both devices, operation by operation.
func (r *Reference) beside(c *Case, g *Golden, out *outcome, o *Options) error {
	judge(c, o.Config.Layout, o.Config.IndexLayout)
	r.both.recorder.made, r.both.found = choices{}, pair.Differences{}
	beside, err := run(r.both.Model, o.Config, g, options{chunk: o.Chunk})
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.both.found)) {
		c.judgeOperation(name, r.both.found[name], true)
	}
	if !sameBits(out, beside) {
		c.addProblem("the passes give other bits than the same operations enqueued one by one")
	}
	return nil
}

// atOnce runs two functions.
func atOnce(first, second func() error) error {
	var all sync.WaitGroup
	var errs [2]error
	all.Go(func() { errs[0] = first() })
	errs[1] = second()
	all.Wait()
	return errors.Join(errs[:]...)
}

// rows returns all logits of an outcome.
func (o *outcome) rows() [][]float32 { return slices.Concat(o.logits, o.decoded) }

// scale returns the largest logit.
func scale(o *outcome) (most float64) {
	for _, row := range o.rows() {
		for _, v := range row {
			most = max(most, math.Abs(float64(v)))
		}
	}
	return most
}

// distance returns the median over positions of the largest difference of logits.
func distance(a, b *outcome) float64 {
	var list []float64
	other := b.rows()
	for i, row := range a.rows() {
		list = append(list, maxDiff(row, other[i]))
	}
	return median(list)
}

// sameBits reports whether two outcomes have equal logits.
func sameBits(a, b *outcome) bool {
	return slices.EqualFunc(a.rows(), b.rows(), func(x, y []float32) bool {
		return slices.EqualFunc(x, y, func(v, w float32) bool { return math.Float32bits(v) == math.Float32bits(w) })
	})
}

// The limits for a device that is compared with the reference.
const (
	// within is the maximum difference of results, as a share of their largest value. bf16 rounds by at most half of
	// 2^-7 of the largest value, so the difference of one flipped rounding is below the limit.
	within = 0.01
	// ofHead is the maximum relative L2 error of a head of a row of attention. bf16 rounds results and probabilities;
	// 0.0049 is the maximum that was measured on an H200, over up to 1,000 random keys. A head that is scaled by 1.01
	// has an error of 0.01.
	ofHead = 0.008
	// exactRow is the maximum relative L2 error of a row of float32 activations: another order of sums gives an error
	// of 2e-6.
	exactRow = 1e-4
	// twice is the maximum ratio of errors to the errors of the reference, plain or with perturbed sums.
	twice = 2.0
)

// judgeByReference lists the values out of tolerance. alone is the comparison of the reference with the oracle.
func (c *Case) judgeByReference(alone *Case, found pair.Differences) {
	a := c.Reference
	c.checked = medianErrorColumn
	c.Rule = fmt.Sprintf("the reference with the same rounding: operations within %.0f %% of their scale, logits "+
		"within %.0f %% of theirs or twice the change by perturbed sums, errors against the oracle at most twice its "+
		"own",
		100*within, 100*within)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		c.judgeOperation(name, found[name], false)
	}
	if most := max(within, twice*a.Floor); !(a.Distance <= most) {
		c.addProblem("logits differ from the reference by %.2f %% of their scale, want at most %.2f %%", 100*a.Distance,
			100*most)
	}
	if n := a.Keys.Unexplained + a.Experts.Unexplained; n > 0 {
		c.addProblem("%d choices of keys or experts differ from those of the reference although their margins are "+
			"larger than the differences of the scores", n)
	}
	c.judgeErrors(alone)
}

// judgeErrors lists the errors against the oracle that are more than twice those of the reference.
func (c *Case) judgeErrors(alone *Case) {
	if !(c.MedianError <= twice*alone.MedianError) {
		c.addProblem("logits have median error %.3g against the oracle, want at most %.3g, twice the reference's error",
			c.MedianError, twice*alone.MedianError)
	}
	if !(c.LogitNoise <= twice*alone.LogitNoise) {
		c.addProblem("logits have relative L2 error %.3g against the oracle, want at most %.3g, twice the "+
			"reference's error", c.LogitNoise, twice*alone.LogitNoise)
	}
	for call := range c.Overlap {
		// A selection has few keys: half a key of the compared rows does not count as a difference.
		half := 0.5 / float64(tail*min(c.TopK, c.Visible))
		if lost, most := 1-c.Overlap[call], twice*(1-alone.Overlap[call])+half; lost > most {
			c.addProblem("selections of indexer call %d miss %.3f of the oracle's keys, want at most %.3f, twice what "+
				"the reference misses", call, lost, most)
		}
	}
}

// attends reports whether an argument is the output of an operation of attention.
func attends(name string) bool {
	return slices.Contains([]string{"SparseArgs.Out", "DenseArgs.Out", "DualArgs.Out", "FlatArgs.Out",
		"LatentArgs.Out"}, name)
}

// judgeOperation lists the differences of one argument of an operation that are out of tolerance; exact means that
// activations are float32.
func (c *Case) judgeOperation(name string, d *pair.Difference, exact bool) {
	share := float64(d.Unequal) / float64(max(d.Elements, 1))
	switch {
	case name == "IndexQueryArgs.Q": // the contract allows this buffer to be overwritten
	case d.DType == kernel.I32 && d.Unequal > 0:
		c.addProblem("%s: %d of %d integers differ from those of the reference, want 0", name, d.Unequal, d.Elements)
	case d.DType == kernel.I32:
	case d.DType == kernel.U8 || d.DType == kernel.E4M3:
		// Codes of eight bits: a flipped rounding is one step, which is several percent of the value.
		if share > within {
			c.addProblem("%s: %.2f %% of the bytes differ from those of the reference, want at most %.0f %%", name,
				100*share, 100*within)
		}
	case name == "ExpertArgs.Out" && !exact:
		// Values between the products of FP8 experts are also codes of eight bits.
		if n := d.Noise(); !(n <= within) {
			c.addProblem("%s has relative L2 error %.2f %% against the reference, want at most %.0f %%", name, 100*n,
				100*within)
		}
	case exact && !(d.Row <= exactRow):
		c.addProblem("%s: a row has relative L2 error %.2g against the reference, want at most %.0e", name, d.Row,
			exactRow)
	case attends(name) && !(d.Row <= ofHead):
		c.addProblem("%s: a head of a row has relative L2 error %.2f %% against the reference, want at most %.1f %%",
			name, 100*d.Row, 100*ofHead)
	case !(d.Worst <= within):
		c.addProblem("%s: the largest difference from the reference is %.2f %% of the largest value, want at most "+
			"%.0f %%", name, 100*d.Worst, 100*within)
	}
}
