package cuda

// PickArgs are the arguments of the kernel that copies chosen rows of a table.
type PickArgs struct {
	Table       Ptr   // [TableRows, Columns] of TableType
	IDs         Ptr   // i32 [Rows]: row of the table; an id outside it raises FaultRow and gives zeros
	Out         Ptr   // [Rows, Columns] of OutType
	Faults      Ptr   // one u32 of fault bits, or zero
	TableStride int64 // elements between rows
	IDStride    int64 // entries between rows
	OutStride   int64 // elements between rows
	Rows        int32
	Columns     int32
	TableRows   int32
	TableType   ElementType // f32, bf16 or f16
	OutType     ElementType // f32 or bf16
	Optional    int32       // 1: negative ids give zeros and raise no fault
}

// PickRows copies rows of a table by number, rounding to the type of the output.
func PickRows(k *Kernels, s *Stream, a *PickArgs) error {
	c := checks{kernel: "pick_rows"}
	a.check(&c)
	return runRows(k, s, &c, a.Rows, 1, a)
}

func (a *PickArgs) check(c *checks) {
	c.positive("columns", a.Columns)
	c.positive("table rows", a.TableRows)
	c.element("table", a.Table, a.TableType, ElementF16, a.TableStride, a.Columns)
	c.element("out", a.Out, a.OutType, ElementBF16, a.OutStride, a.Columns)
	c.memory("ids", a.IDs, 4)
	c.multiple("id stride", a.IDStride, 1, 1)
	c.count("rows", a.Rows)
}

// PutArgs are the arguments of the kernel that copies rows to given positions.
type PutArgs struct {
	X           Ptr   // [Rows, Columns] of XType
	Places      Ptr   // i32 [Rows]: row of Out; negative: not copied; a row beyond Out raises FaultRow
	Out         Ptr   // [OutRows, Columns] of OutType
	Faults      Ptr   // one u32 of fault bits, or zero
	XStride     int64 // elements between rows
	PlaceStride int64 // entries between rows
	OutStride   int64 // elements between rows
	Rows        int32
	Columns     int32
	OutRows     int32
	XType       ElementType // f32 or bf16
	OutType     ElementType // f32 or bf16
	Reserved    int32
}

// PutRows copies rows to positions by number, rounding to the type of the output. No two rows may have the same
// position.
func PutRows(k *Kernels, s *Stream, a *PutArgs) error {
	c := checks{kernel: "put_rows"}
	a.check(&c)
	return runRows(k, s, &c, a.Rows, 1, a)
}

func (a *PutArgs) check(c *checks) {
	c.positive("columns", a.Columns)
	c.count("out rows", a.OutRows)
	c.element("x", a.X, a.XType, ElementBF16, a.XStride, a.Columns)
	c.element("out", a.Out, a.OutType, ElementBF16, a.OutStride, a.Columns)
	c.memory("places", a.Places, 4)
	c.multiple("place stride", a.PlaceStride, 1, 1)
	c.count("rows", a.Rows)
}
