package cuda

import "sparrow/layout"

// Trials are kernels that no default uses yet: they are correct where they were checked, and have not been timed beside
// what they would replace. The zero value is what runs everywhere.
type Trials struct {
	HeldRows bool // top-k of many rows of up to 8192 scores, a row in the registers of one block
	// Teams computes 656-byte rows in one piece, without segments and their combine: one thread block for each unit of
	// work while there are enough, clusters of four or eight, with the same bits, for the rest. bf16 rows, which are in
	// one piece anyway, get clusters of eight for what whole waves leave.
	Teams bool
}

// With is k with other trials. Both share modules, which k closes.
func (k *Kernels) With(t Trials) *Kernels {
	c := *k
	c.trials = t
	return &c
}

// SparseSegments is how decode cuts rows of up to width keys of a layout.
func (k *Kernels) SparseSegments(kind layout.Kind, width int32) (segments, blocks int32) {
	all := max((width+sparseKeys-1)/sparseKeys, 1)
	if k.trials.Teams && len(sparseKernels[kind].teams) > 0 && all <= teamMostBlocks {
		return 1, all
	}
	return SparseSegments(width)
}

// sparseTeam is a kernel whose clusters share a unit of work.
type sparseTeam struct {
	kernel string
	blocks int64 // of a cluster
	waves  int64 // the most that are worth it: in more, one thread block for each unit is faster
}

// teamMostBlocks is the length of rows that are computed in one piece, in blocks of 64 keys.
const teamMostBlocks = 32

// sparsePiece is the launch of some rows of a call: units of work by thread blocks alone or in clusters.
type sparsePiece struct {
	kernel      string
	first, rows int32
	blocks      int64 // of a cluster
}

// pieces cuts the rows of a call, each of so many units of work, into whole waves of one thread block a unit, and the
// rest, which teams share as long as they are few.
func (r sparseRows) pieces(rows int32, units, multiprocessors int64) []sparsePiece {
	wave := int32(max(multiprocessors/units, 1))
	whole := rows / wave * wave
	rest := int64(rows-whole) * units
	for _, t := range r.teams {
		if rest == 0 || rest*t.blocks > t.waves*multiprocessors {
			continue
		}
		p := []sparsePiece{{r.kernel, 0, whole, 1}, {t.kernel, whole, rows - whole, t.blocks}}
		if whole == 0 {
			p = p[1:]
		}
		return p
	}
	return []sparsePiece{{r.kernel, 0, rows, 1}}
}

// rowsFrom is the same call for rows [first, first+rows) alone.
func (a SparseAttendArgs) rowsFrom(first, rows int32) SparseAttendArgs {
	n := int64(first)
	for i := range a.Streams {
		if v := &a.Streams[i]; v.Width != 0 {
			v.Indices, v.Lens = v.Indices.Add(n*v.IndexStride*4), v.Lens.Add(n*v.LenStride*4)
		}
	}
	a.Q, a.Out, a.Rows = a.Q.Add(n*a.QStride*2), a.Out.Add(n*a.OutStride*2), rows
	if a.LSE != 0 {
		a.LSE = a.LSE.Add(n * a.LSEStride * 4)
	}
	if a.Max != 0 {
		a.Max = a.Max.Add(n * a.MaxStride * 4)
	}
	return a
}

// inPieces launches the pieces of a call whose rows are in one segment.
func (k *Kernels) inPieces(s *Stream, rows sparseRows, a *SparseAttendArgs) error {
	groups := headGroups(a.Heads)
	for _, p := range rows.pieces(a.Rows, groups, int64(k.device.props.SMs)) {
		part, units := a.rowsFrom(p.first, p.rows), int64(p.rows)*groups
		if p.blocks == 1 {
			if err := runPersistent(k, s, p.kernel, int32(units), 1, &part); err != nil {
				return err
			}
			continue
		}
		fn, err := k.Function(p.kernel)
		if err != nil {
			return err
		}
		if err := Run(s, fn, Launch{Grid: Dim{X: uint32(units * p.blocks)}, Block: Dim{X: uint32(fn.attrs.MaxThreads)},
			Shared: fn.dynamic, Overlap: s.overlap}, &part); err != nil {
			return err
		}
	}
	return nil
}
