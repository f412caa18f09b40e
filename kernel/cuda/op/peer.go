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

// halfBytes is the most that ranks exchange at once; each has two such pieces of memory. More goes in several launches.
const halfBytes = 16 << 20

// sharedBlocks is the most blocks of a rank that shares its GPU with others: those that wait leave most multiprocessors
// to those that are waited for.
const sharedBlocks = 8

// peer is a rank's kernel.Collective: kernels on the rank's own stream that read the memory of the others.
type peer struct {
	dev  *Device
	args cuda.AllReduceArgs // without x, bytes and type
	own  []*cuda.Buffer     // staging memory, flags and state
}

// Peers makes the collective operations of GPUs that reach each other's memory. Several may be the same GPU.
func (d *Device) Peers(all []kernel.Device, timeout time.Duration) (_ []kernel.Collective, err error) {
	if len(all) > cuda.MaxRanks {
		return nil, fmt.Errorf("%w: cuda: %d ranks, supported are up to %d", kernel.ErrUnsupported, len(all),
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
			return nil, fmt.Errorf("%w: cuda: rank %d is a %s, want GPUs that are opened once for each rank",
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
		p.dev.peer = p // which closes what follows
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
		if err := p.dev.stream.Sync(); err != nil { // others write its flags
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

// missing is an error where a rank did not come, from the word of the rank's state that says so.
func (p *peer) missing(word uint32) error {
	if word == 0 {
		return nil
	}
	return fmt.Errorf("%w: rank %d of %d did not come to a collective operation within %v; rank %d waited for it",
		kernel.ErrLost, word-1, p.args.Ranks, time.Duration(p.args.Timeout), p.args.Rank)
}

// AllReduce sums rows, in pieces.
func (p *peer) AllReduce(a kernel.AllReduceArgs) error {
	if err := p.dev.begin(&a); err != nil {
		return err
	}
	r := require{op: "all-reduce"}
	args := p.args
	args.Type = r.element("x", a.X)
	bytes := a.X.Extent()
	if r.aligned("x", a.X, 16); bytes%16 != 0 {
		r.fail("%d bytes, want a multiple of 16", bytes)
	}
	for from := int64(0); from < bytes && r.err == nil; from += halfBytes {
		piece := args
		piece.X, piece.Bytes = at(a.X).Add(from), min(bytes-from, halfBytes)
		r.err = p.dev.kernels.AllReduce(p.dev.stream, &piece)
	}
	return r.err
}

// AllGather puts the columns of all ranks side by side, some rows at a time.
func (p *peer) AllGather(a kernel.AllGatherArgs) error {
	n := int(p.args.Ranks)
	if err := errors.Join(p.dev.settle(), a.Check(n)); err != nil {
		return err
	}
	r := require{op: "all-gather"}
	r.aligned("x", a.X, 16)
	r.aligned("out", a.Out, 16)
	size := int64(a.X.DType.Size())
	g := cuda.GatherRanksArgs{Peers: p.args, XStride: int64(a.X.Stride) * size, OutStride: int64(a.Out.Stride) * size,
		RowBytes: r.count("bytes of a row", a.X.Cols*int(size))}
	if g.RowBytes%16 != 0 || int64(g.RowBytes) > halfBytes {
		r.fail("rows of %d bytes, want a multiple of 16 up to %d", g.RowBytes, halfBytes)
	}
	if r.err != nil || a.X.Rows == 0 {
		return r.err
	}
	step := halfBytes / int(g.RowBytes)
	for from := 0; from < a.X.Rows && r.err == nil; from += step {
		rows := min(a.X.Rows-from, step)
		piece := g
		piece.Peers.X, piece.Out = at(a.X.Slice(from, from+rows)), at(a.Out.Slice(from, from+rows))
		for k := range n {
			piece.Rows[k], piece.First[k] = int32(rows), int64(k)*int64(g.RowBytes)
		}
		r.err = p.dev.kernels.GatherRanks(p.dev.stream, &piece)
	}
	return r.err
}

// ShareRows gives every rank the rows of all, some of each rank at a time.
func (p *peer) ShareRows(a kernel.ShareArgs) error {
	n := int(p.args.Ranks)
	if err := errors.Join(p.dev.settle(), a.Check(n)); err != nil {
		return err
	}
	r := require{op: "share of rows"}
	r.aligned("x", a.X, 16)
	size := int64(a.X.DType.Size())
	g := cuda.GatherRanksArgs{Peers: p.args, RowBytes: r.count("bytes of a row", a.X.Cols*int(size))}
	g.XStride = int64(a.X.Stride) * size
	g.OutStride = g.XStride
	if g.RowBytes%16 != 0 || int64(g.RowBytes) > halfBytes {
		r.fail("rows of %d bytes, want a multiple of 16 up to %d", g.RowBytes, halfBytes)
	}
	if r.err != nil || a.X.Rows == 0 {
		return r.err
	}
	most := 0
	for k := range n {
		most = max(most, a.Bounds[k+1]-a.Bounds[k])
	}
	step := halfBytes / int(g.RowBytes)
	for from := 0; from < most && r.err == nil; from += step {
		piece := g
		piece.Out = at(a.X)
		for k := range n {
			first := min(a.Bounds[k]+from, a.Bounds[k+1])
			piece.Rows[k], piece.First[k] = int32(min(a.Bounds[k+1]-first, step)), int64(first)*g.XStride
		}
		piece.Peers.X = piece.Out.Add(piece.First[p.args.Rank])
		r.err = p.dev.kernels.GatherRanks(p.dev.stream, &piece)
	}
	return r.err
}

// ReduceScatter is not used by any model.
func (p *peer) ReduceScatter(kernel.ReduceScatterArgs) error { return p.unsupported("reduce-scatter") }

// Broadcast is not used by any model.
func (p *peer) Broadcast(kernel.BroadcastArgs) error { return p.unsupported("broadcast") }

func (p *peer) unsupported(op string) error {
	return fmt.Errorf("%w: cuda: %s between GPUs; supported are all-reduce, all-gather and share of rows",
		kernel.ErrUnsupported, op)
}

// local numbers things among those of a rank, in scratch memory that the caller gives back. Nothing is held.
func (d *Device) local(r *require, ids kernel.Tensor, part kernel.Part, count int32, fault uint32) (kernel.Tensor,
	cuda.Ptr, error) {
	bytes := max(4*int64(ids.Rows)*int64(ids.Cols), 16)
	p, err := d.scratch.Get(bytes)
	if err != nil {
		return ids, 0, err
	}
	args := cuda.PartIdsArgs{IDs: at(ids), Out: p, Faults: d.faults.Ptr(), IDStride: stride(ids),
		Rows: r.count("rows", ids.Rows), Columns: r.count("columns", ids.Cols), First: r.count("first", part.First),
		Count: count, All: r.count("all", part.Of), Fault: fault}
	if err := errors.Join(r.err, d.kernels.PartIDs(d.stream, &args)); err != nil {
		return ids, 0, errors.Join(err, d.scratch.Put(p))
	}
	out := kernel.Tensor{Buf: &Buffer{ptr: p, bytes: bytes}, DType: kernel.I32, Rows: ids.Rows, Cols: ids.Cols,
		Stride: ids.Cols}
	return out, p, nil
}
