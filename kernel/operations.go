package kernel

// Operations is the set of operations of a forward pass, one small interface per operation.
type Operations interface {
	Embedder
	Normalizer
	Multiplier
	Projector
	RowTaker
	AngleTable
	Rotator
	Absorber
	Expander
	RowStore
	RowGather
	IndexStore
	IndexGather
	PageConverter
	IndexQuerier
	IndexScorer
	Selector
	Locator
	SparseAttender
	DenseAttender
	Gater
	Router
	ExpertRunner
	HyperPreparer
	HyperPoster
	HyperHeader
	HeadNormalizer
	Compressor
	RowPutter
	EntryStore
	KeyStore
	DualAttender
	FlatAttender
	Unpacker
	Combiner
	RootRouter
	HashRouter
	Copier
	CandidateFinder
	TokenSampler
	Accepter
}
