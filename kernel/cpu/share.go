package cpu

import "sparrow/internal/device/host"

// Matrix products of few rows are limited by the bandwidth of reading weights. The bytes of all weights together are
// therefore divided among the workers in memory order: one share may be the end of one weight, the whole next weight
// and the beginning of a third. A worker takes many adjacent shares at once; the last shares are short, so that workers
// end at about one time. While the kernels multiply, they prefetch the memory that their worker reads next, including
// the memory after the shares that it has taken.

// fewPlain is the maximum number of rows that count as few if x is not packed.
const fewPlain = 4

// plainFew is the number of weight rows that are not divided between shares if x is not packed.
const plainFew = 4

// shareRows returns the number of weight rows that are not divided between shares. If x is packed or quantised, that is
// the number that the kernels for few rows process at once. Otherwise it is smaller for a small weight, which would
// else belong to one worker.
func shareRows(p *part) int {
	if p.arranged() || p.to-p.from > packedBandFew {
		return packedBandFew
	}
	return plainFew
}

// place is a position in the products: a weight row of a part.
type place struct{ part, row int }

// shares divides products of few rows: share i is the rows from at[i] to at[i+1].
type shares struct {
	at    []place
	bytes int // bytes of all weights
}

func (s *shares) count() int { return len(s.at) - 1 }

// rowBytes returns the size in bytes of a row of a weight, without scales.
func rowBytes(w *host.Matrix) int { return w.Data.Cols * w.Data.DType.Size() }

// With several workers, each has at least sharesEach shares, and more if a share would be larger than shareBytes. So a
// fast worker can take over shares of a slow one.
const (
	sharesEach = 2
	shareBytes = 256 << 10
)

// shareCount returns the number of shares for weights of the given size in bytes.
func shareCount(bytes, workers int) int {
	if workers == 1 {
		return 1
	}
	return workers * max(sharesEach, bytes/(workers*shareBytes))
}

// cut divides the weights of all parts into shares.
func (s *shares) cut(parts []part, workers int) {
	s.bytes = 0
	for i := range parts {
		s.bytes += (parts[i].to - parts[i].from) * rowBytes(parts[i].w)
	}
	n := shareCount(s.bytes, workers)
	s.at = append(s.at[:0], place{})
	before := 0 // bytes of weights before the current row
	for i := range parts {
		rows, size, each := parts[i].to-parts[i].from, rowBytes(parts[i].w), shareRows(&parts[i])
		for row := 0; row < rows; row += each {
			// A share ends before a block whose greater part belongs to the next share.
			unit := min(each, rows-row) * size
			if len(s.at) < n && (before+unit/2)*n > len(s.at)*s.bytes && before > 0 {
				s.at = append(s.at, place{i, row})
			}
			before += unit
		}
	}
	s.at = append(s.at, place{part: len(parts)})
}

// rows returns the rows of a part, which has n rows, in the shares [i, end). There are none if first >= last.
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
