package cpu

import (
	"sync/atomic"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// Matrix products of few rows are limited by reading weights. Memory is idle while workers wait for each other or for
// an operation that only one of them computes. Waiting workers therefore prefetch their share of the weights of the
// next product. The first bytes of that share have already been prefetched by the kernels, while they multiplied the
// last rows of the current product. The next product is predicted to be the one that followed in the previous pass.
// Results do not depend on the prediction.

const (
	// aheadBytes is the maximum number of bytes that a worker prefetches: a part of its L2 cache.
	aheadBytes = 512 << 10
	// aheadPiece is the number of bytes that a worker prefetches between two polls: fewer than a core can have in
	// flight.
	aheadPiece = 1 << 10
)

// stage is a matrix product of few rows: the weights that each worker reads, and the stage that followed in the last
// pass.
type stage struct {
	bytes   int        // bytes of all weights
	workers int        // number of workers that share the weights
	spans   [][][]byte // by worker, in the order of reading; not changed after publication
	next    *stage
}

// stageKey identifies a stage by the first of its weights and the part of it that is used.
type stageKey struct {
	w    *host.Matrix
	part headPart
}

// headPart selects what a product reads: a whole weight, the key or the value rows of each head of an up-projection, or
// experts.
type headPart int

const (
	wholeWeight headPart = iota
	keyRows              // key rows of each head, for absorb
	valueRows            // value rows of each head, for expand
	expertRows           // experts; the key has the first expert
)

// ahead describes the weights that waiting workers prefetch.
type ahead struct {
	stages map[stageKey]*stage
	last   *stage
	now    atomic.Pointer[stage] // stage whose weights are being prefetched, or nil
	places []aheadPlace          // one for each worker
}

// aheadPlace is the position up to which a worker has prefetched. Each is in its own cache lines.
type aheadPlace struct {
	of           *stage
	span, offset int
	_            [128 - 24]byte
}

// begin records that a product begins and makes waiting workers prefetch the product that followed it last time. Spans
// are computed once, and again if the weights or the number of workers change.
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

// first returns the first bytes of weights that a worker reads in the next product, or nil if that product is not
// known.
func (a *ahead) first(worker int) []byte {
	if s := a.now.Load(); s != nil && len(s.spans[worker]) > 0 {
		return s.spans[worker][0]
	}
	return nil
}

// fetch prefetches one piece of a worker's next weights. It returns false if nothing was left to prefetch.
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

// spansOf lists the memory that each worker reads if the items are divided as the pool divides them. add appends the
// weights of an item.
func spansOf(d *Device, items int, add func(to [][]byte, item int) [][]byte) [][][]byte {
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

// shareSpans lists the weights that each worker reads in the shares of products.
func shareSpans(d *Device, st *multiplyState) [][][]byte {
	return spansOf(d, st.shares.count(), func(to [][]byte, item int) [][]byte {
		for i := range st.parts {
			p := &st.parts[i]
			if n0, n1 := st.shares.rows(item, item+1, i, p.to-p.from); n0 < n1 {
				to = append(to, host.Bytes(p.w.Data.Slice(p.from+n0, p.from+n1)))
			}
		}
		return to
	})
}

// headsAhead is begin for a product of few rows with the key or the value rows of an up-projection.
func headsAhead(d *Device, w *host.Matrix, part headPart, rows int, dims kernel.LatentDims) {
	if rows > 2*vec.GroupRows {
		return
	}
	from, to, each := 0, dims.Nope, dims.Nope+dims.V
	if part == valueRows {
		from, to = dims.Nope, each
	}
	d.ahead.begin(stageKey{w, part}, dims.Heads*(to-from)*rowBytes(w), d.pool.Limit(), func() [][][]byte {
		return spansOf(d, dims.Heads, func(spans [][]byte, h int) [][]byte {
			return append(spans, host.Bytes(w.Data.Slice(h*each+from, h*each+to)))
		})
	})
}
