package record

import "sparrow/kernel"

// Every operation is written out, so that one that is added to kernel.Operations cannot go unnoticed here.

// run notes an operation and carries it out.
func run[A any](d *Device, name string, a A, do func(A) error) error {
	d.note(name, a)
	if d.fail != nil && d.running {
		if err := d.fail(name); err != nil {
			return err
		}
	}
	if d.dry {
		return nil
	}
	return do(a)
}

func (d *Device) Embed(a kernel.EmbedArgs) error { return run(d, "Embed", a, d.dev.Embed) }

func (d *Device) Norm(a kernel.NormArgs) error { return run(d, "Norm", a, d.dev.Norm) }

func (d *Device) Multiply(a kernel.MultiplyArgs) error { return run(d, "Multiply", a, d.dev.Multiply) }

func (d *Device) Project(a kernel.ProjectArgs) error { return run(d, "Project", a, d.dev.Project) }

func (d *Device) Take(a kernel.TakeArgs) error { return run(d, "Take", a, d.dev.Take) }

func (d *Device) Angles(a kernel.AngleArgs) error { return run(d, "Angles", a, d.dev.Angles) }

func (d *Device) Rotate(a kernel.RotateArgs) error { return run(d, "Rotate", a, d.dev.Rotate) }

func (d *Device) Absorb(a kernel.AbsorbArgs) error { return run(d, "Absorb", a, d.dev.Absorb) }

func (d *Device) Expand(a kernel.ExpandArgs) error { return run(d, "Expand", a, d.dev.Expand) }

func (d *Device) StoreRows(a kernel.StoreArgs) error { return run(d, "StoreRows", a, d.dev.StoreRows) }

func (d *Device) GatherRows(a kernel.GatherArgs) error {
	return run(d, "GatherRows", a, d.dev.GatherRows)
}

func (d *Device) StoreIndex(a kernel.IndexStoreArgs) error {
	return run(d, "StoreIndex", a, d.dev.StoreIndex)
}

func (d *Device) GatherIndex(a kernel.IndexGatherArgs) error {
	return run(d, "GatherIndex", a, d.dev.GatherIndex)
}

func (d *Device) ConvertPages(a kernel.ConvertArgs) error {
	return run(d, "ConvertPages", a, d.dev.ConvertPages)
}

func (d *Device) IndexQuery(a kernel.IndexQueryArgs) error {
	return run(d, "IndexQuery", a, d.dev.IndexQuery)
}

func (d *Device) Scores(a kernel.ScoreArgs) error { return run(d, "Scores", a, d.dev.Scores) }

func (d *Device) Select(a kernel.SelectArgs) error { return run(d, "Select", a, d.dev.Select) }

func (d *Device) Locate(a kernel.LocateArgs) error { return run(d, "Locate", a, d.dev.Locate) }

func (d *Device) SparseAttend(a kernel.SparseArgs) error {
	return run(d, "SparseAttend", a, d.dev.SparseAttend)
}

func (d *Device) DenseAttend(a kernel.DenseArgs) error {
	return run(d, "DenseAttend", a, d.dev.DenseAttend)
}

func (d *Device) Gate(a kernel.GateArgs) error { return run(d, "Gate", a, d.dev.Gate) }

func (d *Device) Route(a kernel.RouteArgs) error { return run(d, "Route", a, d.dev.Route) }

func (d *Device) Experts(a kernel.ExpertArgs) error { return run(d, "Experts", a, d.dev.Experts) }

func (d *Device) HyperPre(a kernel.HyperPreArgs) error { return run(d, "HyperPre", a, d.dev.HyperPre) }

func (d *Device) HyperPost(a kernel.HyperPostArgs) error {
	return run(d, "HyperPost", a, d.dev.HyperPost)
}

func (d *Device) HyperHead(a kernel.HyperHeadArgs) error {
	return run(d, "HyperHead", a, d.dev.HyperHead)
}

func (d *Device) HeadNorm(a kernel.HeadNormArgs) error { return run(d, "HeadNorm", a, d.dev.HeadNorm) }

func (d *Device) Compress(a kernel.CompressArgs) error { return run(d, "Compress", a, d.dev.Compress) }

func (d *Device) Put(a kernel.PutArgs) error { return run(d, "Put", a, d.dev.Put) }

func (d *Device) StoreEntries(a kernel.EntryStoreArgs) error {
	return run(d, "StoreEntries", a, d.dev.StoreEntries)
}

func (d *Device) StoreKeys(a kernel.KeyStoreArgs) error {
	return run(d, "StoreKeys", a, d.dev.StoreKeys)
}

func (d *Device) DualAttend(a kernel.DualArgs) error {
	return run(d, "DualAttend", a, d.dev.DualAttend)
}

func (d *Device) FlatAttend(a kernel.FlatArgs) error {
	return run(d, "FlatAttend", a, d.dev.FlatAttend)
}

func (d *Device) Unpack(a kernel.UnpackArgs) error { return run(d, "Unpack", a, d.dev.Unpack) }

func (d *Device) Combine(a kernel.CombineArgs) error { return run(d, "Combine", a, d.dev.Combine) }

func (d *Device) RouteRoot(a kernel.RootRouteArgs) error {
	return run(d, "RouteRoot", a, d.dev.RouteRoot)
}

func (d *Device) RouteHash(a kernel.HashRouteArgs) error {
	return run(d, "RouteHash", a, d.dev.RouteHash)
}

func (d *Device) Copy(a kernel.CopyArgs) error { return run(d, "Copy", a, d.dev.Copy) }

func (d *Device) Candidates(a kernel.CandidateArgs) error {
	return run(d, "Candidates", a, d.dev.Candidates)
}

func (d *Device) Sample(a kernel.SampleArgs) error { return run(d, "Sample", a, d.dev.Sample) }

func (d *Device) Accept(a kernel.AcceptArgs) error { return run(d, "Accept", a, d.dev.Accept) }
