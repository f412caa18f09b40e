package twin

import "sparrow/kernel"

// Embed runs on both devices.
func (d *Device) Embed(a kernel.EmbedArgs) error { return run(d, a, d.first.Embed, d.second.Embed) }

// Norm runs on both devices.
func (d *Device) Norm(a kernel.NormArgs) error { return run(d, a, d.first.Norm, d.second.Norm) }

// Multiply runs on both devices.
func (d *Device) Multiply(a kernel.MultiplyArgs) error {
	return run(d, a, d.first.Multiply, d.second.Multiply)
}

// Project runs on both devices.
func (d *Device) Project(a kernel.ProjectArgs) error {
	return run(d, a, d.first.Project, d.second.Project)
}

// Take runs on both devices.
func (d *Device) Take(a kernel.TakeArgs) error { return run(d, a, d.first.Take, d.second.Take) }

// Angles runs on both devices.
func (d *Device) Angles(a kernel.AngleArgs) error { return run(d, a, d.first.Angles, d.second.Angles) }

// Rotate runs on both devices.
func (d *Device) Rotate(a kernel.RotateArgs) error { return run(d, a, d.first.Rotate, d.second.Rotate) }

// Absorb runs on both devices.
func (d *Device) Absorb(a kernel.AbsorbArgs) error { return run(d, a, d.first.Absorb, d.second.Absorb) }

// Expand runs on both devices.
func (d *Device) Expand(a kernel.ExpandArgs) error { return run(d, a, d.first.Expand, d.second.Expand) }

// StoreRows runs on both devices.
func (d *Device) StoreRows(a kernel.StoreArgs) error {
	return run(d, a, d.first.StoreRows, d.second.StoreRows)
}

// GatherRows runs on both devices.
func (d *Device) GatherRows(a kernel.GatherArgs) error {
	return run(d, a, d.first.GatherRows, d.second.GatherRows)
}

// StoreIndex runs on both devices.
func (d *Device) StoreIndex(a kernel.IndexStoreArgs) error {
	return run(d, a, d.first.StoreIndex, d.second.StoreIndex)
}

// GatherIndex runs on both devices.
func (d *Device) GatherIndex(a kernel.IndexGatherArgs) error {
	return run(d, a, d.first.GatherIndex, d.second.GatherIndex)
}

// ConvertPages runs on both devices.
func (d *Device) ConvertPages(a kernel.ConvertArgs) error {
	return run(d, a, d.first.ConvertPages, d.second.ConvertPages)
}

// IndexQuery runs on both devices.
func (d *Device) IndexQuery(a kernel.IndexQueryArgs) error {
	return run(d, a, d.first.IndexQuery, d.second.IndexQuery)
}

// Scores runs on both devices.
func (d *Device) Scores(a kernel.ScoreArgs) error { return run(d, a, d.first.Scores, d.second.Scores) }

// Select runs on both devices.
func (d *Device) Select(a kernel.SelectArgs) error { return run(d, a, d.first.Select, d.second.Select) }

// Locate runs on both devices.
func (d *Device) Locate(a kernel.LocateArgs) error { return run(d, a, d.first.Locate, d.second.Locate) }

// SparseAttend runs on both devices.
func (d *Device) SparseAttend(a kernel.SparseArgs) error {
	return run(d, a, d.first.SparseAttend, d.second.SparseAttend)
}

// DenseAttend runs on both devices.
func (d *Device) DenseAttend(a kernel.DenseArgs) error {
	return run(d, a, d.first.DenseAttend, d.second.DenseAttend)
}

// Gate runs on both devices.
func (d *Device) Gate(a kernel.GateArgs) error { return run(d, a, d.first.Gate, d.second.Gate) }

// Route runs on both devices.
func (d *Device) Route(a kernel.RouteArgs) error { return run(d, a, d.first.Route, d.second.Route) }

// Experts runs on both devices.
func (d *Device) Experts(a kernel.ExpertArgs) error {
	return run(d, a, d.first.Experts, d.second.Experts)
}

// HyperPre runs on both devices.
func (d *Device) HyperPre(a kernel.HyperPreArgs) error {
	return run(d, a, d.first.HyperPre, d.second.HyperPre)
}

// HyperPost runs on both devices.
func (d *Device) HyperPost(a kernel.HyperPostArgs) error {
	return run(d, a, d.first.HyperPost, d.second.HyperPost)
}

// HyperHead runs on both devices.
func (d *Device) HyperHead(a kernel.HyperHeadArgs) error {
	return run(d, a, d.first.HyperHead, d.second.HyperHead)
}

// HeadNorm runs on both devices.
func (d *Device) HeadNorm(a kernel.HeadNormArgs) error {
	return run(d, a, d.first.HeadNorm, d.second.HeadNorm)
}

// Compress runs on both devices.
func (d *Device) Compress(a kernel.CompressArgs) error {
	return run(d, a, d.first.Compress, d.second.Compress)
}

// Put runs on both devices.
func (d *Device) Put(a kernel.PutArgs) error { return run(d, a, d.first.Put, d.second.Put) }

// StoreEntries runs on both devices.
func (d *Device) StoreEntries(a kernel.EntryStoreArgs) error {
	return run(d, a, d.first.StoreEntries, d.second.StoreEntries)
}

// StoreKeys runs on both devices.
func (d *Device) StoreKeys(a kernel.KeyStoreArgs) error {
	return run(d, a, d.first.StoreKeys, d.second.StoreKeys)
}

// DualAttend runs on both devices.
func (d *Device) DualAttend(a kernel.DualArgs) error {
	return run(d, a, d.first.DualAttend, d.second.DualAttend)
}

// FlatAttend runs on both devices.
func (d *Device) FlatAttend(a kernel.FlatArgs) error {
	return run(d, a, d.first.FlatAttend, d.second.FlatAttend)
}

// Unpack runs on both devices.
func (d *Device) Unpack(a kernel.UnpackArgs) error { return run(d, a, d.first.Unpack, d.second.Unpack) }

// Combine runs on both devices.
func (d *Device) Combine(a kernel.CombineArgs) error {
	return run(d, a, d.first.Combine, d.second.Combine)
}

// RouteRoot runs on both devices.
func (d *Device) RouteRoot(a kernel.RootRouteArgs) error {
	return run(d, a, d.first.RouteRoot, d.second.RouteRoot)
}

// RouteHash runs on both devices.
func (d *Device) RouteHash(a kernel.HashRouteArgs) error {
	return run(d, a, d.first.RouteHash, d.second.RouteHash)
}

// Copy runs on both devices.
func (d *Device) Copy(a kernel.CopyArgs) error { return run(d, a, d.first.Copy, d.second.Copy) }

// Candidates runs on both devices.
func (d *Device) Candidates(a kernel.CandidateArgs) error {
	return run(d, a, d.first.Candidates, d.second.Candidates)
}

// Sample runs on both devices.
func (d *Device) Sample(a kernel.SampleArgs) error {
	return run(d, a, d.first.Sample, d.second.Sample)
}

// Accept runs on both devices.
func (d *Device) Accept(a kernel.AcceptArgs) error {
	return run(d, a, d.first.Accept, d.second.Accept)
}
