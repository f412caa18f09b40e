package cuda

import "sparrow/layout"

// IndexRecipeView describes how an indexer vector of 128 values is prepared for the FP8 score kernels. Keys and queries
// of a model use the same recipe.
type IndexRecipeView struct {
	RopeAt      int32 // first of the 64 rotated dimensions: 0 (V3.2, GLM) or 64 (V4)
	Interleaved int32 // rotated pairs: 1 (2i, 2i+1), 0 (i, i+32)
	Hadamard    int32 // 1: rotate by the normalised Hadamard matrix
	ExactScale  int32 // 1: scale is amax/448, 0: rounded up to a power of two
}

// WriteIndexKeyArgs are the arguments of the index-key writer.
type WriteIndexKeyArgs struct {
	Pool      PoolView // pages of PageTokens keys of 128 bytes, then PageTokens float32 scales
	Rotary    RotaryView
	Recipe    IndexRecipeView
	Keys      Ptr     // bf16 [Tokens, 128]
	Gamma     Ptr     // f32 [128], or zero if the keys are already normalised
	Beta      Ptr     // f32 [128]; zero: RMSNorm, rounded to bf16
	Positions Ptr     // i32 [Tokens]
	Slots     Ptr     // i32 [Tokens]; negative: do not write
	Faults    Ptr     // one u32 of fault bits, or zero
	Epsilon   float64 // epsilon of the norm
	KeyStride int64   // elements between tokens, multiple of 4
	Tokens    int32
	Reserved  int32
}

// IndexQueryArgs are the arguments of the index-query preparation.
type IndexQueryArgs struct {
	Rotary       RotaryView
	Recipe       IndexRecipeView
	Queries      Ptr   // bf16 [Tokens, Heads, 128]
	Weights      Ptr   // f32 [Tokens, Heads]
	Positions    Ptr   // i32 [Tokens]
	Codes        Ptr   // e4m3 [Tokens, PaddedHeads, 128]; heads beyond Heads are zero
	Folded       Ptr   // f32 [Tokens, PaddedHeads]: weight * WeightScale * query scale; 0 beyond Heads
	Faults       Ptr   // one u32 of fault bits, or zero
	QueryStride  int64 // elements between tokens, multiple of 4
	WeightStride int64 // elements between tokens
	Tokens       int32
	Heads        int32
	PaddedHeads  int32   // at least Heads
	WeightScale  float32 // Heads^-1/2 * 128^-1/2
}

// GatherIndexSlotsArgs are the arguments of the index-key gather by slot list.
type GatherIndexSlotsArgs struct {
	Pool     PoolView
	Source   SlotListView
	Keys     Ptr // e4m3 [Count, 128]
	Scales   Ptr // f32 [Count]
	Faults   Ptr // one u32 of fault bits, or zero
	Count    int32
	Reserved int32
}

// GatherIndexPagesArgs are the arguments of the index-key gather through page tables.
type GatherIndexPagesArgs struct {
	Pool     PoolView
	Source   PageTableView
	Keys     Ptr   // e4m3 [Count, 128]
	Scales   Ptr   // f32 [Count]
	Faults   Ptr   // one u32 of fault bits, or zero
	Count    int32 // maximum rows to write; rows from Starts[Requests] on are not written
	Reserved int32
}

func (c *checks) recipe(r IndexRecipeView) {
	if r.RopeAt != 0 && r.RopeAt != layout.IndexDim-layout.RopeDim {
		c.fail("rotated dimensions start at %d, want 0 or %d", r.RopeAt, layout.IndexDim-layout.RopeDim)
	}
	c.flag("interleaved", r.Interleaved)
	c.flag("hadamard", r.Hadamard)
	c.flag("exact scale", r.ExactScale)
}

// flag checks a value that must be 0 or 1.
func (c *checks) flag(name string, v int32) {
	if v != 0 && v != 1 {
		c.fail("%s is %d, want 0 or 1", name, v)
	}
}

func (c *checks) indexPool(p PoolView) {
	c.pool(p, layout.IndexTokenBytes)
	c.multiple("index page tokens", int64(p.PageTokens), 4, 4)
}

// WriteIndexKeys normalises, rotates and quantises one indexer key per token and stores it in its page. The bytes
// equal those of layout.IndexFP8.Encode after the same steps with float64 sums in the LayerNorm.
func WriteIndexKeys(k *Kernels, s *Stream, a *WriteIndexKeyArgs) error {
	c := checks{kernel: "write_index_key"}
	a.check(&c)
	return runRows(k, s, &c, a.Tokens, shortRows, a)
}

func (a *WriteIndexKeyArgs) check(c *checks) {
	c.indexPool(a.Pool)
	a.checkKeys(c, layout.IndexTokenBytes)
}

// checkKeys checks the arguments of all writers of index keys; keyBytes is the size of a key in bytes.
func (a *WriteIndexKeyArgs) checkKeys(c *checks, keyBytes int64) {
	c.pool(a.Pool, keyBytes)
	c.perhapsRotary(a.Rotary)
	c.recipe(a.Recipe)
	c.memory("keys", a.Keys, 8)
	if a.Gamma != 0 {
		c.memory("gamma", a.Gamma, 16)
		if a.Beta != 0 {
			c.memory("beta", a.Beta, 16)
		}
		if !(a.Epsilon > 0) {
			c.fail("epsilon %g must be positive", a.Epsilon)
		}
	}
	c.memory("positions", a.Positions, 4)
	c.memory("slots", a.Slots, 4)
	c.multiple("key stride", a.KeyStride, 4, layout.IndexDim)
	c.count("tokens", a.Tokens)
}

// PrepareIndexQueries rotates and quantises the indexer queries of every head and multiplies the heads' weights by
// their scales.
func PrepareIndexQueries(k *Kernels, s *Stream, a *IndexQueryArgs) error {
	c := checks{kernel: "index_query"}
	a.check(&c)
	return runGrid(k, s, &c, Dim{X: uint32(a.Tokens), Y: a.blocks()}, a)
}

// blocks returns the number of thread blocks for a token.
func (a *IndexQueryArgs) blocks() uint32 { return (uint32(a.PaddedHeads) + shortRows - 1) / shortRows }

func (a *IndexQueryArgs) check(c *checks) {
	c.perhapsRotary(a.Rotary)
	c.recipe(a.Recipe)
	c.memory("queries", a.Queries, 8)
	c.memory("weights", a.Weights, 4)
	c.memory("positions", a.Positions, 4)
	c.memory("codes", a.Codes, 16)
	c.memory("folded", a.Folded, 4)
	c.count("tokens", a.Tokens)
	c.positive("heads", a.Heads)
	c.multiple("padded heads", int64(a.PaddedHeads), 1, int64(a.Heads))
	c.multiple("query stride", a.QueryStride, 4, int64(a.Heads)*layout.IndexDim)
	c.multiple("weight stride", a.WeightStride, 1, int64(a.Heads))
}

// gatheredIndex checks the arguments that both index gathers have in common.
func (c *checks) gatheredIndex(pool PoolView, keys, scales Ptr, count int32) {
	c.indexPool(pool)
	c.memory("keys", keys, 16)
	c.memory("scales", scales, 4)
	c.count("count", count)
}

// GatherIndexSlots copies the listed index keys to a contiguous array of codes and a contiguous array of scales.
func GatherIndexSlots(k *Kernels, s *Stream, a *GatherIndexSlotsArgs) error {
	c := checks{kernel: "gather_index_slots"}
	c.gatheredIndex(a.Pool, a.Keys, a.Scales, a.Count)
	c.memory("slots", a.Source.Slots, 4)
	return runRows(k, s, &c, a.Count, shortRows, a)
}

// gatherIndexPages copies the index keys of requests to a contiguous array of codes and a contiguous array of scales.
func gatherIndexPages(k *Kernels, s *Stream, a *GatherIndexPagesArgs) error {
	c := checks{kernel: "gather_index_pages"}
	c.gatheredIndex(a.Pool, a.Keys, a.Scales, a.Count)
	c.pages(a.Source)
	return runRows(k, s, &c, a.Count, shortRows, a)
}
