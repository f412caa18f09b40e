package kernel

// Limits make a GPU behave like a smaller one, for tests and to plan a purchase. A field that is zero, or above
// the device's own figure, has no effect.
type Limits struct {
	Profile string // the device that is pretended; empty where figures alone are given
	Arch    string // the planner's name of its architecture; empty is the device's own
	Memory  int64  // bytes that may be allocated
	Shared  int    // bytes of shared memory of a block
	SMs     int    // multiprocessors
	Bus     int64  // bytes a second between host and device
}

// Any reports whether anything is limited.
func (l Limits) Any() bool { return l != Limits{} }
