package cuda

// RouteArgs are the arguments of the kernel that chooses experts.
type RouteArgs struct {
	Logits       Ptr   // f32 [Rows, Experts]
	Bias         Ptr   // f32 [Experts], for the choice only
	IDs          Ptr   // i32 [Rows, Top], best first
	Weights      Ptr   // f32 [Rows, Top]
	LogitStride  int64 // elements between rows
	IDStride     int64 // entries between rows
	WeightStride int64 // elements between rows
	Rows         int32
	Experts      int32 // at most MaxRouted, a multiple of Groups
	Top          int32 // at most MaxTop
	Groups       int32 // at most MaxGroups
	KeepGroups   int32
	Normalize    int32 // 1: weights are divided by their sum
	Scale        float32
	Reserved     int32
}

// The largest router there is a kernel for.
const (
	MaxRouted = 1024
	MaxGroups = 32
	MaxTop    = 32 // choices of a row
)

// RouteExperts chooses the best experts of every row by sigmoid scores; the lower index wins a tie.
func (k *Kernels) RouteExperts(s *Stream, a *RouteArgs) error {
	c := checks{kernel: "route_experts"}
	a.check(&c)
	return runRows(k, s, &c, a.Rows, longRows, a)
}

// check finds what the kernels cannot take.
func (a *RouteArgs) check(c *checks) {
	c.memory("logits", a.Logits, 4)
	c.memory("bias", a.Bias, 4)
	c.memory("ids", a.IDs, 4)
	c.memory("weights", a.Weights, 4)
	if a.Experts <= 0 || a.Experts > MaxRouted || a.Groups <= 0 || a.Groups > MaxGroups || a.Experts%a.Groups != 0 {
		c.fail("%d experts in %d groups, supported are up to %d in up to %d groups of equal size", a.Experts,
			a.Groups, MaxRouted, MaxGroups)
	} else if a.KeepGroups <= 0 || a.KeepGroups > a.Groups || a.Top <= 0 ||
		a.Top > min(a.KeepGroups*(a.Experts/a.Groups), MaxTop) {
		c.fail("top %d of %d of %d groups of %d experts, at most %d", a.Top, a.KeepGroups, a.Groups,
			a.Experts/a.Groups, MaxTop)
	}
	c.multiple("logit stride", a.LogitStride, 1, int64(a.Experts))
	c.multiple("id stride", a.IDStride, 1, int64(a.Top))
	c.multiple("weight stride", a.WeightStride, 1, int64(a.Top))
	c.flag("normalize", a.Normalize)
	c.count("rows", a.Rows)
}
