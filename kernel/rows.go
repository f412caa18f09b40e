package kernel

import "time"

// HostExperts are experts of a layer that workers on the host compute, for the device that has the others.
type HostExperts interface {
	// Layer returns the layer number for messages.
	Layer() int
	// Serve begins to answer the requests of a device in a mailbox, until the mailbox is closed.
	Serve(*Mailbox) error
	// Timeout returns how long a device waits for an answer.
	Timeout() time.Duration
	// Swap replaces in, which is computed here, by out, which was on a device. No exchange is in progress, and the
	// experts were prepared as Movable. After an error nothing has changed.
	Swap(in, out int) error
}

// HostedExperts are experts of which workers on the host compute some.
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
	// PostExperts begins the work of Experts with the same arguments, whose output it does not touch: operations
	// between the two run while the workers compute.
	PostExperts(ExpertArgs) error
}

// PostArgs begins the experts that follow in a list with the same arguments, on a device that is an ExpertPoster.
type PostArgs struct{ ExpertArgs }

// Name returns the name of the operation.
func (PostArgs) Name() string { return "post experts" }

func (a PostArgs) on(d Device) error { return run(d, ExpertPoster.PostExperts, a.ExpertArgs) }

// Waker is a device whose workers can be kept from sleeping between operations.
type Waker interface {
	// KeepAwake lets workers wait without sleeping, until it is called with false.
	KeepAwake(on bool)
}

// ExpertRowsArgs runs the chosen experts and writes the result of each to its own row: Results[t*k+j] = Down[e](
// silu(Gate[e] X[t]) * Up[e] X[t] ), e = IDs[t,j], with the clamps of GateArgs. A negative id is not an expert, and its
// row is not written.
type ExpertRowsArgs struct {
	Results Tensor // f32 [T*k, hidden]
	X       Tensor // f32 [T, hidden]
	IDs     Tensor // i32 [T, k]
	Experts Experts
	Limit   float32
}

// ExpertRower is a device that computes the results of experts without their sum, as workers on the host need them.
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
