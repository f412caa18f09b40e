package kernel

import "fmt"

// Queue enqueues operations on a device and keeps the first error; operations after an error are not enqueued. A pass
// is written as a list of operations and checks the error once, at its end.
type Queue struct {
	dev   Device
	err   error
	stage string
	layer int
}

// NewQueue makes a queue of a device's operations.
func NewQueue(dev Device) *Queue { return &Queue{dev: dev} }

// At sets the stage of the following operations, for errors: a stage of a layer, or of no layer where layer is
// negative.
func (q *Queue) At(stage string, layer int) { q.stage, q.layer = stage, layer }

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
func enqueue[A any](q *Queue, do func(Device, A) error, a A) {
	if q.err == nil {
		q.Fail(do(q.dev, a))
	}
}

// Embed enqueues [Embedder].
func (q *Queue) Embed(a EmbedArgs) { enqueue(q, Device.Embed, a) }

// Norm enqueues [Normalizer].
func (q *Queue) Norm(a NormArgs) { enqueue(q, Device.Norm, a) }

// Multiply enqueues [Multiplier].
func (q *Queue) Multiply(a MultiplyArgs) { enqueue(q, Device.Multiply, a) }

// Project enqueues [Projector].
func (q *Queue) Project(a ProjectArgs) { enqueue(q, Device.Project, a) }

// Take enqueues [RowTaker].
func (q *Queue) Take(a TakeArgs) { enqueue(q, Device.Take, a) }

// Angles enqueues [AngleTable].
func (q *Queue) Angles(a AngleArgs) { enqueue(q, Device.Angles, a) }

// Rotate enqueues [Rotator].
func (q *Queue) Rotate(a RotateArgs) { enqueue(q, Device.Rotate, a) }

// Absorb enqueues [Absorber].
func (q *Queue) Absorb(a AbsorbArgs) { enqueue(q, Device.Absorb, a) }

// Expand enqueues [Expander].
func (q *Queue) Expand(a ExpandArgs) { enqueue(q, Device.Expand, a) }

// StoreRows enqueues [RowStore].
func (q *Queue) StoreRows(a StoreArgs) { enqueue(q, Device.StoreRows, a) }

// GatherRows enqueues [RowGather].
func (q *Queue) GatherRows(a GatherArgs) { enqueue(q, Device.GatherRows, a) }

// StoreIndex enqueues [IndexStore].
func (q *Queue) StoreIndex(a IndexStoreArgs) { enqueue(q, Device.StoreIndex, a) }

// GatherIndex enqueues [IndexGather].
func (q *Queue) GatherIndex(a IndexGatherArgs) { enqueue(q, Device.GatherIndex, a) }

// ConvertPages enqueues [PageConverter].
func (q *Queue) ConvertPages(a ConvertArgs) { enqueue(q, Device.ConvertPages, a) }

// IndexQuery enqueues [IndexQuerier].
func (q *Queue) IndexQuery(a IndexQueryArgs) { enqueue(q, Device.IndexQuery, a) }

// Scores enqueues [IndexScorer].
func (q *Queue) Scores(a ScoreArgs) { enqueue(q, Device.Scores, a) }

// Select enqueues [Selector].
func (q *Queue) Select(a SelectArgs) { enqueue(q, Device.Select, a) }

// Locate enqueues [Locator].
func (q *Queue) Locate(a LocateArgs) { enqueue(q, Device.Locate, a) }

// SparseAttend enqueues [SparseAttender].
func (q *Queue) SparseAttend(a SparseArgs) { enqueue(q, Device.SparseAttend, a) }

// DenseAttend enqueues [DenseAttender].
func (q *Queue) DenseAttend(a DenseArgs) { enqueue(q, Device.DenseAttend, a) }

// Gate enqueues [Gater].
func (q *Queue) Gate(a GateArgs) { enqueue(q, Device.Gate, a) }

// Route enqueues [Router].
func (q *Queue) Route(a RouteArgs) { enqueue(q, Device.Route, a) }

// Experts enqueues [ExpertRunner].
func (q *Queue) Experts(a ExpertArgs) { enqueue(q, Device.Experts, a) }

// HyperPre enqueues [HyperPreparer].
func (q *Queue) HyperPre(a HyperPreArgs) { enqueue(q, Device.HyperPre, a) }

// HyperPost enqueues [HyperPoster].
func (q *Queue) HyperPost(a HyperPostArgs) { enqueue(q, Device.HyperPost, a) }

// HyperHead enqueues [HyperHeader].
func (q *Queue) HyperHead(a HyperHeadArgs) { enqueue(q, Device.HyperHead, a) }

// HeadNorm enqueues [HeadNormalizer].
func (q *Queue) HeadNorm(a HeadNormArgs) { enqueue(q, Device.HeadNorm, a) }

// Compress enqueues [Compressor].
func (q *Queue) Compress(a CompressArgs) { enqueue(q, Device.Compress, a) }

// Put enqueues [RowPutter].
func (q *Queue) Put(a PutArgs) { enqueue(q, Device.Put, a) }

// StoreEntries enqueues [EntryStore].
func (q *Queue) StoreEntries(a EntryStoreArgs) { enqueue(q, Device.StoreEntries, a) }

// StoreKeys enqueues [KeyStore].
func (q *Queue) StoreKeys(a KeyStoreArgs) { enqueue(q, Device.StoreKeys, a) }

// DualAttend enqueues [DualAttender].
func (q *Queue) DualAttend(a DualArgs) { enqueue(q, Device.DualAttend, a) }

// FlatAttend enqueues [FlatAttender].
func (q *Queue) FlatAttend(a FlatArgs) { enqueue(q, Device.FlatAttend, a) }

// Unpack enqueues [Unpacker].
func (q *Queue) Unpack(a UnpackArgs) { enqueue(q, Device.Unpack, a) }

// Combine enqueues [Combiner].
func (q *Queue) Combine(a CombineArgs) { enqueue(q, Device.Combine, a) }

// RouteRoot enqueues [RootRouter].
func (q *Queue) RouteRoot(a RootRouteArgs) { enqueue(q, Device.RouteRoot, a) }

// RouteHash enqueues [HashRouter].
func (q *Queue) RouteHash(a HashRouteArgs) { enqueue(q, Device.RouteHash, a) }

// Copy enqueues [Copier].
func (q *Queue) Copy(a CopyArgs) { enqueue(q, Device.Copy, a) }

// Candidates enqueues [CandidateFinder].
func (q *Queue) Candidates(a CandidateArgs) { enqueue(q, Device.Candidates, a) }
