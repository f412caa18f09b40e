package plan

// shapeKernel sets the fields of a sparse segment that follow from its kernel: form, padded heads, conversion and
// transform. The transform is RAGGED exactly if the kernel reads a gathered tensor (dispatch 10). prefix is true if any
// key must come from the cache. In the catalogue sparrow it is always true, because a prompt in chunks must give the
// same results as the whole prompt.
func shapeKernel(cfg *Config, e *Entry, s *Segment, prefix bool) {
	setHeads(cfg, s, e)
	prompt := s.NextN == 0
	s.Form, s.Transform, s.Convert = FormSparseMLA, TransformPaged, ConvertNone
	switch {
	case cfg.Model.V4():
		s.Form = FormV4Paged
	case cfg.Model.Dense():
		s.Form, s.Transform = FormDenseMLA, TransformNone
	}
	if !prompt || e.Reads.Has(cfg.Layout) {
		s.RopeInKernel = e.Ropes && cfg.KV == FP8E4M3
		return
	}
	if e.Rewrites.Has(cfg.Layout) {
		s.Convert = ConvertRawToBlock
		return
	}
	s.Transform = TransformRagged
	if cfg.Model.V4() {
		s.Form = FormV4SparsePrefill
	}
	// Without a prefix the sparse kernel may read the new latent rows before they are stored.
	if prefix || cfg.Model.V4() || e.GatherBy == ConvertGatherRequant {
		s.Convert = e.GatherBy
	}
}

func setHeads(cfg *Config, s *Segment, e *Entry) {
	repeat := 1
	if s.KernelHeads = cfg.Model.Heads; e.Heads != nil {
		s.KernelHeads, repeat, _ = e.Heads(&cfg.Hardware, cfg.Model.Heads)
	}
	if !cfg.Runnable {
		s.HeadRepeat = repeat
	}
	s.Limit = "no limit"
	if e.Rows != nil {
		s.RowsPerLaunch, s.Limit = e.Rows(&cfg.Hardware, s.KernelHeads)
	}
}

// autoTarget returns the kernel for prompt rows: the configured kernel or, for auto, the kernel that reads the layout
// in place.
func autoTarget(cfg *Config) Kernel {
	switch {
	case cfg.Prefill != Auto:
		return cfg.Prefill
	case cfg.Layout == FP8Row656:
		return SparseBlock
	case cfg.Layout == FP8Row576:
		return SparseRaw
	}
	return SparseFlat
}
