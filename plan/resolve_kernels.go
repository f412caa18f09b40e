package plan

import (
	"fmt"
	"strings"
)

// kvType settles the element type of the cache (dispatch 16).
func (r *resolver) kvType() error {
	word := fold(r.policy.KV)
	switch word {
	case "", "auto":
		r.kv = r.defaultKV()
		why := "is the default of " + r.hw.Arch.String()
		if r.model.v4() {
			why = "is the only type of " + r.model.Family.String()
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
		if l.UnmarshalText([]byte(word)) != nil || !(dsaLayouts | layoutsOf(V4Row584)).has(l) {
			return r.badKV(fmt.Sprintf("kv type %q", r.policy.KV))
		}
		r.kv, r.wish = kvOf(l), l
	}
	switch {
	case r.kv == F32 && (r.policy.Catalog == CatalogPublic || r.hw.Arch != CPU):
		return r.badKV(fmt.Sprintf("kv type f32 on %s, which only the sparrow catalogue on cpu offers", r.hw.Arch))
	case r.model.v4() && r.kv != FP8E4M3:
		return r.badKV(fmt.Sprintf("kv type %s for %s", r.kv, r.model.Family))
	case r.wish != LayoutNone && !r.model.layouts().has(r.wish):
		return r.badKV(fmt.Sprintf("layout %s for %s", r.wish, r.model.Family))
	}
	r.cfg.KV = r.kv
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
	case r.model.v4():
		e.Supported, e.Try = "fp8 (layout v4-584)", "--kv fp8"
	case r.policy.Catalog == CatalogSparrow && r.hw.Arch == CPU:
		e.Supported = "bf16, fp8 (fp8-656), fp8-576, f32"
	case r.policy.Catalog == CatalogSparrow:
		e.Supported = "bf16, fp8 (fp8-656), fp8-576"
	}
	return e
}

// kernels settles the pair and the stored layout (dispatch 9 and 16): explicit
// choices are kept, open sides take the first candidate that makes a legal
// pair, and the pair as a whole is checked.
func (r *resolver) kernels() error {
	prefill, err := r.parseKernel(PhasePrefill, r.policy.Prefill)
	if err != nil {
		return err
	}
	decode, err := r.parseKernel(PhaseDecode, r.policy.Decode)
	if err != nil {
		return err
	}
	// A reference on one side is a request for proof: the open side follows.
	if prefill == Reference && decode == KernelNone {
		decode = Reference
	}
	if decode == Reference && prefill == KernelNone {
		prefill = Reference
	}
	r.cfg.Prefill, r.cfg.Decode = prefill, decode
	for _, side := range []struct {
		phase  Phase
		kernel Kernel
	}{{PhasePrefill, prefill}, {PhaseDecode, decode}} {
		if side.kernel == KernelNone {
			continue
		}
		if against := r.against(side.kernel, side.phase); len(against) > 0 {
			return r.refuse(side.kernel, side.phase, against)
		}
		r.reason("dispatch 16", "%s %s: asked for", side.phase, side.kernel)
	}
	return r.choosePair()
}

func (r *resolver) against(k Kernel, p Phase) []objection {
	return r.cat.entry(k).against(&demand{hw: r.hw, model: r.model, policy: r.policy, kv: r.kv, phase: p})
}

// choosePair fills the open sides.
func (r *resolver) choosePair() error {
	prefill, decode := r.cfg.Prefill, r.cfg.Decode
	if prefill != KernelNone && decode != KernelNone {
		layout, err := r.pairLayout(pair{prefill, decode})
		if err != nil {
			return err
		}
		return r.settle(pair{prefill, decode}, layout)
	}
	var refusal error
	for _, p := range r.cat.pairs(r) {
		open := p
		if prefill != KernelNone {
			open.prefill = prefill
		}
		if decode != KernelNone {
			open.decode = decode
		}
		layout, err := r.tryPair(open)
		if err == nil {
			if prefill == KernelNone {
				r.reason("dispatch 16", "prefill %s: first candidate that fits %s and %s", open.prefill, r.hw.Arch, r.kv)
			}
			if decode == KernelNone {
				r.reason("dispatch 16", "decode %s: first candidate that fits %s and %s", open.decode, r.hw.Arch, r.kv)
			}
			return r.settle(open, layout)
		}
		// An architecture that fits nowhere says less than any other refusal.
		if refusal == nil || isArch(refusal) && !isArch(err) {
			refusal = err
		}
	}
	if isArch(refusal) {
		return r.nothingFits()
	}
	return refusal
}

func isArch(err error) bool {
	e, ok := err.(*Error)
	return ok && e.Code == E02
}

func (r *resolver) tryPair(p pair) (Layout, error) {
	if against := r.against(p.prefill, PhasePrefill); len(against) > 0 {
		return LayoutNone, r.refuse(p.prefill, PhasePrefill, against)
	}
	if against := r.against(p.decode, PhaseDecode); len(against) > 0 {
		return LayoutNone, r.refuse(p.decode, PhaseDecode, against)
	}
	return r.pairLayout(p)
}

// pairLayout is the layout both kernels can serve: the decode kernel reads it
// in place, the prefill kernel in place if possible, else by conversion.
func (r *resolver) pairLayout(p pair) (Layout, error) {
	pe, de := r.cat.entry(p.prefill), r.cat.entry(p.decode)
	usable := r.model.layouts() & de.reads & pe.readable(PhasePrefill)
	if r.wish != LayoutNone {
		if usable.has(r.wish) {
			return r.wish, nil
		}
		return LayoutNone, r.layoutClash(p, fmt.Sprintf(", over layout %s", r.wish))
	}
	if l := (usable & pe.reads).first(r.kv); l != LayoutNone {
		return l, nil
	}
	if l := usable.first(r.kv); l != LayoutNone {
		return l, nil
	}
	return LayoutNone, r.layoutClash(p, "")
}

func (r *resolver) layoutClash(p pair, over string) error {
	describe := func(k Kernel, phase Phase) string {
		var names []string
		set := r.cat.entry(k).readable(phase) & r.model.layouts()
		for l := BF16Row1152; l <= V4Row584; l++ {
			if set.has(l) && kvOf(l) == r.kv {
				names = append(names, l.String())
			}
		}
		return strings.Join(names, " or ")
	}
	e := &Error{Code: E04, Asked: fmt.Sprintf("prefill %s (reads %s) with decode %s (reads %s)%s",
		p.prefill, describe(p.prefill, PhasePrefill), p.decode, describe(p.decode, PhaseDecode), over)}
	legal := r.legalPairs(2, p)
	texts := make([]string, len(legal))
	for i, q := range legal {
		texts[i] = fmt.Sprintf("--prefill %s --decode %s", q.prefill, q.decode)
	}
	e.Supported = strings.Join(texts, "; ")
	if len(texts) > 0 {
		e.Try = r.kvFlag() + texts[0]
	}
	return e
}

// legalPairs lists up to n pairs that work here, those sharing a side with the
// refused pair first.
func (r *resolver) legalPairs(n int, refused pair) []pair {
	var near, far []pair
	for i := range r.cat.entries {
		for j := range r.cat.entries {
			p := pair{r.cat.entries[i].kernel, r.cat.entries[j].kernel}
			if p.prefill == Reference || p.decode == Reference || !r.legal(p) {
				continue
			}
			if p.decode == refused.decode || p.prefill == refused.prefill {
				near = append(near, p)
			} else {
				far = append(far, p)
			}
		}
	}
	all := append(near, far...)
	return all[:min(n, len(all))]
}

func (r *resolver) legal(p pair) bool {
	if len(r.against(p.prefill, PhasePrefill)) > 0 || len(r.against(p.decode, PhaseDecode)) > 0 {
		return false
	}
	usable := r.model.layouts() & r.cat.entry(p.decode).reads & r.cat.entry(p.prefill).readable(PhasePrefill)
	if r.wish != LayoutNone {
		return usable.has(r.wish)
	}
	return usable.first(r.kv) != LayoutNone
}

// kvFlag repeats an explicit KV wish, so that a suggestion is a whole command.
func (r *resolver) kvFlag() string {
	switch {
	case r.wish != LayoutNone:
		return "--kv " + r.wish.String() + " "
	case r.policy.KV == "":
		return ""
	case r.kv == FP8E4M3:
		return "--kv fp8 "
	}
	return "--kv " + r.kv.String() + " "
}

// settle writes the pair, its layout and everything that was turned down.
func (r *resolver) settle(p pair, l Layout) error {
	r.cfg.Prefill, r.cfg.Decode, r.cfg.Layout = p.prefill, p.decode, l
	r.cfg.IndexLayout = IndexPage132
	if r.kv == F32 {
		r.cfg.IndexLayout = IndexF32Row512
	}
	r.reason("dispatch 9", "layout %s: decode %s reads it in place", l, p.decode)
	pe := r.cat.entry(p.prefill)
	switch {
	case pe.reads.has(l):
	case pe.rewrites.has(l):
		r.reason("dispatch 9", "prefill %s rewrites the pages a batch refers to from %s to %s", p.prefill, l, FP8Row656)
	case pe.gathers.has(l):
		r.reason("dispatch 9", "prefill %s gathers rows of %s", p.prefill, l)
	}
	r.cfg.Rejected = r.rejections(p)
	return nil
}

// rejections explains, for every other kernel of the catalogue and each phase,
// why it was not taken.
func (r *resolver) rejections(chosen pair) []Rejection {
	var list []Rejection
	for _, phase := range []Phase{PhasePrefill, PhaseDecode} {
		taken, asked := chosen.prefill, r.policy.Prefill
		if phase == PhaseDecode {
			taken, asked = chosen.decode, r.policy.Decode
		}
		for i := range r.cat.entries {
			e := &r.cat.entries[i]
			if e.kernel == taken || (!e.prefill && !e.decode) {
				continue
			}
			rej := Rejection{Kernel: e.kernel, Phase: phase}
			against := r.against(e.kernel, phase)
			switch {
			case len(against) > 0:
				rej.Code, rej.Reason = against[0].code, joinObjections(against)
			case !e.readable(phase).has(r.cfg.Layout):
				rej.Code, rej.Reason = E04, fmt.Sprintf("it cannot read the layout %s in %s", r.cfg.Layout, phase)
			case e.kernel == Reference:
				rej.Reason = "only on request"
			case asked != "":
				rej.Reason = fmt.Sprintf("fits, but %s was asked for", taken)
			default:
				rej.Reason = fmt.Sprintf("fits, but %s comes first", taken)
			}
			list = append(list, rej)
		}
	}
	return list
}

// refuse turns objections to one kernel into an Error with a working
// alternative.
func (r *resolver) refuse(k Kernel, p Phase, against []objection) error {
	e := &Error{Code: against[0].code, Asked: fmt.Sprintf("%s %s on %s with kv %s, but %s", p, k, r.hw.Arch, r.kv, joinObjections(against))}
	fits := r.fitting(p)
	e.Supported = strings.Join(fits, ", ")
	if len(fits) == 0 {
		e.Supported = fmt.Sprintf("no kernel but reference serves this %s", p)
	}
	e.Try = r.nearest(k, p)
	return e
}

func (r *resolver) fitting(p Phase) []string {
	var names []string
	for i := range r.cat.entries {
		e := &r.cat.entries[i]
		if e.kernel != Reference && len(r.against(e.kernel, p)) == 0 {
			names = append(names, e.kernel.String())
		}
	}
	return names
}

// nearest is a complete set of flags that works: the refused kernel with the
// KV type it reads, else the first legal pair, else the reference.
func (r *resolver) nearest(k Kernel, p Phase) string {
	refused := pair{prefill: k}
	if p == PhaseDecode {
		refused = pair{decode: k}
	}
	for _, kv := range []DType{r.kv, FP8E4M3, BF16} {
		alt := *r
		alt.kv = kv
		if kv != r.kv {
			alt.wish = LayoutNone
		}
		legal := alt.legalPairs(1, refused)
		if len(legal) == 0 {
			continue
		}
		name := kv.String()
		switch {
		case alt.wish != LayoutNone:
			name = alt.wish.String()
		case kv == FP8E4M3:
			name = "fp8"
		}
		return fmt.Sprintf("--kv %s --prefill %s --decode %s", name, legal[0].prefill, legal[0].decode)
	}
	if r.cat.entry(Reference).archs.has(r.hw.Arch) {
		return "--prefill reference --decode reference"
	}
	return "--hw cpu"
}

// nothingFits lists every kernel with its reason.
func (r *resolver) nothingFits() error {
	e := &Error{Code: E01, Asked: fmt.Sprintf("%s on %s with kv %s", r.model.Family, r.hw.Arch, r.kvName())}
	var tried []string
	for i := range r.cat.entries {
		k := &r.cat.entries[i]
		if !k.prefill && !k.decode || k.kernel == Reference && k.archs.has(r.hw.Arch) {
			continue
		}
		phase := PhasePrefill
		if !k.prefill {
			phase = PhaseDecode
		}
		against := r.against(k.kernel, phase)
		if len(against) == 0 {
			continue
		}
		e.Tried = append(e.Tried, Rejection{k.kernel, phase, against[0].code, joinObjections(against)})
		tried = append(tried, fmt.Sprintf("%s (%s)", k.kernel, joinObjections(against)))
	}
	e.Supported = "none of the kernels tried: " + strings.Join(tried, ", ")
	e.Try = "--hw cpu or --hw sm90"
	if r.policy.Catalog == CatalogPublic {
		e.Try = "--prefill reference --decode reference"
	}
	return e
}

func (r *resolver) kvName() string {
	if r.kv == DTypeUnset {
		return "auto"
	}
	return r.kv.String()
}

// parseKernel reads a kernel name: of this catalogue, an alias, or with the
// prefix of an older naming.
func (r *resolver) parseKernel(p Phase, word string) (Kernel, error) {
	if strings.TrimSpace(word) == "" {
		return KernelNone, nil
	}
	name := fold(word)
	if rest, old := strings.CutPrefix(name, "nsa-"); old {
		name = rest
		r.notice(NoticeDeprecated, "dispatch 16", "%s %q is an old name; write %q", p, word, strings.ReplaceAll(rest, "-", "_"))
	}
	if k, ok := r.cat.aliases[name]; ok {
		r.notice(NoticeInfo, "dispatch 16", "%s %q is %s in the catalogue %s", p, word, k, r.policy.Catalog)
		return k, nil
	}
	k, known := kernels.find(name)
	if known && r.cat.entry(k) != nil {
		return k, nil
	}
	e := &Error{Code: E02, Asked: fmt.Sprintf("%s kernel %q, which the catalogue %s does not have", p, word, r.policy.Catalog), Supported: r.cat.names(p)}
	if near, ok := r.cat.foreign[k]; known && ok {
		e.Try = fmt.Sprintf("--%s %s", p, near)
	}
	return KernelNone, e
}
