package op

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

var _ kernel.Peer = (*Device)(nil)

// halfBytes is the maximum size in bytes of one exchange between ranks; each rank has two buffers of this size. Larger
// exchanges take several launches.
const halfBytes = 16 << 20

// sharedBlocks is the maximum number of blocks of a rank that shares its GPU with other ranks: the blocks of ranks that
// wait then occupy only a few multiprocessors.
const sharedBlocks = 8

// peer is a rank's kernel.Collective: kernels on the rank's own stream that read the memory of the other ranks.
type peer struct {
	dev  *Device
	args cuda.AllReduceArgs // arguments without X, Bytes and Type
	own  []*cuda.Buffer     // staging memory, flags and state
}

// Peers makes the collective operations of GPUs that can access each other's memory. Several ranks may use one GPU.
func (d *Device) Peers(all []kernel.Device, timeout time.Duration) (_ []kernel.Collective, err error) {
	if len(all) > cuda.MaxRanks {
		return nil, fmt.Errorf("%w: cuda: there are %d ranks, want at most %d", kernel.ErrUnsupported, len(all),
			cuda.MaxRanks)
	}
	if timeout <= 0 || timeout > time.Hour {
		timeout = time.Hour
	}
	shared := cuda.AllReduceArgs{Half: halfBytes, Timeout: int64(timeout), Ranks: int32(len(all))}
	seen := map[int]bool{}
	var list []*peer
	for r, x := range all {
		dev, ok := x.(*Device)
		if !ok || dev.peer != nil || slices.Contains(all[:r], x) {
			return nil, fmt.Errorf("%w: cuda: rank %d is a %s, want a GPU that was opened separately for each rank",
				kernel.ErrArgument, r, x.Name())
		}
		if n := dev.gpu.Properties().Ordinal; seen[n] {
			shared.Blocks = sharedBlocks
		} else {
			seen[n] = true
		}
		for _, other := range all[:r] {
			from := other.(*Device)
			if err := errors.Join(dev.gpu.Reaches(from.gpu), from.gpu.Reaches(dev.gpu)); err != nil {
				return nil, err
			}
		}
		list = append(list, &peer{dev: dev})
	}
	for r, p := range list {
		p.dev.peer = p // closing the device frees the memory that is allocated below
		if shared.Staging[r], err = p.take(2 * halfBytes); err != nil {
			return nil, err
		}
		if shared.Flags[r], err = p.take(cuda.ReduceFlagBytes); err != nil {
			return nil, err
		}
		if p.args.State, err = p.take(cuda.ReduceStateBytes); err != nil {
			return nil, err
		}
	}
	var out []kernel.Collective
	for r, p := range list {
		state := p.args.State
		p.args = shared
		p.args.Rank, p.args.State = int32(r), state
		if err := p.dev.stream.Sync(); err != nil { // other ranks write this rank's flags
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// take allocates zeroed memory.
func (p *peer) take(bytes int64) (cuda.Ptr, error) {
	b, err := p.dev.gpu.Alloc(bytes)
	if err != nil {
		return 0, err
	}
	p.own = append(p.own, b)
	return b.Ptr(), p.dev.stream.Fill(b.Ptr(), 0, bytes)
}

func (p *peer) close() error {
	if p == nil {
		return nil
	}
	var err error
	for _, b := range p.own {
		err = errors.Join(err, b.Free())
	}
	return err
}

// missing returns an error if the rank's state word has the number of a rank that did not arrive.
func (p *peer) missing(word uint32) error {
	if word == 0 {
		return nil
	}
	return fmt.Errorf("%w: rank %d of %d did not reach a collective operation within %v; rank %d waited for it",
		kernel.ErrLost, word-1, p.args.Ranks, time.Duration(p.args.Timeout), p.args.Rank)
}

// AllReduce adds rows over all ranks, in launches of at most halfBytes.
func (p *peer) AllReduce(a kernel.AllReduceArgs) error {
	if err := p.dev.begin(&a); err != nil {
		return err
	}
	r := require{op: "all-reduce"}
	args := p.args
	args.Type = r.element("x", a.X)
	bytes := a.X.Extent()
	if r.aligned("x", a.X, 16); bytes%16 != 0 {
		r.fail("there are %d bytes, want a multiple of 16", bytes)
	}
	for from := int64(0); from < bytes && r.err == nil; from += halfBytes {
		piece := args
		piece.X, piece.Bytes = at(a.X).Add(from), min(bytes-from, halfBytes)
		r.err = cuda.AllReduce(p.dev.kernels, p.dev.stream, &piece)
	}
	return r.err
}

// AllGather concatenates the columns of all ranks.
func (p *peer) AllGather(a kernel.AllGatherArgs) error {
	n := int(p.args.Ranks)
	if err := errors.Join(p.dev.settle(), a.Fits(n)); err != nil {
		return err
	}
	var of [cuda.MaxRanks]gathered
	for k := range n {
		of[k] = gathered{rows: a.X.Rows, first: int64(k*a.X.Cols) * int64(a.X.DType.Size())}
	}
	return p.gather("all-gather", a.X, a.Out, &of)
}

// ShareRows copies the rows of all ranks to every rank.
func (p *peer) ShareRows(a kernel.ShareArgs) error {
	n := int(p.args.Ranks)
	if err := errors.Join(p.dev.settle(), a.Fits(n)); err != nil {
		return err
	}
	var of [cuda.MaxRanks]gathered
	for k := range n {
		of[k] = gathered{rows: a.Bounds[k+1] - a.Bounds[k],
			first: int64(a.Bounds[k]*a.X.Stride) * int64(a.X.DType.Size())}
	}
	return p.gather("share of rows", a.X.Slice(a.Bounds[p.args.Rank], a.Bounds[p.args.Rank+1]), a.X, &of)
}

// Broadcast copies the rows of one rank to all other ranks.
func (p *peer) Broadcast(a kernel.BroadcastArgs) error {
	if err := errors.Join(p.dev.settle(), a.Fits(int(p.args.Ranks))); err != nil {
		return err
	}
	var of [cuda.MaxRanks]gathered
	of[a.From].rows = a.X.Rows
	return p.gather("broadcast", a.X, a.X, &of)
}

// gathered describes the rows that a rank contributes to a gather: their number, and their offset in bytes in the
// result.
type gathered struct {
	rows  int
	first int64
}

// gather copies the rows x of each rank to their positions in out on all ranks, in launches of at most halfBytes.
func (p *peer) gather(op string, x, out kernel.Tensor, of *[cuda.MaxRanks]gathered) error {
	r := require{op: op}
	size := x.DType.Size()
	g := cuda.GatherRanksArgs{Peers: p.args, RowBytes: r.count("bytes of a row", x.Cols*size),
		XStride: int64(x.Stride * size), OutStride: int64(out.Stride * size)}
	unit := int64(16)
	if g.RowBytes%16 != 0 {
		unit = 4
	}
	r.aligned("x", x, unit)
	r.aligned("out", out, unit)
	if int64(g.RowBytes)%unit != 0 || int64(g.RowBytes) > halfBytes {
		r.fail("rows have %d bytes, want a multiple of 4 up to %d", g.RowBytes, halfBytes)
	}
	most := 0
	for _, k := range of {
		most = max(most, k.rows)
	}
	if r.err != nil || most == 0 {
		return r.err
	}
	step := halfBytes / int(g.RowBytes)
	for from := 0; from < most && r.err == nil; from += step {
		piece := g
		piece.Peers.X, piece.Out = at(x).Add(int64(from)*g.XStride), at(out).Add(int64(from)*g.OutStride)
		for k, part := range of {
			piece.Rows[k], piece.First[k] = int32(max(min(part.rows-from, step), 0)), part.first
		}
		r.err = cuda.GatherRanks(p.dev.kernels, p.dev.stream, &piece)
	}
	return r.err
}

// ReduceScatter adds the rank's columns over all ranks, in launches of at most halfBytes.
func (p *peer) ReduceScatter(a kernel.ReduceScatterArgs) error {
	n := int(p.args.Ranks)
	if err := errors.Join(p.dev.settle(), a.Fits(n)); err != nil {
		return err
	}
	r := require{op: "reduce-scatter"}
	size := a.X.DType.Size()
	g := cuda.ReduceScatterArgs{Peers: p.args, XStride: int64(a.X.Stride * size), OutStride: int64(a.Out.Stride * size),
		RowBytes: r.count("bytes of a row", a.Out.Cols*size)}
	g.Peers.Type = r.element("x", a.X)
	r.aligned("x", a.X, 16)
	r.aligned("out", a.Out, 16)
	whole := int(g.RowBytes) * n
	if g.RowBytes%16 != 0 || whole > halfBytes {
		r.fail("rows have %d bytes for each of %d ranks, want a multiple of 16 and at most %d for all", g.RowBytes, n,
			halfBytes)
	}
	if r.err != nil || a.X.Rows == 0 {
		return r.err
	}
	step := halfBytes / whole
	for from := 0; from < a.X.Rows && r.err == nil; from += step {
		to := min(a.X.Rows, from+step)
		piece := g
		piece.Peers.X, piece.Out, piece.Rows = at(a.X.Slice(from, to)), at(a.Out.Slice(from, to)), int32(to-from)
		r.err = cuda.ReduceScatter(p.dev.kernels, p.dev.stream, &piece)
	}
	return r.err
}

// localExperts computes the indices of ids within a rank's part, in scratch memory that the caller frees. No operation
// may be delayed.
func localExperts(d *Device, r *require, ids kernel.Tensor, part kernel.Part, count int32, fault uint32) (kernel.Tensor,
	cuda.Ptr, error) {
	bytes := max(4*int64(ids.Rows)*int64(ids.Cols), 16)
	p, err := d.scratch.Get(bytes)
	if err != nil {
		return ids, 0, err
	}
	args := cuda.PartIdsArgs{IDs: at(ids), Out: p, Faults: d.faults.Ptr(), IDStride: stride(ids),
		Rows: r.count("rows", ids.Rows), Columns: r.count("columns", ids.Cols), First: r.count("first", part.First),
		Count: count, All: r.count("all", part.Of), Fault: fault}
	if err := errors.Join(r.err, cuda.PartIDs(d.kernels, d.stream, &args)); err != nil {
		return ids, 0, errors.Join(err, d.scratch.Put(p))
	}
	out := kernel.Tensor{Buf: &Buffer{ptr: p, bytes: bytes}, DType: kernel.I32, Rows: ids.Rows, Cols: ids.Cols,
		Stride: ids.Cols}
	return out, p, nil
}
