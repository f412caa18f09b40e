package cuda

// CandidatesArgs are the arguments of the kernels that find the largest logits of every row.
//
// The largest logits of a row are listed in descending order; among equal logits the lower column comes first, and -0
// equals 0. NaN is ordered as minus infinity. LogSum is log(sum of exp(logit)) over the whole row, so the
// log-probability of a candidate is its value minus LogSum. It is NaN for a row with a NaN, and equals the largest
// logit if that is infinite. The result of a row does not depend on other rows.
type CandidatesArgs struct {
	Logits      Ptr   // [Rows, Columns] of Type
	IDs         Ptr   // i32 [Rows, Best]
	Values      Ptr   // f32 [Rows, Best]: logits of IDs
	LogSum      Ptr   // f32 [Rows]
	Keys        Ptr   // u64, scratch memory of CandidatesScratch bytes
	Sums        Ptr   // scratch memory of f32 pairs, set by FindCandidates
	Stride      int64 // elements between rows of logits
	IDStride    int64 // entries between rows
	ValueStride int64 // elements between rows
	Rows        int32 // at most maxCandidateRows
	Columns     int32 // at most MaxCandidateColumns
	Best        int32 // 1 to maxBest, at most Columns
	Parts       int32 // number of parts of a row; set by FindCandidates
	Type        ElementType
	Reserved    int32
}

// Limits of the candidate kernels.
const (
	maxBest             = 64
	MaxCandidateColumns = candidateColumns * 32
	maxCandidateRows    = 65535
	candidateColumns    = 8192 // columns of a part
)

func candidateParts(columns int32) int32 { return (columns + candidateColumns - 1) / candidateColumns }

// CandidatesScratch returns the size of Keys in bytes, for the given numbers of rows, columns and largest logits.
func CandidatesScratch(rows, columns, best int32) int64 {
	return int64(rows) * int64(candidateParts(columns)) * (8*int64(best) + 8)
}

// FindCandidates finds the largest logits of every row with their columns, and the log-sum-exp of every row.
func FindCandidates(k *Kernels, s *Stream, a *CandidatesArgs) error {
	c := checks{kernel: "candidate_parts"}
	if a.Columns <= 0 || a.Columns > MaxCandidateColumns || a.Rows < 0 || a.Rows > maxCandidateRows {
		c.fail("logits have %d rows of %d columns, want at most %d rows of 1 to %d", a.Rows, a.Columns,
			maxCandidateRows, MaxCandidateColumns)
	}
	if a.Best < 1 || a.Best > maxBest || a.Best > a.Columns {
		c.fail("the best %d of %d columns are requested, want 1 to %d", a.Best, a.Columns, maxBest)
	}
	c.element("logits", a.Logits, a.Type, ElementBF16, a.Stride, a.Columns)
	c.memory("ids", a.IDs, 4)
	c.memory("values", a.Values, 4)
	c.memory("log sum", a.LogSum, 4)
	c.memory("keys", a.Keys, 8)
	c.multiple("id stride", a.IDStride, 1, int64(a.Best))
	c.multiple("value stride", a.ValueStride, 1, int64(a.Best))
	if c.err != nil || a.Rows == 0 {
		return c.err
	}
	b := *a
	b.Parts = candidateParts(a.Columns)
	b.Sums = a.Keys.Add(8 * int64(a.Rows) * int64(b.Parts) * int64(a.Best))
	if err := runGrid(k, s, &c, Dim{X: uint32(b.Parts), Y: uint32(a.Rows)}, &b); err != nil {
		return err
	}
	merge := checks{kernel: "candidate_merge"}
	return runRows(k, s, &merge, a.Rows, 1, &b)
}
