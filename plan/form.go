package plan

// shapeKernel settles what follows from the kernel of a sparse segment: form,
// padded heads, conversion and transform. RAGGED follows from the kernel
// reading a gathered tensor and from nothing else (dispatch 10). prefix says
// whether any key must come from the cache: where the catalogue sparrow plans
// that is always so, for chunked must equal whole.
func shapeKernel(cfg *Config, s *Segment, prefix bool) {
	e := catalogueOf(cfg.Catalog).entry(s.Kernel)
	setHeads(cfg, s, e)
	prompt := s.NextN == 0
	s.Form, s.Transform, s.Convert = FormSparseMLA, TransformPaged, ConvertNone
	if cfg.Model.v4() {
		s.Form = FormV4Paged
	}
	if !prompt || e.reads.has(cfg.Layout) {
		s.RopeInKernel = e.ropes && cfg.KV == FP8E4M3
		return
	}
	if e.rewrites.has(cfg.Layout) {
		s.Convert = ConvertRawToBlock
		return
	}
	s.Transform = TransformRagged
	if cfg.Model.v4() {
		s.Form = FormV4SparsePrefill
	}
	// Without a prefix the sparse kernel may read new latents as computed.
	if prefix || cfg.Model.v4() || e.gatherBy == ConvertGatherRequant {
		s.Convert = e.gatherBy
	}
}

// shapeDense settles a dense segment; gather says whether keys are read back.
func shapeDense(cfg *Config, s *Segment, k Kernel, gather Convert) {
	s.Form, s.Kernel, s.Convert, s.Transform = FormDenseMHA, k, gather, TransformNone
	setHeads(cfg, s, catalogueOf(cfg.Catalog).entry(k))
}

func setHeads(cfg *Config, s *Segment, e *entry) {
	s.KernelHeads, s.HeadRepeat = cfg.Model.Heads, 1
	if e.heads != nil {
		s.KernelHeads, s.HeadRepeat, _ = e.heads(&cfg.Hardware, cfg.Model.Heads)
	}
	s.Limit = "no limit"
	if e.rows != nil {
		s.RowsPerLaunch, s.Limit = e.rows(&cfg.Hardware, s.KernelHeads)
	}
}

// autoTarget is the kernel that serves prompt rows where no batch can change
// it: always in the sparrow catalogue, and the paged choice of the public one.
func autoTarget(cfg *Config) Kernel {
	switch cfg.Prefill {
	case Auto:
		switch cfg.Layout {
		case FP8Row656:
			return SparseBlock
		case FP8Row576:
			return SparseRaw
		case BF16Row1152, F32Row2304, LayoutNone, V4Row584, V4F32Row2048, IndexPage132, IndexF32Row512, IndexPage68:
			return SparseFlat
		}
	case FlashMLAAuto:
		if cfg.Layout == BF16Row1152 {
			return FlashMLASparse
		}
		return FlashMLAKV
	}
	return cfg.Prefill
}
