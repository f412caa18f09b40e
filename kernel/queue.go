package kernel

import "fmt"

// Queue enqueues operations on a device and keeps the first error; operations after an error are not enqueued. A pass
// is written as a list of operations and checks the error once, at its end. One goroutine uses it; only Place may be
// called by others.
type Queue struct {
	dev   Device
	mark  Marker // nil where the device takes no marks
	err   error
	stage string
	layer int
	place progress
}

// NewQueue makes a queue of a device's operations.
func NewQueue(dev Device) *Queue {
	q := &Queue{dev: dev, layer: -1}
	q.mark, _ = dev.(Marker)
	return q
}

// At sets the stage of the following operations, for errors: a stage of a layer, or of no layer where layer is
// negative.
func (q *Queue) At(stage string, layer int) {
	q.stage, q.layer = stage, layer
	q.place.at(stage, layer)
}

// next notes that an operation is enqueued, unless one before it failed.
func (q *Queue) next(op operation) bool {
	if q.err != nil {
		return false
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

// Embed enqueues [Embedder].
func (q *Queue) Embed(a EmbedArgs) {
	if q.next(opEmbed) {
		q.Fail(q.dev.Embed(a))
	}
}

// Norm enqueues [Normalizer].
func (q *Queue) Norm(a NormArgs) {
	if q.next(opNorm) {
		q.Fail(q.dev.Norm(a))
	}
}

// Multiply enqueues [Multiplier].
func (q *Queue) Multiply(a MultiplyArgs) {
	if q.next(opMultiply) {
		q.Fail(q.dev.Multiply(a))
	}
}

// Project enqueues [Projector].
func (q *Queue) Project(a ProjectArgs) {
	if q.next(opProject) {
		q.Fail(q.dev.Project(a))
	}
}

// Take enqueues [RowTaker].
func (q *Queue) Take(a TakeArgs) {
	if q.next(opTake) {
		q.Fail(q.dev.Take(a))
	}
}

// Angles enqueues [AngleTable].
func (q *Queue) Angles(a AngleArgs) {
	if q.next(opAngles) {
		q.Fail(q.dev.Angles(a))
	}
}

// Rotate enqueues [Rotator].
func (q *Queue) Rotate(a RotateArgs) {
	if q.next(opRotate) {
		q.Fail(q.dev.Rotate(a))
	}
}

// Absorb enqueues [Absorber].
func (q *Queue) Absorb(a AbsorbArgs) {
	if q.next(opAbsorb) {
		q.Fail(q.dev.Absorb(a))
	}
}

// Expand enqueues [Expander].
func (q *Queue) Expand(a ExpandArgs) {
	if q.next(opExpand) {
		q.Fail(q.dev.Expand(a))
	}
}

// StoreRows enqueues [RowStore].
func (q *Queue) StoreRows(a StoreArgs) {
	if q.next(opStoreRows) {
		q.Fail(q.dev.StoreRows(a))
	}
}

// GatherRows enqueues [RowGather].
func (q *Queue) GatherRows(a GatherArgs) {
	if q.next(opGatherRows) {
		q.Fail(q.dev.GatherRows(a))
	}
}

// StoreIndex enqueues [IndexStore].
func (q *Queue) StoreIndex(a IndexStoreArgs) {
	if q.next(opStoreIndex) {
		q.Fail(q.dev.StoreIndex(a))
	}
}

// GatherIndex enqueues [IndexGather].
func (q *Queue) GatherIndex(a IndexGatherArgs) {
	if q.next(opGatherIndex) {
		q.Fail(q.dev.GatherIndex(a))
	}
}

// ConvertPages enqueues [PageConverter].
func (q *Queue) ConvertPages(a ConvertArgs) {
	if q.next(opConvertPages) {
		q.Fail(q.dev.ConvertPages(a))
	}
}

// IndexQuery enqueues [IndexQuerier].
func (q *Queue) IndexQuery(a IndexQueryArgs) {
	if q.next(opIndexQuery) {
		q.Fail(q.dev.IndexQuery(a))
	}
}

// Scores enqueues [IndexScorer].
func (q *Queue) Scores(a ScoreArgs) {
	if q.next(opScores) {
		q.Fail(q.dev.Scores(a))
	}
}

// Select enqueues [Selector].
func (q *Queue) Select(a SelectArgs) {
	if q.next(opSelect) {
		q.Fail(q.dev.Select(a))
	}
}

// Locate enqueues [Locator].
func (q *Queue) Locate(a LocateArgs) {
	if q.next(opLocate) {
		q.Fail(q.dev.Locate(a))
	}
}

// SparseAttend enqueues [SparseAttender].
func (q *Queue) SparseAttend(a SparseArgs) {
	if q.next(opSparseAttend) {
		q.Fail(q.dev.SparseAttend(a))
	}
}

// DenseAttend enqueues [DenseAttender].
func (q *Queue) DenseAttend(a DenseArgs) {
	if q.next(opDenseAttend) {
		q.Fail(q.dev.DenseAttend(a))
	}
}

// Gate enqueues [Gater].
func (q *Queue) Gate(a GateArgs) {
	if q.next(opGate) {
		q.Fail(q.dev.Gate(a))
	}
}

// Route enqueues [Router].
func (q *Queue) Route(a RouteArgs) {
	if q.next(opRoute) {
		q.Fail(q.dev.Route(a))
	}
}

// Experts enqueues [ExpertRunner].
func (q *Queue) Experts(a ExpertArgs) {
	if q.next(opExperts) {
		q.Fail(q.dev.Experts(a))
	}
}

// HyperPre enqueues [HyperPreparer].
func (q *Queue) HyperPre(a HyperPreArgs) {
	if q.next(opHyperPre) {
		q.Fail(q.dev.HyperPre(a))
	}
}

// HyperPost enqueues [HyperPoster].
func (q *Queue) HyperPost(a HyperPostArgs) {
	if q.next(opHyperPost) {
		q.Fail(q.dev.HyperPost(a))
	}
}

// HyperHead enqueues [HyperHeader].
func (q *Queue) HyperHead(a HyperHeadArgs) {
	if q.next(opHyperHead) {
		q.Fail(q.dev.HyperHead(a))
	}
}

// HeadNorm enqueues [HeadNormalizer].
func (q *Queue) HeadNorm(a HeadNormArgs) {
	if q.next(opHeadNorm) {
		q.Fail(q.dev.HeadNorm(a))
	}
}

// Compress enqueues [Compressor].
func (q *Queue) Compress(a CompressArgs) {
	if q.next(opCompress) {
		q.Fail(q.dev.Compress(a))
	}
}

// Put enqueues [RowPutter].
func (q *Queue) Put(a PutArgs) {
	if q.next(opPut) {
		q.Fail(q.dev.Put(a))
	}
}

// StoreEntries enqueues [EntryStore].
func (q *Queue) StoreEntries(a EntryStoreArgs) {
	if q.next(opStoreEntries) {
		q.Fail(q.dev.StoreEntries(a))
	}
}

// StoreKeys enqueues [KeyStore].
func (q *Queue) StoreKeys(a KeyStoreArgs) {
	if q.next(opStoreKeys) {
		q.Fail(q.dev.StoreKeys(a))
	}
}

// DualAttend enqueues [DualAttender].
func (q *Queue) DualAttend(a DualArgs) {
	if q.next(opDualAttend) {
		q.Fail(q.dev.DualAttend(a))
	}
}

// FlatAttend enqueues [FlatAttender].
func (q *Queue) FlatAttend(a FlatArgs) {
	if q.next(opFlatAttend) {
		q.Fail(q.dev.FlatAttend(a))
	}
}

// Unpack enqueues [Unpacker].
func (q *Queue) Unpack(a UnpackArgs) {
	if q.next(opUnpack) {
		q.Fail(q.dev.Unpack(a))
	}
}

// Combine enqueues [Combiner].
func (q *Queue) Combine(a CombineArgs) {
	if q.next(opCombine) {
		q.Fail(q.dev.Combine(a))
	}
}

// RouteRoot enqueues [RootRouter].
func (q *Queue) RouteRoot(a RootRouteArgs) {
	if q.next(opRouteRoot) {
		q.Fail(q.dev.RouteRoot(a))
	}
}

// RouteHash enqueues [HashRouter].
func (q *Queue) RouteHash(a HashRouteArgs) {
	if q.next(opRouteHash) {
		q.Fail(q.dev.RouteHash(a))
	}
}

// Copy enqueues [Copier].
func (q *Queue) Copy(a CopyArgs) {
	if q.next(opCopy) {
		q.Fail(q.dev.Copy(a))
	}
}

// Candidates enqueues [CandidateFinder].
func (q *Queue) Candidates(a CandidateArgs) {
	if q.next(opCandidates) {
		q.Fail(q.dev.Candidates(a))
	}
}
