package kernel

// Table is a table whose rows are looked up by number. It is in host memory or mapped from a file. Values are floats
// without scales, or e4m3 with a power-of-two scale for every 32 values of a row.
type Table struct {
	Values Tensor // f32, bf16 or e4m3 [rows, dim]
	Scales Tensor // e8m0 [rows, dim/32]; given only with e4m3
	Mapped bool   // Values is mapped from a file: a row may have to be read from disk
}

// TableScale is the number of values of a row that share a scale.
const TableScale = 32

// TableArgs looks rows up and concatenates them: Out[t] = Table[IDs[t,0]], Table[IDs[t,1]], ...
type TableArgs struct {
	Out   Tensor // activation [T, n*dim]
	Table *Table // a pointer, because Replace must not replace the table's tensors
	IDs   Tensor // i32 [T, n]: row numbers
}

// TableReading is a device that reads tables in host memory itself.
type TableReading interface{ Tables() TableReader }

// TableReader makes tables in host memory readable by a device.
type TableReader interface {
	// Prepare makes a table readable. It is called before passes run.
	Prepare(*Table) error
	// Announce gives the row numbers of a lookup that runs later in the pass that is being prepared. So the device can
	// read the rows while it runs the operations before. ids holds the values of a.IDs, with the same stride; it is not
	// used after Announce has returned.
	Announce(a TableArgs, ids []int32) error
}

// Name returns the name of the operation.
func (TableArgs) Name() string { return "read table" }

// Check validates the arguments.
func (a TableArgs) Check() error {
	c := checker{op: a.Name()}
	if a.Table == nil {
		c.fail("the table is missing")
		return c.err
	}
	v := a.Table.Values
	c.tensor("ids", a.IDs, I32, a.Out.Rows, -1)
	c.float("out", a.Out, a.Out.Rows, a.IDs.Cols*v.Cols)
	switch v.DType {
	case F32, BF16:
		c.tensor("table", v, v.DType, v.Rows, v.Cols)
	case E4M3:
		c.tensor("table", v, E4M3, v.Rows, v.Cols)
		c.tensor("scales", a.Table.Scales, E8M0, v.Rows, v.Cols/TableScale)
		if v.Cols%TableScale != 0 {
			c.fail("rows have %d values, want a multiple of %d", v.Cols, TableScale)
		}
	default:
		c.fail("the table has type %v, want f32, bf16 or e4m3", v.DType)
	}
	return c.err
}

// EngramArgs adds the n-gram table rows of a token to its residual streams (v41 spec, 3.1). KV holds a key for each
// stream and then one value; with r(v) = rsqrt(mean(v^2) + Eps):
//
//	dot_i = sum over d of stream_i[d] * Weight[i,d] * key_i[d] * r(stream_i) * r(key_i) * hidden^-1/2
//	gate_i = sigmoid(copysign(sqrt(max(|dot_i|, 1e-6)), dot_i))
//	stream_i += gate_i * value
type EngramArgs struct {
	X      Tensor // activation [T, n*hidden], updated in place
	KV     Tensor // activation [T, (n+1)*hidden]
	Weight Tensor // f32 [n, hidden]: the product of the weights of queries and keys
	Eps    float32
}

// Name returns the name of the operation.
func (EngramArgs) Name() string { return "engram" }

// Check validates the arguments.
func (a EngramArgs) Check() error {
	c := checker{op: a.Name()}
	n, h := a.Weight.Rows, a.Weight.Cols
	c.streams(a.X, n)
	c.tensor("weight", a.Weight, F32, n, h)
	c.float("x", a.X, a.X.Rows, n*h)
	c.float("kv", a.KV, a.X.Rows, (n+1)*h)
	return c.err
}
