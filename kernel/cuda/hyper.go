package cuda

// HyperMixArgs are the arguments of the kernel that computes the input of a sublayer from residual streams
// (hyper-connections).
type HyperMixArgs struct {
	X             Ptr     // bf16 [Rows, Streams*Hidden]: the streams of a row in adjacent columns
	Mix           Ptr     // f32 [Rows, Streams*(2+Streams)]; [Rows, Streams] if Post is zero
	Base          Ptr     // f32, as wide as Mix
	Scale         Ptr     // f32 [3]; [1] if Post is zero
	Out           Ptr     // bf16 [Rows, Hidden]
	Post          Ptr     // f32 [Rows, Streams]; zero: only Out is computed, as after the last layer
	Comb          Ptr     // f32 [Rows, Streams*Streams], row after row; zero if Post is zero
	Kept          Ptr     // f32, as wide as Mix: receives a copy of Mix; or zero
	Next          Ptr     // f32 [Rows, Streams]: receives the weights of this sublayer; Out uses Carried; or zero
	Carried       Ptr     // f32 [Rows, Streams], may be Next; zero: Out is the first stream
	NormEpsilon   float64 // added to the mean of squares of all streams
	XStride       int64   // elements between rows; the following strides are also in elements
	MixStride     int64
	OutStride     int64
	PostStride    int64
	CombStride    int64
	KeptStride    int64
	NextStride    int64
	CarriedStride int64
	Rows          int32
	Hidden        int32
	Streams       int32 // at most MaxStreams
	Rounds        int32 // rounds of the normalisation of Comb
	Epsilon       float32
	Reserved      int32
}

// HyperPostArgs are the arguments of the kernel that adds a sublayer's output to the streams.
type HyperPostArgs struct {
	X          Ptr   // bf16 [Rows, Streams*Hidden], updated in place
	Sub        Ptr   // bf16 [Rows, Hidden]
	Post       Ptr   // f32 [Rows, Streams]
	Comb       Ptr   // f32 [Rows, Streams*Streams]
	XStride    int64 // elements between rows; the following strides are also in elements
	SubStride  int64
	PostStride int64
	CombStride int64
	Rows       int32
	Hidden     int32
	Streams    int32 // at most MaxStreams
	Reserved   int32
}

// HeadNormArgs are the arguments of the norm without weights over every head.
type HeadNormArgs struct {
	X        Ptr     // bf16 [Rows, Heads*Columns], updated in place
	Epsilon  float64 // added to the mean of squares
	XStride  int64   // elements between rows
	Rows     int32
	Heads    int32
	Columns  int32 // columns of a head
	Reserved int32
}

// MaxStreams is the maximum number of residual streams of the kernels.
const MaxStreams = 16

// mixColumns is the maximum number of columns of a stream for the narrower of the two HyperMix kernels, which keep them
// in registers.
const mixColumns = 4096

// HyperMix computes the weighted sum of the streams of every row, and the weights with which the sublayer's output is
// added to the streams. Without Post it computes only the sum.
func HyperMix(k *Kernels, s *Stream, a *HyperMixArgs) error {
	c := checks{kernel: "hyper_mix"}
	if a.Hidden > mixColumns {
		c.kernel = "hyper_mix_wide"
	}
	a.check(&c)
	return runRows(k, s, &c, a.Rows, 1, a)
}

func (a *HyperMixArgs) check(c *checks) {
	c.streams(a.Streams, a.Hidden)
	c.memory("x", a.X, 2)
	c.memory("mix", a.Mix, 4)
	c.memory("base", a.Base, 4)
	c.memory("scale", a.Scale, 4)
	c.memory("out", a.Out, 2)
	n := int64(a.Streams)
	width := n
	if a.Post != 0 {
		width = n * (2 + n)
		c.memory("post", a.Post, 4)
		c.memory("comb", a.Comb, 4)
		c.multiple("post stride", a.PostStride, 1, n)
		c.multiple("comb stride", a.CombStride, 1, n*n)
		c.positive("rounds", a.Rounds)
	} else if a.Comb != 0 {
		c.fail("comb is given without post; give both")
	}
	c.multiple("x stride", a.XStride, 1, n*int64(a.Hidden))
	c.multiple("mix stride", a.MixStride, 1, width)
	if a.Kept != 0 {
		c.memory("kept", a.Kept, 4)
		c.multiple("kept stride", a.KeptStride, 1, width)
	}
	if a.Next != 0 {
		c.memory("next weights", a.Next, 4)
		c.multiple("stride of next weights", a.NextStride, 1, n)
	}
	if a.Carried != 0 {
		c.memory("carried weights", a.Carried, 4)
		c.multiple("stride of carried weights", a.CarriedStride, 1, n)
		if a.Next == 0 {
			c.fail("weights to carry are given without next weights; give both")
		}
	}
	c.multiple("out stride", a.OutStride, 1, int64(a.Hidden))
	c.count("rows", a.Rows)
}

// streams checks the number of streams and their width.
func (c *checks) streams(n, hidden int32) {
	if n < 1 || n > MaxStreams {
		c.fail("there are %d streams, want 1 to %d", n, MaxStreams)
	}
	c.positive("hidden", hidden)
}

// postColumns is the number of columns of a row that a block writes.
const postColumns = 8 * portableThreads

// HyperPost adds a sublayer's output to the streams.
func HyperPost(k *Kernels, s *Stream, a *HyperPostArgs) error {
	c := checks{kernel: "hyper_post"}
	a.check(&c)
	return runGrid(k, s, &c, Dim{X: uint32(max(a.Rows, 0)), Y: rowBlocks(a.Hidden, postColumns)}, a)
}

func (a *HyperPostArgs) check(c *checks) {
	c.streams(a.Streams, a.Hidden)
	c.memory("x", a.X, 2)
	c.memory("sub", a.Sub, 2)
	c.memory("post", a.Post, 4)
	c.memory("comb", a.Comb, 4)
	n := int64(a.Streams)
	c.multiple("x stride", a.XStride, 1, n*int64(a.Hidden))
	c.multiple("sub stride", a.SubStride, 1, int64(a.Hidden))
	c.multiple("post stride", a.PostStride, 1, n)
	c.multiple("comb stride", a.CombStride, 1, n*n)
	c.count("rows", a.Rows)
}

// HeadNorm divides every head by its root mean square.
func HeadNorm(k *Kernels, s *Stream, a *HeadNormArgs) error {
	c := checks{kernel: "head_norm"}
	c.memory("x", a.X, 2)
	c.positive("heads", a.Heads)
	c.positive("columns", a.Columns)
	c.multiple("x stride", a.XStride, 1, int64(a.Heads)*int64(a.Columns))
	c.count("rows", a.Rows)
	blocks := (int64(a.Rows)*int64(a.Heads) + longRows - 1) / longRows
	if blocks > maxGrid {
		c.fail("%d rows of %d heads are more than %d heads in all: launch fewer "+
			"rows", a.Rows, a.Heads, int64(maxGrid)*longRows)
	}
	return runGrid(k, s, &c, Dim{X: uint32(blocks)}, a)
}
