package nn

import (
	"fmt"

	"sparrow/kernel"
)

// Homes holds the routed experts of a model by layer, for devices that can move experts between memories.
type Homes struct {
	dev    kernel.Device
	layers map[int]kernel.Experts
}

// Homes returns the routed experts of all loaded layers; dev is the device for which they were loaded.
func (l *Loader) Homes(dev kernel.Device) Homes { return Homes{dev, l.homes} }

// SwapExperts makes expert `in` of a layer, which is in host memory, resident, and moves expert `out` to host memory,
// with the previous methods of `in`.
func (h Homes) SwapExperts(layer, in, out int) error {
	x, ok := h.layers[layer]
	if !ok {
		return fmt.Errorf("%w: layer %d has no experts to move", kernel.ErrArgument, layer)
	}
	return kernel.SwapExperts(h.dev, x, in, out)
}
