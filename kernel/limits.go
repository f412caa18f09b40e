package kernel

// Limits restrict a GPU to the properties of a smaller GPU, to test how a model runs on that one. A field that is zero,
// or above the device's own value, has no effect.
type Limits struct {
	Profile string // name of the simulated device; empty if only the other fields are given
	Arch    string // architecture of the simulated device in plans; empty means the device's own
	Memory  int64  // maximum bytes that may be allocated
	Shared  int    // bytes of shared memory per block
	SMs     int    // number of multiprocessors
	Bus     int64  // bytes per second between host and device
}

// Any reports whether any field is set.
func (l Limits) Any() bool { return l != Limits{} }
