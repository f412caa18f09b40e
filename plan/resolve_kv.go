package plan

import "fmt"

// ParseKV reads the type of a cache: the type of its elements, and the layout of its rows if the word names one. An
// empty word, or auto, sets no type.
func ParseKV(word string) (kv DType, rows Layout, ok bool) {
	switch fold(word) {
	case "", "auto":
		return DTypeUnset, LayoutNone, true
	case "bf16", "bfloat16":
		return BF16, LayoutNone, true
	case "fp8", "fp8-e4m3", "e4m3":
		return FP8E4M3, LayoutNone, true
	case "f32", "fp32", "float32", "exact":
		return F32, LayoutNone, true
	}
	if rows.UnmarshalText([]byte(word)) != nil || !(dsaLayouts | v4Layouts | v41Layouts | nopeLayouts).Has(rows) {
		return DTypeUnset, LayoutNone, false
	}
	return kvOf(rows), rows, true
}

// DefaultKV adds the reason for a type that the user did not choose.
func (n *Notes) DefaultKV(kv DType, hw *Hardware, m *Model) {
	why := "is the default of " + hw.Arch.String()
	if m.V4() {
		why = "is the type of " + m.Family.String()
	}
	n.Because("dispatch 16", "kv type %s %s", kv, why)
}

// kvType sets the element type of the cache (dispatch 16).
func (r *resolver) kvType() error {
	var ok bool
	if r.kv, r.wish, ok = ParseKV(r.policy.KV); !ok {
		return r.badKV(fmt.Sprintf("kv type %q", r.policy.KV))
	}
	if r.kv == DTypeUnset {
		if r.kv = BF16; r.model.V4() {
			r.kv = FP8E4M3
		}
		r.DefaultKV(r.kv, r.hw, r.model)
	} else if r.policy.KVWhy != "" {
		r.Because("dispatch 16", "kv type %s: %s", r.kv, r.policy.KVWhy)
	}
	switch {
	case r.kv == F32 && r.hw.Arch != CPU:
		return r.badKV(fmt.Sprintf("kv type f32 on %s", r.hw.Arch))
	case r.model.V4() && r.kv == BF16:
		return r.badKV(fmt.Sprintf("kv type %s for %s", r.kv, r.model.Family))
	case !r.model.Stores(r.wish):
		return r.badKV(fmt.Sprintf("layout %s for %s", r.wish, r.model.Family))
	case r.policy.ExactIndex && r.hw.Arch != CPU:
		return &Error{Code: E05, Asked: fmt.Sprintf("float32 indexer keys for %s on %s", r.model.Family, r.hw.Arch),
			Supported: "float32 indexer keys of the sparrow catalogue on cpu", Try: "--hw cpu"}
	}
	r.cfg.KV = r.kv
	return r.fp4Index()
}

// fp4Index checks the setting for indexer keys of four bits.
func (r *resolver) fp4Index() error {
	if !r.policy.FP4Index {
		return nil
	}
	bad := func(asked, supported, try string) error {
		return &Error{Code: E05, Asked: "four-bit indexer keys " + asked, Supported: supported, Try: try}
	}
	switch {
	case !r.model.V4() || r.model.V41():
		return bad("for "+r.model.Family.String(),
			"four-bit keys of "+DeepSeekV4.String()+", whose indexer was trained with them", "8-bit keys")
	case r.hw.Arch != CPU:
		return bad("on "+r.hw.Arch.String(), "four-bit keys of the sparrow catalogue on cpu", "--hw cpu")
	case r.policy.ExactIndex || r.kv == F32:
		return bad("that are float32 as well", "one type of indexer keys", "four-bit keys beside fp8 entries")
	}
	return nil
}

func (r *resolver) badKV(asked string) error {
	e := &Error{Code: E05, Asked: asked, Supported: "bf16, fp8 (fp8-656), fp8-576", Try: "--kv bf16"}
	if r.model.V4() {
		e.Supported, e.Try = "fp8 (layout v4-584)", "--kv fp8"
	}
	if r.model.V41() {
		e.Supported, e.Try = "fp8 (layout v41-288)", "--kv fp8"
	}
	if r.model.Pooled() {
		e.Supported = "bf16 (layout bf16-1024), fp8 (fp8-528)"
	}
	switch {
	case r.hw.Arch == CPU:
		e.Supported += ", f32"
	case r.kv == F32:
		e.Supported += "; f32 only on cpu"
	}
	return e
}
