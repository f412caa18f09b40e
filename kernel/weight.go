package kernel

import (
	"fmt"
	"slices"
	"strings"
)

// HostBuffer is host memory as a buffer: memory of a device that computes on the host, or of a checkpoint's mapped
// file.
type HostBuffer []byte

// Len returns the size in bytes.
func (b HostBuffer) Len() int64 { return int64(len(b)) }

// Weight is a matrix [out, in] as a checkpoint stores it, in host memory, with the block scales that belong to it.
// Scale has one element for each block of BlockRows x BlockCols; blocks at the edges may be incomplete. It is not given
// for types without scales. The value of an element is
//
//	(Data - Zero) * (Scale * Factor)
//
// Operations take a [Matrix] made of it.
type Weight struct {
	Data Tensor // [out, in]; e2m1x2 and u4x2 [out, in/2]; block formats [out, in/values of a block]
	// [ceil(out/BlockRows), ceil(in/BlockCols)]: f32 for e4m3; e8m0 for e2m1x2, or e4m3 together with a Factor; f32,
	// bf16 or f16 for u4x2, u8 and i8
	Scale Tensor
	// Zero holds the zero points of u4x2 and u8: u8, in the shape of Scale. If it is not given, the zero points are the
	// middle of the range of codes, 8 and 128.
	Zero      Tensor
	Factor    float32 // multiplies all scales; 0 means none
	BlockRows int
	BlockCols int
	// SkipRows is the number of rows of the first scale block that precede Data, if a rank's rows begin inside a block.
	SkipRows int
	// Pow2Rows selects the scales with which a device quantises the rows that an e4m3 weight multiplies: powers of two
	// if the checkpoint was made for them (scale_fmt ue8m0), otherwise any float32.
	Pow2Rows bool
}

// Out returns the number of rows of the matrix, which is the length of its results.
func (w Weight) Out() int { return w.Data.Rows }

// In returns the length of the vectors that the matrix multiplies.
func (w Weight) In() int { return w.Data.Cols * w.Data.DType.Values() }

// Channels reports whether the matrix is e4m3 with one scale for each row, or one scale for all rows.
func (w Weight) Channels() bool {
	return w.Data.DType == E4M3 && w.Scale.Given() && w.BlockCols >= w.In() && (w.BlockRows == 1 || w.Scale.Rows == 1)
}

// ScaleRow returns the row of Scale for a row of Data, and the index of the row in its block.
func (w Weight) ScaleRow(row int) (scale, within int) {
	row += w.SkipRows
	return row / w.BlockRows, row % w.BlockRows
}

// Slice returns rows [from, to) as a separate matrix. With block scales, from must be the first row of a block.
func (w Weight) Slice(from, to int) Weight {
	w.Data = w.Data.Slice(from, to)
	if w.Scale.Given() {
		w.Scale = w.Scale.Slice(from/w.BlockRows, ceilDiv(to, w.BlockRows))
	}
	if w.Zero.Given() {
		w.Zero = w.Zero.Slice(from, to)
	}
	return w
}

// Middle returns the zero point of codes without explicit zero points, or 0 for types that are not codes.
func (w Weight) Middle() int {
	switch w.Data.DType {
	case U4x2:
		return 8
	case U8:
		return 128
	}
	return 0
}

// Role is the use of a matrix: the operations that read it. A device may store the matrix in a form that only these
// operations can read.
type Role uint8

// The roles, with their operations. Matrices of experts have no role: they are prepared together
// ([Preparer.PrepareExperts]).
const (
	Projected Role = iota + 1 // Multiply and Project
	Latent                    // up-projection of latent rows: Absorb, Expand and Multiply
	LookedUp                  // Embed; stored as plain floats
	Tied                      // Embed and Multiply: an embedding table that is also the head; stored as plain floats
)

var roleNames = [...]string{
	Projected: "projection", Latent: "latent up-projection", LookedUp: "table", Tied: "table and head",
}

func (r Role) String() string {
	if int(r) < len(roleNames) && roleNames[r] != "" {
		return roleNames[r]
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// Check validates a weight's shape, element type and scales for a role. Every device calls it when it prepares the
// weight, so operations do not repeat these checks.
func (w Weight) Check(role Role) error {
	c := checker{op: "prepare"}
	if role < Projected || role > Tied {
		c.fail("unknown %v", role)
	}
	c.weight("weight", w, -1, -1)
	if (role == LookedUp || role == Tied) && w.Scale.Given() {
		c.fail("a %v has type %s with scales, want f32, bf16 or f16: looking up rows applies no "+
			"scales", role, w.Data.DType)
	}
	return c.err
}

// ExpertWeights are the matrices of a layer's experts as a checkpoint stores them, one of each per expert.
type ExpertWeights struct {
	Gate, Up []Weight // [inner, hidden], one of each per expert
	Down     []Weight // [hidden, inner], one per expert
	// Methods determine where the experts are stored and which device computes them. If they are empty, all experts are
	// resident.
	Methods ExpertMethods
	// Host computes the experts whose method is Computed; nil if there are none.
	Host HostExperts
	// Shared means that one copy in host memory serves an expert that is computed for decode rows and fetched for
	// prompt rows: the device fetches the matrices that Host has stored, which are Plain.
	Shared bool
	// Together means that a device in host memory stores copies of all matrices in one block of memory (StoredExperts).
	Together bool
	// Movable means that experts may be moved between device and host memory later (ExpertSwapper). The matrices must
	// then stay readable.
	Movable bool
}

// Split reports whether some of the experts are not resident.
func (w *ExpertWeights) Split() bool { return w.Methods.OnHost() > 0 }

// Select returns the matrices of the listed experts, all of which become resident.
func (w *ExpertWeights) Select(experts []int) ExpertWeights {
	var out ExpertWeights
	for _, e := range experts {
		out.Gate, out.Up, out.Down = append(out.Gate, w.Gate[e]), append(out.Up, w.Up[e]), append(out.Down, w.Down[e])
	}
	return out
}

// Plain reports whether all matrices are bf16, or all e4m3 in blocks of 128 x 128, or all e2m1 in groups of 32: types
// whose stored form is packed for a device by moving bytes.
func (w *ExpertWeights) Plain() bool {
	all := slices.Concat(w.Gate, w.Up, w.Down)
	for _, is := range []func(Weight) bool{
		func(w Weight) bool { return w.Data.DType == BF16 && !w.Scale.Given() },
		func(w Weight) bool {
			return w.Data.DType == E4M3 && w.BlockRows == foldSide && w.BlockCols == foldSide && w.SkipRows == 0
		},
		Weight.inGroups,
	} {
		if !slices.ContainsFunc(all, func(w Weight) bool { return !is(w) }) {
			return true
		}
	}
	return false
}

// StoredBytes returns the bytes of copies of all matrices without gaps between rows, each tensor rounded up to a
// multiple of line bytes.
func (w *ExpertWeights) StoredBytes(line int64) int64 {
	n := int64(0)
	for _, w := range slices.Concat(w.Gate, w.Up, w.Down) {
		for _, t := range []Tensor{w.Data, w.Scale, w.Zero} {
			n += (int64(t.Rows)*int64(t.Cols)*int64(t.DType.Size()) + line - 1) / line * line
		}
	}
	return n
}

// Check validates shapes, element types, scales and methods of the experts.
func (w *ExpertWeights) Check() error {
	c := checker{op: "prepare experts"}
	if len(w.Gate) == 0 || len(w.Up) != len(w.Gate) || len(w.Down) != len(w.Gate) {
		c.fail("there are %d gate, %d up and %d down matrices, want the same number of "+
			"each", len(w.Gate), len(w.Up), len(w.Down))
		return c.err
	}
	inner, hidden := w.Gate[0].Out(), w.Gate[0].In()
	for e := range w.Gate {
		c.weight("gate", w.Gate[e], inner, hidden)
		c.weight("up", w.Up[e], inner, hidden)
		c.weight("down", w.Down[e], hidden, inner)
	}
	w.Methods.check(&c, len(w.Gate), w.Host != nil)
	if w.Shared && !w.Plain() {
		c.fail("one copy of an expert serves the host and the device only if all matrices are bf16, or all e4m3 in "+
			"blocks of %d x %d, or all e2m1 in groups of 32; store two copies", foldSide, foldSide)
	}
	return c.err
}

// Matrix is a weight that a device has prepared for a role. Only its device can read its elements.
type Matrix interface {
	Out() int
	In() int
	Role() Role
}

// Experts are the matrices of a layer's experts that a device has prepared. Only their device can read their elements.
type Experts interface {
	Count() int
	Hidden() int // length of the rows that the experts read and write
	Inner() int  // length of the rows between gate and down
}

// Preparer makes the handles of weights that operations use. It checks each weight and then uses it in the mapped file,
// or copies it to the device or to another memory layout. Scales and data must not change while the handle is used.
type Preparer interface {
	Prepare(Weight, Role) (Matrix, error)
	PrepareExperts(ExpertWeights) (Experts, error)
}

// ExpertSwapper is a device that can move experts between its memory and host memory between passes. The experts were
// prepared as Movable.
type ExpertSwapper interface {
	// SwapExperts moves expert in, which is in host memory, to the memory of the device, and expert out, which is
	// resident, to host memory: both exchange their methods, for decode and for prompt rows. HostExperts are updated
	// too. SwapExperts waits for all operations enqueued before. Captured graphs stay valid, because they read the
	// location of experts from memory. After an error other than ErrLost nothing has changed.
	SwapExperts(x Experts, in, out int) error
}

// SwapExperts moves expert in to device memory and expert out to host memory. It returns ErrUnsupported if the device
// cannot move experts.
func SwapExperts(d Device, x Experts, in, out int) error {
	s, ok := d.(ExpertSwapper)
	if !ok {
		return fmt.Errorf("%w: %s cannot move experts between memories; place them when the model is loaded",
			ErrUnsupported, d.Name())
	}
	return s.SwapExperts(x, in, out)
}

// ExpertReplacer is a device that can replace one of the experts that it has prepared.
type ExpertReplacer interface {
	// ReplaceExpert replaces expert i by the only expert of w, whose matrices have the types and shapes of the replaced
	// ones.
	ReplaceExpert(x Experts, i int, w ExpertWeights) error
}

// BulkLoader is a device that prepares many weights faster together. Between BeginLoad and EndLoad it may still read a
// weight after Prepare has returned, and no operation may use the weight.
type BulkLoader interface {
	BeginLoad() error
	// EndLoad waits for all weights and returns their first error. Without a load in progress it does nothing.
	EndLoad() error
}

// weight checks a matrix and its scales. out or in below zero accepts any number.
func (c *checker) weight(name string, w Weight, out, in int) {
	if c.err != nil {
		return
	}
	cols := in
	if n := w.Data.DType.Values(); n > 1 && in >= 0 {
		if cols /= n; in%n != 0 {
			c.fail("%s is %s with %d values in an element, so it cannot have %d columns", name, w.Data.DType, n,
				in)
		}
	}
	c.shape(name, w.Data, out, cols)
	if out >= 0 && w.Data.Rows != out {
		c.fail("%s has %d rows, want %d", name, w.Data.Rows, out)
	}
	if c.err != nil {
		return
	}
	_, blocked := w.Data.DType.Block()
	switch d := w.Data.DType; {
	case d == F32 || d == BF16 || d == F16 || blocked:
		if w.Scale.Given() {
			c.fail("%s is %s and must not have scales", name, w.Data.DType)
		}
	case d == E4M3:
		if w.BlockRows <= 0 || w.BlockCols <= 0 {
			c.fail("%s is e4m3 and has no block size; want one", name)
			return
		}
		c.scales(name, w, F32)
	case d == E2M1x2 || d == U4x2 || d == U8 || d == I8:
		c.groups(name, w)
	default:
		c.fail("%s has type %s, want f32, f16, bf16, e4m3, e2m1x2, u4x2, u8, i8 or a block format", name, w.Data.DType)
	}
}

// groups checks a weight whose scales belong to groups of values in one row.
func (c *checker) groups(name string, w Weight) {
	if w.BlockRows != 1 || w.BlockCols <= 0 || w.BlockCols%w.Data.DType.Values() != 0 {
		c.fail("%s is %s in blocks of %d x %d, want groups of an even number of values of one row",
			name, w.Data.DType, w.BlockRows, w.BlockCols)
		return
	}
	if w.Data.DType != E2M1x2 {
		c.scales(name, w, F32, BF16, F16)
		if w.Zero.Given() {
			c.of = name
			c.tensor("zero points", w.Zero, U8, w.Scale.Rows, w.Scale.Cols)
			c.of = ""
		}
		return
	}
	if w.Scale.DType == E4M3 && !(w.Factor > 0) {
		c.fail("%s is e2m1x2 with e4m3 scales and the factor %v, want a positive factor", name, w.Factor)
	}
	c.scales(name, w, E8M0, E4M3)
}

// scales checks the shape of scales and that their type is one of the given types.
func (c *checker) scales(name string, w Weight, types ...DType) {
	d := types[0]
	if slices.Contains(types, w.Scale.DType) {
		d = w.Scale.DType
	}
	c.of = name
	c.tensor("scales", w.Scale, d, ceilDiv(w.SkipRows+w.Data.Rows, w.BlockRows), ceilDiv(w.In(), w.BlockCols))
	c.of = ""
}

// roles is a set of roles: bit r for role r. A list would have to be allocated for every call.
type roles uint8

// The sets of roles that operations accept.
const (
	multiplied roles = 1<<Projected | 1<<Latent | 1<<Tied
	lookedUp   roles = 1<<LookedUp | 1<<Tied
	absorbed   roles = 1 << Latent
)

func (s roles) String() string {
	var names []string
	for r := Projected; r <= Tied; r++ {
		if s>>r&1 != 0 {
			names = append(names, r.String())
		}
	}
	return strings.Join(names, " or a ")
}

// matrix checks that a matrix is given, was prepared for one of the given roles, and multiplies vectors of length in.
func (c *checker) matrix(name string, m Matrix, in int, of roles) {
	switch {
	case c.err != nil:
	case m == nil:
		c.fail("%s is missing", name)
	case of>>m.Role()&1 == 0:
		c.fail("%s was prepared as a %v, want a %v", name, m.Role(), of)
	case m.In() != in:
		c.fail("%s has %d columns, want %d", name, m.In(), in)
	}
}
