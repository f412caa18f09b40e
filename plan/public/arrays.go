package public

import "sparrow/plan"

// Arrays lists the arrays that a segment of the plan needs, with their shapes.
func Arrays(cfg *Config, p *plan.Plan, s *plan.Segment) []Array {
	l := arrayList{cfg: cfg, s: s, rows: s.KernelRows, requests: s.Requests, pages: p.TablePages,
		drafts: p.Mode == plan.ModeDraft}
	l.lengths()
	l.tables()
	l.indexer()
	l.kernel()
	l.indices()
	return l.list
}

// arrayList collects the arrays of one segment.
type arrayList struct {
	list []Array
	cfg  *Config
	s    *plan.Segment

	rows, requests, pages int
	drafts                bool // rows of the drafting layer
}

func (l *arrayList) add(name ArrayName, shape ...int) {
	l.list = append(l.list, Array{Name: name, DType: plan.I32, Shape: shape})
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

// tables adds page tables. In verify and draft batches whose rows are separate entries, the table of a request is
// repeated for each of its rows.
func (l *arrayList) tables() {
	s, cfg := l.s, l.cfg
	entries := l.requests
	if s.NextN > 1 {
		entries = l.rows
	}
	if l.wide() {
		l.add(PageTable1, entries, l.pages*cfg.Page)
	}
	if s.Indexer.Kind != plan.IndexerNone || s.Transform == plan.TransformPaged {
		l.add(RealPageTable, entries, l.pages)
	}
	if s.Convert.Gathers() && s.Form != plan.FormV4SparsePrefill {
		l.add(PageTableFlat, s.Keys)
	}
	if s.Transform == plan.TransformRagged {
		l.add(TopKOffset, l.rows)
	}
}

// wide reports whether the table with one slot per position (page_table_1) is needed: for legacy transforms and
// gathers, but not for a decode whose selections all read the table of pages (dispatch 14.6). Verify and draft rows
// count as speculation even if none was configured.
func (l *arrayList) wide() bool {
	cfg, s := l.cfg, l.s
	if s.NextN == 0 {
		return s.Transform == plan.TransformPaged || s.Convert.Gathers()
	}
	dropped := cfg.Page > 1 && cfg.N <= 1 && s.NextN == 1 && !l.drafts && s.FusedTopK && l.fusedV2()
	return !dropped
}

// fusedV2 reports whether the newer fused selection kernel serves this model.
func (l *arrayList) fusedV2() bool {
	cfg, arch := l.cfg, l.cfg.Hardware.Arch
	workstation := arch == plan.SM120 || arch == plan.SM121
	return arch.CUDA() && cfg.TopK == TopKSGL && !cfg.HiSparse && cfg.Model.K <= 2048 &&
		!(workstation && cfg.Model.Family == plan.DeepSeekV4)
}

func (l *arrayList) indexer() {
	s := l.s
	switch s.Indexer.Kind {
	case plan.IndexerRagged:
		l.add(KStart, l.rows)
		l.add(KEnd, l.rows)
		l.add(TokenToRequest, l.rows)
	case plan.IndexerPagedNative:
		l.schedule(l.requests, s.Indexer.NextN)
	case plan.IndexerPagedSplit:
		l.schedule(l.rows, 1)
		if s.NextN == 0 {
			l.add(TokenToRequest, l.rows)
		}
	case plan.IndexerNone, plan.IndexerCarry, plan.IndexerKOnly, plan.IndexerKOnlyWithIndices, plan.IndexerContiguous:
	}
	if s.FusedTopK && l.fusedV2() {
		l.add(TopKPlan, l.rows+1)
	}
}

// schedule adds the lengths for paged scores and, on CUDA, the schedule made from them.
func (l *arrayList) schedule(entries, rows int) {
	if l.cfg.Hardware.Arch.CUDA() {
		l.add(CtxLens2D, entries, rows)
		l.add(PagedSchedule, l.cfg.Hardware.SMs+1, 2)
	}
}

func (l *arrayList) kernel() {
	s, cfg := l.s, l.cfg
	if s.Form == plan.FormSparseMLA {
		l.add(DSACacheSeqlens, l.rows)
	}
	switch s.Kernel {
	case plan.FA3:
		l.add(DSACuK, l.rows+1)
		l.add(DSACuQ, l.rows+1)
	case plan.FlashMLAKV:
		if cfg.Hardware.Arch.CUDA() {
			l.add(SplitMetadata, cfg.Hardware.SplitParts(s.KernelHeads), 8)
			l.add(NumSplits, l.rows+1)
		}
	}
}

func (l *arrayList) indices() {
	s, m := l.s, &l.cfg.Model
	switch s.Form {
	case plan.FormSparseMLA:
		l.add(Selection, l.rows, m.K)
	case plan.FormV4Paged:
		l.add(WindowIndices, l.rows, roundUp64(m.Window))
		if s.NeedIndices {
			l.add(ExtraIndices, l.rows, roundUp64(m.K))
		}
	case plan.FormV4SparsePrefill:
		l.add(CombinedIndices, l.rows, m.SelectionWidth(s.Form))
	case plan.FormDenseMHA:
		if s.NeedIndices {
			l.add(Selection, l.rows, m.K)
		}
	case plan.FormEmpty:
	}
}

// roundUp64 pads a list of indices to whole blocks of the paged kernel.
func roundUp64(n int) int { return (n + 63) / 64 * 64 }
