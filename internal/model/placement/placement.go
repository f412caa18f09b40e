// Package placement determines where the experts of a model are stored and which device computes them: a Placement has
// a method for every expert of every layer.
//
// Methods are chosen when a model is loaded; if experts may move, two experts of a layer can exchange their methods
// later (Swaps). A method depends on the expert and on whether a row belongs to a prompt. It does not depend on the
// number of rows in a step, so the bits of a row are the same in any batch.
package placement

import (
	"fmt"
	"math"

	"sparrow/kernel"
)

// Method determines where an expert's weights are stored and which device computes it.
type Method = kernel.ExpertMethod

// Methods of experts.
const (
	Resident = kernel.Resident // in the memory of the device
	Computed = kernel.Computed // in host memory, computed by the CPU from rows that are copied to it
	Fetched  = kernel.Fetched  // in host memory, copied to the device for each use and computed there
)

// Placement holds the methods of all experts, by layer and expert. Layers are numbered as in the checkpoint: drafting
// layers follow the main layers. Lists of layers without experts are not used.
type Placement struct {
	Decode  [][]Method // for decode rows, verified drafts and drafting passes
	Prefill [][]Method // for prompt rows
	// Shared means that the copy of an expert that the CPU computes in decodes is also the one that is fetched for
	// prompts. The matrices must be Plain (kernel.ExpertWeights).
	Shared bool
}

// Uniform returns a placement in which the CPU computes the given share of every layer's experts in both phases: the
// experts with the highest numbers. With a share of 0 all experts are on the device, with a share of 1 none.
func Uniform(layers, experts int, hostShare float64) *Placement {
	return Split(layers, experts, hostShare, Computed, Computed)
}

// Split returns the placement of Uniform, with the given methods of the experts in host memory for decodes and for
// prompts.
func Split(layers, experts int, hostShare float64, decode, prefill Method) *Placement {
	onHost := int(math.Round(min(max(hostShare, 0), 1) * float64(experts)))
	p := &Placement{Decode: make([][]Method, layers), Prefill: make([][]Method, layers)}
	for l := range layers {
		p.Decode[l], p.Prefill[l] = make([]Method, experts), make([]Method, experts)
		for e := experts - onHost; e < experts; e++ {
			p.Decode[l][e], p.Prefill[l][e] = decode, prefill
		}
	}
	return p
}

// Layer returns the methods of a layer's experts. Without a placement all experts are resident.
func (p *Placement) Layer(layer int) kernel.ExpertMethods {
	if p == nil || layer < 0 || layer >= len(p.Decode) {
		return kernel.ExpertMethods{}
	}
	return kernel.ExpertMethods{Decode: p.Decode[layer], Prefill: p.Prefill[layer]}
}

// Resident lists the experts of a layer in device memory: those that are resident in at least one phase.
func (p *Placement) Resident(layer int) []int {
	return p.list(layer, func(decode, prefill Method) bool { return decode == Resident || prefill == Resident })
}

// OnHost lists the experts of a layer that have a copy in host memory: those that are not resident in at least one
// phase.
func (p *Placement) OnHost(layer int) []int {
	return p.list(layer, func(decode, prefill Method) bool { return decode != Resident || prefill != Resident })
}

func (p *Placement) list(layer int, in func(decode, prefill Method) bool) []int {
	var out []int
	m := p.Layer(layer)
	for e := range m.Decode {
		if in(m.Decode[e], m.Prefill[e]) {
			out = append(out, e)
		}
	}
	return out
}

// Check returns an error if the placement is not for the given number of layers, including drafting layers, and the
// given number of experts in each layer with experts.
func (p *Placement) Check(layers, experts int) error {
	if p == nil {
		return nil
	}
	if len(p.Decode) != layers || len(p.Prefill) != layers {
		return fmt.Errorf("placement: there are methods for %d layers of decode and %d of prefill, but the model has "+
			"%d layers with its drafting layers", len(p.Decode), len(p.Prefill), layers)
	}
	for l := range layers {
		if len(p.Decode[l]) != len(p.Prefill[l]) || len(p.Decode[l]) != experts && len(p.Decode[l]) != 0 {
			return fmt.Errorf("placement: layer %d has methods for %d experts of decode and %d of prefill, but the "+
				"model has %d experts", l, len(p.Decode[l]), len(p.Prefill[l]), experts)
		}
		for e := range p.Decode[l] {
			if p.Decode[l][e] > Fetched || p.Prefill[l][e] > Fetched {
				return fmt.Errorf("placement: expert %d of layer %d has method %v for decode and %v for prefill, "+
					"want %v, %v or %v", e, l, p.Decode[l][e], p.Prefill[l][e], Resident, Computed, Fetched)
			}
		}
	}
	return nil
}
