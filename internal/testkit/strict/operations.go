package strict

import "sparrow/kernel"

var _ kernel.Device = (*Device)(nil)

// Embed keeps the rules of its CUDA operation.
func (d *Device) Embed(a kernel.EmbedArgs) error { return run(d, a, d.gpu.Embed, d.host.Embed) }

// Norm keeps the rules of its CUDA operation.
func (d *Device) Norm(a kernel.NormArgs) error { return run(d, a, d.gpu.Norm, d.host.Norm) }

// Multiply keeps the rules of its CUDA operation.
func (d *Device) Multiply(a kernel.MultiplyArgs) error {
	return run(d, a, d.gpu.Multiply, d.host.Multiply)
}

// Project keeps the rules of its CUDA operation.
func (d *Device) Project(a kernel.ProjectArgs) error { return run(d, a, d.gpu.Project, d.host.Project) }

// Take keeps the rules of its CUDA operation.
func (d *Device) Take(a kernel.TakeArgs) error { return run(d, a, d.gpu.Take, d.host.Take) }

// Angles keeps the rules of its CUDA operation.
func (d *Device) Angles(a kernel.AngleArgs) error { return run(d, a, d.gpu.Angles, d.host.Angles) }

// Rotate keeps the rules of its CUDA operation.
func (d *Device) Rotate(a kernel.RotateArgs) error { return run(d, a, d.gpu.Rotate, d.host.Rotate) }

// Absorb keeps the rules of its CUDA operation.
func (d *Device) Absorb(a kernel.AbsorbArgs) error { return run(d, a, d.gpu.Absorb, d.host.Absorb) }

// Expand keeps the rules of its CUDA operation.
func (d *Device) Expand(a kernel.ExpandArgs) error { return run(d, a, d.gpu.Expand, d.host.Expand) }

// StoreRows keeps the rules of its CUDA operation.
func (d *Device) StoreRows(a kernel.StoreArgs) error {
	return run(d, a, d.gpu.StoreRows, d.host.StoreRows)
}

// GatherRows keeps the rules of its CUDA operation.
func (d *Device) GatherRows(a kernel.GatherArgs) error {
	return run(d, a, d.gpu.GatherRows, d.host.GatherRows)
}

// StoreIndex keeps the rules of its CUDA operation.
func (d *Device) StoreIndex(a kernel.IndexStoreArgs) error {
	return run(d, a, d.gpu.StoreIndex, d.host.StoreIndex)
}

// GatherIndex keeps the rules of its CUDA operation.
func (d *Device) GatherIndex(a kernel.IndexGatherArgs) error {
	return run(d, a, d.gpu.GatherIndex, d.host.GatherIndex)
}

// ConvertPages keeps the rules of its CUDA operation.
func (d *Device) ConvertPages(a kernel.ConvertArgs) error {
	return run(d, a, d.gpu.ConvertPages, d.host.ConvertPages)
}

// IndexQuery keeps the rules of its CUDA operation.
func (d *Device) IndexQuery(a kernel.IndexQueryArgs) error {
	return run(d, a, d.gpu.IndexQuery, d.host.IndexQuery)
}

// Scores keeps the rules of its CUDA operation.
func (d *Device) Scores(a kernel.ScoreArgs) error { return run(d, a, d.gpu.Scores, d.host.Scores) }

// Select keeps the rules of its CUDA operation.
func (d *Device) Select(a kernel.SelectArgs) error { return run(d, a, d.gpu.Select, d.host.Select) }

// Locate keeps the rules of its CUDA operation.
func (d *Device) Locate(a kernel.LocateArgs) error { return run(d, a, d.gpu.Locate, d.host.Locate) }

// SparseAttend keeps the rules of its CUDA operation.
func (d *Device) SparseAttend(a kernel.SparseArgs) error {
	return run(d, a, d.gpu.SparseAttend, d.host.SparseAttend)
}

// DenseAttend keeps the rules of its CUDA operation.
func (d *Device) DenseAttend(a kernel.DenseArgs) error {
	return run(d, a, d.gpu.DenseAttend, d.host.DenseAttend)
}

// Gate keeps the rules of its CUDA operation.
func (d *Device) Gate(a kernel.GateArgs) error { return run(d, a, d.gpu.Gate, d.host.Gate) }

// Route keeps the rules of its CUDA operation.
func (d *Device) Route(a kernel.RouteArgs) error { return run(d, a, d.gpu.Route, d.host.Route) }

// Experts keeps the rules of its CUDA operation.
func (d *Device) Experts(a kernel.ExpertArgs) error { return run(d, a, d.gpu.Experts, d.host.Experts) }

// HyperPre keeps the rules of its CUDA operation.
func (d *Device) HyperPre(a kernel.HyperPreArgs) error {
	return run(d, a, d.gpu.HyperPre, d.host.HyperPre)
}

// HyperPost keeps the rules of its CUDA operation.
func (d *Device) HyperPost(a kernel.HyperPostArgs) error {
	return run(d, a, d.gpu.HyperPost, d.host.HyperPost)
}

// HyperHead keeps the rules of its CUDA operation.
func (d *Device) HyperHead(a kernel.HyperHeadArgs) error {
	return run(d, a, d.gpu.HyperHead, d.host.HyperHead)
}

// HeadNorm keeps the rules of its CUDA operation.
func (d *Device) HeadNorm(a kernel.HeadNormArgs) error {
	return run(d, a, d.gpu.HeadNorm, d.host.HeadNorm)
}

// Compress keeps the rules of its CUDA operation.
func (d *Device) Compress(a kernel.CompressArgs) error {
	return run(d, a, d.gpu.Compress, d.host.Compress)
}

// Put keeps the rules of its CUDA operation.
func (d *Device) Put(a kernel.PutArgs) error { return run(d, a, d.gpu.Put, d.host.Put) }

// StoreEntries keeps the rules of its CUDA operation.
func (d *Device) StoreEntries(a kernel.EntryStoreArgs) error {
	return run(d, a, d.gpu.StoreEntries, d.host.StoreEntries)
}

// StoreKeys keeps the rules of its CUDA operation.
func (d *Device) StoreKeys(a kernel.KeyStoreArgs) error {
	return run(d, a, d.gpu.StoreKeys, d.host.StoreKeys)
}

// DualAttend keeps the rules of its CUDA operation.
func (d *Device) DualAttend(a kernel.DualArgs) error {
	return run(d, a, d.gpu.DualAttend, d.host.DualAttend)
}

// FlatAttend keeps the rules of its CUDA operation.
func (d *Device) FlatAttend(a kernel.FlatArgs) error {
	return run(d, a, d.gpu.FlatAttend, d.host.FlatAttend)
}

// Unpack keeps the rules of its CUDA operation.
func (d *Device) Unpack(a kernel.UnpackArgs) error { return run(d, a, d.gpu.Unpack, d.host.Unpack) }

// Combine keeps the rules of its CUDA operation.
func (d *Device) Combine(a kernel.CombineArgs) error { return run(d, a, d.gpu.Combine, d.host.Combine) }

// RouteRoot keeps the rules of its CUDA operation.
func (d *Device) RouteRoot(a kernel.RootRouteArgs) error {
	return run(d, a, d.gpu.RouteRoot, d.host.RouteRoot)
}

// RouteHash keeps the rules of its CUDA operation.
func (d *Device) RouteHash(a kernel.HashRouteArgs) error {
	return run(d, a, d.gpu.RouteHash, d.host.RouteHash)
}

// Copy keeps the rules of its CUDA operation.
func (d *Device) Copy(a kernel.CopyArgs) error { return run(d, a, d.gpu.Copy, d.host.Copy) }

// Candidates keeps the rules of its CUDA operation.
func (d *Device) Candidates(a kernel.CandidateArgs) error {
	return run(d, a, d.gpu.Candidates, d.host.Candidates)
}
