package cuda

// PickArgs are the arguments of the kernel that copies chosen rows of a table.
type PickArgs struct {
	Table       Ptr   // [TableRows, Columns] of TableType
	IDs         Ptr   // i32 [Rows]: row of the table; one outside raises FaultRow and gives zeros
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
	Reserved    int32
}

// PickRows copies rows of a table by number, rounding to the type of the output.
func (k *Kernels) PickRows(s *Stream, a *PickArgs) error {
	c := checks{kernel: "pick_rows"}
	c.positive("columns", a.Columns)
	c.positive("table rows", a.TableRows)
	c.element("table", a.Table, a.TableType, ElementF16, a.TableStride, a.Columns)
	c.element("out", a.Out, a.OutType, ElementBF16, a.OutStride, a.Columns)
	c.memory("ids", a.IDs, 4)
	c.multiple("id stride", a.IDStride, 1, 1)
	c.count("rows", a.Rows)
	return runRows(k, s, &c, a.Rows, 1, a)
}
