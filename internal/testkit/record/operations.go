package record

import "sparrow/kernel"

// Every operation is written out, so that one that is added to kernel.Operations cannot go unnoticed here.

func (d *Device) Embed(a kernel.EmbedArgs) error {
	d.note("Embed", a)
	return d.dev.Embed(a)
}

func (d *Device) Norm(a kernel.NormArgs) error {
	d.note("Norm", a)
	return d.dev.Norm(a)
}

func (d *Device) Multiply(a kernel.MultiplyArgs) error {
	d.note("Multiply", a)
	return d.dev.Multiply(a)
}

func (d *Device) Project(a kernel.ProjectArgs) error {
	d.note("Project", a)
	return d.dev.Project(a)
}

func (d *Device) Take(a kernel.TakeArgs) error {
	d.note("Take", a)
	return d.dev.Take(a)
}

func (d *Device) Angles(a kernel.AngleArgs) error {
	d.note("Angles", a)
	return d.dev.Angles(a)
}

func (d *Device) Rotate(a kernel.RotateArgs) error {
	d.note("Rotate", a)
	return d.dev.Rotate(a)
}

func (d *Device) Absorb(a kernel.AbsorbArgs) error {
	d.note("Absorb", a)
	return d.dev.Absorb(a)
}

func (d *Device) Expand(a kernel.ExpandArgs) error {
	d.note("Expand", a)
	return d.dev.Expand(a)
}

func (d *Device) StoreRows(a kernel.StoreArgs) error {
	d.note("StoreRows", a)
	return d.dev.StoreRows(a)
}

func (d *Device) GatherRows(a kernel.GatherArgs) error {
	d.note("GatherRows", a)
	return d.dev.GatherRows(a)
}

func (d *Device) StoreIndex(a kernel.IndexStoreArgs) error {
	d.note("StoreIndex", a)
	return d.dev.StoreIndex(a)
}

func (d *Device) GatherIndex(a kernel.IndexGatherArgs) error {
	d.note("GatherIndex", a)
	return d.dev.GatherIndex(a)
}

func (d *Device) ConvertPages(a kernel.ConvertArgs) error {
	d.note("ConvertPages", a)
	return d.dev.ConvertPages(a)
}

func (d *Device) IndexQuery(a kernel.IndexQueryArgs) error {
	d.note("IndexQuery", a)
	return d.dev.IndexQuery(a)
}

func (d *Device) Scores(a kernel.ScoreArgs) error {
	d.note("Scores", a)
	return d.dev.Scores(a)
}

func (d *Device) Select(a kernel.SelectArgs) error {
	d.note("Select", a)
	return d.dev.Select(a)
}

func (d *Device) Locate(a kernel.LocateArgs) error {
	d.note("Locate", a)
	return d.dev.Locate(a)
}

func (d *Device) SparseAttend(a kernel.SparseArgs) error {
	d.note("SparseAttend", a)
	return d.dev.SparseAttend(a)
}

func (d *Device) DenseAttend(a kernel.DenseArgs) error {
	d.note("DenseAttend", a)
	return d.dev.DenseAttend(a)
}

func (d *Device) Gate(a kernel.GateArgs) error {
	d.note("Gate", a)
	return d.dev.Gate(a)
}

func (d *Device) Route(a kernel.RouteArgs) error {
	d.note("Route", a)
	return d.dev.Route(a)
}

func (d *Device) Experts(a kernel.ExpertArgs) error {
	d.note("Experts", a)
	return d.dev.Experts(a)
}

func (d *Device) HyperPre(a kernel.HyperPreArgs) error {
	d.note("HyperPre", a)
	return d.dev.HyperPre(a)
}

func (d *Device) HyperPost(a kernel.HyperPostArgs) error {
	d.note("HyperPost", a)
	return d.dev.HyperPost(a)
}

func (d *Device) HyperHead(a kernel.HyperHeadArgs) error {
	d.note("HyperHead", a)
	return d.dev.HyperHead(a)
}

func (d *Device) HeadNorm(a kernel.HeadNormArgs) error {
	d.note("HeadNorm", a)
	return d.dev.HeadNorm(a)
}

func (d *Device) Compress(a kernel.CompressArgs) error {
	d.note("Compress", a)
	return d.dev.Compress(a)
}

func (d *Device) Put(a kernel.PutArgs) error {
	d.note("Put", a)
	return d.dev.Put(a)
}

func (d *Device) StoreEntries(a kernel.EntryStoreArgs) error {
	d.note("StoreEntries", a)
	return d.dev.StoreEntries(a)
}

func (d *Device) StoreKeys(a kernel.KeyStoreArgs) error {
	d.note("StoreKeys", a)
	return d.dev.StoreKeys(a)
}

func (d *Device) DualAttend(a kernel.DualArgs) error {
	d.note("DualAttend", a)
	return d.dev.DualAttend(a)
}

func (d *Device) FlatAttend(a kernel.FlatArgs) error {
	d.note("FlatAttend", a)
	return d.dev.FlatAttend(a)
}

func (d *Device) Unpack(a kernel.UnpackArgs) error {
	d.note("Unpack", a)
	return d.dev.Unpack(a)
}

func (d *Device) Combine(a kernel.CombineArgs) error {
	d.note("Combine", a)
	return d.dev.Combine(a)
}

func (d *Device) RouteRoot(a kernel.RootRouteArgs) error {
	d.note("RouteRoot", a)
	return d.dev.RouteRoot(a)
}

func (d *Device) RouteHash(a kernel.HashRouteArgs) error {
	d.note("RouteHash", a)
	return d.dev.RouteHash(a)
}

func (d *Device) Copy(a kernel.CopyArgs) error {
	d.note("Copy", a)
	return d.dev.Copy(a)
}

func (d *Device) Candidates(a kernel.CandidateArgs) error {
	d.note("Candidates", a)
	return d.dev.Candidates(a)
}
