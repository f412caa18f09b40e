package kernel

import "sparrow/layout"

// Pool is paged cache memory of one layer in one byte layout. A slot number is page*PageTokens + offset. A gathered,
// contiguous buffer is a pool of one page.
type Pool struct {
	Mem        Tensor // u8 [pages, bytes of a page]
	Layout     layout.Kind
	PageTokens int
}

// Pages returns the number of pages in the pool.
func (p Pool) Pages() int { return p.Mem.Rows }

// Slots returns the number of token rows in the pool.
func (p Pool) Slots() int { return p.Mem.Rows * p.PageTokens }

// paged is a layout; PageBytes returns the bytes of a page with the given number of tokens.
type paged interface{ PageBytes(tokens int) int }

// pool checks the memory of a pool against its layout; err is not nil if the operation does not support the layout.
func (c *checker) pool(name string, p Pool, l paged, err error) {
	switch {
	case c.err != nil:
	case err != nil:
		c.fail("%s: %v", name, err)
	case p.PageTokens <= 0:
		c.fail("%s has %d tokens per page, want at least 1", name, p.PageTokens)
	default:
		c.tensor(name, p.Mem, U8, 0, l.PageBytes(p.PageTokens))
	}
}

func (c *checker) mainPool(name string, p Pool) {
	l, err := layout.MainOf(p.Layout)
	c.pool(name, p, l, err)
}

func (c *checker) indexPool(name string, p Pool) {
	l, err := layout.IndexOf(p.Layout)
	c.pool(name, p, l, err)
}

// StoreArgs writes latent rows to the cache: the latent part normalised, the rope part rotated (interleaved), both
// encoded. A slot below zero writes nothing: that row is padding.
type StoreArgs struct {
	// KV is the output of kv_a_proj, latent then rope, neither normalised nor rotated: activation [T, 576], or [T, 512]
	// in layouts without a rotated part.
	KV     Tensor
	Norm   Tensor // f32 or bf16 [1, 512]: weights of the RMSNorm of the latent part
	Eps    float32
	Angles Tensor // f32 [T, 64]; not given in layouts without a rotated part
	Slots  Tensor // i32 [T, 1]: slot of the row in the pool, below zero: padding
	Pool   Pool
}

// Name returns the name of the operation.
func (StoreArgs) Name() string { return "store rows" }

// Check validates the arguments.
func (a StoreArgs) Check() error {
	c := checker{op: a.Name()}
	c.float("kv", a.KV, a.KV.Rows, layout.Width(a.Pool.Layout))
	c.shape("norm", a.Norm, 1, layout.LatentDim)
	if layout.Width(a.Pool.Layout) > layout.LatentDim {
		c.tensor("angles", a.Angles, F32, a.KV.Rows, layout.RopeDim)
	}
	c.tensor("slots", a.Slots, I32, a.KV.Rows, 1)
	c.mainPool("pool", a.Pool)
	return c.err
}

// GatherArgs reads cache rows in the order of Slots and widens them: Out[i] = row at Slots[i].
type GatherArgs struct {
	Out   Tensor // f32 or bf16 [n, 576], or [n, 512] in layouts without a rotated part
	Slots Tensor // i32 [n, 1], each inside the pool
	Pool  Pool
}

// Name returns the name of the operation.
func (GatherArgs) Name() string { return "gather rows" }

// Check validates the arguments.
func (a GatherArgs) Check() error {
	c := checker{op: a.Name()}
	c.float("out", a.Out, a.Out.Rows, layout.Width(a.Pool.Layout))
	c.tensor("slots", a.Slots, I32, a.Out.Rows, 1)
	c.mainPool("pool", a.Pool)
	return c.err
}

// IndexStoreArgs writes indexer keys: LayerNorm, rotation of the first half, optional Hadamard rotation,
// quantisation by the layout.
type IndexStoreArgs struct {
	Key      Tensor // activation [T, 128]: output of wk
	Weight   Tensor // f32 or bf16 [1, 128]
	Bias     Tensor // f32 or bf16 [1, 128]
	Eps      float32
	Angles   Tensor // f32 [T, 64]
	Pairing  Pairing
	Hadamard bool
	Slots    Tensor // i32 [T, 1], below zero: padding
	Pool     Pool
}

// Name returns the name of the operation.
func (IndexStoreArgs) Name() string { return "store index" }

// Check validates the arguments.
func (a IndexStoreArgs) Check() error {
	c := checker{op: a.Name()}
	c.float("key", a.Key, a.Key.Rows, layout.IndexDim)
	c.shape("weight", a.Weight, 1, layout.IndexDim)
	c.shape("bias", a.Bias, 1, layout.IndexDim)
	c.tensor("angles", a.Angles, F32, a.Key.Rows, layout.RopeDim)
	c.tensor("slots", a.Slots, I32, a.Key.Rows, 1)
	if a.Pairing != Interleaved && a.Pairing != HalfSplit {
		c.fail("unknown %v", a.Pairing)
	}
	c.indexPool("pool", a.Pool)
	return c.err
}

// IndexGatherArgs copies indexer keys, bytes unchanged, into a pool of one page.
type IndexGatherArgs struct {
	Out   Pool   // one page of at least n tokens, in the layout of Pool
	Slots Tensor // i32 [n, 1]
	Pool  Pool
}

// Name returns the name of the operation.
func (IndexGatherArgs) Name() string { return "gather index" }

// Check validates the arguments.
func (a IndexGatherArgs) Check() error {
	c := checker{op: a.Name()}
	c.indexPool("out", a.Out)
	c.indexPool("pool", a.Pool)
	c.tensor("slots", a.Slots, I32, a.Slots.Rows, 1)
	if a.Out.Layout != a.Pool.Layout {
		c.fail("out is %v and the pool %v, want the same layout", a.Out.Layout, a.Pool.Layout)
	}
	if a.Out.Mem.Rows != 1 || a.Out.PageTokens < a.Slots.Rows {
		c.fail("out holds %d pages of %d tokens, want one of at least %d", a.Out.Mem.Rows, a.Out.PageTokens,
			a.Slots.Rows)
	}
	return c.err
}

// ConvertArgs converts whole pages from 576-byte raw rows to 656-byte block rows: page i of Out is page Pages[i] of In.
type ConvertArgs struct {
	Out   Pool   // FP8Row656, at least n pages
	In    Pool   // FP8Row576
	Pages Tensor // i32 [n, 1]: page numbers in In
}

// Name returns the name of the operation.
func (ConvertArgs) Name() string { return "convert pages" }

// Check validates the arguments.
func (a ConvertArgs) Check() error {
	c := checker{op: a.Name()}
	c.mainPool("out", a.Out)
	c.mainPool("in", a.In)
	c.tensor("pages", a.Pages, I32, a.Pages.Rows, 1)
	if a.In.Layout != layout.FP8Row576 || a.Out.Layout != layout.FP8Row656 {
		c.fail("pages of %v cannot be converted to %v, only %v to "+
			"%v", a.In.Layout, a.Out.Layout, layout.FP8Row576, layout.FP8Row656)
	}
	if a.In.PageTokens != a.Out.PageTokens {
		c.fail("pages of %d tokens cannot be converted to pages of %d; want the same "+
			"number", a.In.PageTokens, a.Out.PageTokens)
	}
	if a.Out.Mem.Rows < a.Pages.Rows {
		c.fail("out holds %d pages, want %d", a.Out.Mem.Rows, a.Pages.Rows)
	}
	return c.err
}
