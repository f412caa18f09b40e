package plan

import "fmt"

// kvType settles the element type of the cache (dispatch 16).
func (r *resolver) kvType() error {
	word := fold(r.policy.KV)
	switch word {
	case "", "auto":
		r.kv = r.defaultKV()
		why := "is the default of " + r.hw.Arch.String()
		if r.model.v4() {
			why = "is the type of " + r.model.Family.String()
		}
		r.reason("dispatch 16", "kv type %s %s", r.kv, why)
	case "bf16", "bfloat16":
		r.kv = BF16
	case "fp8", "fp8-e4m3", "e4m3":
		r.kv = FP8E4M3
	case "f32", "fp32", "float32", "exact":
		r.kv = F32
	default:
		var l Layout
		if l.UnmarshalText([]byte(word)) != nil || !(dsaLayouts | v4Layouts).has(l) {
			return r.badKV(fmt.Sprintf("kv type %q", r.policy.KV))
		}
		r.kv, r.wish = kvOf(l), l
	}
	switch {
	case r.kv == F32 && (r.policy.Catalog == CatalogPublic || r.hw.Arch != CPU):
		return r.badKV(fmt.Sprintf("kv type f32 on %s, which only the sparrow catalogue on cpu offers", r.hw.Arch))
	case r.model.v4() && r.kv == BF16:
		return r.badKV(fmt.Sprintf("kv type %s for %s", r.kv, r.model.Family))
	case r.wish != LayoutNone && !r.model.layouts().has(r.wish):
		return r.badKV(fmt.Sprintf("layout %s for %s", r.wish, r.model.Family))
	}
	if r.policy.ExactIndex && (r.policy.Catalog == CatalogPublic || r.hw.Arch != CPU) {
		return &Error{Code: E05, Asked: fmt.Sprintf("float32 indexer keys for %s on %s", r.model.Family, r.hw.Arch),
			Supported: "float32 indexer keys of the sparrow catalogue on cpu", Try: "--hw cpu"}
	}
	r.cfg.KV = r.kv
	return r.fp4Index()
}

// fp4Index checks the wish for indexer keys of four bits.
func (r *resolver) fp4Index() error {
	if !r.policy.FP4Index {
		return nil
	}
	bad := func(asked, supported, try string) error {
		return &Error{Code: E05, Asked: "four-bit indexer keys " + asked, Supported: supported, Try: try}
	}
	switch {
	case !r.model.v4():
		return bad("for "+r.model.Family.String(),
			"four-bit keys of "+DeepSeekV4.String()+", whose indexer was trained with them", "8-bit keys")
	case r.policy.Catalog == CatalogPublic || r.hw.Arch != CPU:
		return bad("on "+r.hw.Arch.String(), "four-bit keys of the sparrow catalogue on cpu", "--hw cpu")
	case r.policy.ExactIndex || r.kv == F32:
		return bad("that are float32 as well", "one type of indexer keys", "four-bit keys beside fp8 entries")
	}
	return nil
}

func (r *resolver) defaultKV() DType {
	if r.model.v4() {
		return FP8E4M3
	}
	if r.policy.Catalog == CatalogPublic && r.hw.Arch.major() >= 10 {
		return FP8E4M3
	}
	return BF16
}

func (r *resolver) badKV(asked string) error {
	e := &Error{Code: E05, Asked: asked, Supported: "bf16, fp8 (e4m3)", Try: "--kv bf16"}
	switch {
	case r.model.v4() && r.policy.Catalog == CatalogSparrow && r.hw.Arch == CPU:
		e.Supported, e.Try = "fp8 (layout v4-584), f32", "--kv fp8"
	case r.model.v4():
		e.Supported, e.Try = "fp8 (layout v4-584)", "--kv fp8"
	case r.policy.Catalog == CatalogSparrow && r.hw.Arch == CPU:
		e.Supported = "bf16, fp8 (fp8-656), fp8-576, f32"
	case r.policy.Catalog == CatalogSparrow:
		e.Supported = "bf16, fp8 (fp8-656), fp8-576"
	}
	return e
}
