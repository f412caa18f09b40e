package nn

import (
	"fmt"

	"sparrow/kernel"
)

// Homes has the routed experts of a model by layer, which a device may move between memories.
type Homes struct {
	dev    kernel.Device
	layers map[int]kernel.Experts
}

// Homes returns the homes of all loaded layers, on the device that they were loaded for.
func (l *Loader) Homes(dev kernel.Device) Homes { return Homes{dev, l.homes} }

// SwapExperts makes expert `in` of a layer, which is in host memory, resident in place of expert `out`, which gets
// the methods of `in`.
func (h Homes) SwapExperts(layer, in, out int) error {
	x, ok := h.layers[layer]
	if !ok {
		return fmt.Errorf("%w: layer %d has no experts to move", kernel.ErrArgument, layer)
	}
	return kernel.SwapExperts(h.dev, x, in, out)
}
