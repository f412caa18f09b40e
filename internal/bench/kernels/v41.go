package kernels

import (
	"bytes"
	"errors"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

func v41Cases() []Case {
	return []Case{
		{Name: "read table", Shape: "512 tokens, 16 of 64k rows of 512", Make: readTable},
		{Name: "engram", Shape: "512 tokens, 4 streams of 1024", Make: engram},
		{Name: "block max", Shape: "64 rows of 32k scores, blocks of 64", Make: blockMax},
		{Name: "hyper sum", Shape: "512 tokens, 4 streams of 1024", Make: hyperSum},
	}
}

func readTable(r *Rig) *Op {
	const rows, dim, n = 64 << 10, 512, 16
	t := &kernel.Table{Values: r.empty(kernel.E4M3, rows, dim),
		Scales: r.empty(kernel.E8M0, rows, dim/kernel.TableScale)}
	repeat(host.Bytes(t.Values), r.code)
	repeat(host.Bytes(t.Scales), func() byte { return 119 + byte(r.rng.IntN(4)) })
	op := rowwise(r, kernel.TableArgs{Out: r.empty(kernel.F32, rowTokens, n*dim), Table: t,
		IDs: r.ints(rowTokens, n, r.order(rows))}, outs{"Out": 0})
	op.Bytes, op.Memory = rowTokens*n*dim, host.Bytes(t.Values)
	return op
}

func engram(r *Rig) *Op {
	const n = hyperStreams
	return inPlace(r, n*rowHidden, kernel.EngramArgs{KV: r.normal(rowTokens, (n+1)*rowHidden, 1),
		Weight: r.normal(n, rowHidden, 1), Eps: 1e-6})
}

func blockMax(r *Rig) *Op {
	const rows, keys, size = 64, 32 << 10, 64
	scores := r.normal(rows, keys, 1)
	return repeated(r, kernel.BlockMaxArgs{Out: r.empty(kernel.F32, rows, keys/size), Scores: scores,
		Lens: r.constant(rows, keys), Size: size}, "Out", sameBytes).reads(scores)
}

func hyperSum(r *Rig) *Op {
	x := r.normal(rowTokens, hyperStreams*rowHidden, 1)
	return rowwise(r, kernel.HyperSumArgs{Out: r.empty(kernel.F32, rowTokens, rowHidden), X: x,
		Weights: r.normal(rowTokens, hyperStreams, 1)}, outs{"Out": 1e-5}).reads(x)
}

// sameBytes checks that two tensors have equal bytes; values may be infinite.
func sameBytes(got, want kernel.Tensor) error {
	if !bytes.Equal(host.Bytes(got), host.Bytes(want)) {
		return errors.New("the bytes differ from the reference")
	}
	return nil
}
