package kernel

// Capturer is a device that can record the operations that a pass enqueues and enqueue all of them again with one call.
type Capturer interface {
	// Capture records the operations that pass enqueues, and runs none of them. pass must not allocate, copy from or to
	// the host, or wait.
	Capture(pass func() error) (Graph, error)
}

// Graph is a recorded pass. It reads and writes the memory that the pass used when it was recorded.
type Graph interface {
	// Launch enqueues the recorded operations.
	Launch() error
	// Launches returns the number of recorded operations of the device: kernels, copies and fills.
	Launches() int
	// Bytes returns the memory of the graph on the device.
	Bytes() int64
	// Stale reports whether memory of the device was freed after the pass was recorded. If so, the graph must not be
	// launched, because it may use this memory.
	Stale() bool
	Close() error
}

// Reserver is a device whose operations use scratch memory in addition to their arguments.
type Reserver interface {
	// Reserve allocates the scratch memory of the operations of a pass, without running them. Afterwards neither this
	// pass nor a smaller pass allocates memory. MemoryUse returns the size of this memory ([MemoryOwner]).
	Reserve(pass func() error) error
}

// Joiner is a device that multiplies rows by several matrices in one launch, if Join was called with these matrices.
type Joiner interface {
	// Join prepares matrices for products in one launch: Project multiplies the same rows by these matrices, in this
	// order, into adjacent columns; or Multiply multiplies adjacent columns of one tensor, each by its own matrix. Each
	// matrix can still be used alone and in other products, with bitwise equal results. Matrices that cannot be joined
	// are not changed.
	Join(...Matrix) error
}
