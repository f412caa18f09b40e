package nn

import (
	"sparrow/internal/model/config"
	"sparrow/kernel"
)

// Site holds the parameters of hyper-connections for one sublayer and n residual streams.
type Site struct {
	Fn          kernel.Matrix // [2n+n*n, n*hidden]; [n, n*hidden] after the last layer
	Base, Scale kernel.Tensor
}

// Site loads the parameters of a Site, whose tensor names begin with prefix: a matrix [mix, columns] and vectors.
func (l *Loader) Site(at func(string) string, prefix string, columns, mix, scales int) Site {
	return Site{Fn: l.Matrix(at(prefix+"fn"), mix, columns), Base: l.Vector(at(prefix+"base"), mix),
		Scale: l.Vector(at(prefix+"scale"), scales)}
}

// Sublayer holds the tensors between the residual streams and a sublayer.
type Sublayer struct {
	config.Hyper
	normEps         float32
	Mix, post, comb kernel.Tensor // f32 [T, streams*(2+streams)], [T, streams], [T, streams*streams]
	X, Out          kernel.Tensor // [T, hidden]
}

// TakeSublayer takes the tensors of a Sublayer for the given number of rows from an arena.
func TakeSublayer(a *kernel.Arena, act kernel.DType, rows int, c *config.Config, h config.Hyper) Sublayer {
	n := h.Streams
	return Sublayer{Hyper: h, normEps: c.RMSEps, Mix: a.Take(kernel.F32, rows, n*(2+n)),
		post: a.Take(kernel.F32, rows, n), comb: a.Take(kernel.F32, rows, n*n), X: a.Take(act, rows, c.Hidden),
		Out: a.Take(act, rows, c.Hidden)}
}

// Run computes the sublayer's input from the streams with pre, normalises it, runs the sublayer, and adds the output to
// all streams.
func (t *Sublayer) Run(list *kernel.Builder, at *Site, norm kernel.Tensor, pre kernel.HyperPreArgs,
	run func(out, x kernel.Tensor)) {
	list.Add(kernel.MultiplyArgs{Out: t.Mix, X: pre.X, W: at.Fn})
	pre.Out, pre.Post, pre.Comb, pre.Mix, pre.Base, pre.Scale = t.X, t.post, t.comb, t.Mix, at.Base, at.Scale
	pre.Streams, pre.Rounds, pre.NormEps, pre.Eps = t.Streams, t.Rounds, t.normEps, t.Eps
	list.Add(pre)
	list.Add(kernel.NormArgs{Out: t.X, X: t.X, Weight: norm, Eps: t.normEps})
	run(t.Out, t.X)
	list.Add(kernel.HyperPostArgs{X: pre.X, Sub: t.Out, Post: t.post, Comb: t.comb, Streams: t.Streams})
}
