package plan

// hash is FNV-1a over 64-bit words: stable across processes and versions of
// the runtime, cheap, and free of allocation.
type hash uint64

const (
	fnvOffset hash = 14695981039346656037
	fnvPrime  hash = 1099511628211
)

func newHash() hash { return fnvOffset }

func (h *hash) word(v uint64) {
	for range 8 {
		*h = (*h ^ hash(v&0xff)) * fnvPrime
		v >>= 8
	}
}

func (h *hash) int(v int) { h.word(uint64(v)) }

func (h *hash) flags(list ...bool) {
	var v uint64
	for i, f := range list {
		if f {
			v |= 1 << i
		}
	}
	h.word(v)
}

// fingerprint hashes what a captured graph takes from the configuration.
func fingerprint(c *Config) Key {
	h := newHash()
	h.word(uint64(c.Catalog)<<40 | uint64(c.Hardware.Arch)<<32 | uint64(c.Prefill)<<24 | uint64(c.Decode)<<16 | uint64(c.Layout)<<8 | uint64(c.IndexLayout))
	h.word(uint64(c.TopK)<<24 | uint64(c.TieBreak)<<16 | uint64(c.Scores)<<8 | uint64(c.Model.Family))
	h.flags(c.Fused, c.Deterministic, c.HiSparse, c.TBO, c.DenseOK, c.Slicing)
	m, hw := &c.Model, &c.Hardware
	for _, v := range []int{c.Page, c.T, c.C, c.N, int(c.CP.Kind), c.CP.Size,
		m.Heads, m.K, m.IndexHeads, m.QKDim, m.VDim, m.Layers, m.Window, hw.SmemOptin, hw.SMs} {
		h.int(v)
	}
	for l, shared := range c.Shared {
		if shared {
			h.int(l)
		}
	}
	for _, ratio := range m.Ratios {
		h.int(ratio)
	}
	return Key(h)
}

// keyOf hashes a plan: configuration, mode, and per segment everything that
// shapes its launches. Reasons and byte counts do not enter, nor do the spans
// of decode-like segments: padded batches of one size share a graph.
func keyOf(c *Config, p *Plan) Key {
	h := hash(c.Fingerprint)
	h.word(uint64(p.Mode)<<8 | uint64(p.Graph))
	h.int(p.TablePages)
	for i := range p.Segments {
		s := &p.Segments[i]
		h.word(uint64(s.Row)<<56 | uint64(s.Form)<<48 | uint64(s.Kernel)<<40 | uint64(s.Layout)<<32 |
			uint64(s.Convert)<<24 | uint64(s.Transform)<<16 | uint64(s.Indexer.Kind)<<8 | uint64(s.Variant))
		h.flags(s.FusedTopK, s.NeedIndices, s.RopeInKernel, s.SplitsFixed)
		h.int(s.KernelRows)
		h.int(s.Requests)
		h.int(s.NextN)
		h.int(s.KernelHeads<<16 | s.HeadRepeat)
		h.int(s.Indexer.RowsPerChunk)
		h.int(s.Indexer.ScoreWidth)
		h.int(s.RowsPerLaunch)
		for _, l := range s.Launches {
			h.int(l.Rows)
		}
		if s.Row.DecodeLike() || s.NextN > 0 {
			continue
		}
		for _, sp := range s.Spans {
			h.int(sp.Request)
			h.int(sp.From)
			h.int(sp.To)
		}
		h.int(s.Keys)
	}
	return Key(h)
}
