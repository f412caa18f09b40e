package cuda

// RouteArgs are the arguments of the kernel that chooses experts.
type RouteArgs struct {
	Logits       Ptr   // f32 [Rows, Experts]
	Bias         Ptr   // f32 [Experts], added only for the choice; not read if a table chooses
	Table        Ptr   // i32 [TableRows, Top]: experts of each token; zero: the experts are chosen by score
	Tokens       Ptr   // i32 [Rows], if there is a table; a token outside the table sets FaultRow
	IDs          Ptr   // i32 [Rows, Top], best first
	Weights      Ptr   // f32 [Rows, Top]
	Faults       Ptr   // one u32 of fault bits, or zero
	LogitStride  int64 // elements between rows
	TableStride  int64 // entries between rows
	TokenStride  int64 // entries between rows
	IDStride     int64 // entries between rows
	WeightStride int64 // elements between rows
	Rows         int32
	Experts      int32 // at most MaxRouted, a multiple of Groups
	Top          int32 // at most MaxTop
	Groups       int32 // at most MaxGroups
	KeepGroups   int32
	Normalize    int32 // 1: weights are divided by their sum
	Scale        float32
	Root         int32 // 1: scores are sqrt(softplus(logit)), 0: sigmoid(logit)
	TableRows    int32
	Reserved     int32
}

// Limits of the router kernels.
const (
	MaxRouted = 1024
	MaxGroups = 32
	MaxTop    = 32 // maximum choices of a row
)

// RouteExperts chooses the best experts of every row by score, the lower index on a tie, or uses the experts that a
// table lists for its token.
func RouteExperts(k *Kernels, s *Stream, a *RouteArgs) error {
	c := checks{kernel: "route_experts"}
	a.check(&c)
	return runRows(k, s, &c, a.Rows, longRows, a)
}

func (a *RouteArgs) check(c *checks) {
	c.memory("logits", a.Logits, 4)
	if a.Table != 0 {
		c.memory("table", a.Table, 4)
		c.memory("tokens", a.Tokens, 4)
		c.multiple("table stride", a.TableStride, 1, int64(a.Top))
		c.multiple("token stride", a.TokenStride, 1, 1)
		c.positive("table rows", a.TableRows)
	} else {
		c.memory("bias", a.Bias, 4)
	}
	c.memory("ids", a.IDs, 4)
	c.memory("weights", a.Weights, 4)
	if a.Experts <= 0 || a.Experts > MaxRouted || a.Groups <= 0 || a.Groups > MaxGroups || a.Experts%a.Groups != 0 {
		c.fail("there are %d experts in %d groups, want at most %d in at most %d groups of equal size", a.Experts,
			a.Groups, MaxRouted, MaxGroups)
	} else if a.KeepGroups <= 0 || a.KeepGroups > a.Groups || a.Top <= 0 ||
		a.Top > min(a.KeepGroups*(a.Experts/a.Groups), MaxTop) {
		c.fail("the best %d of %d of %d groups of %d experts are requested, want at most "+
			"%d", a.Top, a.KeepGroups, a.Groups,
			a.Experts/a.Groups, MaxTop)
	}
	c.multiple("logit stride", a.LogitStride, 1, int64(a.Experts))
	c.multiple("id stride", a.IDStride, 1, int64(a.Top))
	c.multiple("weight stride", a.WeightStride, 1, int64(a.Top))
	c.flag("normalize", a.Normalize)
	c.flag("root", a.Root)
	c.count("rows", a.Rows)
}
