package cuda

// SelectedScoresArgs are the arguments of the kernel that copies the scores of selected positions.
type SelectedScoresArgs struct {
	Scores         Ptr   // f32 [Rows, Stride]; zero: no row is scored
	Positions      Ptr   // i32 [Rows, Columns]; -1: none
	Lengths        Ptr   // i32 [Rows]: number of keys of a row; a row with at most Columns keys is not scored
	Out            Ptr   // f32 [Rows, Columns]; zero for rows that are not scored and for position -1
	Stride         int64 // elements between rows of scores
	PositionStride int64 // entries between rows
	OutStride      int64 // elements between rows
	Rows           int32
	Columns        int32
	Keys           int32 // columns of Scores
	Reserved       int32
}

// SelectedScores copies the scores of selected positions.
func SelectedScores(k *Kernels, s *Stream, a *SelectedScoresArgs) error {
	c := checks{kernel: "selected_scores"}
	if a.Scores != 0 {
		c.memory("scores", a.Scores, 4)
		c.positive("keys", a.Keys)
		c.multiple("score stride", a.Stride, 1, int64(a.Keys))
	}
	c.memory("positions", a.Positions, 4)
	c.memory("lengths", a.Lengths, 4)
	c.memory("out", a.Out, 4)
	c.positive("columns", a.Columns)
	c.multiple("position stride", a.PositionStride, 1, int64(a.Columns))
	c.multiple("out stride", a.OutStride, 1, int64(a.Columns))
	c.count("rows", a.Rows)
	return runRows(k, s, &c, a.Rows, 1, a)
}
