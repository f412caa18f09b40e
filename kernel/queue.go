package kernel

import "fmt"

// Queue enqueues operations on a device and keeps the first error; operations after an error are not enqueued. A pass
// is written as a list of operations and checks the error once, at its end. One goroutine uses it; only Place may be
// called by others.
type Queue struct {
	dev   Device
	mark  Marker // nil where the device takes no marks
	place progress
	ranks Member
	// between is called before every operation, unless nil.
	between func() error
	err     error
	stage   string
	layer   int
}

// NewQueue makes a queue of a device's operations.
func NewQueue(dev Device) *Queue {
	q := &Queue{dev: dev, layer: -1}
	q.mark, _ = dev.(Marker)
	return q
}

// JoinRanks makes the queue that of one of several ranks: what the collective operations below need. On a device that
// runs alone these do nothing.
func (q *Queue) JoinRanks(m Member) { q.ranks = m }

// Ranks is the queue's place among the ranks.
func (q *Queue) Ranks() Member { return q.ranks }

// First reports whether the device is the first rank, or runs alone: the one that adds its part of a sum to rows that
// all ranks hold, where the others write theirs over them, before AllReduce.
func (q *Queue) First() bool { return q.ranks.Rank == 0 }

// At sets the stage of the following operations, for errors: a stage of a layer, or of no layer where layer is
// negative.
func (q *Queue) At(stage string, layer int) {
	q.stage, q.layer = stage, layer
	q.place.at(stage, layer)
}

// Between sets a function that is called before every operation, nil for none. It may use the queue for another pass;
// an error stops this one.
func (q *Queue) Between(f func() error) { q.between = f }

// pause calls the function between operations. Another pass may have set its stages.
func (q *Queue) pause() {
	stage, layer := q.stage, q.layer
	err := q.between()
	if q.stage != stage || q.layer != layer {
		q.At(stage, layer)
	}
	q.Fail(err)
}

// next notes that an operation is enqueued, unless one before it failed.
func (q *Queue) next(op operation) bool {
	if q.err != nil {
		return false
	}
	if q.between != nil {
		if q.pause(); q.err != nil {
			return false
		}
	}
	if q.ranks.Beats != nil {
		q.ranks.Beats.Add(1)
	}
	at := q.place.next(op)
	if q.mark != nil {
		q.Fail(q.mark.Mark(at))
	}
	return q.err == nil
}

// Fail stops the queue with an error of the caller.
func (q *Queue) Fail(err error) {
	if q.err == nil && err != nil {
		if q.err = err; q.stage != "" && q.layer >= 0 {
			q.err = fmt.Errorf("%s of layer %d: %w", q.stage, q.layer, err)
		} else if q.stage != "" {
			q.err = fmt.Errorf("%s: %w", q.stage, err)
		}
	}
}

// Done returns the first error and makes the queue usable again.
func (q *Queue) Done() error {
	err := q.err
	q.err, q.stage, q.layer = nil, "", -1
	return err
}

// enqueue runs an operation unless an earlier one failed. It takes a method of the interface, not of the device, which
// would be allocated.
func enqueue[A any](q *Queue, op operation, do func(Device, A) error, a A) {
	if q.next(op) {
		q.Fail(do(q.dev, a))
	}
}

// Embed enqueues [Embedder].
func (q *Queue) Embed(a EmbedArgs) { enqueue(q, opEmbed, Device.Embed, a) }

// Norm enqueues [Normalizer].
func (q *Queue) Norm(a NormArgs) { enqueue(q, opNorm, Device.Norm, a) }

// Multiply enqueues [Multiplier].
func (q *Queue) Multiply(a MultiplyArgs) { enqueue(q, opMultiply, Device.Multiply, a) }

// Project enqueues [Projector].
func (q *Queue) Project(a ProjectArgs) { enqueue(q, opProject, Device.Project, a) }

// Take enqueues [RowTaker].
func (q *Queue) Take(a TakeArgs) { enqueue(q, opTake, Device.Take, a) }

// Angles enqueues [AngleTable].
func (q *Queue) Angles(a AngleArgs) { enqueue(q, opAngles, Device.Angles, a) }

// Rotate enqueues [Rotator].
func (q *Queue) Rotate(a RotateArgs) { enqueue(q, opRotate, Device.Rotate, a) }

// Absorb enqueues [Absorber].
func (q *Queue) Absorb(a AbsorbArgs) { enqueue(q, opAbsorb, Device.Absorb, a) }

// Expand enqueues [Expander].
func (q *Queue) Expand(a ExpandArgs) { enqueue(q, opExpand, Device.Expand, a) }

// StoreRows enqueues [RowStore].
func (q *Queue) StoreRows(a StoreArgs) { enqueue(q, opStoreRows, Device.StoreRows, a) }

// GatherRows enqueues [RowGather].
func (q *Queue) GatherRows(a GatherArgs) { enqueue(q, opGatherRows, Device.GatherRows, a) }

// StoreIndex enqueues [IndexStore].
func (q *Queue) StoreIndex(a IndexStoreArgs) { enqueue(q, opStoreIndex, Device.StoreIndex, a) }

// GatherIndex enqueues [IndexGather].
func (q *Queue) GatherIndex(a IndexGatherArgs) { enqueue(q, opGatherIndex, Device.GatherIndex, a) }

// ConvertPages enqueues [PageConverter].
func (q *Queue) ConvertPages(a ConvertArgs) { enqueue(q, opConvertPages, Device.ConvertPages, a) }

// IndexQuery enqueues [IndexQuerier].
func (q *Queue) IndexQuery(a IndexQueryArgs) { enqueue(q, opIndexQuery, Device.IndexQuery, a) }

// Scores enqueues [IndexScorer].
func (q *Queue) Scores(a ScoreArgs) { enqueue(q, opScores, Device.Scores, a) }

// Select enqueues [Selector].
func (q *Queue) Select(a SelectArgs) { enqueue(q, opSelect, Device.Select, a) }

// Locate enqueues [Locator].
func (q *Queue) Locate(a LocateArgs) { enqueue(q, opLocate, Device.Locate, a) }

// SparseAttend enqueues [SparseAttender].
func (q *Queue) SparseAttend(a SparseArgs) { enqueue(q, opSparseAttend, Device.SparseAttend, a) }

// DenseAttend enqueues [DenseAttender].
func (q *Queue) DenseAttend(a DenseArgs) { enqueue(q, opDenseAttend, Device.DenseAttend, a) }

// Gate enqueues [Gater].
func (q *Queue) Gate(a GateArgs) { enqueue(q, opGate, Device.Gate, a) }

// Route enqueues [Router].
func (q *Queue) Route(a RouteArgs) { enqueue(q, opRoute, Device.Route, a) }

// Experts enqueues [ExpertRunner].
func (q *Queue) Experts(a ExpertArgs) { enqueue(q, opExperts, Device.Experts, a) }

// PostExperts enqueues [ExpertPoster], where the device is one. Experts must follow with the same arguments.
func (q *Queue) PostExperts(a ExpertArgs) {
	if p, ok := q.dev.(ExpertPoster); ok && q.next(opExperts) {
		q.Fail(p.PostExperts(a))
	}
}

// Tally enqueues [Tallier]; a device that is none is an error.
func (q *Queue) Tally(a TallyArgs) {
	if !q.next(opTally) {
		return
	}
	if d, ok := q.dev.(Tallier); ok {
		q.Fail(d.Tally(a))
		return
	}
	q.Fail(fmt.Errorf("%w: tally: %s counts no choices of experts", ErrUnsupported, q.dev.Name()))
}

// HyperPre enqueues [HyperPreparer].
func (q *Queue) HyperPre(a HyperPreArgs) { enqueue(q, opHyperPre, Device.HyperPre, a) }

// HyperPost enqueues [HyperPoster].
func (q *Queue) HyperPost(a HyperPostArgs) { enqueue(q, opHyperPost, Device.HyperPost, a) }

// HyperHead enqueues [HyperHeader].
func (q *Queue) HyperHead(a HyperHeadArgs) { enqueue(q, opHyperHead, Device.HyperHead, a) }

// HeadNorm enqueues [HeadNormalizer].
func (q *Queue) HeadNorm(a HeadNormArgs) { enqueue(q, opHeadNorm, Device.HeadNorm, a) }

// Compress enqueues [Compressor].
func (q *Queue) Compress(a CompressArgs) { enqueue(q, opCompress, Device.Compress, a) }

// Put enqueues [RowPutter].
func (q *Queue) Put(a PutArgs) { enqueue(q, opPut, Device.Put, a) }

// StoreEntries enqueues [EntryStore].
func (q *Queue) StoreEntries(a EntryStoreArgs) { enqueue(q, opStoreEntries, Device.StoreEntries, a) }

// StoreKeys enqueues [KeyStore].
func (q *Queue) StoreKeys(a KeyStoreArgs) { enqueue(q, opStoreKeys, Device.StoreKeys, a) }

// DualAttend enqueues [DualAttender].
func (q *Queue) DualAttend(a DualArgs) { enqueue(q, opDualAttend, Device.DualAttend, a) }

// FlatAttend enqueues [FlatAttender].
func (q *Queue) FlatAttend(a FlatArgs) { enqueue(q, opFlatAttend, Device.FlatAttend, a) }

// Unpack enqueues [Unpacker].
func (q *Queue) Unpack(a UnpackArgs) { enqueue(q, opUnpack, Device.Unpack, a) }

// Combine enqueues [Combiner].
func (q *Queue) Combine(a CombineArgs) { enqueue(q, opCombine, Device.Combine, a) }

// RouteRoot enqueues [RootRouter].
func (q *Queue) RouteRoot(a RootRouteArgs) { enqueue(q, opRouteRoot, Device.RouteRoot, a) }

// RouteHash enqueues [HashRouter].
func (q *Queue) RouteHash(a HashRouteArgs) { enqueue(q, opRouteHash, Device.RouteHash, a) }

// Copy enqueues [Copier].
func (q *Queue) Copy(a CopyArgs) { enqueue(q, opCopy, Device.Copy, a) }

// Candidates enqueues [CandidateFinder].
func (q *Queue) Candidates(a CandidateArgs) { enqueue(q, opCandidates, Device.Candidates, a) }

// Sample enqueues [TokenSampler].
func (q *Queue) Sample(a SampleArgs) { enqueue(q, opSample, Device.Sample, a) }

// collect runs an operation of all ranks unless an earlier one failed.
func collect[A any](q *Queue, op operation, do func(Collective, A) error, a A) {
	if q.ranks.Count() > 1 && q.next(op) {
		q.Fail(do(q.ranks.Comm, a))
	}
}

// AllReduce enqueues [Collective.AllReduce].
func (q *Queue) AllReduce(x Tensor) {
	collect(q, opAllReduce, Collective.AllReduce, AllReduceArgs{X: x})
}

// AllGather enqueues [Collective.AllGather].
func (q *Queue) AllGather(a AllGatherArgs) { collect(q, opAllGather, Collective.AllGather, a) }

// ShareRows enqueues [Collective.ShareRows].
func (q *Queue) ShareRows(a ShareArgs) { collect(q, opShareRows, Collective.ShareRows, a) }
