package kernel

import "time"

// HostExperts are the experts of a layer that workers on the host compute. A device computes the layer's other experts.
type HostExperts interface {
	// Layer returns the layer number for messages.
	Layer() int
	// Serve begins to answer the requests of a device in a mailbox, until the mailbox is closed.
	Serve(*Mailbox) error
	// Timeout returns how long a device waits for an answer.
	Timeout() time.Duration
	// Stored returns the matrices of expert e as they are stored here, and Block the memory that contains the matrices
	// of all experts stored here. They are for experts that were prepared as Shared; e is an expert that is computed
	// here for some rows. Swap keeps their addresses.
	Stored(e int) (gate, up, down Weight)
	Block() []byte
	// Swap replaces expert in, which is computed here, by expert out, which was on a device. It is called while no
	// exchange is in progress, for experts that were prepared as Movable. If it returns an error, nothing was changed.
	Swap(in, out int) error
}

// StoredExperts are experts that a device in host memory has stored as copies in one block of memory, as
// ExpertWeights.Together asks.
type StoredExperts interface {
	Experts
	// Stored returns the matrices of expert i: those of the weights, in memory without gaps between rows.
	Stored(i int) (gate, up, down Weight)
	// Block returns the memory that contains the matrices of all experts.
	Block() []byte
}

// HostedExperts are experts of a layer of which workers on the host may compute some.
type HostedExperts interface {
	Experts
	// Hosted reports whether workers on the host compute some of the experts of this layer.
	Hosted() bool
}

// Hosted reports whether workers on the host compute some of the experts.
func Hosted(x Experts) bool {
	h, ok := x.(HostedExperts)
	return ok && h.Hosted()
}

// ExpertPoster is a device that passes rows to workers on the host before it runs experts.
type ExpertPoster interface {
	// PostExperts begins the work of Experts with the same arguments and does not write their output. Operations that
	// are enqueued between PostExperts and Experts run while the workers compute.
	PostExperts(ExpertArgs) error
}

// PostArgs begins the work of a later ExpertArgs in the list, with the same arguments, on a device that is an
// ExpertPoster.
type PostArgs struct{ ExpertArgs }

// Name returns the name of the operation.
func (PostArgs) Name() string { return "post experts" }

// Waker is a device whose workers can poll instead of sleeping between operations.
type Waker interface {
	// KeepAwake(true) makes workers poll for work instead of sleeping, until KeepAwake(false) is called.
	KeepAwake(on bool)
}

// ExpertRowsArgs runs the chosen experts and writes each result to its own row: Results[t*k+j] = Down[e]( silu(Gate[e]
// X[t]) * Up[e] X[t] ), e = IDs[t,j], with the clamps of GateArgs. For a negative id no expert runs and the row is not
// written.
type ExpertRowsArgs struct {
	Results Tensor // f32 [T*k, hidden]
	X       Tensor // f32 [T, hidden]
	IDs     Tensor // i32 [T, k]
	Experts Experts
	Limit   float32
}

// ExpertRower is a device that computes results of experts without adding them up. Workers on the host use it.
type ExpertRower interface {
	ExpertRows(ExpertRowsArgs) error
}

// Check validates the arguments.
func (a *ExpertRowsArgs) Check() error {
	c := checker{op: "expert rows"}
	t, h := a.X.Rows, a.X.Cols
	c.float("x", a.X, t, h)
	c.tensor("ids", a.IDs, I32, t, -1)
	c.float("results", a.Results, t*a.IDs.Cols, h)
	c.limit(a.Limit)
	c.experts(a.Experts, h)
	return c.err
}
