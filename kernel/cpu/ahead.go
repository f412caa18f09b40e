package cpu

import (
	"sync/atomic"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// Matrix products of few rows are limited by reading weights, and memory is idle while workers wait for each other or
// for an operation that only one of them computes. Waiting workers therefore prefetch their share of the weights of
// the next product. Its beginning has already been prefetched by the kernels, with the last rows of their share. The
// next product is predicted: it is the product that followed in the previous pass. Results do not depend on the
// prediction.

const (
	// aheadBytes is the most that a worker prefetches: a part of its L2 cache.
	aheadBytes = 512 << 10
	// aheadPiece is how many bytes a worker prefetches between two polls: less than a core can have in flight.
	aheadPiece = 1 << 10
)

// stage is a matrix product of few rows: its weights, by worker, and the stage that followed it.
type stage struct {
	bytes   int        // of all weights
	workers int        // that share them
	spans   [][][]byte // by worker, in the order in which it reads them; not changed once they are published
	next    *stage
}

// stageKey identifies a stage: the first of its weights, and the range of it.
type stageKey struct {
	w    *host.Matrix
	part headPart
}

// headPart selects the weights of a product: a whole weight, the rows of each head of an up-projection that it uses,
// or experts.
type headPart int

const (
	wholeWeight headPart = iota
	keyRows              // absorb
	valueRows            // expand
	expertRows           // experts; the key has the first expert
)

// ahead describes the weights that waiting workers prefetch.
type ahead struct {
	stages map[stageKey]*stage
	last   *stage
	now    atomic.Pointer[stage] // whose weights are prefetched, or nil
	places []aheadPlace          // by worker
}

// aheadPlace is the position up to which a worker has prefetched. It has its own cache lines.
type aheadPlace struct {
	of           *stage
	span, offset int
	_            [128 - 24]byte
}

// begin records that a product begins and makes waiting workers prefetch the product that followed it. Spans are
// computed once, and again if other weights follow or the number of workers changes.
func (a *ahead) begin(key stageKey, bytes, workers int, spans func() [][][]byte) {
	s := a.stages[key]
	if s == nil || s.bytes != bytes || s.workers != workers {
		s = &stage{bytes: bytes, workers: workers, spans: spans()}
		if a.stages == nil {
			a.stages = map[stageKey]*stage{}
		}
		a.stages[key] = s
	}
	if a.last != nil {
		a.last.next = s
	}
	a.last = s
	a.now.Store(s.next)
}

// first returns the first of the weights that a worker reads in the next product, nil where it is not known.
func (a *ahead) first(worker int) []byte {
	if s := a.now.Load(); s != nil && len(s.spans[worker]) > 0 {
		return s.spans[worker][0]
	}
	return nil
}

// fetch prefetches a piece of a worker's next weights and reports whether there was one.
func (a *ahead) fetch(worker int) bool {
	s := a.now.Load()
	if s == nil {
		return false
	}
	p := &a.places[worker]
	if p.of != s {
		*p = aheadPlace{of: s}
	}
	spans := s.spans[worker]
	if p.span == len(spans) {
		return false
	}
	rest := spans[p.span][p.offset:]
	vec.Prefetch(rest[:min(aheadPiece, len(rest))])
	if p.offset += aheadPiece; p.offset >= len(spans[p.span]) {
		p.span, p.offset = p.span+1, 0
	}
	return true
}

// spansOf lists the memory that each worker reads for items that are divided as the pool does. add appends the weights
// of an item.
func (d *Device) spansOf(items int, add func(to [][]byte, item int) [][]byte) [][][]byte {
	out := make([][][]byte, d.pool.Workers())
	for w := range out {
		left := aheadBytes
		first, n := d.pool.Share(items, w)
		for i := first; i < first+n && left > 0; i++ {
			for _, span := range add(nil, i) {
				span = span[:min(len(span), left)]
				left -= len(span)
				out[w] = append(out[w], span)
			}
		}
	}
	return out
}

// shareSpans returns the weights of the shares of products.
func (d *Device) shareSpans(st *multiplyState) [][][]byte {
	return d.spansOf(st.shares.count(), func(to [][]byte, item int) [][]byte {
		for i := range st.parts {
			p := &st.parts[i]
			if n0, n1 := st.shares.rows(item, item+1, i, p.to-p.from); n0 < n1 {
				to = append(to, host.Bytes(p.w.Data.Slice(p.from+n0, p.from+n1)))
			}
		}
		return to
	})
}

// headsAhead is begin for a product of few rows with the keys' or the values' part of an up-projection.
func (d *Device) headsAhead(w *host.Matrix, part headPart, rows int, dims kernel.LatentDims) {
	if rows > 2*vec.GroupRows {
		return
	}
	from, to, each := 0, dims.Nope, dims.Nope+dims.V
	if part == valueRows {
		from, to = dims.Nope, each
	}
	d.ahead.begin(stageKey{w, part}, dims.Heads*(to-from)*rowBytes(w), d.pool.Limit(), func() [][][]byte {
		return d.spansOf(dims.Heads, func(spans [][]byte, h int) [][]byte {
			return append(spans, host.Bytes(w.Data.Slice(h*each+from, h*each+to)))
		})
	})
}
