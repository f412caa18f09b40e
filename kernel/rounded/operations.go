package rounded

import "sparrow/kernel"

var _ kernel.Device = (*Device)(nil)

// Embed rounds its results to bf16.
func (d *Device) Embed(a kernel.EmbedArgs) error { return run(a, d.Device.Embed) }

// Norm rounds its results to bf16.
func (d *Device) Norm(a kernel.NormArgs) error { return run(a, d.Device.Norm) }

// Multiply rounds its results to bf16.
func (d *Device) Multiply(a kernel.MultiplyArgs) error { return run(a, d.Device.Multiply) }

// Project rounds its results to bf16.
func (d *Device) Project(a kernel.ProjectArgs) error { return run(a, d.Device.Project) }

// Take rounds its results to bf16.
func (d *Device) Take(a kernel.TakeArgs) error { return run(a, d.Device.Take) }

// Angles rounds its results to bf16.
func (d *Device) Angles(a kernel.AngleArgs) error { return run(a, d.Device.Angles) }

// Rotate rounds its results to bf16.
func (d *Device) Rotate(a kernel.RotateArgs) error { return run(a, d.Device.Rotate) }

// Absorb rounds its results to bf16.
func (d *Device) Absorb(a kernel.AbsorbArgs) error { return run(a, d.Device.Absorb) }

// Expand rounds its results to bf16.
func (d *Device) Expand(a kernel.ExpandArgs) error { return run(a, d.Device.Expand) }

// StoreRows rounds its results to bf16.
func (d *Device) StoreRows(a kernel.StoreArgs) error { return run(a, d.Device.StoreRows) }

// GatherRows rounds its results to bf16.
func (d *Device) GatherRows(a kernel.GatherArgs) error { return run(a, d.Device.GatherRows) }

// StoreIndex rounds its results to bf16.
func (d *Device) StoreIndex(a kernel.IndexStoreArgs) error { return run(a, d.Device.StoreIndex) }

// GatherIndex rounds its results to bf16.
func (d *Device) GatherIndex(a kernel.IndexGatherArgs) error {
	return run(a, d.Device.GatherIndex)
}

// ConvertPages rounds its results to bf16.
func (d *Device) ConvertPages(a kernel.ConvertArgs) error { return run(a, d.Device.ConvertPages) }

// IndexQuery rounds its results to bf16.
func (d *Device) IndexQuery(a kernel.IndexQueryArgs) error { return run(a, d.Device.IndexQuery) }

// Scores rounds its results to bf16.
func (d *Device) Scores(a kernel.ScoreArgs) error { return run(a, d.Device.Scores) }

// Select rounds its results to bf16.
func (d *Device) Select(a kernel.SelectArgs) error { return run(a, d.Device.Select) }

// Locate rounds its results to bf16.
func (d *Device) Locate(a kernel.LocateArgs) error { return run(a, d.Device.Locate) }

// SparseAttend rounds its results to bf16.
func (d *Device) SparseAttend(a kernel.SparseArgs) error { return run(a, d.Device.SparseAttend) }

// DenseAttend rounds its results to bf16.
func (d *Device) DenseAttend(a kernel.DenseArgs) error { return run(a, d.Device.DenseAttend) }

// Gate rounds its results to bf16.
func (d *Device) Gate(a kernel.GateArgs) error { return run(a, d.Device.Gate) }

// Route rounds its results to bf16.
func (d *Device) Route(a kernel.RouteArgs) error { return run(a, d.Device.Route) }

// Experts rounds its results to bf16.
func (d *Device) Experts(a kernel.ExpertArgs) error { return run(a, d.Device.Experts) }

// HyperPre rounds its results to bf16.
func (d *Device) HyperPre(a kernel.HyperPreArgs) error { return run(a, d.Device.HyperPre) }

// HyperPost rounds its results to bf16.
func (d *Device) HyperPost(a kernel.HyperPostArgs) error { return run(a, d.Device.HyperPost) }

// HyperHead rounds its results to bf16.
func (d *Device) HyperHead(a kernel.HyperHeadArgs) error { return run(a, d.Device.HyperHead) }

// HeadNorm rounds its results to bf16.
func (d *Device) HeadNorm(a kernel.HeadNormArgs) error { return run(a, d.Device.HeadNorm) }

// Compress rounds its results to bf16.
func (d *Device) Compress(a kernel.CompressArgs) error { return run(a, d.Device.Compress) }

// Put rounds its results to bf16.
func (d *Device) Put(a kernel.PutArgs) error { return run(a, d.Device.Put) }

// StoreEntries rounds its results to bf16.
func (d *Device) StoreEntries(a kernel.EntryStoreArgs) error {
	return run(a, d.Device.StoreEntries)
}

// StoreKeys rounds its results to bf16.
func (d *Device) StoreKeys(a kernel.KeyStoreArgs) error { return run(a, d.Device.StoreKeys) }

// DualAttend rounds its results to bf16.
func (d *Device) DualAttend(a kernel.DualArgs) error { return run(a, d.Device.DualAttend) }

// FlatAttend rounds its results to bf16.
func (d *Device) FlatAttend(a kernel.FlatArgs) error { return run(a, d.Device.FlatAttend) }

// Unpack rounds its results to bf16.
func (d *Device) Unpack(a kernel.UnpackArgs) error { return run(a, d.Device.Unpack) }

// Combine rounds its results to bf16.
func (d *Device) Combine(a kernel.CombineArgs) error { return run(a, d.Device.Combine) }

// RouteRoot rounds its results to bf16.
func (d *Device) RouteRoot(a kernel.RootRouteArgs) error { return run(a, d.Device.RouteRoot) }

// RouteHash rounds its results to bf16.
func (d *Device) RouteHash(a kernel.HashRouteArgs) error { return run(a, d.Device.RouteHash) }

// Copy rounds its results to bf16.
func (d *Device) Copy(a kernel.CopyArgs) error { return run(a, d.Device.Copy) }

// Candidates rounds its results to bf16.
func (d *Device) Candidates(a kernel.CandidateArgs) error { return run(a, d.Device.Candidates) }

// Sample has no results to round.
func (d *Device) Sample(a kernel.SampleArgs) error { return run(a, d.Device.Sample) }

// Accept has no results to round.
func (d *Device) Accept(a kernel.AcceptArgs) error { return run(a, d.Device.Accept) }
