package cuda

// Fused kernels: each does the work of two to four other kernels, with bitwise equal results.

// PutFourArgs are the arguments of up to four PutRows in one launch; an entry without rows is unused.
type PutFourArgs struct {
	First, Second, Third, Fourth PutArgs
}

// PickFourArgs are the arguments of up to four PickRows in one launch; an entry without rows is unused.
type PickFourArgs struct {
	First, Second, Third, Fourth PickArgs
}

// AngleFourArgs are the arguments of up to four ComputeAngles in one launch; an entry without rows is unused.
type AngleFourArgs struct {
	First, Second, Third, Fourth AnglesArgs
}

// HeadTurnArgs are the arguments of the kernel that normalises heads and rotates them.
type HeadTurnArgs struct {
	Norm   HeadNormArgs
	Rotate RotateArgs // rotation of the heads of Norm (Joins)
}

// QuantiseTurnedArgs are the arguments of the kernel that rotates heads in place and quantises them.
type QuantiseTurnedArgs struct {
	Quantise QuantiseRowsArgs
	Rotate   RotateArgs // rotation of the rows of Quantise (Joins)
}

// HyperSumArgs are the arguments of the kernel that adds the results of experts and adds the sum to the streams.
type HyperSumArgs struct {
	Post HyperPostArgs
	Sum  NormQuantiseArgs // without a norm; its sum is Post.Sub
}

// PutFour copies rows to given positions of up to four tensors. No position may be written twice or read.
func PutFour(k *Kernels, s *Stream, a *PutFourArgs) error {
	c := checks{kernel: "put_four"}
	rows := a.check(&c)
	return runGrid(k, s, &c, Dim{X: uint32(rows), Y: 4}, a)
}

// check checks the arguments and returns the largest number of rows.
func (a *PutFourArgs) check(c *checks) int32 {
	rows := int32(0)
	for _, p := range []*PutArgs{&a.First, &a.Second, &a.Third, &a.Fourth} {
		if p.Rows != 0 {
			p.check(c)
		}
		rows = max(rows, p.Rows)
	}
	return rows
}

// Joins reports whether a rotation can run inside another kernel over bf16 rows of the given columns and stride: pairs
// are adjacent, the rotated part consists of whole groups of eight columns, and nothing is copied.
func (a *RotateArgs) Joins(columns int32, stride int64) bool {
	return a.XType == ElementBF16 && a.Interleaved == 1 && a.Copy == 0 && a.Angles != 0 && a.Offset%8 == 0 &&
		a.Rope%8 == 0 && a.HeadDim%8 == 0 && a.Heads*a.HeadDim == columns && a.XStride == stride && a.XStride%8 == 0 &&
		a.X%16 == 0
}

// HeadNormTurn does the work of HeadNorm and then Turn in one launch.
func HeadNormTurn(k *Kernels, s *Stream, a *HeadTurnArgs) error {
	c := checks{kernel: "head_norm_turn"}
	blocks := a.check(&c)
	return runGrid(k, s, &c, Dim{X: uint32(blocks)}, a)
}

// check checks the arguments and returns the number of blocks for all heads.
func (a *HeadTurnArgs) check(c *checks) int64 {
	n, t := &a.Norm, &a.Rotate
	t.check(c)
	if n.X != t.X || n.Rows != t.Rows || n.Heads != t.Heads || n.Columns != t.HeadDim ||
		!t.Joins(n.Heads*n.Columns, n.XStride) {
		c.fail("the norm has %d heads of %d columns and the rotation %d of %d; they must be the same bf16 heads with "+
			"neighbours as pairs, and a multiple of 8 columns", n.Heads, n.Columns, t.Heads, t.HeadDim)
	}
	blocks := (int64(n.Rows)*int64(n.Heads) + longRows - 1) / longRows
	if blocks > maxGrid {
		c.fail("%d rows of %d heads are more than %d heads in all: launch fewer "+
			"rows", n.Rows, n.Heads, int64(maxGrid)*longRows)
	}
	return blocks
}

// QuantiseTurned does the work of Turn and then QuantiseRows in one launch.
func QuantiseTurned(k *Kernels, s *Stream, a *QuantiseTurnedArgs) error {
	c := checks{kernel: "quantise_turned"}
	q, t := &a.Quantise, &a.Rotate
	t.check(&c)
	if q.X != t.X || q.Rows != t.Rows || !t.Joins(q.Columns, q.XStride) {
		c.fail("there are %d rows of %d columns and a rotation of %d heads of %d; they must be the same bf16 rows "+
			"with neighbours as pairs, and a multiple of 8 columns", q.Rows, q.Columns, t.Heads, t.HeadDim)
	}
	blocks := q.check(&c)
	return runGrid(k, s, &c, Dim{X: blocks}, a)
}

// SumStreams is the maximum number of streams that HyperPostSum supports.
const SumStreams = 4

// HyperPostSum does the work of NormQuantise, without a norm, and then HyperPost in one launch.
func HyperPostSum(k *Kernels, s *Stream, a *HyperSumArgs) error {
	c := checks{kernel: "hyper_post_sum"}
	p, n := &a.Post, &a.Sum
	p.check(&c)
	n.check(&c)
	c.memory("streams", p.X, 16)
	c.multiple("stream stride", p.XStride, 8, int64(p.Hidden))
	if n.Results == 0 || n.Sum != p.Sub || n.SumStride != p.SubStride || n.Weight != 0 || n.Rows != p.Rows ||
		n.Columns != p.Hidden || p.Streams > SumStreams {
		c.fail("%d rows of %d columns are to be added to %d rows of %d streams of %d; want sums of experts' results "+
			"without a norm, which are the output of a sublayer, and at most %d "+
			"streams", n.Rows, n.Columns, p.Rows, p.Streams,
			p.Hidden, SumStreams)
	}
	return runGrid(k, s, &c, Dim{X: uint32(max(p.Rows, 0)), Y: rowBlocks(p.Hidden, postColumns)}, a)
}

// MixNormArgs are the arguments of the kernel that adds up residual streams, normalises the sum and quantises it.
type MixNormArgs struct {
	Mix  HyperMixArgs     // Out is not written
	Norm NormQuantiseArgs // norm of Mix.Out, without added rows
}

// mixThreads is the number of threads of a block: eight warps that add up streams, and one warp that computes the
// weights of the sublayer's output.
const mixThreads = portableThreads + 32

// manyMixed is the minimum number of rows for which the kernel with fewer registers is used: there are then several
// times more blocks than the GPU can run at a time.
const manyMixed = 512

// wideColumns is the maximum number of columns of a stream for the kernel with fewer registers for wide rows.
const wideColumns = 6144

// Joins reports whether the norm of HyperMix's output can run in the kernel of HyperMix: for four streams whose number
// of columns is a multiple of 16.
func (a *HyperMixArgs) Joins(n *NormQuantiseArgs) bool {
	return a.Streams == 4 && a.Post != 0 && a.Hidden%16 == 0 && a.Hidden <= 2*mixColumns && a.X%16 == 0 &&
		a.XStride%8 == 0 && n.X == a.Out && n.XStride == a.OutStride && n.Rows == a.Rows && n.Columns == a.Hidden &&
		n.Weight != 0 && n.Out != 0 && n.Delta == 0 && n.Results == 0 && n.Sum == 0
}

// MixNorm does the work of HyperMix and then NormQuantise in one launch. It does not write the sum of the streams
// before the norm.
func MixNorm(k *Kernels, s *Stream, a *MixNormArgs) error {
	c := checks{kernel: "mix_norm"}
	switch {
	case a.Mix.Hidden > mixColumns && a.Mix.Hidden <= wideColumns && a.Mix.Rows > manyMixed:
		c.kernel = "mix_norm_wide_many"
	case a.Mix.Hidden > mixColumns:
		c.kernel = "mix_norm_wide"
	case a.Mix.Rows > manyMixed:
		c.kernel = "mix_norm_many"
	}
	a.Mix.check(&c)
	a.Norm.check(&c)
	if !a.Mix.Joins(&a.Norm) {
		c.fail("there are %d streams of %d columns and a norm of %d columns; want four streams of at most %d "+
			"columns, a multiple of 16, and the norm of their sum, with nothing added", a.Mix.Streams, a.Mix.Hidden,
			a.Norm.Columns, 2*mixColumns)
	}
	if c.err != nil || a.Mix.Rows == 0 {
		return c.err
	}
	fn, err := k.Function(c.kernel)
	if err != nil {
		return err
	}
	return Run(s, fn, Launch{Grid: Dim{X: uint32(a.Mix.Rows)}, Block: Dim{X: mixThreads}, Overlap: s.overlap}, a)
}

// PartsArgs are the arguments of independent kernels of a layer that run in one launch: none reads what another writes.
// A part without rows is unused.
type PartsArgs struct {
	Norm    NormQuantiseArgs // at most PartColumns columns, without added rows
	Entries WriteV4Args
	Groups  CompressArgs
	Keys    CompressArgs
	Heads   HeadTurnArgs
	Queries IndexQueryArgs
	Index   WriteIndexKeyArgs
	Puts    PutFourArgs
	Picks   PickFourArgs
	Angles  AngleFourArgs

	// Number of thread blocks of each part, Norm to Index. The launcher Parts sets these and all fields below.
	NormBlocks  int32
	EntryBlocks int32
	GroupBlocks int32
	KeyBlocks   int32
	HeadBlocks  int32
	QueryBlocks int32
	IndexBlocks int32
	PutRows     int32 // largest number of rows of the four puts; each row takes four thread blocks, one for each put
	PickRows    int32 // the same for the four picks
	AngleBlocks int32 // largest number of thread blocks of the four angles; each of the four takes this number
	GroupParts  int32 // thread blocks for each entry of Groups
	KeyParts    int32 // thread blocks for each entry of Keys
	QueryParts  int32 // thread blocks for each token of Queries
}

// PartColumns is the maximum number of columns of a norm that runs as a part: eight for each thread.
const PartColumns = 8 * portableThreads

// mostParts is the maximum number of blocks for which parts run in one launch. Larger parts fill the GPU by themselves,
// and a separate kernel uses fewer registers.
const mostParts = 4096

// Parts runs independent kernels of a layer: in one launch if they are small, otherwise one after another.
func Parts(k *Kernels, s *Stream, a *PartsArgs) error {
	c := checks{kernel: "small_parts"}
	if a.NormBlocks = a.Norm.Rows; a.Norm.Rows > 0 {
		a.Norm.check(&c)
		if a.Norm.Columns > PartColumns || a.Norm.Weight == 0 || a.Norm.Delta != 0 || a.Norm.Results != 0 {
			c.fail("the norm has %d columns, want %d, with nothing added", a.Norm.Columns, PartColumns)
		}
	}
	if a.EntryBlocks = int32(rowBlocks(a.Entries.Tokens, longRows)); a.Entries.Tokens > 0 {
		a.Entries.check(&c)
	}
	if a.Groups.Entries > 0 {
		a.Groups.check(&c)
		a.GroupParts = int32(a.Groups.parts())
	}
	if a.Keys.Entries > 0 {
		a.Keys.check(&c)
		a.KeyParts = int32(a.Keys.parts())
	}
	if a.Queries.Tokens > 0 {
		a.Queries.check(&c)
		a.QueryParts = int32(a.Queries.blocks())
	}
	if a.IndexBlocks = int32(rowBlocks(a.Index.Tokens, shortRows)); a.Index.Tokens > 0 {
		a.Index.check(&c)
	}
	heads, picks, angles := int64(0), 0, 0
	if a.Heads.Norm.Rows > 0 {
		heads = a.Heads.check(&c)
	}
	a.PutRows, a.PickRows, a.AngleBlocks = a.Puts.check(&c), 0, 0
	for _, p := range []*PickArgs{&a.Picks.First, &a.Picks.Second, &a.Picks.Third, &a.Picks.Fourth} {
		if p.Rows > 0 {
			p.check(&c)
			picks, a.PickRows = picks+1, max(a.PickRows, p.Rows)
		}
	}
	for _, p := range []*AnglesArgs{&a.Angles.First, &a.Angles.Second, &a.Angles.Third, &a.Angles.Fourth} {
		if p.Rows > 0 {
			p.check(&c)
			angles, a.AngleBlocks = angles+1, max(a.AngleBlocks, int32(p.blocks()))
		}
	}
	if c.err != nil {
		return c.err
	}
	groups, keys := int64(a.Groups.Entries)*int64(a.GroupParts), int64(a.Keys.Entries)*int64(a.KeyParts)
	queries := int64(a.Queries.Tokens) * int64(a.QueryParts)
	total := int64(a.NormBlocks) + int64(a.EntryBlocks) + groups + keys + heads + queries + int64(a.IndexBlocks) +
		4*(int64(a.PutRows)+int64(a.PickRows)+int64(a.AngleBlocks))
	count := picks + angles
	for _, n := range [...]int64{int64(a.NormBlocks), int64(a.EntryBlocks), groups, keys, heads, queries,
		int64(a.IndexBlocks), int64(a.PutRows)} {
		if n > 0 {
			count++
		}
	}
	if count == 1 || total > mostParts {
		return oneByOne(k, s, a)
	}
	a.GroupBlocks, a.KeyBlocks, a.HeadBlocks, a.QueryBlocks = int32(groups), int32(keys), int32(heads), int32(queries)
	return runGrid(k, s, &c, Dim{X: uint32(total)}, a)
}

func oneByOne(k *Kernels, s *Stream, a *PartsArgs) error {
	for _, p := range []struct {
		rows int32
		run  func() error
	}{
		{a.Entries.Tokens, func() error { return WriteV4(k, s, &a.Entries) }},
		{a.Groups.Entries, func() error { return CompressGroups(k, s, &a.Groups) }},
		{a.Keys.Entries, func() error { return CompressGroups(k, s, &a.Keys) }},
		{a.Norm.Rows, func() error { return NormQuantise(k, s, &a.Norm) }},
		{a.Heads.Norm.Rows, func() error { return HeadNormTurn(k, s, &a.Heads) }},
		{a.Queries.Tokens, func() error { return PrepareIndexQueries(k, s, &a.Queries) }},
		{a.Index.Tokens, func() error { return WriteIndexKeys(k, s, &a.Index) }},
		{a.PutRows, func() error { return PutFour(k, s, &a.Puts) }},
		{a.Picks.First.Rows, func() error { return PickRows(k, s, &a.Picks.First) }},
		{a.Picks.Second.Rows, func() error { return PickRows(k, s, &a.Picks.Second) }},
		{a.Picks.Third.Rows, func() error { return PickRows(k, s, &a.Picks.Third) }},
		{a.Picks.Fourth.Rows, func() error { return PickRows(k, s, &a.Picks.Fourth) }},
		{a.Angles.First.Rows, func() error { return ComputeAngles(k, s, &a.Angles.First) }},
		{a.Angles.Second.Rows, func() error { return ComputeAngles(k, s, &a.Angles.Second) }},
		{a.Angles.Third.Rows, func() error { return ComputeAngles(k, s, &a.Angles.Third) }},
		{a.Angles.Fourth.Rows, func() error { return ComputeAngles(k, s, &a.Angles.Fourth) }},
	} {
		if p.rows > 0 {
			if err := p.run(); err != nil {
				return err
			}
		}
	}
	return nil
}
