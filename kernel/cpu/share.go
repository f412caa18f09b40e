package cpu

import "sparrow/internal/device/host"

// Matrix products of few rows are limited by the bandwidth of reading weights. The bytes of all weights together are
// therefore divided among the workers in memory order: a share may be the end of one weight, a whole second one and
// the beginning of a third. A worker takes many adjacent shares at once; the last ones are short, so that workers end
// together. While the kernels multiply they prefetch the memory that their worker reads next, also after the shares
// it has taken.

// fewPlain is the largest number of rows that count as few where x is not packed.
const fewPlain = 4

// plainFew is the number of rows of a weight that are not cut where there are few.
const plainFew = 4

// shareRows returns the number of rows that are not split between shares: the rows that the kernels for packed rows
// process at once. Otherwise a smaller weight with unpacked x would belong to one worker.
func shareRows(p *part) int {
	if p.arranged() || p.to-p.from > packedBandFew {
		return packedBandFew
	}
	return plainFew
}

// place is a position: a row of one of the products.
type place struct{ part, row int }

// shares are the products of few rows, divided: share i is from at[i] to at[i+1].
type shares struct {
	at    []place
	bytes int // of all weights
}

func (s *shares) count() int { return len(s.at) - 1 }

// rowBytes returns the size of a row of a weight, without scales.
func rowBytes(w *host.Matrix) int { return w.Data.Cols * w.Data.DType.Size() }

// With several workers, each has at least sharesEach shares, and more if a share would be larger than shareBytes: a
// faster worker takes over shares of a slower one.
const (
	sharesEach = 2
	shareBytes = 256 << 10
)

// shareCount returns the number of shares of the given number of bytes of weights.
func shareCount(bytes, workers int) int {
	if workers == 1 {
		return 1
	}
	return workers * max(sharesEach, bytes/(workers*shareBytes))
}

// cut divides the weights of all parts.
func (s *shares) cut(parts []part, workers int) {
	s.bytes = 0
	for i := range parts {
		s.bytes += (parts[i].to - parts[i].from) * rowBytes(parts[i].w)
	}
	n := shareCount(s.bytes, workers)
	s.at = append(s.at[:0], place{})
	before := 0 // bytes before the current row
	for i := range parts {
		rows, size, each := parts[i].to-parts[i].from, rowBytes(parts[i].w), shareRows(&parts[i])
		for row := 0; row < rows; row += each {
			// A share ends before the block whose greater part belongs to the next one.
			unit := min(each, rows-row) * size
			if len(s.at) < n && (before+unit/2)*n > len(s.at)*s.bytes && before > 0 {
				s.at = append(s.at, place{i, row})
			}
			before += unit
		}
	}
	s.at = append(s.at, place{part: len(parts)})
}

// rows returns the rows of a part, which has n, that belong to the shares [i, end): none where the first is not before
// the last.
func (s *shares) rows(i, end, part, n int) (first, last int) {
	from, to := s.at[i], s.at[end]
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
