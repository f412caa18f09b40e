package sparrow

import (
	"errors"
	"fmt"
	"math"

	"sparrow/kernel"
	"sparrow/kernel/offload"
	"sparrow/model/family"
	"sparrow/model/placement"
)

// HostExperts says which experts of a model are in host memory, beside a device that has the others (docs/offload.md).
// The zero value keeps all of them on the device. Answers do not depend on what else runs, but the CPU's kernels round
// otherwise than a GPU's: another share may answer with other words.
type HostExperts struct {
	// Share is how many of every layer's experts are in host memory, from 0 to 1: those of the highest numbers.
	Share float64
	// Decode and Prefill are what is done with these for decodes and for prompts: placement.Computed by the CPU, which
	// the zero value means too, or placement.Fetched to the device.
	Decode, Prefill placement.Method
	// Placement, in place of Share, says it of every expert.
	Placement *placement.Placement
}

func (h *HostExperts) any() bool { return h.Share > 0 || h.Placement != nil }

// validate refuses what cannot be placed.
func (h *HostExperts) validate(deterministic bool, ranks int) error {
	if !(h.Share >= 0 && h.Share <= 1) {
		return fmt.Errorf("HostExperts.Share is %v, want a share from 0 to 1", h.Share)
	}
	if h.any() && ranks > 1 {
		return fmt.Errorf("HostExperts on %d ranks, supported is one", ranks)
	}
	all := HostExperts{Share: math.Ceil(h.Share), Decode: h.Decode, Prefill: h.Prefill, Placement: h.Placement}
	if deterministic && !all.place(1, 1).OneArithmetic() {
		return errors.New("HostExperts with Policy.Deterministic: experts are computed by the CPU in one phase and " +
			"by the device in the other, whose sums round differently; give both phases one method")
	}
	return nil
}

// place is the placement of a model with that many layers and experts.
func (h *HostExperts) place(layers, experts int) *placement.Placement {
	if h.Placement != nil || h.Share == 0 {
		return h.Placement
	}
	either := func(m placement.Method) placement.Method {
		if m == placement.Resident {
			return placement.Computed
		}
		return m
	}
	return placement.Split(layers, experts, h.Share, either(h.Decode), either(h.Prefill))
}

// OpenHost opens what computes the experts in host memory: the best kernels of the CPU, with a copy of their weights.
// Without such experts it opens nothing.
func OpenHost(r *kernel.Registry, src *family.Source, h HostExperts, workers int) (family.Placed, error) {
	if !h.any() {
		return family.Placed{}, nil
	}
	dev, err := r.Open("cpu", kernel.Options{Workers: workers, Pack: true})
	if err != nil {
		return family.Placed{}, err
	}
	host, err := offload.New(dev, offload.Options{})
	if err != nil {
		return family.Placed{}, errors.Join(err, dev.Close())
	}
	return family.Placed{Placement: h.place(src.ExpertLayers()), Host: host}, nil
}
