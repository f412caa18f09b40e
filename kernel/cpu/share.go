package cpu

import "sparrow/kernel/host"

// The time of products of few rows is bound by the bandwidth of reading weights. The bytes of all weights together are
// therefore divided among the workers in memory order: a share may be the end of one weight, a whole second one and
// the beginning of a third. The kernels prefetch the weights they multiply next, but not the first ones of a share, so
// shares are few and long.

// fewPlain is the rows that are few where x is taken as it is.
const fewPlain = 4

// place is a row of the weight of one of the products.
type place struct{ part, row int }

// shares are the products of few rows, divided: share i is from at[i] to at[i+1].
type shares struct{ at []place }

func (s *shares) count() int { return len(s.at) - 1 }

// rowBytes is the size of a row of a weight, without scales.
func rowBytes(w *host.Matrix) int { return w.Data.Cols * w.Data.DType.Size() }

// sharesEach is the number of shares for each of several workers: a faster worker takes shares of a slower one.
const sharesEach = 2

// cut divides the weights of all parts.
func (s *shares) cut(parts []part, workers int) {
	total := 0
	for i := range parts {
		total += parts[i].w.Out() * rowBytes(parts[i].w)
	}
	n := 1
	if workers > 1 {
		n = sharesEach * workers
	}
	s.at = append(s.at[:0], place{})
	before := 0 // bytes before the current row
	for i := range parts {
		rows, size := parts[i].w.Out(), rowBytes(parts[i].w)
		for row := 0; row < rows; row += packedBandFew {
			// A share ends before the block whose greater part belongs to the next one.
			unit := min(packedBandFew, rows-row) * size
			if len(s.at) < n && (before+unit/2)*n > len(s.at)*total && before > 0 {
				s.at = append(s.at, place{i, row})
			}
			before += unit
		}
	}
	s.at = append(s.at, place{part: len(parts)})
}

// rows is the rows of a part's weight, which has n, that belong to share i: none where the first is not before the
// last.
func (s *shares) rows(i, part, n int) (first, last int) {
	from, to := s.at[i], s.at[i+1]
	switch {
	case part < from.part:
		first = n
	case part == from.part:
		first = from.row
	}
	switch {
	case part < to.part:
		last = n
	case part == to.part:
		last = to.row
	}
	return first, last
}
