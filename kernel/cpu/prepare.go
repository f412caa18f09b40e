package cpu

import (
	"fmt"
	"slices"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// Prepare keeps a weight in its stored form: products widen it in registers. Up-projections of latent rows are
// converted to float32 if the attention kernels cannot read their stored form.
func (d *Device) Prepare(w kernel.Weight, role kernel.Role) (kernel.Matrix, error) {
	m, err := d.Memory.Matrix(w, role)
	if err != nil {
		return nil, err
	}
	if role == kernel.Latent && w.Scale.Given() && !blocksOf128(m) {
		return d.Memory.Matrix(widenedWeight(m), role)
	}
	d.prepareOnes(m)
	return m, nil
}

// widenedWeight returns a weight converted to float32.
func widenedWeight(m *host.Matrix) kernel.Weight {
	out, in := m.Out(), m.In()
	t := kernel.Tensor{Buf: make(kernel.HostBuffer, 4*out*in), DType: kernel.F32, Rows: out, Cols: in, Stride: in}
	for n := range out {
		m.Widen(host.RowF32(t, n), n)
	}
	return kernel.Weight{Data: t}
}

// experts are the prepared matrices of a layer's experts.
type experts struct {
	*host.Experts
	// packed means that products use packed columns. Gate and up share their packed input, and all experts share the
	// memory of packed inputs.
	packed bool
	// quantIn and quantBetween are the numbers of values that share a scale in quantised inputs, and in quantised rows
	// between gate and down; both are 0 if the products do not use quantised rows.
	quantIn, quantBetween int
	together              int // quantised rows of an expert begin at a multiple of this number
}

func (x *experts) quantised() bool { return x.quantIn > 0 }

// PrepareExperts keeps the matrices in their stored form.
func (d *Device) PrepareExperts(w kernel.ExpertWeights) (kernel.Experts, error) {
	if w.Split() {
		return prepareSplit(d, w)
	}
	all, err := d.Memory.Experts(w)
	if err != nil {
		return nil, err
	}
	other := func(like *host.Matrix) func(*host.Matrix) bool {
		return func(m *host.Matrix) bool { return !packs(d.tier, m) || orderFor(m) != orderFor(like) }
	}
	in, between := other(all.Gate[0]), other(all.Down[0])
	x := &experts{Experts: all}
	x.packed = !slices.ContainsFunc(all.Gate, in) && !slices.ContainsFunc(all.Up, in) &&
		!slices.ContainsFunc(all.Down, between)
	in, between = otherGroup(d.tier, all.Gate[0]), otherGroup(d.tier, all.Down[0])
	if !slices.ContainsFunc(all.Gate, in) && !slices.ContainsFunc(all.Up, in) &&
		!slices.ContainsFunc(all.Down, between) {
		x.together = d.tier.BlockTogether()
		x.quantIn, x.quantBetween = quantGroup(d.tier, all.Gate[0]), quantGroup(d.tier, all.Down[0])
		if oneByOne(d.tier, all.Gate[0]) && oneByOne(d.tier, all.Down[0]) {
			x.together = 1
		}
	}
	for _, m := range slices.Concat(all.Gate, all.Up, all.Down) {
		d.prepareOnes(m)
	}
	return x, nil
}

// ReplaceExpert replaces the matrices of expert i.
func (d *Device) ReplaceExpert(x kernel.Experts, i int, w kernel.ExpertWeights) error {
	own, ok := x.(*experts)
	if !ok {
		return fmt.Errorf("%w: replace expert: the experts were prepared by another device", kernel.ErrArgument)
	}
	return d.Memory.Replace(own.Experts, i, w)
}

// oneByOne reports whether products with a weight read quantised rows one at a time on every tier.
func oneByOne(tier *vec.Tier, m *host.Matrix) bool {
	group := quantGroup(tier, m)
	return groupCodes(m) != 0 || group == vec.QuantRows32 || group == vec.QuantRows256
}

// otherGroup returns a function that reports whether rows quantised for like cannot be multiplied by a matrix.
func otherGroup(tier *vec.Tier, like *host.Matrix) func(*host.Matrix) bool {
	group := quantGroup(tier, like)
	return func(m *host.Matrix) bool { return group == 0 || quantGroup(tier, m) != group }
}
