package plan

// arraysOf lists the arrays a segment needs with their shapes (dispatch 11).
func arraysOf(cfg *Config, p *Plan, s *Segment) []Array {
	l := arrayList{
		list: make([]Array, 0, 14), dims: make([]int, 0, 24),
		cfg: cfg, s: s, rows: s.KernelRows, requests: s.Requests, pages: p.TablePages,
	}
	l.lengths()
	l.tables()
	l.indexer()
	l.kernel()
	l.indices()
	return l.list
}

// arrayList collects arrays; all shapes share one backing slice.
type arrayList struct {
	list []Array
	dims []int
	cfg  *Config
	s    *Segment

	rows, requests, pages int
}

func (l *arrayList) add(name ArrayName, shape ...int) {
	from := len(l.dims)
	l.dims = append(l.dims, shape...)
	l.list = append(l.list, Array{Name: name, DType: I32, Shape: l.dims[from:len(l.dims):len(l.dims)]})
}

func (l *arrayList) lengths() {
	l.add(CacheSeqlens, l.requests)
	l.add(CuSeqlensK, l.requests+1)
	if l.s.NextN > 0 {
		l.add(CuSeqlensQ, l.rows+1)
	} else {
		l.add(CuSeqlensQ, l.requests+1)
	}
	l.add(SeqlensExpanded, l.rows)
}

// tables: verify and draft repeat a request's table for each of its rows where
// rows are entries of their own.
func (l *arrayList) tables() {
	s, cfg := l.s, l.cfg
	entries := l.requests
	if s.NextN > 1 {
		entries = l.rows
	}
	if l.wide() {
		l.add(PageTable1, entries, l.pages*cfg.Page)
	}
	if s.Indexer.Kind != IndexerNone || s.Transform == TransformPaged {
		l.add(RealPageTable, entries, l.pages)
	}
	if s.Convert.Gathers() && s.Form != FormV4SparsePrefill {
		l.add(PageTableFlat, s.Keys)
	}
	if s.Transform == TransformRagged {
		l.add(TopKOffset, l.rows)
	}
}

// wide reports whether the table with one slot per position is needed. Our
// kernels read compact tables. The public ones need it for legacy transforms
// and gathers, except in a decode whose every selection reads the compact one
// (dispatch 14.6).
func (l *arrayList) wide() bool {
	cfg, s := l.cfg, l.s
	if cfg.Catalog == CatalogSparrow {
		return false
	}
	if s.NextN == 0 {
		return s.Transform == TransformPaged || s.Convert.Gathers()
	}
	dropped := cfg.Page > 1 && cfg.N <= 1 && s.FusedTopK && l.fusedV2()
	return !dropped
}

// fusedV2 reports whether the newer fused selection kernel serves this model.
func (l *arrayList) fusedV2() bool {
	cfg := l.cfg
	return cfg.Catalog == CatalogPublic && cfg.Hardware.Arch.CUDA() && cfg.TopK == TopKSGL && !cfg.HiSparse &&
		cfg.Model.K <= 2048 && !(cfg.Hardware.Arch.sm12x() && cfg.Model.v4())
}

func (l *arrayList) indexer() {
	s := l.s
	switch s.Indexer.Kind {
	case IndexerRagged:
		l.add(KStart, l.rows)
		l.add(KEnd, l.rows)
		l.add(TokenToRequest, l.rows)
	case IndexerPagedNative:
		l.add(CtxLens2D, l.requests, s.Indexer.NextN)
		l.schedule()
	case IndexerPagedSplit:
		l.add(CtxLens2D, l.rows, 1)
		l.schedule()
		if s.NextN == 0 {
			l.add(TokenToRequest, l.rows)
		}
	case IndexerNone, IndexerCarry, IndexerKOnly, IndexerKOnlyWithIndices, IndexerContiguous:
	}
	if s.FusedTopK && l.fusedV2() {
		l.add(TopKPlan, l.rows+1)
	}
}

func (l *arrayList) schedule() {
	if l.cfg.Hardware.Arch.CUDA() {
		l.add(PagedSchedule, l.cfg.Hardware.SMs+1, 2)
	}
}

func (l *arrayList) kernel() {
	s, cfg := l.s, l.cfg
	if s.Form == FormDenseMHA {
		return
	}
	if s.Form == FormSparseMLA {
		l.add(DSACacheSeqlens, l.rows)
	}
	switch s.Kernel {
	case FA3:
		l.add(DSACuK, l.rows+1)
		l.add(DSACuQ, l.rows+1)
	case FlashMLAKV, SparseBlock, V4Paged:
		if cfg.Hardware.Arch.CUDA() {
			l.add(SplitMetadata, int(splitParts(&cfg.Hardware, s.KernelHeads)), 8)
			l.add(NumSplits, l.rows+1)
		}
	}
}

func (l *arrayList) indices() {
	s, m := l.s, &l.cfg.Model
	switch s.Form {
	case FormSparseMLA:
		l.add(Selection, l.rows, m.K)
	case FormV4Paged:
		l.add(WindowIndices, l.rows, roundUp(m.Window, 64))
		if s.NeedIndices {
			l.add(ExtraIndices, l.rows, roundUp(m.K, 64))
		}
	case FormV4SparsePrefill:
		l.add(CombinedIndices, l.rows, selectionWidth(m, s.Form))
	case FormDenseMHA:
		if s.NeedIndices {
			l.add(Selection, l.rows, m.K)
		}
	case FormEmpty:
	}
}

// Find returns the array of that name, or false where the segment needs none.
func (s *Segment) Find(name ArrayName) (Array, bool) {
	for _, a := range s.Arrays {
		if a.Name == name {
			return a, true
		}
	}
	return Array{}, false
}
