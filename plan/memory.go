package plan

import "slices"

// Transient memory (dispatch section 17). A launch first scores and selects keys, then computes attention. The memory
// of the two stages is not needed at the same time, except for the selection, which both use.

// held holds the sizes that determine the memory of a launch of a segment.
type held struct {
	selectRow   int64 // bytes per row: the selection, used in both stages
	scoreRow    int64 // bytes per row of a chunk of scores
	indexKey    int64 // bytes per gathered indexer key
	attendRow   int64 // bytes per row: partial sums of a split key range
	attendRows  int64 // maximum rows whose partial sums are held at a time, 0: all rows
	attendFixed int64 // bytes: partial sums of every part, or the tiles of a dense call
	attendKey   int64 // bytes per key of the dense form: up-projected K and V
	gatherRow   int64 // bytes per row of the gathered or rewritten KV tensor
	gatherFixed int64 // bytes of the rows that indices of -1 refer to
}

// load describes the rows of a launch.
type load struct {
	rows, keys, indexKeys, gathered int64
	chunk                           int64 // rows whose scores are computed at a time
}

func (c *held) bytes(l load) int64 {
	index := c.indexKey*l.indexKeys + c.scoreRow*l.chunk
	attend := c.attendKey*l.keys + c.gatherRow*l.gathered + c.gatherFixed
	if c.attendRow > 0 {
		rows := l.rows
		if c.attendRows > 0 {
			rows = min(rows, c.attendRows)
		}
		attend += c.attendRow*rows + c.attendFixed
	}
	return c.selectRow*l.rows + max(index, attend)
}

// latentRowBytes returns the bytes of one gathered row of the absorbed form.
func latentRowBytes(m *Model, kv DType) int64 {
	switch {
	case m.Pooled():
		return int64(BF16Row1024.BytesPerToken())
	case kv == F32:
		return int64(F32Row2304.BytesPerToken())
	}
	return int64(BF16Row1152.BytesPerToken())
}

// upProjectedBytes returns the bytes of K and V of one key, over all heads.
func upProjectedBytes(m *Model, kv DType) int64 {
	size := int64(BF16.Bytes())
	if kv == F32 {
		size = int64(F32.Bytes())
	}
	return int64(m.Heads) * int64(m.QKDim+m.VDim) * size
}

// denseBytes returns the memory of a dense call over the given number of gathered keys.
func denseBytes(m *Model, kv DType, keys int64) int64 {
	return keys * (latentRowBytes(m, kv) + upProjectedBytes(m, kv))
}

// Sparse attention of the sm90 kernels cuts the keys of a row into segments and stores a partial result for each
// segment until they are combined. The positions of the cuts depend only on the widest possible list and on
// Config.SplitKeys. Launches are cut so that at most partWaves units per multiprocessor have partial results at a time.
// Package internal/cuda/op checks that its memory has the same size.
const (
	partBlock      = 64  // keys of a block
	v4SegmentKeys  = 512 // keys of a segment of V4 entries, or more in wide rows
	mostSegments   = 16
	unsegmented    = 10 // maximum blocks of a row that is not cut
	partWaves      = 32
	partValueBytes = 2 // bytes of a float16 partial value
	partStatBytes  = 4 * 4
	partFloatBytes = 4 // bytes of a float32 partial value, for bf16 rows that attend to every key
)

// latentScratch is like sparseScratch, for a row that attends to every key of a page table of the given number of
// tokens. The row is cut after split keys, or after an eighth more if that saves a part, into at least two parts.
func latentScratch(sms, heads, tokens, split int, l Layout) (row, rows int64) {
	if split == 0 {
		return 0, 0
	}
	longest := split * 9 / 8 / partBlock * partBlock
	segments := max(int64((tokens+longest-1)/longest), 2)
	units, value := segments*int64(roundUp(heads, unitHeads)/unitHeads), int64(partValueBytes)
	if l == BF16Row1152 {
		value = partFloatBytes
	}
	return units*unitHeads*latentDim*value + segments*int64(heads)*partStatBytes,
		max(partWaves*int64(sms)/units, 1)
}

// sparseScratch returns the bytes of the partial results of one row with the given number of heads and keys, and how
// many rows have partial results at a time. Both are 0 if rows are not cut. Rows are cut after every split keys; most
// is the maximum number of keys of a row in any plan.
func sparseScratch(sms, heads, keys, most, split int) (row, rows int64) {
	blocks := max((most+partBlock-1)/partBlock, 1)
	if split == 0 || blocks <= unsegmented {
		return 0, 0
	}
	each := max(split/partBlock, (blocks+mostSegments-1)/mostSegments)
	segments := max(int64((keys+partBlock*each-1)/(partBlock*each)), 2)
	units := segments * int64(roundUp(heads, unitHeads)/unitHeads)
	return units*unitHeads*latentDim*partValueBytes + segments*int64(heads)*partStatBytes,
		max(partWaves*int64(sms)/units, 1)
}

// denseTileBytes is the size of the description of one tile in scratch memory, for dense attention of the sm90 kernels.
// There can be as many tiles as rows.
const denseTileBytes = 16

// attendScratch returns sparseScratch for a row of the segment with the maximum number of keys. V4 rows attend to the
// window and, except for drafts, also to a compressed stream: the selection, or in layers of ratio 128 every entry of
// the table.
func attendScratch(cfg *Config, s *Segment, tableTokens int) (row, rows int64) {
	m, split := &cfg.Model, v4SegmentKeys
	if m.Dense() {
		return latentScratch(cfg.Hardware.SMs, m.Heads, roundUp(tableTokens, partBlock), cfg.SplitKeys.Keys(),
			cfg.Layout)
	}
	if !m.V4() {
		split = cfg.SplitKeys.Keys()
	}
	scratch := func(keys, most int) {
		if r, n := sparseScratch(cfg.Hardware.SMs, m.Heads, keys, most, split); r > row {
			row, rows = r, n
		}
	}
	switch {
	case m.Pooled():
		return pooledScratch(cfg, cfg.splitOf(s))
	case !m.V4():
		scratch(m.K, m.K)
	case s.Row == RowDraft:
		scratch(m.windowWidth(), m.windowWidth())
	default:
		if slices.Contains(m.Ratios, ratio4) {
			n := m.windowWidth() + roundUp(m.K, partBlock)
			scratch(n, n)
		}
		if slices.Contains(m.Ratios, ratio128) {
			scratch(m.windowWidth()+m.heavyWidth(tableTokens), m.windowWidth()+m.MostHeavy())
		}
	}
	return row, rows
}

// accumulatorRow returns the bytes of one row of partial output with its log-sum-exp, in float32.
func accumulatorRow(heads int) int64 { return int64(heads) * (latentDim + 1) * 4 }

// v4RowBytes is the size of one BF16 row of the V4 prefill workspace.
const v4RowBytes = (v4NopeDim + ropeDim) * 2

// gatheredRows returns the number of rows of the tensor into which a span's keys are gathered or rewritten.
func gatheredRows(cfg *Config, s *Segment, rows, keys int) int64 {
	switch {
	case s.Form == FormV4SparsePrefill:
		window := min(keys, rows+cfg.Model.Window-1)
		return int64(window + keys/ratio4)
	case s.Convert == ConvertRawToBlock:
		return int64(pagesOf(keys, cfg.Page) * cfg.Page)
	case s.Convert.Gathers():
		return int64(keys)
	}
	return 0
}

func pagesOf(tokens, page int) int { return (tokens + page - 1) / page }

func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// heldBy returns the memory of a segment whose form, kernel, conversion and indexer path are set. e is the catalogue
// entry of its kernel, tableTokens the number of tokens of a page table.
func heldBy(cfg *Config, e *Entry, s *Segment, tableTokens int) held {
	var c held
	if s.NeedIndices {
		c.selectRow = int64(cfg.Model.SelectionWidth(s.Form)) * 4
	}
	c.scoreRow = int64(s.Indexer.ScoreWidth) * 4
	if s.Indexer.Kind == IndexerRagged || s.Indexer.Kind == IndexerContiguous {
		c.indexKey = int64(cfg.IndexLayout.BytesPerToken())
	}
	switch {
	case s.Form == FormV4SparsePrefill:
		c.gatherRow = v4RowBytes
	case s.Convert == ConvertRawToBlock:
		c.gatherRow = int64(FP8Row656.BytesPerToken())
	case s.Convert == ConvertGatherRequant:
		c.gatherRow = int64(FP8Row576.BytesPerToken())
		c.gatherFixed = int64(cfg.Model.K * FP8Row576.BytesPerToken())
	case s.Convert.Gathers():
		c.gatherRow = latentRowBytes(&cfg.Model, cfg.KV)
	}
	if s.Form == FormDenseMHA {
		c.attendKey = upProjectedBytes(&cfg.Model, cfg.KV)
	}
	switch {
	case cfg.Hardware.Arch == CPU:
	case e.SplitKV:
		c.attendRow = accumulatorRow(s.KernelHeads)
		c.attendFixed = int64(cfg.Hardware.SplitParts(s.KernelHeads)) * c.attendRow
	case e.Segments:
		c.attendRow, c.attendRows = attendScratch(cfg, s, tableTokens)
	case s.Kernel == DenseRagged:
		c.attendRow, c.attendFixed = denseTileBytes, 2*denseTileBytes
	}
	return c
}

// oneRowBytes returns the minimum memory that a single row of a full context needs with a kernel.
func oneRowBytes(cfg *Config, cat *Catalogue, k Kernel, phase Phase) int64 {
	keys := cfg.Model.Context
	s := Segment{Row: RowSparsePrefill, Kernel: k, NeedIndices: !cfg.Model.Dense()}
	kind := IndexerRagged
	if phase == PhaseDecode {
		s.Row, s.NextN, kind = RowDecode, 1, IndexerPagedSplit
	}
	if !cfg.Model.Dense() {
		s.Indexer = Indexer{Kind: kind, ScoreWidth: cfg.Model.IndexKeys(keys)}
	}
	e := cat.Entry(k)
	shapeKernel(cfg, e, &s, true)
	c := heldBy(cfg, e, &s, keys)
	l := load{rows: 1, keys: int64(keys), indexKeys: int64(cfg.Model.IndexKeys(keys)), chunk: 1}
	if phase == PhasePrefill {
		l.gathered = gatheredRows(cfg, &s, 1, keys)
	}
	return c.bytes(l)
}
